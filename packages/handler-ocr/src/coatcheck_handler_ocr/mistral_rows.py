"""The rows of a batch of Mistral OCR, and the pages in them.

Read from the official client (mistralai/client-python at 038b8e46 and 15eb16b4), and for the rows themselves, which it
leaves open, from langchain4j's `MistralAiBatchResultEntry`, in 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from coatcheck.results import QueryResult
from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import box_of
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, given_text, sound
from coatcheck_http import first_object, first_text, items, lookup, number

__all__ = ["own_row", "read_row"]

_SIDES = ("top_left_x", "top_left_y", "bottom_right_x", "bottom_right_y")


def own_row(rows: Sequence[JSON], task_id: str) -> JSON:
    """Return the row of the task; of a job that somebody adopted, the only one."""
    own = (each for each in rows if first_text(each, "custom_id") == task_id)
    return next(own, rows[0] if len(rows) == 1 else None)


def read_row(row: JSON) -> OcrSources | QueryResult | None:
    """Return the pages of a row, or why it failed."""
    body = first_object(row, "response.body")
    status = lookup(row, "response.status_code")
    refused = isinstance(status, int) and status >= HTTPStatus.BAD_REQUEST
    if refused or lookup(row, "error"):
        code = first_text(row, "error.code", "error.type", "response.body.code", "response.body.type")
        message = first_text(
            row, "error.message", "error", "response.body.message", "response.body.detail.0.msg"
        )
        return QueryResult.failed(code or "row_failed", message or "the row of the batch failed")
    pages = tuple(_pages(body))
    if not pages:
        return None
    return OcrSources(pages=pages, usage=dict(first_object(body, "usage_info")))


def _pages(body: Mapping[str, JSON]) -> Iterator[OcrPage]:
    for place, each in enumerate(items(body, "pages")):
        index = lookup(each, "index")
        markdown = given_text(each, "markdown")
        if markdown is not None:
            yield OcrPage(
                index=index if isinstance(index, int) else place,
                markdown=sound(markdown),
                width=number(each, "dimensions.width"),
                height=number(each, "dimensions.height"),
                blocks=tuple(_blocks(each)),
            )


def _blocks(page: JSON) -> Iterator[OcrBlock]:
    """Yield the images of a page with their places, and its tables where they were asked for apart."""
    for each in items(page, "images"):
        text = first_text(each, "image_annotation") or first_text(each, "id") or ""
        yield OcrBlock(kind="image", text=sound(text), box=box_of(number(each, side) for side in _SIDES))
    for each in items(page, "tables"):
        yield OcrBlock(kind="table", text=sound(first_text(each, "content") or ""))
