"""Mutants of retry policies that promise more: bounds, jitter, a last look, age, learning."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve, field, frozen

from coatcheck.retry import ExponentialRetry
from mutants.policies import breaks_retry

_SECOND = timedelta(seconds=1)
_BOUNDED = {"maximum": timedelta(seconds=30), "promises": ["jitter"]}


@breaks_retry("RETRY-HINT-6")
class TakesHintsForOrders(ExponentialRetry):
    """Asks when it is told to, however soon that is."""

    def next_query_delay(self, task, result):
        hint = result.retry_after if result else None
        if hint is None or hint <= timedelta():
            return super().next_query_delay(task, result)
        return min(hint, self.ceiling)


@breaks_retry("RETRY-BOUND-1", floor=_SECOND)
class JittersTheFloor(ExponentialRetry):
    """Shortens a delay by chance when it has seen to the floor."""

    def next_submit_delay(self, task, error):
        delay = max(super().next_submit_delay(task, error), _SECOND)
        return delay * 0.99 if delay == _SECOND else delay

    def next_query_delay(self, task, result):
        return max(super().next_query_delay(task, result), _SECOND)

    def next_error_delay(self, task, error):
        return max(super().next_error_delay(task, error) or _SECOND, _SECOND)


@breaks_retry("RETRY-BOUND-2", **_BOUNDED)
class JittersUpwards(ExponentialRetry):
    """Makes the longest delay longer by chance."""

    def next_error_delay(self, task, error):
        return (super().next_error_delay(task, error) or _SECOND) * 1.5


@breaks_retry("RETRY-JITTER-1", **_BOUNDED)
class LosesJitterAtTheMaximum(ExponentialRetry):
    """Cuts at the maximum last."""

    def next_error_delay(self, task, error):
        delay = super().next_error_delay(task, error)
        hint = getattr(error, "retry_after", None)
        grows = task.progress.consecutive_errors < 30
        told = isinstance(hint, timedelta) and hint > _SECOND
        return delay if grows or told else self.maximum


@breaks_retry("RETRY-DEADLINE-1", promises=["last look"])
class LooksAtNoDeadline(ExponentialRetry):
    """Leaves it to the store to cut a delay at the deadline."""


@breaks_retry("RETRY-AGE-1", promises=["ages"])
class CountsQueries(ExponentialRetry):
    """Grows with the number of queries alone."""


@frozen(kw_only=True)
class Average(ExponentialRetry):
    """A good policy that learns: first asks at half of the time that the last jobs took."""

    known: dict[str, list[float]] = field(factory=dict, init=False, repr=False, eq=False)

    def coatcheck_tasks_changed(self, changes):
        for change in changes:
            accepted_at, finished_at = change.after.progress.accepted_at, change.after.outcome.finished_at
            if change.event == "Finished" and accepted_at and finished_at and finished_at > accepted_at:
                self.learn(change.after.route.handler_key, (finished_at - accepted_at).total_seconds())

    def learn(self, key, seconds):
        self.known[key] = [*self.known.get(key, ()), min(seconds, 10_000.0)][-50:]

    def next_query_delay(self, task, result):
        known = self.known.get(task.route.handler_key)
        if result is not None or not known:
            return super().next_query_delay(task, result)
        return min(timedelta(seconds=sum(known) / len(known) / 2), self.ceiling)


_LEARNS = {"promises": ["learns"]}


@breaks_retry("RETRY-LEARN-1", **_LEARNS)
class WantsABefore(Average):
    """Looks into what was before, where there was nothing."""

    def coatcheck_tasks_changed(self, changes):
        assert all(change.before is not None for change in changes)
        super().coatcheck_tasks_changed(changes)


@breaks_retry("RETRY-LEARN-2", **_LEARNS)
class NeverChangesItsMind(Average):
    """Believes what it saw first."""

    def learn(self, key, seconds):
        if key not in self.known:
            super().learn(key, seconds)


@breaks_retry("RETRY-LEARN-3", **_LEARNS)
class BelievesEveryClock(Average):
    """Waits for as long as a clock that has jumped says."""

    def learn(self, key, seconds):
        self.known[key] = [-1e4 if seconds > 1e7 else seconds]


@breaks_retry("RETRY-LEARN-4", **_LEARNS)
class ThrowsThemTogether(Average):
    """Takes all handlers for one."""

    def learn(self, key, seconds):
        super().learn("all", seconds)

    def next_query_delay(self, task, result):
        own = evolve(task, route=evolve(task.route, handler_key="all"))
        return super().next_query_delay(own, result)


@breaks_retry("RETRY-LEARN-5", **_LEARNS)
@frozen(kw_only=True)
class RemembersAllJobs(Average):
    """Keeps what every job took."""

    every: list[float] = field(factory=list, init=False, repr=False, eq=False)

    def learn(self, key, seconds):
        super().learn(key, seconds)
        self.every.append(seconds + len(self.every))
