"""Boxes of blocks, out of the ways in which providers write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from coatcheck.task import JSON
from coatcheck_http import items, number

__all__ = ["Box", "box_around", "box_of", "numbers_at", "sized_box"]

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def numbers_at(document: JSON, path: str) -> Sequence[float | None]:
    """Return the list at `path`, with None for what is no number in it."""
    found = items(document, path)
    return [number(found, str(place)) for place in range(len(found))]


def box_of(sides: Iterable[float | None]) -> Box | None:
    """Return the box of left, top, right and bottom; None unless it is these four."""
    match tuple(sides):
        case (float(left), float(top), float(right), float(bottom)):
            return left, top, right, bottom
        case _:
            return None


def sized_box(sides: Iterable[float | None]) -> Box | None:
    """Return the box of left, top, width and height; None unless it is these four."""
    found = box_of(sides)
    if found is None:
        return None
    left, top, width, height = found
    return left, top, left + width, top + height


def box_around(points: Sequence[tuple[float, float]]) -> Box | None:
    """Return the upright box around points, each of them across and down; None if there are none."""
    if not points:
        return None
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across), max(down)
