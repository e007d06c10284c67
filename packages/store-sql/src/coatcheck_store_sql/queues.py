"""A lane as a claim walks along it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from coatcheck_store_sql.lanes import Lane
from coatcheck_store_sql.sight import Turn

__all__ = ["Queue"]


@define
class Queue:
    """What is known of one lane."""

    lane_id: int
    lane: Lane
    head: str
    """As stored; at or before its first turn."""
    parked_by: str | None
    """As stored."""
    buffer: list[Turn] = field(factory=list)
    """Turns still to come, last one first."""
    depth: int = 0
    """How many turns it was asked for last; 0: it was not asked yet."""
    read_to: str | None = None
    """The last turn that was read."""
    ends: bool = False
    """Whether there is none behind that."""
    next_turn: str | None = None
    """Where it goes on; None: it is empty. Meaningful once `walked`."""
    walked: bool = False
    blocked_by: str | None = None
    """The gate that was closed when its next task came."""
    taken: str | None = None
    """The last turn that was taken."""

    def extend(self, turns: Iterable[Turn], asked: int) -> None:
        """Go on with what was found when it was asked for `asked` turns from `read_to`, or its head, on.

        The last turn that was read is found again, and dropped: turns are unique.
        """
        found = sorted(turns, key=_turn)
        self.ends = len(found) < asked
        new = found if self.read_to is None else [turn for turn in found if turn.turn > self.read_to]
        if new:
            self.read_to = new[-1].turn
        self.buffer[:0] = new[::-1]
        self.walked = True
        self.next_turn = self.buffer[-1].turn if self.buffer else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found in it."""
        return self.walked and self.taken is None and self.blocked_by is None and self.next_turn is None

    @property
    def begins_later(self) -> bool:
        """Whether it begins behind its head."""
        return self.taken is not None or (self.blocked_by is None and self.next_turn != self.head)


def _turn(turn: Turn) -> str:
    return turn.turn
