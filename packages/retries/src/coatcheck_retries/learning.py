"""A policy that asks when a job is likely to be done, by how long such jobs have taken lately."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from attrs import field, frozen

from coatcheck import Task, TaskChange
from coatcheck_retries.paces import ProportionalRetry
from coatcheck_retries.pacing import age_of

__all__ = ["LearnedRetry", "learned"]

_GUESSED = 0.1
"""How often a duration is guessed afresh, so that a provider that has become quicker is noticed."""


class _Durations:
    """How long the last jobs of one handler took, in seconds.

    Nobody sees when a job is done: it is known to lie between the last query that said "not yet" and the one that
    said "done". Recording the latter would make every lateness a duration, and the next query later still. So one
    of the durations known to lie between the two is taken again, or, sometimes and where none is known, any time.
    """

    def __init__(self, remembers: int, chance: Random) -> None:
        self._last: deque[float] = deque(maxlen=remembers)
        self._chance = chance
        self.sorted: tuple[float, ...] = ()
        """The same in order; replaced as a whole, so that readers need no lock."""

    def add(self, after: float, until: float) -> None:
        """Record a job that took longer than `after` and at most `until`."""
        first, last = bisect_right(self.sorted, after), bisect_right(self.sorted, until)
        guessed = first == last or self._chance.random() < _GUESSED
        self._last.append(
            self._chance.uniform(after, until) if guessed else self._chance.choice(self.sorted[first:last])
        )

    def sort(self) -> None:
        """Let readers see what was added."""
        self.sorted = tuple(sorted(self._last))


@frozen(kw_only=True)
class LearnedRetry(ProportionalRetry):
    """Asks when a job is likely to be done, by how long the last ones of the same handler took.

    It is an observer: the app tells it what its worker has committed, so each process learns for itself. Until it
    knows enough, and for a job that takes longer than nearly all before it, it keeps the pace of
    `ProportionalRetry`. After the first query it never waits longer than the job is old.
    """

    likely: float = 0.3
    """The next query comes when this share of the jobs that took longer than this one has been done; above 0,
    below 1. Smaller asks more often, and is less late."""
    minimum: int = 20
    """How many jobs have to be known; at least 2."""
    remembers: int = 200
    """How many are remembered for each handler; the oldest are forgotten first."""
    jitter: float = 0.1
    """How much of a delay is left to chance."""
    _known: dict[str, _Durations] = field(init=False, factory=dict, repr=False, eq=False)
    _learning: threading.Lock = field(init=False, factory=threading.Lock, repr=False, eq=False)

    def _wrong(self) -> dict[str, bool]:
        return {
            **super()._wrong(),
            "likely must be above 0 and below 1": not 0 < self.likely < 1,
            "minimum must be at least 2": self.minimum < 2,  # noqa: PLR2004 - one is no distribution
            "remembers must not be below minimum": self.remembers < self.minimum,
        }

    def pace(self, task: Task) -> timedelta:
        """Wait until it is likely to be done."""
        known = self._known.get(task.route.handler_key)
        durations = known.sorted if known is not None else ()
        age = age_of(task)
        past = bisect_right(durations, age.total_seconds())
        left = len(durations) - past
        if len(durations) < self.minimum or left <= len(durations) // 50:
            return super().pace(task)
        wait = timedelta(seconds=durations[past + int(left * self.likely)]) - age
        if age:  # a job that is slow for its kind may be done any moment
            wait = min(wait, age)
        return max(self.initial, wait)

    def coatcheck_tasks_changed(self, changes: Sequence[TaskChange]) -> None:
        """Learn from jobs that the provider has ended; called by the app, in a thread of its own."""
        with self._learning:
            touched = {key for key in map(self._learn, changes) if key is not None}
            for key in touched:
                self._known[key].sort()

    def _learn(self, change: TaskChange) -> str | None:
        """Record one job, and return its handler; None if the change tells nothing of a duration."""
        before, after = change.before, change.after
        accepted_at, finished_at = after.progress.accepted_at, after.outcome.finished_at
        if change.event != "Finished" or before is None or not before.status.queryable:
            return None
        if accepted_at is None or finished_at is None or before.progress.consecutive_errors:
            return None  # a query that failed does not say "not yet"
        until = (finished_at - accepted_at).total_seconds()
        not_yet_at = before.progress.queried_at
        not_yet = (not_yet_at - accepted_at).total_seconds() if not_yet_at is not None else 0.0
        if until <= 0 or not_yet >= until:
            return None
        key = after.route.handler_key
        if key not in self._known:
            self._known[key] = _Durations(self.remembers, Random(self.seed))  # noqa: S311 - no secret
        self._known[key].add(max(not_yet, 0.0), until)
        return key


def learned(likely: float = 0.3, **settings: object) -> LearnedRetry:
    """Return a policy that asks when a job is likely to be done; `settings` are its other fields."""
    return LearnedRetry(likely=likely, **settings)  # type: ignore[arg-type] # attrs and its checks say what is wrong
