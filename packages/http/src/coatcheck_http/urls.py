"""URLs: which may be submitted, which may see credentials, and how they are told in messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, quote, urlsplit

from coatcheck.errors import ConfigurationError, InvalidParams

__all__ = [
    "check_base_url",
    "check_document_url",
    "is_trusted",
    "origin_of",
    "refuse_local",
    "segment",
    "shown",
]

MAX_URL_CHARACTERS = 8192
_SHOWN_CHARACTERS = 200
_PORTS = {"http": 80, "https": 443}
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]{1024,}={0,2}\s*")
_HINT = "upload it and submit a URL"


def _split(url: str) -> SplitResult | None:
    """Return the parts of an http(s) URL with a host and a possible port, or None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in _PORTS or not parts.hostname or port == 0:
        return None
    return parts


def origin_of(url: str) -> str:
    """Return ``scheme://host:port`` of an http(s) URL, in lower case, with the port always told.

    Raises:
        InvalidParams: it is no absolute http(s) URL.
    """
    parts = _split(url)
    if parts is None:
        message = f"{shown(url)!r} is no absolute http or https URL"
        raise InvalidParams(message)
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").rstrip(".")
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{parts.port or _PORTS[scheme]}"


def shown(url: str) -> str:
    """Return `url` as messages may show it: without user, password, query and fragment, and not too long."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(not a URL)"
    start = f"{parts.scheme}:" if parts.scheme else ""
    text = f"{start}//{host}{parts.path}" if host else f"{start}{parts.path}"
    if parts.query:
        text += "?..."
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def segment(value: str) -> str:
    """Return `value`, such as a job's id, as one segment of a URL's path.

    Raises:
        InvalidParams: it is empty, ``.`` or ``..``, which would name another path.
    """
    if value in {"", ".", ".."}:
        message = f"{value!r} cannot be part of a URL's path"
        raise InvalidParams(message)
    return quote(value, safe="")


def check_document_url(
    url: object, *, name: str = "url", schemes: Collection[str] = ("http", "https")
) -> None:
    """Refuse what is no http(s) URL that workers, elsewhere and later, can fetch or hand on.

    With other `schemes`, such as ``s3`` or ``gs``, a URL of these is taken that names a bucket and an object.

    Raises:
        InvalidParams: it is a local path, `file:`, `data:`, a body in base64 or bytes, or malformed, has a
            user or password in it, or is too long; the message says what to do.
    """
    if not isinstance(url, str):
        kind = type(url).__name__
        message = f"{name} must be an http or https URL, not {kind}; {_HINT}"
        raise InvalidParams(message)
    refuse_local(url, path=name)
    if len(url) > MAX_URL_CHARACTERS:
        message = f"{name} has {len(url)} characters; at most {MAX_URL_CHARACTERS} are possible. {_HINT}"
        raise InvalidParams(message)
    parts = _split_document(url, schemes)
    if parts is None or re.search(r"[\x00-\x20\x7f\\]", url):
        kinds = " or ".join(schemes)
        message = f"{name} must be an absolute {kinds} URL, not {shown(url)!r}; {_HINT}"
        raise InvalidParams(message)
    if parts.username is not None or parts.password is not None:
        message = f"{name} must not hold a user or password; use a presigned URL"
        raise InvalidParams(message)


def _split_document(url: str, schemes: Collection[str]) -> SplitResult | None:
    scheme = url.partition(":")[0].lower()
    if scheme not in schemes:
        return None
    if scheme in _PORTS:
        return _split(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.netloc and parts.path.strip("/") else None


def refuse_local(value: object, *, path: str) -> None:
    """Refuse strings, at any depth, that are `file:` or `data:` URLs or long bodies in base64; also bytes.

    Raises:
        InvalidParams: there is one; `path` leads to it.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        message = f"{path} holds bytes; {_HINT}"
        raise InvalidParams(message)
    if isinstance(value, str):
        scheme = value.lstrip()[:5].lower()
        if scheme in {"file:", "data:"}:
            message = f"{path} is a {scheme} URL, which no other machine can use; {_HINT}"
            raise InvalidParams(message)
        if _BASE64.fullmatch(value):
            message = f"{path} looks like a body in base64 ({len(value)} characters); {_HINT}"
            raise InvalidParams(message)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            refuse_local(each, path=f"{path}.{key}")
    elif isinstance(value, Sequence):
        for index, each in enumerate(value):
            refuse_local(each, path=f"{path}[{index}]")


def check_base_url(url: str, *, allow_http: bool) -> str:
    """Return `url` without a slash at its end, checked to be one that credentials may be sent to.

    Raises:
        ConfigurationError: it is no absolute URL, holds credentials, a query or a fragment, or is plain
            `http` to another machine while `allow_http` is off.
    """
    parts = _split(url)
    if parts is None or parts.username is not None or parts.query or parts.fragment:
        message = (
            "base_url must be an absolute http or https URL without user, query and fragment, "
            f"not {shown(url)!r}"
        )
        raise ConfigurationError(message)
    if parts.scheme.lower() == "http" and not allow_http and not _is_loopback(parts.hostname or ""):
        message = (
            f"base_url {shown(url)!r} would send credentials and documents in the clear; "
            "use https, or set allow_http=True for a private network"
        )
        raise ConfigurationError(message)
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_trusted(url: str, origins: Iterable[str]) -> bool:
    """Whether `url` is of one of these origins, each given as a URL."""
    return origin_of(url) in {origin_of(each) for each in origins}
