"""What the kit's server answers: good replies in a line, and whatever else a server may do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from attrs import evolve, field, frozen

from coatcheck.task import JSON

__all__ = ["FOREIGN", "SERVER", "Body", "Ending", "Received", "Reply", "as_reply"]

SERVER = "{server}"
"""In a reply's body and headers: the url of the server that gives it."""
FOREIGN = "{foreign}"
"""In a reply's body and headers: the url of another server, which is nobody's business."""


class Ending(StrEnum):
    """What the server does after a reply."""

    KEEP = "keep"
    "Keep the connection and read the next request."
    CLOSE = "close"
    "Close it in order."
    RESET = "reset"
    "Reset it."
    STALL = "stall"
    "Say no more, and keep it open until the server stops."
    FLOOD = "flood"
    "Send body without an end, until the other side has had enough."


@frozen
class Received:
    """A request, as it was read."""

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def holds(self, text: str) -> bool:
        """Whether `text` stands in its target, a header or its body."""
        seen = (self.target, *self.headers.values())
        return any(text in each for each in seen) or text.encode("utf-8") in self.body

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


@frozen(kw_only=True)
class Reply:
    """What to send once a request has been read to its end, and what to do then. Make it with `of` or `raw`."""

    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    ending: Ending = Ending.KEEP
    bytes_kept_back: int = 0
    """How much of the end of the body is announced and not sent."""
    bytes_sent: bytes | None = None
    """Sent instead of status, headers and body, as it is."""

    @classmethod
    def of(
        cls,
        body: Body = b"",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        ending: Ending = Ending.KEEP,
    ) -> Reply:
        """Return a well-formed reply; a `body` that is not bytes is sent as JSON.

        ``{server}`` in its text is the url of the server that gives it.
        """
        if isinstance(body, bytes):
            content, kind = body, "application/octet-stream"
        else:
            content, kind = json.dumps(body).encode("utf-8"), "application/json"
        return cls(
            status=status,
            headers={"content-type": kind, **{name.lower(): each for name, each in (headers or {}).items()}},
            body=content,
            ending=ending,
        )

    @classmethod
    def raw(cls, sent: bytes, *, ending: Ending = Ending.CLOSE) -> Reply:
        """Return a reply of these bytes, which may be no HTTP at all."""
        return cls(bytes_sent=sent, ending=ending)

    def with_headers(self, **headers: str) -> Reply:
        """Return it with these headers added or replaced; ``_`` in a name stands for ``-``."""
        added = {name.lower().replace("_", "-"): each for name, each in headers.items()}
        return evolve(self, headers={**self.headers, **added})

    def gzipped(self, unpacked: bytes) -> Reply:
        """Return it with a body that unpacks to `unpacked`."""
        return evolve(self, body=gzip.compress(unpacked, 1)).with_headers(content_encoding="gzip")

    def cut(self, ending: Ending = Ending.CLOSE) -> Reply:
        """Return it with a body that ends one byte before it should; without a body, the headers do."""
        return evolve(self, bytes_kept_back=1 if self.body else 3, ending=ending)

    def encoded(self, places: Mapping[str, str]) -> bytes:
        """Return what goes over the wire, with the placeholders `places` replaced."""
        if self.bytes_sent is not None:
            return self.bytes_sent
        body, headers = self.body, dict(self.headers)
        for name, url in places.items():
            if "content-encoding" not in headers:
                body = body.replace(name.encode(), url.encode())
            headers = {each: value.replace(name, url) for each, value in headers.items()}
        if self.ending is Ending.FLOOD:
            headers["transfer-encoding"] = "chunked"
        else:
            headers.setdefault("content-length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        whole = f"HTTP/1.1 {self.status} Scripted\r\n{head}\r\n".encode("latin-1") + body
        return whole[: len(whole) - self.bytes_kept_back]


Body: TypeAlias = "JSON | bytes | Reply"
"""What scripts say in short: a reply, or the body of a good one, as JSON or bytes."""


def as_reply(body: Body) -> Reply:
    """Return the reply that `body` stands for."""
    return body if isinstance(body, Reply) else Reply.of(body)
