"""Policies that need no memory: exponential with full or equal jitter, fixed, and proportional."""

from __future__ import annotations

from datetime import timedelta

from attrs import frozen

from coatcheck import Task
from coatcheck_retries.pacing import PacedRetry, age_of, grown

__all__ = [
    "EqualJitterRetry",
    "FixedRetry",
    "FullJitterRetry",
    "ProportionalRetry",
    "equal_jitter",
    "fixed",
    "full_jitter",
    "proportional",
]


@frozen(kw_only=True)
class FullJitterRetry(PacedRetry):
    """Grows by `factor` with every query, and waits for anything between nothing and that."""

    factor: float = 2.0
    """How much longer each delay is than the one before; at least 1."""
    maximum: timedelta = timedelta(seconds=60)
    """The longest delay of its own making."""
    jitter: float = 1.0
    """How much of a delay is left to chance: all of it."""

    def _wrong(self) -> dict[str, bool]:
        return {**super()._wrong(), "factor must be at least 1": not self.factor >= 1}

    def pace(self, task: Task) -> timedelta:
        """Grow with the number of queries."""
        return grown(self.initial, self.factor, task.progress.query_count, self.maximum)


@frozen(kw_only=True)
class EqualJitterRetry(FullJitterRetry):
    """Grows by `factor` with every query, and waits for half of that, and anything up to the other half."""

    jitter: float = 0.5
    """How much of a delay is left to chance: half of it."""


@frozen(kw_only=True)
class FixedRetry(PacedRetry):
    """Asks at the same interval, `initial`, however long it takes; only after errors it backs off."""

    initial: timedelta = timedelta(seconds=10)
    """The interval."""
    jitter: float = 0.1
    """How much of a delay is left to chance."""

    def pace(self, task: Task) -> timedelta:
        """Stay as it is."""
        return self.initial


@frozen(kw_only=True)
class ProportionalRetry(PacedRetry):
    """Waits for a share of the job's age: a job of ten seconds is asked about often, one of ten minutes seldom.

    So the result is late by no more than that share of what the job took, and the number of queries grows with
    the logarithm of it.
    """

    share: float = 0.25
    """How much of its age a job waits for; above 0."""
    jitter: float = 0.2
    """How much of a delay is left to chance."""

    def _wrong(self) -> dict[str, bool]:
        return {**super()._wrong(), "share must be above 0": not self.share > 0}

    def pace(self, task: Task) -> timedelta:
        """Grow with the age."""
        seconds = min(age_of(task).total_seconds() * self.share, self.maximum.total_seconds())
        return max(self.initial, timedelta(seconds=seconds))


def full_jitter(**settings: object) -> FullJitterRetry:
    """Return a policy of exponential delays that are left to chance as a whole; `settings` are its fields."""
    return FullJitterRetry(**settings)  # type: ignore[arg-type] # attrs and the checks above say what is wrong


def equal_jitter(**settings: object) -> EqualJitterRetry:
    """Return a policy of exponential delays of which half is left to chance; `settings` are its fields."""
    return EqualJitterRetry(**settings)  # type: ignore[arg-type] # as above


def fixed(interval: timedelta = timedelta(seconds=10), **settings: object) -> FixedRetry:
    """Return a policy that asks at this interval; `settings` are its other fields."""
    return FixedRetry(initial=interval, **settings)  # type: ignore[arg-type] # as above


def proportional(share: float = 0.25, **settings: object) -> ProportionalRetry:
    """Return a policy that waits for this share of the job's age; `settings` are its other fields."""
    return ProportionalRetry(share=share, **settings)  # type: ignore[arg-type] # as above
