"""The order in which a page's lines are read."""

import statistics
from collections.abc import Iterator, Sequence

from attrs import frozen

_COLUMN_LINES = 3
"""Fewer lines beside a gap are a caption or a date, not a column."""
_COLUMN_ASPECT = 6.0
"""Columns of prose hold lines several times as wide as high; a table's columns of figures don't."""


@frozen(kw_only=True)
class Line:
    """A line of text where an engine saw it; coordinates in pixels, the origin is the upper left corner."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """How high the line is."""
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        """The height of the line's middle on the page."""
        return (self.top + self.bottom) / 2


@frozen(kw_only=True)
class Block:
    """A paragraph; coordinates as those of its lines, all 0 if nobody knows."""

    text: str
    """Its lines, separated by newlines."""
    left: float = 0.0
    top: float = 0.0
    right: float = 0.0
    bottom: float = 0.0


def read_blocks(lines: Sequence[Line]) -> tuple[Block, ...]:
    """A page's paragraphs, in reading order."""
    if not lines:
        return ()
    height = statistics.median(line.height for line in lines)
    blocks: list[Block] = []
    for part in _parts(lines, height):
        blocks.extend(_paragraphs(part, height))
    return tuple(blocks)


def _parts(lines: Sequence[Line], height: float) -> list[Sequence[Line]]:
    """The page cut into areas that are read one by one: columns, and what is above and below them."""
    if not lines:
        return []
    columns = _columns(lines, height)
    if columns is not None:
        return [part for column in columns for part in _parts(column, height)]
    for above, middle, below in _bands(lines):
        columns = _columns(middle, height)
        if columns is not None:
            inner = [part for column in columns for part in _parts(column, height)]
            return [above, *inner, *_parts(below, height)]
    return [lines]


def _columns(lines: Sequence[Line], height: float) -> tuple[Sequence[Line], Sequence[Line]] | None:
    """The lines left and right of the first gutter, or None if this is not set in columns."""
    ordered = sorted(lines, key=lambda line: line.left)
    edge = ordered[0].right
    for index, line in enumerate(ordered):
        sides = ordered[:index], ordered[index:]
        if line.left - edge >= height * 0.8 and all(_is_column(side) for side in sides):
            return sides
        edge = max(edge, line.right)
    return None


def _is_column(lines: Sequence[Line]) -> bool:
    if len(lines) < _COLUMN_LINES:
        return False
    return statistics.median((line.right - line.left) / line.height for line in lines) >= _COLUMN_ASPECT


def _bands(lines: Sequence[Line]) -> Iterator[tuple[Sequence[Line], Sequence[Line], Sequence[Line]]]:
    """Each way to cut off something at the top, then also at the bottom, the largest middles first."""
    ordered = sorted(lines, key=lambda line: line.middle)
    cuts = [0, *_horizontal_cuts(ordered), len(ordered)]
    # The lower end is the outer loop: a heading over columns is common, a footer below them is rare.
    for end in reversed(cuts[1:]):
        for start in cuts:
            if start < end and (start > 0 or end < len(ordered)):
                yield ordered[:start], ordered[start:end], ordered[end:]


def _horizontal_cuts(ordered: Sequence[Line]) -> list[int]:
    """Where no line, taken without the padding that engines add, crosses from above to below."""
    cuts = []
    floor = ordered[0].bottom - ordered[0].height / 4
    for index, line in enumerate(ordered[1:], start=1):
        if line.top + line.height / 4 >= floor:
            cuts.append(index)
        floor = max(floor, line.bottom - line.height / 4)
    return cuts


def _paragraphs(lines: Sequence[Line], height: float) -> list[Block]:
    paragraphs: list[list[list[Line]]] = []
    previous: list[Line] | None = None
    for row in _rows(lines):
        gap = 0.0 if previous is None else row[0].top - previous[0].bottom
        if previous is None or gap >= height * 0.5:
            paragraphs.append([])
        paragraphs[-1].append(row)
        previous = row
    return [_block(rows) for rows in paragraphs]


def _block(rows: Sequence[Sequence[Line]]) -> Block:
    lines = [line for row in rows for line in row]
    return Block(
        text="\n".join(" ".join(line.text for line in row) for row in rows),
        left=min(line.left for line in lines),
        top=min(line.top for line in lines),
        right=max(line.right for line in lines),
        bottom=max(line.bottom for line in lines),
    )


def _rows(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines at one height, left to right.

    Each is compared with its left neighbour only: on a skewed page the two ends of a row may be a line apart.
    """
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.left):
        near = [row for row in rows if row[-1].right <= line.left + line.height]
        row = min(near, key=lambda row: abs(row[-1].middle - line.middle), default=None)
        if row is not None and abs(row[-1].middle - line.middle) <= min(row[-1].height, line.height) / 2:
            row.append(line)
        else:
            rows.append([line])
    return sorted(rows, key=lambda row: row[0].middle)
