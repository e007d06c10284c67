"""What to read: the params of every OCR and document-parsing handler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON
from coatcheck_http import check_document_url, check_fields, refuse_local, text_tuple

__all__ = ["OcrRequest", "OutputFormat", "object_option"]

URL_SCHEMES = ("http", "https", "s3", "gs")
"""Of a document; the last two only where the provider reads from such a bucket."""
_FILE_NAME = re.compile(r"[^\\/\x00-\x1f]*[^\\/\x00-\x20][^\\/\x00-\x1f]*")
_PAGES = re.compile(r"[1-9]\d*(-[1-9]\d*)?(,[1-9]\d*(-[1-9]\d*)?)*")


class OutputFormat(StrEnum):
    """Forms in which a result may be had."""

    MARKDOWN = "markdown"
    TEXT = "text"
    JSON = "json"
    "Pages with blocks and their places."
    HTML = "html"
    DOCX = "docx"
    LATEX = "latex"


def _words(values: Sequence[str]) -> tuple[str, ...]:
    return text_tuple(values)


def _formats(values: Sequence[str]) -> tuple[OutputFormat, ...]:
    try:
        return tuple(OutputFormat(each) for each in _words(values))
    except ValueError as error:
        message = f"outputs: {error}; possible are {', '.join(OutputFormat)}"
        raise InvalidParams(message) from error


@frozen(kw_only=True)
class OcrRequest:
    """One document to read, named by a URL that the worker, or the provider, can fetch.

    None leaves a choice to the provider. A handler whose provider lacks something refuses a request that
    asks for it, rather than read the document otherwise than asked.
    """

    url: str
    """An http or https URL; presigned is fine, if it outlives the wait in the queue. Providers that read from
    buckets take ``s3://bucket/key`` or ``gs://bucket/object``; others refuse these."""
    file_name: str | None = None
    """With the right suffix, for providers that go by it; None takes the name of the URL or download."""
    pages: str | None = None
    """Such as ``1-10,15``; the first page is 1."""
    languages: tuple[str, ...] = field(default=(), converter=_words)
    """As the provider names them."""
    outputs: tuple[OutputFormat, ...] = field(default=(OutputFormat.MARKDOWN,), converter=_formats)
    """What is wanted; Markdown is always tried."""
    tables: bool | None = None
    """Whether tables are recognised as such."""
    formulas: bool | None = None
    """Whether formulas are recognised as such."""
    model: str | None = None
    """The provider's name of a model; None is the handler's default."""
    options: Mapping[str, JSON] = field(factory=dict)
    """Handed to the provider as they are, under its own names, beneath what the handler sets itself."""

    def __attrs_post_init__(self) -> None:
        """Refuse what could not be read later, elsewhere, or at all.

        Raises:
            InvalidParams: the URL is a local path, `file:`, `data:` or base64; or a field makes no sense.
        """
        check_document_url(self.url, name="url", schemes=URL_SCHEMES)
        check_fields(self)
        refuse_local(self.options, path="options")
        if self.pages is not None and not _PAGES.fullmatch(self.pages):
            message = f"pages must look like '1-10,15', not {self.pages!r}"
            raise InvalidParams(message)
        if self.file_name is not None and not _FILE_NAME.fullmatch(self.file_name):
            message = f"file_name must be a name without folders, not {self.file_name!r}"
            raise InvalidParams(message)
        if self.model is not None and not self.model.strip():
            raise InvalidParams("model must not be blank; leave it out")


def object_option(options: Mapping[str, JSON], name: str, *, within: str = "options") -> Mapping[str, JSON]:
    """Return an option that is an object; an empty one if it is not given.

    Raises:
        InvalidParams: it is something else, so a handler cannot add to it.
    """
    found = options.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        message = f"{within}.{name} must be an object, as the provider has it, not {found!r}"
        raise InvalidParams(message)
    return found
