"""Markdown and pages of a list of Unstructured's document elements.

Read from the page of docs.unstructured.io on document elements, and from `CoordinatesMetadata` of the library
unstructured for how coordinates are written, in 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import Box, box_around
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import sound
from coatcheck_http import first_text, items, lookup, number

__all__ = ["markdown_of", "pages_of"]

_DEEPEST = 6
"""Markdown has no deeper headings."""
_CORNERS = 2


def markdown_of(elements: Sequence[JSON]) -> str:
    """Return the elements as Markdown; tables as HTML where they are given so. Empty if there is no text."""
    parts: list[str] = []
    after_item = False
    for each in elements:
        text = _markdown(each)
        if text is None:
            continue
        is_item = _kind(each) == "ListItem"
        if parts:
            parts.append("\n" if is_item and after_item else "\n\n")
        parts.append(text)
        after_item = is_item
    return sound("".join(parts))


def pages_of(elements: Sequence[JSON]) -> Iterator[OcrPage]:
    """Yield the pages in order; none where elements have no page numbers, as those of HTML.

    An element without a number stands on the page of the one before it.
    """
    pages: dict[int, list[JSON]] = {}
    numbers = [_page_number(each) for each in elements]
    here = next((each for each in numbers if each is not None), None)
    if here is None:
        return
    for element, told in zip(elements, numbers, strict=True):
        here = here if told is None else told
        pages.setdefault(here, []).append(element)
    for page_number, members in sorted(pages.items()):
        yield OcrPage(
            index=page_number - 1,
            markdown=markdown_of(members),
            width=_first_number(members, "metadata.coordinates.layout_width"),
            height=_first_number(members, "metadata.coordinates.layout_height"),
            blocks=tuple(_block(each) for each in members),
        )


def _kind(element: JSON) -> str:
    return first_text(element, "type") or "UncategorizedText"


def _markdown(element: JSON) -> str | None:
    text = first_text(element, "text")
    match _kind(element):
        case "Title" if text is not None:
            depth = lookup(element, "metadata.category_depth")
            level = depth + 1 if isinstance(depth, int) and depth >= 0 else 1
            return f"{'#' * min(level, _DEEPEST)} {' '.join(text.split())}"
        case "ListItem" if text is not None:
            return f"- {text}"
        case "Table":
            return first_text(element, "metadata.text_as_html") or text
        case _:
            return text


def _page_number(element: JSON) -> int | None:
    found = lookup(element, "metadata.page_number")
    return found if isinstance(found, int) and found > 0 else None


def _block(element: JSON) -> OcrBlock:
    text = first_text(element, "text") or ""
    return OcrBlock(kind=_kind(element), text=sound(text), box=_box(element))


def _box(element: JSON) -> Box | None:
    """Return the box around an element, in pixels; other systems of coordinates have another origin."""
    if first_text(element, "metadata.coordinates.system") != "PixelSpace":
        return None
    points: list[tuple[float, float]] = []
    for point in items(element, "metadata.coordinates.points"):
        x, y = number(point, "0"), number(point, "1")
        if x is None or y is None:
            return None
        points.append((x, y))
    return box_around(points) if len(points) >= _CORNERS else None


def _first_number(elements: Sequence[JSON], path: str) -> float | None:
    found = (number(each, path) for each in elements)
    return next((each for each in found if each is not None), None)
