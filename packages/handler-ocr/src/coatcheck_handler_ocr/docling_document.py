"""Pages and blocks of a `DoclingDocument`, as docling-serve gives it in `json_content`.

Read from the OpenAPI document of docling-serve 1.38.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from coatcheck.task import JSON
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import sound
from coatcheck_http import first_object, first_text, lookup

__all__ = ["pages_of"]


def pages_of(document: JSON) -> Iterator[OcrPage]:
    """Yield the pages of a document with what stands on them, in reading order; none if it knows no pages.

    A page's Markdown is that of its blocks one below the other: docling-serve gives Markdown of the whole only.
    """
    items = list(_in_order(document))
    for page in first_object(document, "pages").values():
        number = _number(page, "page_no")
        if number is None:
            continue
        height = _number(page, "size.height")
        blocks = tuple(_blocks(items, number, height))
        yield OcrPage(
            index=int(number) - 1,
            markdown="\n\n".join(each.text for each in blocks if each.text),
            width=_number(page, "size.width"),
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
        references = [first_text(each, "$ref") for each in _list(lookup(item, "children"))]
        waiting.extendleft(
            reversed([each.removeprefix("#/").replace("/", ".") for each in references if each])
        )


def _blocks(items: Sequence[JSON], page_number: float, height: float | None) -> Iterator[OcrBlock]:
    for item in items:
        places = _list(lookup(item, "prov"))
        for place in places:
            if _number(place, "page_no") == page_number:
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
    rows = (
        " | ".join(first_text(cell, "text") or "" for cell in _list(row))
        for row in _list(lookup(item, "data.grid"))
    )
    return "\n".join(rows)


def _box(place: JSON, height: float | None) -> tuple[float, float, float, float] | None:
    """Return the box with its origin at the upper left, which PDF has at the lower left."""
    left, top, right, bottom = (_number(place, f"bbox.{side}") for side in "ltrb")
    if left is None or top is None or right is None or bottom is None:
        return None
    if first_text(place, "bbox.coord_origin") == "BOTTOMLEFT":
        if height is None:
            return None
        top, bottom = height - top, height - bottom
    return left, top, right, bottom


def _list(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _number(document: JSON, path: str) -> float | None:
    found = lookup(document, path)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None
