"""The document of a request: what it is called, how it is uploaded, and how much of it is read."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from coatcheck.task import JSON
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_http import FilePart, PreparedContext, number

__all__ = ["DOCUMENT", "name_of", "part_read", "upload"]

DOCUMENT = "document"
"""The name among the prepared files of the document that `OcrHandler.prepare_download` got."""


def name_of(params: OcrRequest) -> str:
    """Return the document's name, by the request or else by its URL; empty if neither tells."""
    return params.file_name or PurePosixPath(unquote(urlsplit(params.url).path)).name


def upload(params: OcrRequest, context: PreparedContext, *, field: str) -> FilePart:
    """Return the document that was downloaded as a field of a form."""
    document = context.prepared.files[DOCUMENT]
    return FilePart(
        name=field,
        file_name=params.file_name or document.file_name,
        content=document.content,
        content_type=document.content_type,
    )


def part_read(document: JSON, done: str, total: str) -> float | None:
    """Return which part of the pages is done, by the numbers at these two paths; None unless they tell."""
    pages, all_pages = number(document, done), number(document, total)
    if pages is None or all_pages is None or all_pages <= 0:
        return None
    return min(max(pages / all_pages, 0.0), 1.0)
