"""From the shards of a document that Google Document AI writes to pages.

Shapes are those generally known of `google.cloud.documentai.v1.Document` in the provider's public protocol definitions,
which were not at hand, as JSON: a shard has a text, and its pages and their parts point into it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from coatcheck.task import JSON
from coatcheck_handler_ocr.boxes import Box, box_around
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import given_text, sound
from coatcheck_http import HttpRequest, HttpResponse, first_text, items, lookup, number, segment

__all__ = ["Shard", "numbered", "read_shard", "read_shards"]

Ask = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Gets a good answer of Cloud Storage, or raises."""

_MOST_LISTINGS = 100

_PARTS = (("paragraph", "paragraphs"), ("block", "blocks"), ("line", "lines"))
"""Parts of a page by their word; the first that there are count."""


@frozen(kw_only=True)
class Shard:
    """One file of a result."""

    name: str
    """Of the object."""
    index: int = 0
    """Its place among the shards of a document."""
    text: str = ""
    pages: tuple[OcrPage, ...] = ()
    problem: str | None = None
    """What the provider says went wrong in this document."""


def read_shard(response: HttpResponse, name: str) -> Shard:
    """Return a shard. It may take a while: call it in a thread.

    Raises:
        UnreadableAnswer: it is no JSON object.
    """
    body = response.json_object()
    words = given_text(body, "text") or ""
    return Shard(
        name=name,
        index=int(_count(body, "shardInfo.shardIndex") or 0),
        text=sound(words),
        pages=tuple(_page(each, words) for each in items(body, "pages")),
        problem=first_text(body, "error.message"),
    )


async def read_shards(
    folders: Iterable[str], ask: Ask, *, storage_url: str, most: int, most_bytes: int
) -> tuple[list[Shard], bool]:
    """Return the files below these prefixes, ``gs://bucket/...``, in order, and whether these are all."""
    found: list[Shard] = []
    size_bytes = 0
    for folder in folders:
        bucket, _, prefix = folder.removeprefix("gs://").partition("/")
        place = f"{storage_url}/storage/v1/b/{segment(bucket)}/o"
        names, whole = await _names(place, prefix, ask)
        here: list[Shard] = []
        for name in names:
            if len(found) + len(here) >= most or size_bytes >= most_bytes:
                return [*found, *_in_order(here)], False
            response = await ask(HttpRequest.get(f"{place}/{segment(name)}", query={"alt": "media"}))
            size_bytes += len(response.body)
            here.append(await asyncio.to_thread(read_shard, response, f"gs://{bucket}/{name}"))
        found += _in_order(here)
        if not whole:
            return found, False
    return found, True


async def _names(place: str, prefix: str, ask: Ask) -> tuple[list[str], bool]:
    """Return the JSON files below a prefix, and whether these are all."""
    names: list[str] = []
    query = {"prefix": prefix}
    for _ in range(_MOST_LISTINGS):
        body = (await ask(HttpRequest.get(place, query=query))).json_object()
        told = (first_text(each, "name") for each in items(body, "items"))
        names += [each for each in told if each is not None and each.endswith(".json")]
        token = first_text(body, "nextPageToken")
        if token is None:
            return names, True
        query = {"prefix": prefix, "pageToken": token}
    return names, False


def _in_order(shards: Iterable[Shard]) -> list[Shard]:
    """Return shards in the order of the document: by their own number, or else by those in their names."""
    return sorted(shards, key=lambda shard: (shard.index, _natural(shard.name)))


def numbered(shards: Iterable[Shard]) -> tuple[OcrPage, ...]:
    """Return the pages of all shards, counted through: whether the provider does so is not documented."""
    pages = (page for shard in shards for page in shard.pages)
    return tuple(evolve(page, index=index) for index, page in enumerate(pages))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts ``a-10.json`` after ``a-9.json``."""
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in re.split(r"(\d+)", name)]


def _page(page: JSON, text: str) -> OcrPage:
    width, height = (number(page, f"dimension.{name}") for name in ("width", "height"))
    blocks: tuple[OcrBlock, ...] = ()
    for kind, parts in _PARTS:
        blocks = tuple(_block(kind, each, text, (width, height)) for each in items(page, parts))
        if blocks:
            break
    words = _pointed(lookup(page, "layout"), text) or "\n\n".join(each.text for each in blocks if each.text)
    return OcrPage(index=0, markdown=words, width=width, height=height, blocks=blocks)


def _block(kind: str, part: JSON, text: str, size: tuple[float | None, float | None]) -> OcrBlock:
    layout = lookup(part, "layout")
    return OcrBlock(kind=kind, text=_pointed(layout, text), box=_box(layout, size))


def _pointed(layout: JSON, text: str) -> str:
    """Return the text that a layout points to. Numbers are texts in JSON, and 0 is left out."""
    found = []
    for each in items(layout, "textAnchor.textSegments"):
        begin, end = _count(each, "startIndex") or 0, _count(each, "endIndex") or 0
        found.append(text[max(int(begin), 0) : max(int(end), 0)])
    return sound("".join(found)).strip()


def _box(layout: JSON, size: tuple[float | None, float | None]) -> Box | None:
    """Return the box around a polygon, in the unit of the page."""
    width, height = size
    points = list(_points(layout, "boundingPoly.normalizedVertices"))
    if points and width is not None and height is not None:
        return box_around([(x * width, y * height) for x, y in points])
    return box_around(list(_points(layout, "boundingPoly.vertices")))


def _points(layout: JSON, path: str) -> Iterator[tuple[float, float]]:
    """Yield the corners of a polygon; 0 is left out in JSON."""
    for each in items(layout, path):
        if isinstance(each, Mapping):
            yield number(each, "x") or 0.0, number(each, "y") or 0.0


def _count(document: JSON, path: str) -> float | None:
    """Return a whole number, which is a text in JSON if it may be a large one."""
    found = lookup(document, path)
    if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) <= 15:  # noqa: PLR2004 - exact as a float
        return float(found)
    return number(document, path)
