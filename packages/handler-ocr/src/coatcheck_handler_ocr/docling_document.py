"""Pages and blocks of a `DoclingDocument`, as docling-serve gives it in `json_content`.

Read from the OpenAPI document of docling-serve 1.38.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import Box, box_of
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import sound
from coatcheck_http import first_object, first_text, items, lookup, number

__all__ = ["pages_of"]


def pages_of(document: JSON) -> Iterator[OcrPage]:
    """Yield the pages of a document with what stands on them, in reading order; none if it knows no pages.

    A page's Markdown is that of its blocks one below the other: docling-serve gives Markdown of the whole only.
    """
    parts = list(_in_order(document))
    for page in first_object(document, "pages").values():
        page_number = number(page, "page_no")
        if page_number is None:
            continue
        height = number(page, "size.height")
        blocks = tuple(_blocks(parts, page_number, height))
        yield OcrPage(
            index=int(page_number) - 1,
            markdown="\n\n".join(each.text for each in blocks if each.text),
            width=number(page, "size.width"),
            height=height,
            blocks=blocks,
        )


def _in_order(document: JSON) -> Iterator[JSON]:
    """Yield the items of the body, each before what it holds; each once, whatever refers to it."""
    waiting: deque[str] = deque(["body"])
    seen: set[str] = set()
    while waiting:
        path = waiting.popleft()
        if path in seen:
            continue
        seen.add(path)
        item = lookup(document, path)
        yield item
        references = [first_text(each, "$ref") for each in items(item, "children")]
        waiting.extendleft(
            reversed([each.removeprefix("#/").replace("/", ".") for each in references if each])
        )


def _blocks(parts: Sequence[JSON], page_number: float, height: float | None) -> Iterator[OcrBlock]:
    for item in parts:
        places = items(item, "prov")
        for place in places:
            if number(place, "page_no") == page_number:
                text = _text(item, place if len(places) > 1 else None)
                yield OcrBlock(
                    kind=first_text(item, "label") or "text", text=sound(text), box=_box(place, height)
                )


def _text(item: JSON, part: JSON) -> str:
    """Return the text of an item; of one that goes on on another page, the part at this place."""
    text = first_text(item, "text")
    if text is None:
        return _table_text(item)
    start, end = lookup(part, "charspan.0"), lookup(part, "charspan.1")
    return text[start:end] if isinstance(start, int) and isinstance(end, int) else text


def _table_text(item: JSON) -> str:
    grid = items(item, "data.grid")
    rows = (
        " | ".join(first_text(cell, "text") or "" for cell in items(grid, str(place)))
        for place in range(len(grid))
    )
    return "\n".join(rows)


def _box(place: JSON, height: float | None) -> Box | None:
    """Return the box with its origin at the upper left, which PDF has at the lower left."""
    box = box_of(number(place, f"bbox.{side}") for side in "ltrb")
    if box is None or first_text(place, "bbox.coord_origin") != "BOTTOMLEFT":
        return box
    if height is None:
        return None
    left, top, right, bottom = box
    return left, height - top, right, height - bottom
