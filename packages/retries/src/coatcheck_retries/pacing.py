"""What all these policies have in common: hints, bounds, jitter, the deadline, and backing off after errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from datetime import datetime, timedelta
from random import Random

from attrs import field, frozen

from coatcheck import InvalidParams, QueryResult, RetryPolicy, SubmitDeferred, Task

__all__ = ["PacedRetry", "age_of", "asked_at", "grown"]

_ZERO = timedelta()
_SECOND = timedelta(seconds=1)


def asked_at(task: Task) -> datetime:
    """Return when the present call was started, by the store's clock: a policy asks no other.

    A snapshot that tells nothing of a call is taken to be as old as the last thing that it tells.
    """
    lease, progress = task.lease, task.progress
    told = (
        lease.started_at if lease else None,
        lease.granted_at if lease else None,
        progress.queried_at,
        progress.accepted_at,
        task.attempt.started_at if task.attempt else None,
        task.schedule.created_at,
    )
    return max(each for each in told if each is not None)


def age_of(task: Task) -> timedelta:
    """Return for how long the provider has had the job; zero while it is being submitted."""
    accepted_at = task.progress.accepted_at
    return max(_ZERO, asked_at(task) - accepted_at) if accepted_at is not None else _ZERO


def grown(first: timedelta, factor: float, steps: int, maximum: timedelta) -> timedelta:
    """Return `first`, made longer by `factor` that many times, and no longer than `maximum`."""
    if factor > 1 and steps > math.log(maximum / first) / math.log(factor):
        return maximum
    return min(first * factor**steps, maximum)


@frozen(kw_only=True)
class PacedRetry(RetryPolicy):
    """The base: `pace` says how long to wait while a job goes on, and the rest is the same for all.

    A delay is shortened by chance, by up to `jitter` of itself, also the longest. What a provider asks for counts
    if it is longer, up to `ceiling`, and is lengthened by chance instead. Nothing is shorter than `floor`. A delay
    that would reach past the deadline is cut so that one last query comes shortly before it.
    """

    initial: timedelta = _SECOND
    """The first delay, also after an error."""
    maximum: timedelta = timedelta(minutes=5)
    """The longest delay of its own making."""
    floor: timedelta = _ZERO
    """No delay is shorter, whatever the jitter."""
    ceiling: timedelta = timedelta(minutes=15)
    """No hint of a provider counts for more."""
    jitter: float = 0.25
    """Between 0 (none) and 1 (anything between nothing and the whole delay)."""
    max_consecutive_errors: int | None = None
    """Query errors in a row that make the task FAILED; None lets only the deadline end it."""
    seed: int | None = None
    """Makes the jitter repeatable, for tests."""
    _chance: Random = field(init=False, repr=False, eq=False)

    @_chance.default
    def _make_chance(self) -> Random:
        return Random(self.seed)  # noqa: S311 - jitter is no secret

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        for rule, broken in self._wrong().items():
            if broken:
                message = f"{rule}: {self!r}"
                raise InvalidParams(message)

    def _wrong(self) -> dict[str, bool]:
        """Return rules about the settings, and whether each is broken."""
        errors = self.max_consecutive_errors
        return {
            "initial must be positive": self.initial <= _ZERO,
            "maximum must not be below initial": self.maximum < self.initial,
            "floor must not be negative": self.floor < _ZERO,
            "maximum must not be below floor": self.maximum < self.floor,
            "ceiling must not be below floor": self.ceiling < self.floor,
            "jitter must be between 0 and 1": not 0 <= self.jitter <= 1,
            "max_consecutive_errors must be at least 1, or None": errors is not None and errors < 1,
        }

    @abstractmethod
    def pace(self, task: Task) -> timedelta:
        """Return how long to wait until the next query of a job that goes on, before jitter and bounds."""

    def backoff(self, errors: int) -> timedelta:
        """Return how long to wait after that many errors in a row: twice as long each time, from `initial`."""
        return grown(self.initial, 2.0, max(errors, 1) - 1, self.maximum)

    def next_submit_delay(self, task: Task, error: SubmitDeferred) -> timedelta:
        """Back off."""
        return self._delay(task, self.backoff(task.progress.consecutive_errors), error.retry_after)

    def next_query_delay(self, task: Task, result: QueryResult | None) -> timedelta:
        """Keep the pace."""
        return self._delay(task, self.pace(task), result.retry_after if result else None)

    def next_error_delay(self, task: Task, error: Exception) -> timedelta | None:
        """Back off, and give up at `max_consecutive_errors`."""
        errors = task.progress.consecutive_errors
        if self.max_consecutive_errors is not None and errors >= self.max_consecutive_errors:
            return None
        return self._delay(task, self.backoff(errors), getattr(error, "retry_after", None))

    def _delay(self, task: Task, own: timedelta, hint: object) -> timedelta:
        """Return the delay that comes of our own wish, the provider's, and the bounds.

        Errors of SDKs have a `retry_after`, too, in units of their own; only a duration is a hint.
        """
        own = min(own, self.maximum)
        spread = self.jitter * self._chance.random()
        delay = self._before_deadline(task, max(own * (1 - spread), self.floor))
        if isinstance(hint, timedelta) and hint > _ZERO:
            asked = min(hint, self.ceiling)
            if asked > delay:
                delay = asked + min(asked, own) * spread
        return max(delay, self.floor)

    @staticmethod
    def _before_deadline(task: Task, delay: timedelta) -> timedelta:
        """Return a delay that leaves time for one last query: a twentieth of what is left, at least a second."""
        left = task.schedule.deadline_at - asked_at(task)
        last = left - max(left / 20, _SECOND)
        return last if _ZERO < last < delay else delay
