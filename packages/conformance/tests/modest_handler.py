"""A handler that has nothing optional: no accounts, no documents, no settings of its own but a URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx
from attrs import frozen

from coatcheck.errors import HandlerError, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.handler import Handler, QueryContext, SubmitContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams

__all__ = ["BluntHandler", "ModestHandler", "Poem"]

_LIMIT_BYTES = 1024 * 1024


@frozen
class Poem:
    """Lines to recite."""

    text: str


class ModestHandler(Handler[Poem]):
    """Recites poems."""

    key = "recite:modest"

    def __init__(self, *, key: str, accounts: object, settings: object) -> None:
        self.key = self.provider_key = key
        self._url = str(settings)

    async def open(self) -> None:
        """Make the client."""
        self._client = httpx.AsyncClient(timeout=0.6, trust_env=False)

    async def close(self) -> None:
        """Close the client, if there is one."""
        if "_client" in vars(self):
            await self._client.aclose()

    async def submit(self, params: Poem, context: SubmitContext) -> SubmitResult:
        """Hand the lines over."""
        context.ensure_held()
        try:
            status, headers, body = await self._ask("POST", "/poems", {"text": params.text})
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise SubmitDeferred("nobody listens") from error
        if status in {401, 403, 429}:
            hint = _hint(headers.get("retry-after", ""), context.now)
            raise SubmitDeferred(f"HTTP {status}", rate_limited=status == 429, retry_after=hint)
        if 400 <= status < 500 and status != 408:
            raise SubmitRejected(f"HTTP {status}")
        if status != 200 or not isinstance(body.get("id"), str):
            raise HandlerError(f"HTTP {status}, and no id")
        hint = _hint(headers.get("retry-after", ""), context.now)
        return SubmitResult.accepted(str(body["id"]), retry_after=hint)

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Ask how far it has come."""
        status, headers, body = await self._ask("GET", f"/poems/{params.external_task_id}")
        hint = _hint(headers.get("retry-after", ""), context.now)
        if status == 404:
            return QueryResult.not_found()
        if status != 200:
            raise QueryFailed(f"HTTP {status}", rate_limited=status == 429, retry_after=hint)
        match body.get("state"):
            case "reciting":
                return QueryResult.running(provider_status="reciting", retry_after=hint)
            case "recited":
                return QueryResult.succeeded(body.get("audience"), provider_status="recited")
            case str(word):
                return QueryResult.unlisted(word)
            case _:
                raise QueryFailed("the answer has no state")

    async def _ask(
        self, method: str, path: str, body: JSON = None
    ) -> tuple[int, Mapping[str, str], Mapping[str, JSON]]:
        text = b""
        async with self._client.stream(
            method, f"{self._url}{path}", json=body, headers={"accept-encoding": "identity"}
        ) as response:
            async for each in response.aiter_raw():
                text += each
                if len(text) > _LIMIT_BYTES:
                    raise HandlerError("the answer is too large")
        return response.status_code, response.headers, _document(response.status_code, text)


class BluntHandler(ModestHandler):
    """Blocks its event loop, as handlers should not."""

    async def _ask(
        self, method: str, path: str, body: JSON = None
    ) -> tuple[int, Mapping[str, str], Mapping[str, JSON]]:
        response = httpx.request(  # noqa: ASYNC210 - as handlers should not
            method, f"{self._url}{path}", json=body, timeout=0.6, trust_env=False
        )
        return response.status_code, response.headers, _document(response.status_code, response.content)


def _document(status: int, text: bytes) -> Mapping[str, JSON]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if status == 200:
        raise HandlerError("the answer is no JSON object")
    return {}


def _hint(text: str, now: datetime) -> timedelta | None:
    try:
        seconds = float(text) if text.isdecimal() else (parsedate_to_datetime(text) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return timedelta(seconds=max(0.0, min(seconds, 3600.0)))
