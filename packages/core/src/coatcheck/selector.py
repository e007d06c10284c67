"""The contract of selectors: which of several handlers gets a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from attrs import field, frozen

from coatcheck.gates import GateUsage
from coatcheck.task import JSON

__all__ = ["Load", "Outcomes", "Selection", "Selector", "Standing"]


@frozen(kw_only=True)
class Load:
    """How many tasks one handler has that have not ended, across the fleet."""

    waiting: int = 0
    """PENDING_SUBMIT tasks, also those whose time has not come."""
    active: int = 0
    """SUBMITTING, SUBMITTED and RUNNING tasks."""

    @property
    def total(self) -> int:
        """Both."""
        return self.waiting + self.active


@frozen(kw_only=True)
class Outcomes:
    """How tasks of one handler have ended lately, across the fleet. Cancelled ones do not count."""

    good: int = 0
    """SUCCEEDED."""
    bad: int = 0
    """FAILED, SUBMIT_UNKNOWN and TRACKING_TIMED_OUT."""


class Standing:
    """How the candidates stand in the store. This one knows nothing: no gates, no tasks, no outcomes.

    The manager's asks the store when a selector asks it, and remembers the answer for about a second. Each
    answer has every candidate of the selection that the manager made, also those that a selector around this
    one has left out. All may raise `StoreUnavailable`.
    """

    async def gates(self) -> Mapping[str, Sequence[GateUsage]]:
        """Return the defined gates that this task would pass at each candidate, each with its usage.

        A pause that has ended by itself is taken out: where `pause` is set, the gate grants nothing now.
        """
        return {}

    async def load(self) -> Mapping[str, Load]:
        """Return how much each candidate has to do; what this process sends there meanwhile is counted, too."""
        return {}

    async def outcomes(self, within: timedelta) -> Mapping[str, Outcomes]:
        """Return how the tasks of each candidate have ended within that time.

        Known is what has ended since this process first asked; before, and for who has ended nothing, none.
        """
        return {}


@frozen(kw_only=True)
class Selection:
    """What a selector decides on: read-only."""

    params: object
    """What is being submitted; a copy, so that a selector cannot change what is persisted."""
    options: Mapping[str, JSON]
    """The submit options that were given, as JSON."""
    candidates: tuple[str, ...]
    """Keys of the handlers that take these params, sorted; the answer must be one of them."""
    standing: Standing = field(factory=Standing, repr=False, eq=False)
    """How the candidates stand in the store, for selectors that want to know."""


Selector: TypeAlias = Callable[[Selection], Awaitable[str]]
"""Returns the key of the handler that gets the task; called once for a task, its answer is persisted."""
