"""Mutants of accounts, secrets, keys, and the life of a handler."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import httpx
from attrs import field, frozen
from plain_handler import PlainHandler
from plain_models import Printing

from coatcheck.errors import InvalidParams, UnknownAccount
from coatcheck.handler import QueryContext, SubmitContext
from coatcheck.results import SubmitResult
from mutants.handlers import breaks_handler

logger = logging.getLogger(__name__)


@breaks_handler("HANDLER-ACCOUNT-1")
class SubmitsForUnknownAccounts(PlainHandler):
    """Uses the default account for one that it was not given."""

    def account(self, context):
        if isinstance(context, SubmitContext) and context.account_id not in {None, *self.accounts}:
            return self.accounts["default"]
        return super().account(context)


@breaks_handler("HANDLER-ACCOUNT-2")
class QueriesForUnknownAccounts(PlainHandler):
    """Uses the default account for one that it was not given."""

    def account(self, context):
        if isinstance(context, QueryContext) and context.account_id not in {None, *self.accounts}:
            return self.accounts["default"]
        return super().account(context)


@breaks_handler("HANDLER-ACCOUNT-3")
class TakesAnyAccountAsTheDefault(PlainHandler):
    """Uses whichever account there is where there is no default one."""

    def account(self, context):
        if context.account_id is None:
            return self.accounts.get("default") or next(iter(self.accounts.values()))
        return super().account(context)


@breaks_handler("HANDLER-ACCOUNT-4")
class UsesOneAccount(PlainHandler):
    """Looks the account up, and uses the default one."""

    def account(self, context):
        super().account(context)
        return self.accounts.get("default") or self.accounts["eu"]


@breaks_handler("HANDLER-SECRET-1")
class StoresItsKey(PlainHandler):
    """Puts the key into the query params."""

    async def submit(self, params, context):
        result = await super().submit(params, context)
        assert result.query_params is not None
        return SubmitResult(
            status=result.status,
            query_params=result.query_params.evolve(key=self.account(context).key.reveal()),
            retry_after=result.retry_after,
        )


@breaks_handler("HANDLER-SECRET-2")
class LogsItsKey(PlainHandler):
    """Logs the headers of its requests."""

    def credentials(self, context):
        headers = super().credentials(context)
        logger.debug("sending %s", headers)
        return headers


@breaks_handler("HANDLER-SECRET-3")
class RepeatsWhatTheProviderSays(PlainHandler):
    """Puts the provider's words into errors as they are."""

    def told(self, answer, context):
        return answer.body.decode("utf-8", "replace")


@breaks_handler("HANDLER-SECRET-4")
class ShowsItsKey(PlainHandler):
    """Has the keys in its representation."""

    def __repr__(self):
        return f"ShowsItsKey({[each.key.reveal() for each in self.accounts.values()]})"


@breaks_handler("HANDLER-SECRET-5")
class FetchesDocumentsWithItsKey(PlainHandler):
    """Sends the credentials to the document's host."""

    def for_documents(self, context):
        return self.credentials(context)


@breaks_handler("HANDLER-SECRET-6")
class FetchesResultsWithItsKey(PlainHandler):
    """Sends the credentials wherever a link in an answer leads."""

    async def fetch(self, link, context):
        return (await self.exchange("GET", link, headers=self.credentials(context))).body


@breaks_handler("HANDLER-SECRET-7")
class FollowsRedirectsOfQueriesWithItsKey(PlainHandler):
    """Sends the credentials wherever a redirect leads."""

    async def look(self, params, context):
        answer = await super().look(params, context)
        place = answer.headers.get("location", "")
        if place and not place.startswith(self.settings.base_url):
            await self.exchange("GET", place, headers=self.credentials(context))
        return answer


@breaks_handler("HANDLER-KEY-1")
class KeepsItsOwnKey(PlainHandler):
    """Ignores the key that it is given."""

    def __init__(self, *, key=None, accounts=None, settings):
        super().__init__(accounts=accounts, settings=settings)


class Otherwise:
    """Nobody submits this."""


@breaks_handler("HANDLER-KEY-2")
class TellsAnotherParamsType(PlainHandler):
    """Declares another type than that of its params."""

    params_type = Otherwise


@breaks_handler("HANDLER-OPEN-1")
class ReadsAFileInItsConstructor(PlainHandler):
    """Does I/O when it is made."""

    def __init__(self, **given):
        super().__init__(**given)
        self.certificate = Path(os.devnull).read_text("utf-8")


@breaks_handler("HANDLER-OPEN-2")
class NeedsCredentialsAtOnce(PlainHandler):
    """Cannot be made where tasks are only submitted."""

    def __init__(self, **given):
        super().__init__(**given)
        if not self.accounts:
            raise UnknownAccount("give me an account")


@breaks_handler("HANDLER-OPEN-3")
class CannotBeClosedTwice(PlainHandler):
    """Takes a second close, or one without an open, for a mistake."""

    async def close(self):
        assert self._client is not None
        await super().close()


@breaks_handler("HANDLER-OPEN-4")
class CannotBeOpenedTwice(PlainHandler):
    """Makes its client only once in its life."""

    opened = False

    async def open(self):
        if not self.opened:
            await super().open()
        self.opened = True


left_open: list[httpx.AsyncClient] = []


@breaks_handler("HANDLER-OPEN-5")
class LeavesConnectionsOpen(PlainHandler):
    """Drops its client without closing it."""

    async def close(self):
        if self._client is not None:
            left_open.append(self._client)
        self._client = None


def _as_url(value):
    return f"https://files.invalid{value}" if isinstance(value, Path) else value


@frozen(kw_only=True)
class Lenient(Printing):
    """Takes a path for a URL."""

    url: str = field(converter=_as_url)


@breaks_handler(
    "HANDLER-PARAMS-2", params=lambda url: Lenient(url=f"{url}/scan.pdf", options={"colour": True})
)
class TakesPaths(PlainHandler):
    """Takes a path for a URL, which no other machine can read."""

    params_type = Lenient


@breaks_handler("HANDLER-PARAMS-1")
class SubmitsWhatItHasValidatedOtherwise(PlainHandler):
    """Knows the very object that it has validated."""

    validated: Printing | None = None

    def validate(self, params):
        self.validated = params
        super().validate(params)

    async def create(self, params, document, context):
        path = "/jobs?validated" if params is self.validated else "/jobs"
        headers = {"idempotency-key": self.reference(context)}
        return await self.ask("POST", path, context, content=document, headers=headers)


@breaks_handler("HANDLER-PARAMS-3")
class TakesLocalPaths(PlainHandler):
    """Takes absolute paths."""

    def validate(self, params):
        if not params.url.startswith("/srv/"):
            super().validate(params)


@breaks_handler("HANDLER-PARAMS-4")
class TakesDataUrls(PlainHandler):
    """Takes bodies in place of URLs."""

    def validate(self, params):
        if not params.url.startswith("data:"):
            super().validate(params)


@breaks_handler("HANDLER-PARAMS-5")
class LooksOnlyAtTheSurface(PlainHandler):
    """Does not look into the options."""

    def refuse_nested(self, value):
        pass


@breaks_handler("HANDLER-PARAMS-6")
class RefusesWithoutAdvice(PlainHandler):
    """Does not say what to do instead."""

    def validate(self, params):
        try:
            super().validate(params)
        except InvalidParams:
            raise InvalidParams("bad params") from None
