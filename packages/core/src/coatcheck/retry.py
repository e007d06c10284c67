"""When to ask again: the contract of retry policies, and the default one."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from datetime import timedelta

from attrs import field, frozen

from coatcheck.errors import InvalidParams, SubmitDeferred
from coatcheck.results import QueryResult
from coatcheck.task import Task

__all__ = ["ExponentialRetry", "RetryPolicy"]


class RetryPolicy(ABC):
    """Says how long to wait before the next call. The worker never waits past the task's deadline.

    Each method gets the task as it stands with this attempt's counts already in it.
    """

    @abstractmethod
    def next_submit_delay(self, task: Task, error: SubmitDeferred) -> timedelta:
        """Return how long to wait before submitting again what was certainly not created."""

    @abstractmethod
    def next_query_delay(self, task: Task, result: QueryResult | None) -> timedelta:
        """Return how long to wait before the next query; `result` is None before the first."""

    @abstractmethod
    def next_error_delay(self, task: Task, error: Exception) -> timedelta | None:
        """Return how long to wait after a query that failed, or None to give the task up as FAILED."""


@frozen(kw_only=True)
class ExponentialRetry(RetryPolicy):
    """Delays that grow by `factor` from `initial` to `maximum`, shortened by up to `jitter` of themselves.

    A provider's hint or Retry-After counts when it is longer, up to `ceiling`; no delay is shorter than
    `floor`. Jitter stays at the maximum delay, so that many tasks of one moment spread out; a hint is
    jittered upwards, because asking earlier than told is an error.
    """

    initial: timedelta = timedelta(seconds=1)
    """The first delay."""
    factor: float = 1.5
    """How much longer each delay is than the one before; at least 1."""
    maximum: timedelta = timedelta(seconds=30)
    """The longest delay of its own making."""
    floor: timedelta = timedelta()
    """No delay is shorter, whatever the jitter."""
    ceiling: timedelta = timedelta(minutes=15)
    """No hint of a provider counts for more."""
    jitter: float = 0.25
    """Between 0 (none) and 1 (anything between nothing and the whole delay)."""
    max_consecutive_errors: int | None = None
    """Query errors in a row that make the task FAILED; None lets only the deadline end it."""
    seed: int | None = None
    """Makes the jitter repeatable, for tests."""
    _random: random.Random = field(init=False, repr=False, eq=False)
    _steps_to_maximum: float = field(init=False, repr=False, eq=False)

    @_random.default
    def _make_random(self) -> random.Random:
        return random.Random(self.seed)  # noqa: S311 - jitter is no secret

    @_steps_to_maximum.default
    def _count_steps(self) -> float:
        if not (self.factor > 1 and timedelta() < self.initial <= self.maximum):
            return math.inf
        return math.log(self.maximum / self.initial) / math.log(self.factor)

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        wrong = {
            "initial must be positive": self.initial <= timedelta(),
            "factor must be at least 1": not self.factor >= 1,
            "maximum must not be below initial": self.maximum < self.initial,
            "floor must not be negative": self.floor < timedelta(),
            "ceiling must not be below floor": self.ceiling < self.floor,
            "jitter must be between 0 and 1": not 0 <= self.jitter <= 1,
            "max_consecutive_errors must be at least 1, or None": self.max_consecutive_errors is not None
            and self.max_consecutive_errors < 1,
        }
        for rule, broken in wrong.items():
            if broken:
                message = f"{rule}: {self!r}"
                raise InvalidParams(message)

    def next_submit_delay(self, task: Task, error: SubmitDeferred) -> timedelta:
        """Grow with the deferrals in a row."""
        return self._delay(task.progress.consecutive_errors, error.retry_after)

    def next_query_delay(self, task: Task, result: QueryResult | None) -> timedelta:
        """Grow with the number of queries."""
        return self._delay(task.progress.query_count + 1, result.retry_after if result else None)

    def next_error_delay(self, task: Task, error: Exception) -> timedelta | None:
        """Grow with the errors in a row; give up at `max_consecutive_errors`."""
        errors = task.progress.consecutive_errors
        if self.max_consecutive_errors is not None and errors >= self.max_consecutive_errors:
            return None
        return self._delay(errors, getattr(error, "retry_after", None))

    def _delay(self, nth: int, hint: object) -> timedelta:
        """Return the `nth` delay, counted from 1, never below the floor, nor the hint if it is a duration.

        Errors of SDKs have a `retry_after`, too, in units of their own.
        """
        steps = max(nth, 1) - 1
        grows = steps < self._steps_to_maximum
        own = self.initial.total_seconds() * self.factor**steps if grows else self.maximum.total_seconds()
        spread = self.jitter * self._random.random()
        seconds = own * (1 - spread)
        if isinstance(hint, timedelta) and hint > timedelta():
            asked = min(hint, self.ceiling).total_seconds()
            if asked > seconds:
                seconds = asked + min(asked, own) * spread
        return max(self.floor, timedelta(seconds=seconds))
