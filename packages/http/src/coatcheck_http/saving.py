"""Saving what is too large to hold in memory, such as a video: streamed to a file, and resumed where it broke off."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import httpx
from attrs import frozen

from coatcheck_http.errors import DownloadFailed

__all__ = ["SavedFile", "save"]

Opener = Callable[[Mapping[str, str]], Awaitable[httpx.Response]]
"""Asks for the file with these headers beside its own, and returns the answer before its body is read."""

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_CHUNK_BYTES = 1024 * 1024


@frozen(kw_only=True)
class SavedFile:
    """A file that was saved, whole."""

    path: Path
    size_bytes: int
    sha256: str
    """Of the content, in hexadecimal."""
    content_type: str | None = None
    """Of the answer, without parameters."""


@frozen(kw_only=True)
class _Begun:
    """What is there of a file, and what the server called that version of it."""

    size_bytes: int
    validator: str

    @property
    def headers(self) -> dict[str, str]:
        return {"range": f"bytes={self.size_bytes}-", "if-range": self.validator}


async def save(ask: Opener, path: Path, *, shown: str, limit_bytes: int, seconds: float) -> SavedFile:
    """Return the file, saved at `path`, whose folder exists; what is there already is gone on with.

    A file is gone on with only if the server has named its version (a strong ``ETag``, or ``Last-Modified``) and
    says that it is still the same. Beside `path` a small file ``.part`` keeps that name until the end.

    Args:
        ask: asks for the file.
        path: where to put it.
        shown: what to call its URL in messages.
        limit_bytes: how large it may be.
        seconds: how long this call may take. What was saved until then stays, for the next one.

    Raises:
        DownloadFailed: it cannot be had, breaks off, takes too long, or is larger than allowed; `final` tells
            whether trying again is of no use.
        OSError: it cannot be written.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _save(ask, path, shown=shown, limit_bytes=limit_bytes)
    except (httpx.TransportError, TimeoutError) as error:
        there = _size(path)
        what = str(error) or f"not whole within {seconds:g} s"
        message = f"{shown} broke off after {there} bytes: {what}"
        raise DownloadFailed(message, code="download_failed") from error


async def _save(ask: Opener, path: Path, *, shown: str, limit_bytes: int) -> SavedFile:
    begun = _begun(path)
    response = await ask({} if begun is None else begun.headers)
    try:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and begun is not None:
            _forget(path)
            raise DownloadFailed(f"{shown} has changed; it is fetched anew", code="download_failed")
        offset = _offset(response, begun, shown)
        whole = _whole_size(response, offset, shown)
        if (whole or 0) > limit_bytes:
            raise _too_large(shown, limit_bytes)
        _keep_validator(response, path)
        await _write(response, path, offset, shown=shown, limit_bytes=limit_bytes)
    finally:
        await response.aclose()
    size = _size(path)
    if whole is not None and size != whole:
        message = f"{shown} broke off after {size} of {whole} bytes"
        raise DownloadFailed(message, code="download_failed")
    digest = await asyncio.to_thread(_sha256, path)
    _part(path).unlink(missing_ok=True)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return SavedFile(path=path, size_bytes=size, sha256=digest, content_type=kind or None)


async def _write(response: httpx.Response, path: Path, offset: int, *, shown: str, limit_bytes: int) -> None:
    with path.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.truncate()
        size = offset
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > limit_bytes:
                raise _too_large(shown, limit_bytes)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _begun(path: Path) -> _Begun | None:
    """Return what is there and can be gone on with."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        validator = json.loads(_part(path).read_text("utf-8"))["validator"]
        size = _size(path)
        if isinstance(validator, str) and validator and size:
            return _Begun(size_bytes=size, validator=validator)
    return None


def _offset(response: httpx.Response, begun: _Begun | None, shown: str) -> int:
    """Return where the body begins in the file."""
    if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        message = f"{shown} is packed as {response.headers['content-encoding']!r}, which was not asked for"
        raise DownloadFailed(message, code="unreadable_answer", final=True)
    if response.status_code == HTTPStatus.OK:
        return 0
    if response.status_code == HTTPStatus.PARTIAL_CONTENT and begun is not None:
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        if found is not None and int(found[1]) == begun.size_bytes:
            return begun.size_bytes
    final = response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR and response.status_code not in _LATER
    message = f"{shown} answered HTTP {response.status_code}"
    raise DownloadFailed(message, code="download_failed", final=final, status=response.status_code)


def _whole_size(response: httpx.Response, offset: int, shown: str) -> int | None:
    """Return how large the whole file is, if the server tells."""
    text = response.headers.get("content-length")
    if text is None:
        return None
    if not text.isdecimal():
        message = f"{shown} has the content-length {text[:40]!r}, which is no number"
        raise DownloadFailed(message, code="unreadable_answer")
    return offset + int(text)


def _keep_validator(response: httpx.Response, path: Path) -> None:
    tag = response.headers.get("etag", "")
    strong = tag if tag.startswith('"') else ""
    validator = strong or response.headers.get("last-modified", "")
    if validator:
        _part(path).write_text(json.dumps({"validator": validator}), "utf-8")
    else:
        _part(path).unlink(missing_ok=True)


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    _part(path).unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _too_large(shown: str, limit_bytes: int) -> DownloadFailed:
    message = f"{shown} is larger than {limit_bytes} bytes, which is the limit"
    return DownloadFailed(message, code="too_large", final=True)
