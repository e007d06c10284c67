"""The base of HTTP handlers: what happens around the functions that a handler is made of.

It sends requests, each at most once, says what a failure proves, brings credentials in at the last moment,
and keeps secrets out of what it raises.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import httpx
from attrs import evolve

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    LeaseLost,
    QueryFailed,
    SubmitDeferred,
)
from coatcheck.handler import CallContext, CancelContext, Capability, QueryContext, SubmitContext
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import CancelOutcome, QueryParams
from coatcheck_http.accounts import Accounts, find_account, secrets_of
from coatcheck_http.adapter import HttpAdapter, PreparedContext
from coatcheck_http.classify import MENDABLE, RATE, ErrorClass, ProviderError
from coatcheck_http.download import REDIRECTS, Download, Downloader, hop
from coatcheck_http.errors import DownloadFailed, NotSent, OutcomeUnknown, UntrustedUrl
from coatcheck_http.judging import Verdicts
from coatcheck_http.messages import HttpRequest, HttpResponse
from coatcheck_http.redaction import redact, redact_error
from coatcheck_http.saving import SavedFile, save
from coatcheck_http.settings import HttpSettings
from coatcheck_http.urls import shown
from coatcheck_http.wire import Wire

__all__ = ["HttpHandler"]

logger = logging.getLogger("coatcheck.http")
ALARM_EVERY_SECONDS = 60.0
P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - named as in `Handler`
R = TypeVar("R", SubmitResult, QueryResult)


def _not_yet() -> None:
    """Do nothing: the request creates no job, so the wire does not begin with it."""


class HttpHandler(HttpAdapter[P]):
    """A handler over HTTP. Subclasses give `build_submit`, `parse_submit`, `build_query` and `parse_query`.

    These four are pure: no I/O, no clock, no credentials. What needs I/O goes into `prepare`, before the
    creating request, and `fetch_result`, after a query that says done. One `submit` puts one creating request
    on the wire, or none, and one `query` one query. `HttpAdapter` has what can be overridden and used.
    """

    marks_wire = True

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings, as `HttpAdapter` does."""
        super().__init__(accounts, key=key, settings=settings)
        self._wire = Wire(self.settings)
        self._downloader = Downloader(self.settings)
        self._alarms: dict[tuple[str | None, ErrorClass], float] = {}

    async def download(self, url: str, *, limit_bytes: int | None = None) -> Download:
        """Fetch a document or a result without credentials; see `Downloader.fetch` for what it raises."""
        return await self._downloader.fetch(url, limit_bytes=limit_bytes)

    async def save(
        self, request: HttpRequest | str, path: Path, context: CallContext, *, limit_bytes: int | None = None
    ) -> SavedFile:
        """Stream a file to `path`, going on where an earlier call broke off; see `Downloader.save`.

        A URL is fetched without credentials. A request gets them; a redirect of its answer is followed without.

        Raises:
            UntrustedUrl: the request's URL must not see the credentials.
            DownloadFailed: it cannot be had; `final` tells whether trying again is of no use.
            OSError: it cannot be written.
        """
        if isinstance(request, str):
            return await self._downloader.save(request, path, limit_bytes=limit_bytes)
        bare = await self.authenticate(
            self._placed(request).with_headers(accept_encoding="identity"), context
        )

        async def ask(headers: Mapping[str, str]) -> httpx.Response:
            response = await self._wire.send(evolve(bare, headers={**bare.headers, **headers}))
            location = response.headers.get("location")
            if response.status_code not in REDIRECTS or location is None:
                return response
            await response.aclose()
            return await self._downloader.open_url(hop(bare.url, location), headers)

        return await save(
            ask,
            path,
            shown=shown(bare.url),
            limit_bytes=limit_bytes or self.settings.max_download_bytes,
            seconds=self.settings.exchange_timeout.total_seconds(),
        )

    async def ask(self, request: HttpRequest, context: CallContext) -> HttpResponse:
        """Send a request that creates nothing, once, with credentials; return the answer whatever its status.

        For the second fetch of a result, or to find a submission.

        Raises:
            UntrustedUrl: the URL must not see the credentials.
            NotSent: nothing was sent.
            AnswerLost: no complete answer came.
            UnreadableAnswer: the answer is too large or cannot be unpacked.
        """
        return await self._exchange(request, context, creating=False)

    def unanswered(
        self, response: HttpResponse, context: CallContext, what: str = "the result cannot be had"
    ) -> QueryFailed:
        """Return what to raise for an error that answered an `ask`: the query counts as failed, and is asked again."""
        error = self.error_of(response)
        found = self.classify(error.code, error.status, error.message)
        code = f" {error.code}" if error.code else ""
        return QueryFailed(
            f"{what}: HTTP {error.status}{code} ({found}): {error.message}",
            code=error.code or str(found),
            retry_after=self.retry_after(response, context),
            rate_limited=found in RATE,
        )

    async def request_token(self, request: HttpRequest) -> HttpResponse:
        """Send a request that brings its own credentials, once, to mint others; return the answer whatever its status.

        For `authenticate`, through a `TokenCache`. A path is one below the base URL; an absolute URL must be of
        https, or of a trusted origin.

        Raises:
            UntrustedUrl: the URL is of another origin and in the clear.
            NotSent: nothing was sent.
            AnswerLost: no complete answer came.
            UnreadableAnswer: the answer is too large or cannot be unpacked.
        """
        url = f"{self.base_url}{request.url}" if request.url.startswith("/") else request.url
        if not url.lower().startswith("https:") and not self.trusts(url):
            message = (
                f"{shown(url)} would get credentials in the clear; use https, or name it in trusted_origins"
            )
            raise UntrustedUrl(message, code="untrusted_url")
        return await self._wire.exchange(
            evolve(request, url=url).encoded(), creating=False, ensure_held=_not_yet
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """As for all handlers; cancel is there if `build_cancel` or `cancel` is overridden."""
        kind = type(self)
        lacks = kind.cancel is HttpHandler.cancel and kind.build_cancel is HttpHandler.build_cancel
        return super().capabilities - ({Capability.CANCEL} if lacks else frozenset())

    async def open(self) -> None:
        """Get connections ready; connects to nothing."""
        self._wire.open()
        self._downloader.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()
        await self._downloader.close()

    async def submit(self, params: P, context: SubmitContext) -> SubmitResult:
        """Prepare, build, and send one creating request; see `Handler.submit`.

        Raises:
            InvalidParams: before the wire: no request can be made of these params.
            UnknownAccount: before the wire.
            SubmitRejected: the provider answered: not created, final.
            SubmitDeferred: certainly not created; also where nothing was sent.
            HandlerError: any other one, as `AnswerLost` or `OutcomeUnknown`: nobody can tell.
        """
        with self.without_secrets(context):
            return await self._submit(params, context)

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Build and send one query, and complete its result; see `Handler.query`.

        Raises:
            QueryFailed: the question was not answered.
        """
        with self.without_secrets(context):
            try:
                return await self._query(params, context)
            except (QueryFailed, LeaseLost, ConfigurationError, InvalidParams):
                raise
            except HandlerError as error:
                raise QueryFailed(str(error), code=error.code, retry_after=error.retry_after) from error

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Send one request that cancels, and tell what came of it; UNKNOWN if no answer came."""
        with self.without_secrets(context):
            request = self.build_cancel(params, context)
            try:
                response = await self.ask(request, context)
            except HandlerError as error:
                logger.warning(
                    "%s: cancel of %r: %s",
                    self.key,
                    params.external_task_id,
                    self._clean(str(error), context),
                )
                return CancelOutcome.UNKNOWN
            return self.parse_cancel(response, params, context)

    async def _submit(self, params: P, context: SubmitContext) -> SubmitResult:
        try:
            prepared = await self.prepare(params, evolve(context, ensure_held=_not_yet))
            ready = PreparedContext.of(context, prepared)
            request = self.build_submit(params, ready)
            response = await self._exchange(request, context, creating=True)
        except DownloadFailed as error:
            if error.final:
                message = f"the document cannot be used: {error}"
                raise InvalidParams(message) from error
            message = f"the document cannot be fetched now: {error}"
            raise SubmitDeferred(message, code=error.code, blames_provider=False) from error
        except (NotSent, UntrustedUrl) as error:
            raise SubmitDeferred(str(error), code=error.code) from error
        return self._read_submit(response, params, ready)

    def _read_submit(self, response: HttpResponse, params: P, context: PreparedContext) -> SubmitResult:
        """Read the answer to a creating request. From here on, only what it proves is certain."""
        hint = self.retry_after(response, context)
        try:
            error = self.read_error(response)
            answer = (
                self.parse_submit(response, params, context)
                if error is None
                else self._verdicts.of_submit(error, hint, mended=self._mended(error, context))
            )
        except HandlerError:
            raise
        except Exception as error:
            text = f"the answer (HTTP {response.status}) cannot be read: {type(error).__name__}: {error}"
            raise OutcomeUnknown(text, code="unreadable_answer") from error
        if isinstance(answer, HandlerError):
            raise answer
        return self._presented(answer, hint, context)

    async def _query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        response = await self._exchange(self.build_query(params, context), context, creating=False)
        hint = self.retry_after(response, context)
        error = self.read_error(response)
        if error is not None:
            verdict = self._verdicts.of_query(error, hint, mended=self._mended(error, context))
            if isinstance(verdict, QueryFailed):
                raise verdict
            return self._presented(verdict, hint, context)
        result = self.parse_query(response, params, context)
        if result.verdict is Verdict.SUCCEEDED:
            result = await self.fetch_result(result, context)
        return self._presented(result, hint, context)

    async def _exchange(self, request: HttpRequest, context: CallContext, *, creating: bool) -> HttpResponse:
        signed = await self.authenticate(self._placed(request), context)
        return await self._wire.exchange(signed, creating=creating, ensure_held=context.ensure_held)

    def _placed(self, request: HttpRequest) -> HttpRequest:
        """Return the request, encoded, with its whole URL, which may see the credentials."""
        url = request.url
        if url.startswith("/"):
            url = f"{self.base_url}{url}"
        elif not self.trusts(url):
            message = (
                f"{shown(url)} is not of the origin of {self.base_url}, so it must not see the credentials; "
                "if it is the provider's, name its origin in the setting trusted_origins"
            )
            raise UntrustedUrl(message, code="untrusted_url")
        return evolve(request, url=url).encoded()

    def _mended(self, error: ProviderError, context: CallContext) -> bool:
        """Whether refused credentials were dropped and others can be had; else alarm who can mend it."""
        found = self.classify(error.code, error.status, error.message)
        if found is ErrorClass.AUTH and self.credentials_refused(context):
            return True
        if found in MENDABLE and self._may_alarm(context.account_id, found):
            logger.error(
                "%s: the provider refuses account %r (%s): HTTP %d %s %s",
                self.key,
                context.account_id or "default",
                found,
                error.status,
                error.code or "",
                self._clean(error.message, context),
            )
        return False

    def _may_alarm(self, account_id: str | None, found: ErrorClass) -> bool:
        """Whether the last alarm of this kind is long enough ago: thousands of tasks may meet the same refusal."""
        last, now = self._alarms.get((account_id, found)), time.monotonic()
        if last is not None and now - last < ALARM_EVERY_SECONDS:
            return False
        self._alarms[account_id, found] = now
        return True

    @cached_property
    def _verdicts(self) -> Verdicts:
        return Verdicts(
            classify=self.classify,
            not_created_statuses=self.not_created_statuses,
            known_codes=self.error_codes.keys(),
            not_created_codes=self.not_created_codes,
        )

    def known_secrets(self, context: CallContext) -> tuple[str, ...]:
        """Return what must show in no error and no log: the account's secrets; override it to add what was minted."""
        with suppress(ConfigurationError):
            return tuple(secrets_of(find_account(self.key, self._accounts, context.account_id)))
        return ()

    def _clean(self, text: str, context: CallContext) -> str:
        return redact(text, self.known_secrets(context))

    def _presented(self, result: R, hint: timedelta | None, context: CallContext) -> R:
        """Return an answer with the provider's hint, unless it has its own, and no secrets in its message."""
        message, code = result.error_message, result.error_code
        if message is not None or code is not None:
            result = evolve(
                result,
                error_message=message and self._clean(message, context),
                error_code=code and self._clean(code, context),
            )
        return evolve(result, retry_after=hint) if result.retry_after is None and hint else result

    @contextmanager
    def without_secrets(self, context: CallContext) -> Iterator[None]:
        """Let nothing be raised that has the account's secrets in its message, or in that of a cause."""
        try:
            yield
        except Exception as error:
            redact_error(error, self.known_secrets(context))
            raise
