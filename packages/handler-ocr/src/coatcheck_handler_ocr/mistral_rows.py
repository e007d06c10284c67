"""The rows of a batch of Mistral OCR, and the pages in them.

Read from the official client (mistralai/client-python at 038b8e46 and 15eb16b4), and for the rows themselves, which it
leaves open, from langchain4j's `MistralAiBatchResultEntry`, in 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import cast

from coatcheck.results import QueryResult
from coatcheck.task import JSON
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, sound
from coatcheck_http import UnreadableAnswer, first_object, first_text, lookup

__all__ = ["items_of", "own_row", "read_row", "rows_of"]


def rows_of(text: str) -> Iterator[JSON]:
    """Yield the rows of a file of JSONL.

    Raises:
        UnreadableAnswer: a line is no JSON; the message tells which.
    """
    # only this one ends a line: a text may hold others, such as U+2028
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield cast("JSON", json.loads(line))
        except (ValueError, RecursionError) as error:
            message = f"line {number} of the result is no JSON: {error}"
            raise UnreadableAnswer(message, code="unreadable_answer") from error


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
    for place, each in enumerate(items_of(lookup(body, "pages"))):
        index = lookup(each, "index")
        markdown = lookup(each, "markdown")
        if isinstance(markdown, str):
            yield OcrPage(
                index=index if isinstance(index, int) else place,
                markdown=sound(markdown),
                width=_number(each, "dimensions.width"),
                height=_number(each, "dimensions.height"),
                blocks=tuple(_blocks(each)),
            )


def _blocks(page: JSON) -> Iterator[OcrBlock]:
    """Yield the images of a page with their places, and its tables where they were asked for apart."""
    for each in items_of(lookup(page, "images")):
        sides = [
            _number(each, name) for name in ("top_left_x", "top_left_y", "bottom_right_x", "bottom_right_y")
        ]
        known = [side for side in sides if side is not None]
        box = (known[0], known[1], known[2], known[3]) if len(known) == len(sides) else None
        text = first_text(each, "image_annotation") or first_text(each, "id") or ""
        yield OcrBlock(kind="image", text=sound(text), box=box)
    for each in items_of(lookup(page, "tables")):
        yield OcrBlock(kind="table", text=sound(first_text(each, "content") or ""))


def items_of(value: JSON) -> Sequence[JSON]:
    """Return a list as it is, and an empty one for all else."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _number(document: JSON, path: str) -> float | None:
    found = lookup(document, path)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None
