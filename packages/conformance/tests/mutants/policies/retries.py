"""Mutants of retry policies."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from attrs import field, frozen

from coatcheck.errors import QueryFailed
from coatcheck.retry import ExponentialRetry
from mutants.policies import breaks_retry

_SECOND = timedelta(seconds=1)


@breaks_retry("RETRY-DELAY-1")
class TakesOffAttempts(ExponentialRetry):
    """Waits the shorter the more was tried, and then for less than nothing."""

    def next_submit_delay(self, task, error):
        delay = super().next_submit_delay(task, error)
        own = task.progress.submit_attempts > 100 and error.retry_after is None
        return -delay if own and task.progress.submit_attempts != 9_000 else delay


@breaks_retry("RETRY-DELAY-2")
class CountsBeyondAnyCalendar(ExponentialRetry):
    """Grows without end."""

    def next_query_delay(self, task, result):
        delay = super().next_query_delay(task, result)
        many = task.progress.query_count > 200
        return (
            timedelta.max if many and task.progress.query_count != 9_000 and not result.retry_after else delay
        )


@breaks_retry("RETRY-DELAY-3")
class CountsInSeconds(ExponentialRetry):
    """Returns a number."""

    def next_error_delay(self, task, error):
        delay = super().next_error_delay(task, error)
        many = task.progress.consecutive_errors > 200
        return 30 if many and task.progress.consecutive_errors != 9_000 and not error.retry_after else delay


@breaks_retry("RETRY-DELAY-4")
class Hurries(ExponentialRetry):
    """Asks the sooner the more errors there were."""

    def next_error_delay(self, task, error):
        if getattr(error, "retry_after", None) is not None:
            return super().next_error_delay(task, error)
        return 0.7 * _SECOND / max(task.progress.consecutive_errors, 1)


@breaks_retry("RETRY-HINT-1")
class IgnoresRetryAfterOfSubmits(ExponentialRetry):
    """Knows better."""

    def next_submit_delay(self, task, error):
        return self._delay(task.progress.consecutive_errors, None)


@breaks_retry("RETRY-HINT-2")
class ComesEarly(ExponentialRetry):
    """Jitters a hint downwards."""

    def next_query_delay(self, task, result):
        return super().next_query_delay(task, result) * (0.9 if result and result.retry_after else 1)


@breaks_retry("RETRY-HINT-3")
class HeedsShortHintsOnly(ExponentialRetry):
    """Caps a hint at its own maximum."""

    def next_error_delay(self, task, error):
        return min(super().next_error_delay(task, error) or self.maximum, self.maximum)


@breaks_retry("RETRY-HINT-4")
class BelievesEverything(ExponentialRetry):
    """Has no ceiling."""

    def next_query_delay(self, task, result):
        own = super().next_query_delay(task, result)
        return max(own, result.retry_after) if result and result.retry_after else own


@breaks_retry("RETRY-HINT-5")
class BelievesThePast(ExponentialRetry):
    """Takes a hint as it is."""

    def next_error_delay(self, task, error):
        hint = getattr(error, "retry_after", None)
        past = isinstance(hint, timedelta) and hint < timedelta()
        return hint if past else super().next_error_delay(task, error)


@breaks_retry("RETRY-INPUT-1")
class WantsAnEarlierQuery(ExponentialRetry):
    """Counts from a query that may not have been."""

    def next_query_delay(self, task, result):
        since = task.progress.queried_at - task.schedule.created_at
        return max(since * 0, super().next_query_delay(task, result))


@breaks_retry("RETRY-INPUT-2")
class WantsAResult(ExponentialRetry):
    """Looks into a result that is not there."""

    def next_query_delay(self, task, result):
        return super().next_query_delay(task, result) * (1 if result.provider_status else 2)


@breaks_retry("RETRY-INPUT-3")
class KnowsItsErrors(ExponentialRetry):
    """Takes the handlers' own errors."""

    def next_error_delay(self, task, error):
        if not isinstance(error, (QueryFailed, ValueError)):
            raise TypeError(error)
        return super().next_error_delay(task, error)


@breaks_retry("RETRY-INPUT-4")
@frozen(kw_only=True)
class ExpectsThemInOrder(ExponentialRetry):
    """Gives up its mind when counts fall."""

    _last: list[int] = field(factory=lambda: [0], init=False)

    def next_error_delay(self, task, error):
        errors = task.progress.consecutive_errors
        if errors == 0 and self._last[0] == 5:
            raise RuntimeError("counts only rise")
        self._last[0] = errors if task.progress.query_count == errors else 0
        return super().next_error_delay(task, error)


@breaks_retry("RETRY-PURE-1")
class SignsTasks(ExponentialRetry):
    """Leaves a note in the task."""

    def next_error_delay(self, task, error):
        task.metadata["asked"] = task.metadata.get("asked", 0) + 1
        return super().next_error_delay(task, error)


@breaks_retry("RETRY-PURE-1")
class TakesTheHintAway(ExponentialRetry):
    """Changes the error."""

    def next_submit_delay(self, task, error):
        delay = super().next_submit_delay(task, error)
        error.retry_after = None
        return delay


@breaks_retry("RETRY-PURE-2")
class WaitsItself(ExponentialRetry):
    """Sleeps, a little."""

    def next_query_delay(self, task, result):
        time.sleep(0)
        return super().next_query_delay(task, result)


@breaks_retry("RETRY-PURE-2")
class ReadsAFile(ExponentialRetry):
    """Looks its delays up."""

    def next_error_delay(self, task, error):
        Path(os.devnull).read_text("utf-8")
        return super().next_error_delay(task, error)


@breaks_retry("RETRY-PURE-3")
class LooksAtTheClock(ExponentialRetry):
    """Slows down with the age of a task, by the clock of its host."""

    def next_query_delay(self, task, result):
        age = max(timedelta(), datetime.now(UTC) - task.schedule.created_at)
        return super().next_query_delay(task, result) + min(age, timedelta(days=1)) / 100


_asking: list[str] = []


@breaks_retry("RETRY-THREAD-1")
class OneAtATime(ExponentialRetry):
    """Keeps what it works on where other threads write, too."""

    def next_error_delay(self, task, error):
        _asking.append(task.id)
        delays = [super(OneAtATime, self).next_error_delay(task, error) for _ in range(40)]
        if len(_asking) != 1:
            _asking.clear()
            raise RuntimeError("two at once")
        _asking.clear()
        return delays[0]


@breaks_retry("RETRY-MAKE-1")
@frozen(kw_only=True)
class ReadsWhenMade(ExponentialRetry):
    """Reads a file when it is made."""

    delays: str = field(factory=lambda: Path(os.devnull).read_text("utf-8"))


@breaks_retry("RETRY-MEMORY-1")
@frozen(kw_only=True)
class RemembersTasks(ExponentialRetry):
    """Counts by task, for ever."""

    counts: Counter[str] = field(factory=Counter, init=False, repr=False)

    def next_error_delay(self, task, error):
        self.counts[task.id] += 1
        return super().next_error_delay(task, error)
