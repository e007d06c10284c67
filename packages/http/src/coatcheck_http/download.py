"""Fetching documents and results: without credentials, within limits, from public addresses only."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urljoin

import httpx
from attrs import define, field, frozen

from coatcheck.errors import InvalidParams
from coatcheck_http.addresses import AddressGuard
from coatcheck_http.bodies import ACCEPTED_ENCODINGS
from coatcheck_http.errors import AddressRefused, DownloadFailed, UnreadableAnswer
from coatcheck_http.messages import HttpResponse
from coatcheck_http.saving import SavedFile, save
from coatcheck_http.settings import HttpSettings
from coatcheck_http.urls import check_document_url, shown
from coatcheck_http.wire import USER_AGENT, read_answer, timeouts, tls_context

__all__ = ["REDIRECTS", "Download", "Downloader", "hop"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_DEFAULT_TYPE = "application/octet-stream"


@frozen(kw_only=True)
class Download:
    """A document or result that was fetched."""

    url: str = field(repr=False)
    """Where it was found, after redirects."""
    content: bytes = field(repr=False)
    content_type: str = _DEFAULT_TYPE
    """Of the answer, without parameters; guessed from the name where the answer doesn't tell."""
    file_name: str = "document"
    """Of the answer or the URL, free of paths and control characters; never empty."""

    @property
    def text(self) -> str:
        """The content as UTF-8, without a byte order mark; what is none is replaced."""
        return self.content.decode("utf-8-sig", "replace")


def _file_name(response: HttpResponse, url: str) -> str:
    message = Message()
    message["content-disposition"] = response.header("content-disposition") or "inline"
    named = message.get_filename() or unquote(PurePosixPath(httpx.URL(url).path).name)
    plain = re.sub(r"[\x00-\x1f\x7f\"\\/:]+", "_", re.split(r"[\\/]", named)[-1]).strip(". ")
    return plain[-200:] or "document"


def _content_type(response: HttpResponse, file_name: str) -> str:
    told = (response.header("content-type") or "").partition(";")[0].strip().lower()
    if re.fullmatch(r"[\w.+-]+/[\w.+-]+", told) and told not in {_DEFAULT_TYPE, "binary/octet-stream"}:
        return told
    return mimetypes.guess_type(file_name)[0] or _DEFAULT_TYPE


def hop(here: str, location: str) -> str:
    """Return where a redirect leads.

    Raises:
        AddressRefused: away from https.
    """
    there = urljoin(here, location)
    if here.lower().startswith("https:") and not there.lower().startswith("https:"):
        message = f"{shown(here)} redirects to {shown(there)}, away from https"
        raise AddressRefused(message)
    return there


@define(eq=False)
class Downloader:
    """A client for documents and results. It has no credentials, cookies or proxy, and keeps no connection.

    Each hop's host is looked up once, every address is checked, and the connection goes to a checked address,
    so a name that changes its mind between check and use gains nothing.
    """

    settings: HttpSettings
    guard: AddressGuard = field()
    _transport: httpx.AsyncHTTPTransport | None = field(default=None, repr=False)

    @guard.default
    def _make_guard(self) -> AddressGuard:
        return AddressGuard(
            allow_private=self.settings.allow_private, private_hosts=self.settings.private_hosts
        )

    def open(self) -> None:
        """Get ready; connects to nothing."""
        # Connections are to addresses, so a kept one could be taken for another host of the same address.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        context = tls_context(self.settings.ca_file)
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=limits, retries=0)

    async def close(self) -> None:
        """Close every connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def fetch(self, url: str, *, limit_bytes: int | None = None) -> Download:
        """Return what is at `url`, following redirects, each of which is checked like the URL itself.

        Raises:
            AddressRefused: it leads to an address that is not public, or from https to http.
            DownloadFailed: it cannot be had; `final` tells whether trying again is of no use.
        """
        try:
            async with asyncio.timeout(self.settings.exchange_timeout.total_seconds()):
                return await self._fetch(url, limit_bytes or self.settings.max_download_bytes)
        except (httpx.TransportError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise DownloadFailed(f"{shown(url)} cannot be fetched: {what}", code="download_failed") from error
        except UnreadableAnswer as error:
            raise DownloadFailed(f"{shown(url)}: {error}", code=error.code, final=True) from error

    async def save(self, url: str, path: Path, *, limit_bytes: int | None = None) -> SavedFile:
        """Stream what is at `url` into a file, going on where an earlier call broke off; see `saving.save`.

        Redirects are followed, each of which is checked like the URL itself.

        Raises:
            AddressRefused: it leads to an address that is not public, or from https to http.
            DownloadFailed: it cannot be had; `final` tells whether trying again is of no use.
            OSError: it cannot be written.
        """

        async def ask(headers: Mapping[str, str]) -> httpx.Response:
            return await self.open_url(url, headers)

        return await save(
            ask,
            path,
            shown=shown(url),
            limit_bytes=limit_bytes or self.settings.max_download_bytes,
            seconds=self.settings.exchange_timeout.total_seconds(),
        )

    async def open_url(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """Return the answer at `url`, or where it redirects to, before its unpacked body is read.

        The caller closes it, and bounds the time.

        Raises:
            AddressRefused: it leads to an address that is not public, or from https to http.
            DownloadFailed: it is no URL, or redirects too often.
            httpx.TransportError: no answer came.
        """
        return (await self._follow(url, {"accept-encoding": "identity", **headers}))[0]

    async def _fetch(self, url: str, limit_bytes: int) -> Download:
        response, here = await self._follow(url, {"accept-encoding": ACCEPTED_ENCODINGS})
        return self._accept(await read_answer(response, limit_bytes, here), here)

    async def _follow(self, url: str, headers: Mapping[str, str]) -> tuple[httpx.Response, str]:
        """Return the answer at the end of all redirects, its body unread, and where that was."""
        here = url
        for _ in range(self.settings.max_redirects + 1):
            response = await self._get(here, headers)
            location = response.headers.get("location")
            if response.status_code not in REDIRECTS or location is None:
                return response, here
            await response.aclose()
            here = hop(here, location)
        message = f"{shown(url)} redirects more than {self.settings.max_redirects} times"
        raise DownloadFailed(message, code="too_many_redirects", final=True)

    def _accept(self, response: HttpResponse, url: str) -> Download:
        if response.status != HTTPStatus.OK:
            final = response.status < HTTPStatus.INTERNAL_SERVER_ERROR and response.status not in _LATER
            message = f"{shown(url)} answered HTTP {response.status}"
            raise DownloadFailed(message, code="download_failed", final=final, status=response.status)
        name = _file_name(response, url)
        return Download(
            url=url, content=response.body, content_type=_content_type(response, name), file_name=name
        )

    async def _get(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        try:
            check_document_url(url)
            parsed = httpx.URL(url)
        except (InvalidParams, httpx.InvalidURL) as error:
            raise DownloadFailed(str(error), code="bad_url", final=True) from error
        host = parsed.raw_host.decode("ascii")
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        addresses = await self.guard.addresses(host, port)
        failure: httpx.TransportError | None = None
        for address in addresses:
            try:
                return await self._send(parsed, address, headers)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure or DownloadFailed(f"the host {host!r} has no address", code="name_unknown")

    async def _send(self, url: httpx.URL, address: str, headers: Mapping[str, str]) -> httpx.Response:
        """Ask the server at `address` for `url`; the certificate and the Host header go by the name."""
        if self._transport is None:
            raise DownloadFailed("the handler is not open; await its open() first", code="not_open")
        extensions: dict[str, object] = {"timeout": dict(timeouts(self.settings))}
        if url.scheme == "https":
            extensions["sni_hostname"] = url.raw_host.decode("ascii")
        request = httpx.Request(
            "GET",
            url.copy_with(host=address, fragment=None),
            headers={
                "host": url.netloc.decode("ascii"),
                "user-agent": USER_AGENT,
                "accept": "*/*",
                **headers,
            },
            extensions=extensions,
        )
        return await self._transport.handle_async_request(request)
