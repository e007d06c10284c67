"""On which line of a TOML file something stands, for errors that lead there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["line_of"]

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"^\s*\[\[?\s*({_NAME})\s*\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(rf"^\s*({_NAME})\s*=")
_TRIPLE = re.compile(r'"""|' + r"'''")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line, counted from 1, of the table or entry at `path`, or of what is nearest above it in the path.

    It looks for names, and does not read TOML: the text is known to be sound. Inline tables have one line.
    """
    best: tuple[int, int] | None = None
    for line, found in _names(text):
        shared = len(found) if tuple(path[: len(found)]) == found else 0
        if shared and (best is None or shared > best[0]):
            best = (shared, line)
    return None if best is None else best[1]


def _names(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each table and entry with its line; what stands in a text of several lines is none."""
    table: tuple[str, ...] = ()
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        quotes = len(_TRIPLE.findall(line))
        if inside:
            inside = quotes % 2 == 0
            continue
        header, entry = _HEADER.match(line), _ENTRY.match(line)
        if header is not None:
            table = _split(header[1])
            yield number, table
        elif entry is not None:
            yield number, (*table, *_split(entry[1]))
        inside = quotes % 2 == 1


def _split(name: str) -> tuple[str, ...]:
    return tuple(_unquoted(part) for part in re.findall(_PART, name))


def _unquoted(part: str) -> str:
    if part.startswith("'"):
        return part[1:-1]
    return re.sub(r"\\(.)", r"\1", part[1:-1]) if part.startswith('"') else part
