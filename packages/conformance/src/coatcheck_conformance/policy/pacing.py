"""What retry policies promise of their delays, if they do: bounds, jitter, a last look, age, and learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coatcheck.evolving import evolve
from coatcheck.gates import TaskChange
from coatcheck.results import QueryResult
from coatcheck.task import LONGEST, Outcome, Progress, Status, Task, new_task_id
from coatcheck_conformance.policy.delays import (
    COUNTS,
    MANY,
    TRIED,
    RetryTrial,
    counts,
    require_delay,
    retry_rule,
    sampled,
)
from coatcheck_conformance.policy.snapshots import (
    EVENTS,
    START,
    changes,
    make_change,
    make_snapshot,
    ordinary_draft,
)
from coatcheck_conformance.policy.spec import AGES, FLOOR, HINTS, JITTER, LAST_LOOK, LEARNS, MAXIMUM
from coatcheck_conformance.policy.watching import growth
from coatcheck_conformance.rules import Level, Suite

__all__ = ["Pacing", "job_done", "running"]

_ZERO, _SECOND, _MINUTE, _HOUR = timedelta(), timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_TIMES = 30
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""


def running(age: timedelta, *, left: timedelta = timedelta(days=300), number: int = 3) -> Task:
    """Return a job that was accepted that long ago, has that long left, and was queried that many times."""
    made = make_snapshot(Status.RUNNING, progress=Progress(submit_attempts=1, query_count=number))
    assert made.lease is not None
    now = START + age
    return evolve(
        made,
        schedule=evolve(made.schedule, deadline_at=now + left),
        progress=evolve(made.progress, accepted_at=START, queried_at=now if number else None),
        attempt=evolve(made.attempt, started_at=START, first_started_at=START) if made.attempt else None,
        lease=evolve(made.lease, granted_at=now, started_at=now, until=now + _MINUTE),
    )


def job_done(took: timedelta, *, since: timedelta | None = None, handler: str | None = None) -> TaskChange:
    """Return what is committed of a job that took that long.

    Args:
        took: from its acceptance to its end.
        since: how long before its end it was last not done; None if this was the first query.
        handler: whose it is.
    """
    draft = ordinary_draft(handler=handler) if handler else ordinary_draft()
    made = make_snapshot(Status.RUNNING, draft=draft, progress=Progress(submit_attempts=1, query_count=1))
    queried_at = None if since is None else _at(took - since)
    before = evolve(made, progress=evolve(made.progress, accepted_at=START, queried_at=queried_at))
    after = evolve(
        before, status=Status.SUCCEEDED, lease=None, holds_slots=False, outcome=Outcome(finished_at=_at(took))
    )
    return TaskChange(before=before, after=evolve(after, version=before.version + 1), event="Finished")


def _at(after_start: timedelta) -> datetime:
    return START + after_start


def _queries(trial: RetryTrial, task: Task) -> list[timedelta]:
    going = QueryResult.running()
    return [trial.policy.next_query_delay(task, going) for _ in range(_TIMES)]


def _first(trial: RetryTrial) -> timedelta:
    """Return how long it waits on average before the first query of a job."""
    task = running(_ZERO, number=0)
    return sum((trial.policy.next_query_delay(task, None) for _ in range(_TIMES)), _ZERO) / _TIMES


def _teach(trial: RetryTrial, told: Sequence[TaskChange]) -> None:
    observer: Any = trial.policy
    observer.coatcheck_tasks_changed(told)


class Pacing(Suite):
    """Bounds, jitter, a last look before the deadline, the age of the job, and what was learned."""

    @retry_rule("RETRY-HINT-6", requires=[HINTS])
    def test_a_short_hint_makes_no_delay_shorter(self, trial: RetryTrial) -> None:
        """The larger counts: a provider that says "in a millisecond" is asked no sooner for it."""
        hint = timedelta(milliseconds=1)

        def hinted(ask: Callable[..., timedelta | None]) -> Callable[[Progress], timedelta | None]:
            return lambda progress: ask(progress, hint)

        for ask in (trial.submit, trial.query, trial.error):
            for number in (1, 20):
                own, told = sampled(ask, counts(number)), sampled(hinted(ask), counts(number))
                assert not own or not told or max(told) >= min(own), (
                    f"it waits for {max(told)} at most if it is told {hint}, and else for {min(own)} at least"
                )

    @retry_rule("RETRY-BOUND-1", requires=[FLOOR])
    def test_no_delay_is_shorter_than_the_floor(self, trial: RetryTrial) -> None:
        """No delay is shorter than the floor, whatever the counts, the jitter, and the hint."""

        @TRIED
        @given(COUNTS, st.timedeltas(_ZERO, trial.spec.floor))
        def check(progress: Progress, hint: timedelta) -> None:
            for ask in (trial.submit, trial.query, trial.error):
                for delay in (ask(progress), ask(progress, hint)):
                    assert delay is None or delay >= trial.spec.floor, f"it waits for {delay}"

        check()

    @retry_rule("RETRY-BOUND-2", requires=[MAXIMUM])
    def test_no_delay_of_its_own_is_longer_than_the_maximum(self, trial: RetryTrial) -> None:
        """Without a hint no delay is longer than the maximum, whatever the counts and the age of the job."""
        maximum = trial.spec.maximum
        assert maximum is not None
        for ask in (trial.submit, trial.query, trial.error):
            for number in (0, 1, 7, 100, MANY):
                delays = sampled(ask, counts(number))
                assert not delays or max(delays) <= maximum, f"it waits for {max(delays)}"
        for age in (_ZERO, _SECOND, _HOUR, 24 * 30 * _HOUR):
            delays = _queries(trial, running(age))
            assert max(delays) <= maximum, f"it waits for {max(delays)} when the job is {age} old"

    @retry_rule("RETRY-JITTER-1", requires=[JITTER])
    def test_jitter_survives_at_the_maximum(self, trial: RetryTrial) -> None:
        """Delays differ also when they grow no more, so that tasks of one moment do not come back together."""
        for delays in (
            sampled(trial.submit, counts(5_000)),
            sampled(trial.error, counts(5_000)),
            _queries(trial, running(24 * 30 * _HOUR, number=5_000)),
        ):
            assert not delays or len({*delays}) > len(delays) / 2, f"it waits for {delays[0]} each time"

    @retry_rule("RETRY-DEADLINE-1", requires=[LAST_LOOK])
    def test_a_job_is_asked_about_once_more_before_its_deadline(self, trial: RetryTrial) -> None:
        """A delay that would reach the deadline ends before it, so that what is done by then is not lost."""
        for left in (5 * _SECOND, 20 * _SECOND, _MINUTE, 20 * _MINUTE):
            for age, number in ((_MINUTE, 3), (24 * _HOUR, 5_000)):
                delays = _queries(trial, running(age, left=left, number=number))
                assert max(delays) < left, f"with {left} left it waits for {max(delays)}"

    @retry_rule("RETRY-AGE-1", requires=[AGES])
    def test_waits_grow_with_the_age_of_the_job(self, trial: RetryTrial) -> None:
        """A ten-minute job is not asked about as often as one of ten seconds, however many queries there were."""
        for number in (1, 10):
            means = [
                sum(_queries(trial, running(age, number=number)), _ZERO) / _TIMES
                for age in (_SECOND, 20 * _SECOND, 5 * _MINUTE)
            ]
            assert means[0] < means[1] < means[2], f"it waits for {', '.join(map(str, means))}"

    # ------------------------------------------------------------------ learning

    @retry_rule("RETRY-LEARN-1", requires=[LEARNS])
    def test_it_takes_whatever_is_committed(self, trial: RetryTrial) -> None:
        """As an observer it takes every change, also of events that are yet to come, and goes on answering."""
        bare = [make_change(*each, bare=True) for each in EVENTS]
        _teach(trial, [*changes(), *bare])
        _teach(trial, [])
        for delay in _queries(trial, running(_MINUTE)):
            require_delay(delay)

    @retry_rule("RETRY-LEARN-2", requires=[LEARNS])
    def test_it_waits_as_long_as_jobs_have_taken(self, trial: RetryTrial) -> None:
        """The longer the last jobs took, the later it first asks about the next; and it changes its mind."""
        _teach(trial, [job_done(20 * _SECOND, since=_SECOND) for _ in range(300)])
        short = _first(trial)
        _teach(trial, [job_done(3 * _MINUTE, since=_SECOND) for _ in range(1_000)])
        long = _first(trial)
        assert 3 * short < long <= 3 * _MINUTE, f"it waits for {short}, and then for {long}"

    @retry_rule("RETRY-LEARN-3", requires=[LEARNS])
    def test_strange_durations_do_no_harm(self, trial: RetryTrial) -> None:
        """Clocks jump: a job that took less than nothing, or a year, leads to no delay beyond the maximum."""
        year = timedelta(days=365)
        for took in (_ZERO, -_HOUR, year, timedelta(microseconds=1)):
            for since in (None, _ZERO, _SECOND, -_SECOND):
                _teach(trial, [job_done(took, since=since) for _ in range(50)])
                first = trial.policy.next_query_delay(running(_ZERO, number=0), None)
                for age in (_ZERO, _MINUTE, 2 * year):
                    for delay in (first, *_queries(trial, running(age, left=10 * year))):
                        require_delay(delay)
                        assert delay <= (trial.spec.maximum or LONGEST), f"it waits for {delay}"

    @retry_rule("RETRY-LEARN-4", requires=[LEARNS])
    def test_each_handler_teaches_its_own(self, trial: RetryTrial) -> None:
        """What one handler's jobs take says nothing about another's."""
        before = _first(trial)
        _teach(trial, [job_done(3 * _MINUTE, since=_SECOND, handler="another") for _ in range(300)])
        after = _first(trial)
        assert before / 2 <= after <= 2 * before, f"it waited for {before}, and now for {after}"

    @retry_rule("RETRY-LEARN-5", requires=[LEARNS], level=Level.SHOULD)
    def test_it_forgets(self, trial: RetryTrial) -> None:
        """It remembers some jobs, and not all: ten thousand of them make it no larger to speak of."""
        change = job_done(_MINUTE, since=_SECOND)

        def learn(_: int) -> None:
            task_id = new_task_id()
            assert change.before is not None
            before, after = evolve(change.before, id=task_id), evolve(change.after, id=task_id)
            _teach(trial, [TaskChange(before=before, after=after, event=change.event)])

        grown = growth(learn, MANY, warm_up=1_000)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"
