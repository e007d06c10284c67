"""One request on the wire, and certainty about whether it was written.

Requests go straight to httpx's transport and never through its client, which would follow redirects, keep
cookies across accounts, read proxies and `.netrc` from the environment, and log whole URLs with their tokens.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache

import httpx
from attrs import define, field

from coatcheck_http.bodies import ACCEPTED_ENCODINGS, Body
from coatcheck_http.errors import AnswerLost, NotSent, UnreadableAnswer
from coatcheck_http.messages import HttpRequest, HttpResponse
from coatcheck_http.settings import HttpSettings

__all__ = ["Wire", "read_answer", "timeouts", "tls_context"]

USER_AGENT = "coatcheck-http"
ERROR_BODY_SECONDS = 5.0
"""How long to wait for the body of a 4xx."""
_NEVER_WRITTEN = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@cache
def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return what verifies servers, by the usual authorities and those in `ca_file`.

    Reading the usual ones takes a tenth of a second, so it is done once a process.

    Raises:
        OSError: the file cannot be read.
    """
    context = httpx.create_ssl_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


def timeouts(settings: HttpSettings) -> Mapping[str, float]:
    """Return the timeouts of one request, in seconds, as httpx's transports take them."""
    connect, read = settings.connect_timeout.total_seconds(), settings.read_timeout.total_seconds()
    return {"connect": connect, "pool": connect, "read": read, "write": read}


def _headers(response: httpx.Response) -> dict[str, str]:
    return {name.lower(): ", ".join(response.headers.get_list(name)) for name in response.headers}


async def read_answer(response: httpx.Response, limit_bytes: int, url: str) -> HttpResponse:
    """Read an answer to its end and close it.

    The body of an answer with an error status (4xx) may break off, stall or be too large: the status has
    already said what matters.

    Raises:
        UnreadableAnswer: the body is too large or cannot be unpacked.
        httpx.TransportError: the connection broke inside the body.
    """
    truncated = False
    body = Body("", limit_bytes)
    patience = ERROR_BODY_SECONDS if response.is_client_error else None
    try:
        try:
            body = Body(response.headers.get("content-encoding", ""), limit_bytes)
            async with asyncio.timeout(patience):
                await body.read(response.aiter_raw())
        except (httpx.TransportError, UnreadableAnswer, TimeoutError):
            if not response.is_client_error:
                raise
            truncated = True
    finally:
        await response.aclose()
    return HttpResponse(
        status=response.status_code,
        headers=_headers(response),
        body=body.data,
        url=url,
        truncated=truncated,
    )


@define(eq=False)
class _Progress:
    """How far one request has come, told by httpcore's trace events."""

    ensure_held: Callable[[], None]
    written: bool = False

    async def __call__(self, event: str, info: Mapping[str, object]) -> None:
        """Ask for the claim and note the writing when the first bytes of the request are about to be written.

        A request to a proxy to open a tunnel is not yet the request.
        """
        if event == "http11.send_request_headers.started" and not _opens_tunnel(info.get("request")):
            self.ensure_held()
            self.written = True


def _opens_tunnel(request: object) -> bool:
    return getattr(request, "method", None) == b"CONNECT"


def _what(error: BaseException, timeout: timedelta) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"{type(error).__name__} after the time allowed"
    if isinstance(error, TimeoutError):
        return f"no complete answer within {timeout.total_seconds():g} s"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@define(eq=False)
class Wire:
    """Connections to one provider.

    Creating requests go over a connection of their own, opened for them: a kept one may have been closed by
    the server a moment ago, and then nobody could tell whether the request was read.
    """

    settings: HttpSettings
    _asking: httpx.AsyncHTTPTransport | None = field(default=None, repr=False)
    _creating: httpx.AsyncHTTPTransport | None = field(default=None, repr=False)

    def open(self) -> None:
        """Get ready; connects to nothing."""
        context = tls_context(self.settings.ca_file)
        proxy = None if self.settings.proxy is None else httpx.Proxy(self.settings.proxy.reveal())
        most = self.settings.max_connections
        kept = httpx.Limits(max_connections=most, max_keepalive_connections=20, keepalive_expiry=5.0)
        fresh = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._asking = httpx.AsyncHTTPTransport(verify=context, limits=kept, proxy=proxy, retries=0)
        self._creating = httpx.AsyncHTTPTransport(verify=context, limits=fresh, proxy=proxy, retries=0)

    async def close(self) -> None:
        """Close every connection."""
        transports, self._asking, self._creating = (self._asking, self._creating), None, None
        for transport in transports:
            if transport is not None:
                await transport.aclose()

    async def exchange(
        self, request: HttpRequest, *, creating: bool, ensure_held: Callable[[], None]
    ) -> HttpResponse:
        """Send an encoded request once; return the answer, whatever its status. Redirects are not followed.

        `ensure_held` is called when a connection stands and the first bytes are about to be written.

        Raises:
            NotSent: certain: nothing of the request was written.
            AnswerLost: it was written, in part or whole, and no complete answer came.
            UnreadableAnswer: the answer is too large or cannot be unpacked.
            LeaseLost: `ensure_held` says so; nothing was written.
        """
        transport = self._creating if creating else self._asking
        if transport is None:
            raise NotSent("the handler is not open; await its open() first", code="not_open")
        progress = _Progress(ensure_held)
        made = self._made(request, trace=progress)
        answered: int | None = None
        try:
            async with asyncio.timeout(self.settings.exchange_timeout.total_seconds()):
                response = await transport.handle_async_request(made)
                answered = response.status_code
                return await read_answer(response, self.settings.max_answer_bytes, request.url)
        except (httpx.TransportError, TimeoutError) as error:
            what = _what(error, self.settings.exchange_timeout)
            if not progress.written and (isinstance(error, (*_NEVER_WRITTEN, TimeoutError))):
                raise NotSent(f"nothing was sent: {what}", code="not_sent") from error
            where = "no answer came" if answered is None else f"the answer (HTTP {answered}) broke off"
            raise AnswerLost(f"the request was sent and {where}: {what}", code="answer_lost") from error

    async def send(self, request: HttpRequest) -> httpx.Response:
        """Send an encoded request that creates nothing; return the answer before its body is read.

        The caller closes it, and bounds the time.

        Raises:
            NotSent: the wire is not open.
            httpx.TransportError: no answer came.
        """
        if self._asking is None:
            raise NotSent("the handler is not open; await its open() first", code="not_open")
        return await self._asking.handle_async_request(self._made(request))

    def _made(self, request: HttpRequest, **extensions: object) -> httpx.Request:
        return httpx.Request(
            request.method,
            httpx.URL(request.url).copy_merge_params(dict(request.query)) if request.query else request.url,
            headers={"user-agent": USER_AGENT, "accept-encoding": ACCEPTED_ENCODINGS, **request.headers},
            content=request.content,
            extensions={"timeout": dict(timeouts(self.settings)), **extensions},
        )
