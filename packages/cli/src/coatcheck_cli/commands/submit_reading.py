"""What `coatcheck submit` reads: params as JSON, from a file or standard input, and values, one a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coatcheck_cli.commands.tasks_texts import json_argument
from coatcheck_cli.failing import Exit, Failure

__all__ = ["documents_of", "lines_of"]


def documents_of(text: str | None) -> list[Mapping[str, Any]]:
    """Return the objects that --params give; none if it is not given."""
    if text is None:
        return []
    if text.startswith("@"):
        text, what = _file_text(text[1:]), f"--params {text}"
    else:
        what = "--params"
    found = json_argument(text, what)
    documents = found if isinstance(found, list) else [found]
    for each in documents:
        if not isinstance(each, dict):
            message = f"{what} is an object, or an array of them, and one is {type(each).__name__}"
            raise Failure(message, Exit.USAGE)
    return documents


def _file_text(place: str) -> str:
    if place == "-":
        return _standard_input()
    try:
        return Path(place).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        message = f"--params: {place!r} cannot be read: {why}"
        raise Failure(message, Exit.USAGE) from error


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"standard input is not text in UTF-8, from line {line} on; nothing was submitted"
        raise Failure(message, Exit.USAGE) from error


def lines_of(values: Sequence[str], *, input_taken: bool) -> Iterator[tuple[str, str]]:
    """Return each value with what it is called; ``-`` stands for the lines of standard input that are not blank.

    Raises:
        Failure: standard input is wanted twice (`input_taken` tells that params were read from it), or is no text.
    """
    if values.count("-") + input_taken > 1:
        raise Failure("standard input can be read once, and is named twice", Exit.USAGE)
    for number, value in enumerate(values, 1):
        if value != "-":
            yield f"value {number}", value
            continue
        for line_number, line in enumerate(_standard_input().split("\n"), 1):
            if line.strip():
                yield f"line {line_number}", line.strip()
