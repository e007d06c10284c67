"""A handler written by hand over plain httpx, without coatcheck-http; it can do all that a handler can do.

Mutants are made of it: what they break stands in a method of its own.
"""

from __future__ import annotations

import hmac
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NoReturn

import httpx
from plain_models import Answer, PlainAccount, PlainSettings, Printing, signature

from coatcheck.errors import (
    CallbackRejected,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import (
    Callback,
    CallbackRequest,
    CallContext,
    CancelContext,
    Handler,
    QueryContext,
    SubmitContext,
    pick_account,
)
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, CancelOutcome, QueryParams

__all__ = ["PlainHandler"]

_HINT = "upload it and submit a URL"
_NO_REASON = re.compile(r"[A-Za-z0-9+/=\s]{1024,}")
_LONGEST = timedelta(hours=1)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class PlainHandler(Handler[Printing]):
    """Prints documents."""

    key = "print:plain"
    marks_wire = True
    idempotency_window = timedelta(hours=24)
    params_version = 2

    def __init__(
        self,
        *,
        key: str | None = None,
        accounts: Mapping[str, PlainAccount] | None = None,
        settings: PlainSettings,
    ) -> None:
        if key is not None:
            self.key = self.provider_key = key
        self.accounts = accounts or {}
        self.settings = settings
        self._client: httpx.AsyncClient | None = None

    # ------------------------------------------------------------------ params

    def validate(self, params: Printing) -> None:
        """Refuse what no other machine can read."""
        if not params.url.lower().startswith(("http://", "https://")) or _NO_REASON.fullmatch(params.url):
            message = f"url is no http or https URL; {_HINT}"
            raise InvalidParams(message)
        self.refuse_nested(params.options)

    def refuse_nested(self, value: JSON) -> None:
        """Refuse files and their bodies at any depth."""
        if isinstance(value, str):
            if value.lower().startswith(("file:", "data:")) or _NO_REASON.fullmatch(value):
                message = f"options hold a file; {_HINT}"
                raise InvalidParams(message)
        elif isinstance(value, Mapping):
            for each in value.values():
                self.refuse_nested(each)
        elif isinstance(value, Sequence):
            for each in value:
                self.refuse_nested(each)

    def upgrade_params(self, raw: JSON, version: int) -> JSON:
        """Rename what was called `link` in version 1."""
        if version == 1 and isinstance(raw, Mapping):
            return {"url": raw["link"], "title": "untitled", "options": {}}
        return raw

    def upgrade_query_params(self, params: QueryParams, version: int) -> QueryParams:
        """Add the region, of which version 1 knew only one."""
        return params.evolve(region="main") if version == 1 else params

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Make the client."""
        self._client = httpx.AsyncClient(
            timeout=self.settings.timeout.total_seconds(),
            trust_env=False,
            verify=_tls(),
        )

    async def close(self) -> None:
        """Close the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def account(self, context: CallContext) -> PlainAccount:
        """Return the account of a call."""
        return pick_account(self.key, self.accounts, context.account_id)

    # ------------------------------------------------------------------ the wire

    async def exchange(self, method: str, url: str, **request: Any) -> Answer:
        """Send one request and read its answer within the limit."""
        assert self._client is not None, "open the handler first"
        headers = {"accept-encoding": "identity", **request.pop("headers", {})}
        async with self._client.stream(method, url, headers=headers, **request) as response:
            body = await self.read(response)
            return Answer(status=response.status_code, headers=dict(response.headers), body=body)

    async def read(self, response: httpx.Response) -> bytes:
        """Read a body that is not packed, within the limit."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise HandlerError("the answer is packed, which was not asked for")
        body = b""
        async for each in response.aiter_raw():
            body += each
            if len(body) > self.settings.limit_bytes:
                message = f"the answer is larger than {self.settings.limit_bytes} bytes"
                raise HandlerError(message)
        return body

    async def ask(self, method: str, path: str, context: CallContext, **request: Any) -> Answer:
        """Send one request with credentials."""
        headers = {**self.credentials(context), **request.pop("headers", {})}
        return await self.exchange(method, f"{self.settings.base_url}{path}", headers=headers, **request)

    def credentials(self, context: CallContext) -> dict[str, str]:
        """Return the headers that carry the credentials."""
        return {"authorization": f"Bearer {self.account(context).key.reveal()}"}

    def told(self, answer: Answer, context: CallContext) -> str:
        """Return what an error says, without the key, which this provider likes to repeat."""
        text = f"HTTP {answer.status}: {answer.body[:500].decode('utf-8', 'replace')}"
        return text.replace(self.account(context).key.reveal(), "***")

    # ------------------------------------------------------------------ submit

    async def submit(self, params: Printing, context: SubmitContext) -> SubmitResult:
        """Fetch the document and upload it."""
        self.account(context)
        document = await self.prepare(params, context)
        context.ensure_held()
        try:
            answer = await self.create(params, document, context)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"nothing was sent: {error}"
            raise SubmitDeferred(message) from error
        if answer.status != 200:
            self.refused(answer, context)
        return self.accepted(answer, context)

    async def prepare(self, params: Printing, context: SubmitContext) -> bytes:
        """Fetch the document, without credentials."""
        answer = await self.exchange("GET", params.url, headers=self.for_documents(context))
        if answer.status != 200:
            message = f"the document cannot be had: HTTP {answer.status}"
            raise HandlerError(message)
        return answer.body

    def for_documents(self, context: SubmitContext) -> dict[str, str]:
        """Return the headers that go to the document's host."""
        return {}

    async def create(self, params: Printing, document: bytes, context: SubmitContext) -> Answer:
        """Send the creating request."""
        return await self.ask(
            "POST", "/jobs", context, content=document, headers={"idempotency-key": self.reference(context)}
        )

    def reference(self, context: SubmitContext) -> str:
        """Return by what the provider deduplicates and finds jobs."""
        return context.idempotency_key

    def accepted(self, answer: Answer, context: SubmitContext) -> SubmitResult:
        """Read the answer to a submission that was accepted."""
        job = answer.document.get("id")
        if not isinstance(job, str):
            raise HandlerError("the answer has no id")
        region = answer.document.get("region", "main")
        return SubmitResult.accepted(job, {"region": region}, retry_after=self.hint(answer, context))

    def refused(self, answer: Answer, context: SubmitContext) -> NoReturn:
        """Raise what an error answer to a submission means."""
        text, hint = self.told(answer, context), self.hint(answer, context)
        if answer.status == 429:
            raise SubmitDeferred(text, rate_limited=True, retry_after=hint)
        if answer.status in {401, 403}:
            raise SubmitDeferred(text, retry_after=hint)
        if 400 <= answer.status < 500 and answer.status != 408:
            raise SubmitRejected(text)
        raise HandlerError(text)

    def hint(self, answer: Answer, context: CallContext) -> timedelta | None:
        """Return how long the provider asks to wait."""
        text = answer.headers.get("retry-after", "")
        wait: timedelta | None = None
        if text.isascii() and text.isdecimal():
            wait = timedelta(seconds=min(int(text), _LONGEST.total_seconds()))
        else:
            wait = self.until(text, context.now)
        return None if wait is None else max(timedelta(), min(wait, _LONGEST))

    def until(self, text: str, now: datetime) -> timedelta | None:
        """Return the time until an HTTP date, or None if it is none."""
        try:
            return parsedate_to_datetime(text) - now
        except (ValueError, TypeError, OverflowError):
            return None

    # ------------------------------------------------------------------ query

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Ask for the job."""
        answer = await self.look(params, context)
        if answer.status == 404:
            return QueryResult.not_found()
        if answer.status != 200:
            self.unanswered(answer, context)
        return await self.judged(answer.document, answer, params, context)

    async def look(self, params: QueryParams, context: QueryContext) -> Answer:
        """Send the query."""
        region = params.read("region", str)
        return await self.ask("GET", f"/jobs/{params.external_task_id}", context, params={"region": region})

    def unanswered(self, answer: Answer, context: CallContext) -> NoReturn:
        """Raise what an error answer to a query means."""
        raise QueryFailed(
            self.told(answer, context),
            rate_limited=answer.status == 429,
            retry_after=self.hint(answer, context),
        )

    async def judged(
        self, document: Mapping[str, Any], answer: Answer, params: QueryParams, context: QueryContext
    ) -> QueryResult:
        """Return what a job's document says."""
        word = document.get("state")
        hint = self.hint(answer, context)
        match word:
            case "queued":
                return QueryResult.waiting(provider_status=word, retry_after=hint)
            case "printing":
                return QueryResult.running(provider_status=word, retry_after=hint)
            case "printed":
                return await self.done(document, context)
            case "jammed":
                return QueryResult.failed("jam", "the press has jammed", provider_status=word)
            case "stopped":
                return QueryResult.canceled(provider_status=word)
            case str():
                return QueryResult.unlisted(word)
            case _:
                raise QueryFailed("the answer has no state")

    async def done(self, document: Mapping[str, Any], context: QueryContext) -> QueryResult:
        """Return the result, which is behind a link."""
        link = document.get("link")
        if not link:
            return QueryResult.incomplete(provider_status="printed")
        result = await self.fetch(link, context)
        return QueryResult.succeeded({"text": result.decode()}, provider_status="printed")

    async def fetch(self, link: str, context: QueryContext) -> bytes:
        """Fetch a result, without credentials."""
        return (await self.exchange("GET", link)).body

    # ------------------------------------------------------------------ what is optional

    async def query_many(
        self, batch: Sequence[QueryParams], contexts: Mapping[str, QueryContext]
    ) -> Mapping[str, QueryResult | Exception]:
        """Ask for several jobs at once."""
        context = next(iter(contexts.values()))
        ids = ",".join(each.external_task_id for each in batch)
        answer = await self.ask("GET", "/jobs", context, params={"ids": ids})
        if answer.status != 200:
            self.unanswered(answer, context)
        found = answer.document["jobs"]
        return {
            each.external_task_id: await self.judged(
                found[each.external_task_id], answer, each, contexts[each.external_task_id]
            )
            for each in batch
            if each.external_task_id in found
        }

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Delete the job."""
        answer = await self.stop(params, context)
        if answer.status == 200:
            return CancelOutcome.CONFIRMED
        return CancelOutcome.REFUSED if answer.status == 409 else CancelOutcome.UNKNOWN

    async def stop(self, params: QueryParams, context: CancelContext) -> Answer:
        """Send the request that cancels."""
        return await self.ask("DELETE", f"/jobs/{params.external_task_id}", context)

    async def find_submission(self, params: Printing, context: SubmitContext) -> SubmitResult | None:
        """Look for a job that was created with our key."""
        answer = await self.ask("GET", "/jobs", context, params={"reference": self.reference(context)})
        if answer.status != 200:
            self.unanswered(answer, context)
        return self.accepted(answer, context) if answer.document.get("id") else None

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Check the signature and read the id."""
        account = pick_account(self.key, self.accounts, account_id)
        self.authenticate(request, account.key.reveal())
        try:
            job = json.loads(request.body)["id"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise CallbackRejected("the callback is not understood") from error
        if not isinstance(job, str):
            raise CallbackRejected("the callback names no job")
        return Callback(external_task_ids=[job])

    def authenticate(self, request: CallbackRequest, key: str) -> None:
        """Refuse what is not signed with the key."""
        if not hmac.compare_digest(request.headers.get("x-signature", ""), signature(key, request.body)):
            raise CallbackRejected("the callback is not signed with the account's key")
