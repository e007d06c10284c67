"""What a claim sees before it takes anything: where lanes begin, what may wake up, and whose turn it is."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["AWAKE_GATES", "Ask", "Sight", "Turn"]

AWAKE_GATES = 100
"""How many gates of a handler that may have opened one claim looks at."""


class Turn(NamedTuple):
    """A task that stands in a lane, locked."""

    lane: int
    seq: int
    turn: str
    deadline: int
    mark: tuple[Any, ...] | None = None
    """Its id, seq, rev and place, if they were read by the way."""


class Ask(NamedTuple):
    """A lane that is asked for its next turns."""

    lane: int
    turn: str
    """From where on; the turn itself, too."""
    limit: int


class Sight(NamedTuple):
    """What there is for some handlers, in lanes of one kind."""

    open_lanes: dict[int, str]
    """The heads of lanes that are not parked, the first ones, in order."""
    awake: dict[tuple[str, str], int]
    """(gate, handler) whose parked lanes are to be looked at, and since when."""
    parked: dict[int, tuple[str, str]]
    """(head, gate) of lanes that are parked under them, the first ones, in order."""
    asleep: bool = False
    """Whether there are tasks that have become due, and stand in no lane yet."""
    depth: int = 0
    """How many turns each lane was asked for, if it is known that no gate stands before any of them in this step."""
    turns: tuple[Turn, ...] = ()
    """Those turns."""
