"""What selectors remember: one state for each set of candidates, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from coatcheck import Selection

__all__ = ["MAX_SETS", "Sequences", "in_order"]

MAX_SETS = 1_000
"""Sets of candidates that are remembered; those that were not asked for longest begin anew."""

_S = TypeVar("_S")
_T = TypeVar("_T")


def in_order(selection: Selection) -> tuple[str, ...]:
    """Return the candidates in the one order that all selectors go by: that of their keys."""
    return tuple(sorted(selection.candidates))


class Sequences(Generic[_S]):
    """A state for each set of candidates, so that params of one type never disturb the turns of another."""

    def __init__(self, begin: Callable[[tuple[str, ...]], _S]) -> None:
        self._begin = begin
        self._states: OrderedDict[tuple[str, ...], _S] = OrderedDict()
        self._lock = threading.Lock()

    def step(self, candidates: tuple[str, ...], advance: Callable[[_S], _T]) -> _T:
        """Return what `advance` makes of the state of these candidates; one caller at a time."""
        with self._lock:  # held for microseconds, and never while something is awaited
            if candidates not in self._states:
                self._states[candidates] = self._begin(candidates)
                if len(self._states) > MAX_SETS:
                    self._states.popitem(last=False)
            self._states.move_to_end(candidates)
            return advance(self._states[candidates])
