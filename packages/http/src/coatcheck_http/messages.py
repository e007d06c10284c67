"""Requests and answers as plain data, so that handlers build and parse without an HTTP library."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Never, cast

import httpx
from attrs import evolve, field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON
from coatcheck_http.errors import UnreadableAnswer

__all__ = ["FilePart", "HttpRequest", "HttpResponse"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e\t]*")


def _headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse, before anything is sent, what no HTTP header can carry."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not isinstance(value, str) or not _VALUE.fullmatch(value):
            message = (
                f"header {name!r} has a name or a value that HTTP cannot carry (a line break, or not ASCII)"
            )
            raise InvalidParams(message)
    return dict(headers)


def _texts(values: Mapping[str, str]) -> Mapping[str, str]:
    return dict(values)


@frozen(kw_only=True)
class FilePart:
    """One file of a multipart form."""

    name: str
    """The form field."""
    file_name: str
    """What the provider sees as the file's name."""
    content: bytes = field(repr=False)
    content_type: str = "application/octet-stream"


@frozen(kw_only=True)
class HttpRequest:
    """What to ask a provider. Credentials are added later, by `HttpHandler.authenticate`.

    At most one of `json`, `form` (with or without `files`) and `content` is the body.
    """

    method: str
    url: str
    """A path below the handler's base URL, or an absolute URL of an origin that may see the credentials."""
    query: Mapping[str, str] = field(factory=dict, converter=_texts, repr=False)
    """Added to the URL."""
    headers: Mapping[str, str] = field(factory=dict, converter=_headers, repr=False)
    json: JSON = field(default=None, repr=False)
    form: Mapping[str, str] = field(factory=dict, converter=_texts, repr=False)
    files: Sequence[FilePart] = ()
    """With files the form is sent as multipart, else URL-encoded."""
    content: bytes | None = field(default=None, repr=False)
    """The body as it is to be sent; set `content-type` beside it."""

    def __attrs_post_init__(self) -> None:
        """Refuse two bodies."""
        if sum((self.json is not None, bool(self.form or self.files), self.content is not None)) > 1:
            message = f"{self.method} {self.url}: give one of json, form and content"
            raise InvalidParams(message)

    @classmethod
    def get(
        cls, url: str, *, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpRequest:
        """Return a GET."""
        return cls(method="GET", url=url, query=query or {}, headers=headers or {})

    @classmethod
    def post(
        cls,
        url: str,
        *,
        json: JSON = None,
        form: Mapping[str, str] | None = None,
        files: Sequence[FilePart] = (),
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpRequest:
        """Return a POST with a body of JSON, or of a form with or without files."""
        return cls(
            method="POST",
            url=url,
            json=json,
            form=form or {},
            files=files,
            query=query or {},
            headers=headers or {},
        )

    def with_headers(self, **headers: str) -> HttpRequest:
        """Return it with these headers added or replaced; ``_`` in a name stands for ``-``."""
        added = {name.replace("_", "-"): value for name, value in headers.items()}
        replaced = {name.lower() for name in added}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
        return evolve(self, headers={**kept, **added})

    def with_query(self, **query: str) -> HttpRequest:
        """Return it with these query parameters added or replaced."""
        return evolve(self, query={**self.query, **query})

    def encoded(self) -> HttpRequest:
        """Return it with its body as `content` and the `content-type` that goes with it; for signatures, too.

        Raises:
            InvalidParams: the body is no JSON that can be sent.
        """
        if self.content is not None:
            return self
        body: bytes = b""
        content_type: str | None = None
        if self.json is not None:
            body, content_type = self._json_body(), "application/json"
        elif self.form or self.files:
            body, content_type = self._form_body()
        if content_type is None:
            return self
        plain = evolve(self, json=None, form={}, files=(), content=body)
        has_type = any(name.lower() == "content-type" for name in self.headers)
        return plain if has_type else plain.with_headers(content_type=content_type)

    def _json_body(self) -> bytes:
        try:
            return json.dumps(self.json, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            message = f"{self.method} {self.url}: the body cannot be sent as JSON: {error}"
            raise InvalidParams(message) from error

    def _form_body(self) -> tuple[bytes, str]:
        files = [(part.name, (part.file_name, part.content, part.content_type)) for part in self.files]
        made = httpx.Request("POST", "http://form.invalid/", data=dict(self.form), files=files or None)
        return made.read(), made.headers["content-type"]


def _refuse_constant(word: str) -> Never:
    message = f"{word} is no JSON value"
    raise ValueError(message)


@frozen(kw_only=True)
class HttpResponse:
    """A provider's answer, read to its end within limits."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """Names in lower case; the values of a repeated one are joined by a comma."""
    body: bytes = field(default=b"", repr=False)
    """Decoded: without its content encoding."""
    url: str = field(default="", repr=False)
    """What was asked, without credentials that went into the query."""
    truncated: bool = False
    """Whether the connection broke, or the limit was reached, inside the body; only for error statuses."""

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the range is HTTP's own

    @property
    def text(self) -> str:
        """The body as UTF-8; what is none is replaced."""
        return self.body.decode("utf-8", "replace")

    def header(self, name: str) -> str | None:
        """Return a header, or None."""
        return self.headers.get(name.lower())

    def json(self) -> JSON:
        """Return the body as JSON.

        Raises:
            UnreadableAnswer: it is none, or holds NaN or an infinity, or is nested too deeply.
        """
        if isinstance(self._document, UnreadableAnswer):
            raise self._document
        return self._document

    def json_object(self) -> Mapping[str, JSON]:
        """Return the body as a JSON object; raise `UnreadableAnswer` if it is none."""
        document = self.json()
        if not isinstance(document, Mapping):
            message = f"the answer (HTTP {self.status}) is JSON, but no object"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return document

    @cached_property
    def _document(self) -> JSON | UnreadableAnswer:
        try:
            return cast("JSON", json.loads(self.body, parse_constant=_refuse_constant))
        except (ValueError, RecursionError) as error:
            kind = self.header("content-type") or "no content type"
            message = f"the answer (HTTP {self.status}, {kind}, {len(self.body)} bytes) is no JSON: {error}"
            return UnreadableAnswer(message, code="unreadable_answer")
