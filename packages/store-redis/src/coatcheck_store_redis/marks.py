"""Marks of steps that must not be made twice, though they are repeated when their answer was lost."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Marks"]

_MEMORY_SECONDS = 300


class Marks:
    """The places of one store in one process; each has at most one call, so the server remembers few marks."""

    def __init__(self, seconds: float) -> None:
        """Let the server remember a mark for longer than a call may take, which is `seconds`."""
        self._store = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._free: list[int] = []
        self._memory_millis = round(max(_MEMORY_SECONDS, 2 * seconds) * 1000)

    @contextmanager
    def one(self) -> Iterator[tuple[str, str, int]]:
        """Lend what a script wants to know of one call: its place, its mark, and how long to remember it."""
        try:
            number = self._free.pop()
        except IndexError:
            number = next(self._numbers)
        # a process that was forked has the same numbers, and places of its own
        yield f"{self._store}.{os.getpid()}.{number}", secrets.token_hex(8), self._memory_millis
        # not after a failure: the step may still be on its way, and would take the mark of the next one
        self._free.append(number)
