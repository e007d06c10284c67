"""Documents that a client names by URL, fetched as a provider would."""

import asyncio
import urllib.error
import urllib.request
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from coatcheck_sandbox.jobs import Failure, Upload

__all__ = ["fetch_upload"]

_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 100 * 1024 * 1024


async def fetch_upload(
    url: str,
    *,
    model: str = "",
    name: str | None = None,
    token: str | None = None,
    reference: str | None = None,
) -> Upload:
    """The document at a URL; what can't be fetched makes a job that fails, as at a real provider."""
    named = name or unquote(PurePosixPath(urlsplit(url).path).name) or "document"
    failure = None
    content = b""
    try:
        content = await asyncio.to_thread(_read, url)
    except (OSError, ValueError) as error:
        failure = Failure(code="document_unreachable", message=f"the document can't be fetched: {error}")
    return Upload(name=named, content=content, model=model, failure=failure, token=token, reference=reference)


def _read(url: str) -> bytes:
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ValueError(f"{url!r} is no http or https URL")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the scheme was checked
        content: bytes = answer.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return content
