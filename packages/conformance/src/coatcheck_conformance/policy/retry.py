"""The suite of retry policies."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.errors import QueryFailed, SubmitDeferred
from coatcheck.evolving import evolve
from coatcheck.results import QueryResult
from coatcheck.task import Progress, Status, new_task_id
from coatcheck_conformance.policy.delays import (
    MANY,
    Delays,
    RetryTrial,
    counts,
    require_delay,
    retry_rule,
    usual_task,
)
from coatcheck_conformance.policy.pacing import Pacing
from coatcheck_conformance.policy.snapshots import make_bare_snapshot, make_snapshot
from coatcheck_conformance.policy.spec import RetrySpec
from coatcheck_conformance.policy.watching import growth, staying_inside, unchanged
from coatcheck_conformance.rules import Kind, Level, spec_rule

__all__ = ["RetryConformance"]

_ZERO = timedelta()
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""


class RetryConformance(Delays, Pacing):
    """Every promise of the retry policies' contract. Subclass it, and give the fixture `retry_spec`."""

    fixture = "retry_spec"

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return how to make the retry policy under test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `retry_spec` that returns a RetrySpec")

    # ------------------------------------------------------------------ what it may be asked

    @retry_rule("RETRY-INPUT-1")
    def test_it_takes_a_task_in_every_status_in_which_it_is_asked(self, trial: RetryTrial) -> None:
        """It takes snapshots as they come, also with nothing in them but what every task has."""
        deferred, failed = SubmitDeferred("busy"), QueryFailed("busy")
        for make in (make_bare_snapshot, make_snapshot):
            require_delay(trial.policy.next_submit_delay(make(Status.SUBMITTING), deferred))
            for status in (Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING):
                require_delay(trial.policy.next_query_delay(make(status), QueryResult.running()))
            for status in (Status.SUBMITTED, Status.RUNNING):
                trial.policy.next_error_delay(make(status), failed)

    @retry_rule("RETRY-INPUT-2")
    def test_before_the_first_query_there_is_no_result(self, trial: RetryTrial) -> None:
        """`result` is None before the first query."""
        for status in (Status.SUBMITTING, Status.SUBMITTED):
            require_delay(
                trial.policy.next_query_delay(usual_task(status, Progress(submit_attempts=1)), None)
            )

    @retry_rule("RETRY-INPUT-3")
    def test_it_takes_any_error(self, trial: RetryTrial) -> None:
        """A query may fail by anything that a handler or an SDK raises."""
        for error in _errors():
            delay = trial.policy.next_error_delay(usual_task(Status.RUNNING, counts(1)), error)
            if delay is not None:
                require_delay(delay)

    @retry_rule("RETRY-INPUT-4")
    def test_it_is_asked_in_any_order(self, trial: RetryTrial) -> None:
        """Each question stands alone: workers share tasks, counts start anew, and the same snapshot comes again."""
        for number in (5, 0, 5, 9_000, 1, 1, 3):
            progress = counts(number)
            delays = (trial.error(progress), trial.query(progress), trial.submit(progress))
            for delay in delays:
                if delay is not None:
                    require_delay(delay)

    # ------------------------------------------------------------------ what it may do to others

    @retry_rule("RETRY-PURE-1")
    def test_it_changes_nothing_that_it_is_given(self, trial: RetryTrial) -> None:
        """Pure: neither the task nor the answer nor the error is changed."""
        submitting, running = make_snapshot(Status.SUBMITTING), make_snapshot(Status.RUNNING)
        result = QueryResult.running(retry_after=timedelta(seconds=3))
        deferred = SubmitDeferred("busy", retry_after=timedelta(seconds=3))
        failed = QueryFailed("busy", retry_after=timedelta(seconds=3))
        with unchanged("the policy", submitting, running, result, deferred, failed):
            trial.policy.next_submit_delay(submitting, deferred)
            trial.policy.next_query_delay(running, result)
            trial.policy.next_error_delay(running, failed)

    @retry_rule("RETRY-PURE-2")
    def test_it_stays_inside(self, trial: RetryTrial) -> None:
        """Pure: it neither sleeps nor does I/O; the worker waits, and it is asked on the worker's loop."""
        self._ask_everything(trial)  # what it imports may be read
        with staying_inside("the policy"):
            self._ask_everything(trial)

    @retry_rule("RETRY-PURE-3")
    def test_it_does_not_look_at_the_wall_clock(self, trial: RetryTrial) -> None:
        """Only the store has a clock: what it answers depends on no other, whenever the task was created."""
        now = datetime.now(UTC)
        for ask in (self._submit_at, self._query_at, self._error_at):
            usual = _mean(ask(trial, now) for _ in range(100))
            for at in (now - timedelta(days=9_000), now + timedelta(days=9_000)):
                mean = _mean(ask(trial, at) for _ in range(100))
                assert usual / 2 <= mean <= 2 * usual, (
                    f"of a task created in {at.year} it says {mean} on average, and {usual} of one created now"
                )

    @retry_rule("RETRY-THREAD-1", kind=Kind.STOCHASTIC)
    def test_threads_share_it(self, trial: RetryTrial) -> None:
        """One policy serves workers of several threads at once."""
        with _quick_switches(), ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(self._ask_everything, trial, number) for number in range(500)]
            for each in asked:
                each.result()

    @retry_rule("RETRY-MEMORY-1", level=Level.SHOULD)
    def test_it_does_not_grow_with_the_tasks(self, trial: RetryTrial) -> None:
        """It remembers no tasks: what a task has behind it stands in the snapshot."""
        task, error = usual_task(Status.RUNNING, counts(3)), QueryFailed("busy")

        def fail(_: int) -> None:
            trial.policy.next_error_delay(evolve(task, id=new_task_id()), error)

        grown = growth(fail, MANY)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"

    @spec_rule("retry_spec", "RETRY-MAKE-1")
    def test_making_one_does_nothing_outside(self, spec: RetrySpec) -> None:
        """An app can stand at module level: making a policy does no I/O."""
        spec.create()  # what it imports may be read
        with staying_inside("making the policy"):
            spec.create()

    @staticmethod
    def _ask_everything(trial: RetryTrial, number: int = 1) -> None:
        for delay in (
            trial.submit(counts(number)),
            trial.query(counts(number)),
            trial.error(counts(number)),
        ):
            if delay is not None:
                require_delay(delay)

    @staticmethod
    def _submit_at(trial: RetryTrial, at: datetime) -> timedelta:
        task = usual_task(Status.SUBMITTING, counts(3), at)
        return trial.policy.next_submit_delay(task, SubmitDeferred("busy"))

    @staticmethod
    def _query_at(trial: RetryTrial, at: datetime) -> timedelta:
        task = usual_task(Status.RUNNING, counts(3), at)
        return trial.policy.next_query_delay(task, QueryResult.running())

    @staticmethod
    def _error_at(trial: RetryTrial, at: datetime) -> timedelta:
        task = usual_task(Status.RUNNING, counts(3), at)
        return trial.policy.next_error_delay(task, QueryFailed("busy")) or _ZERO


def _mean(delays: Iterable[timedelta]) -> timedelta:
    """Return the mean, since delays may be jittered."""
    given = list(delays)
    return sum(given, _ZERO) / len(given)


def _errors() -> list[Exception]:
    foreign = ConnectionError("an SDK's own error")
    foreign.retry_after = "7"  # type: ignore[attr-defined] # SDKs have an attribute of that name, with another meaning
    return [
        ValueError(),
        TimeoutError(),
        OSError(104, "reset"),
        KeyError("state"),
        ExceptionGroup("several", [ValueError(), TypeError()]),
        QueryFailed("no code, no hint"),
        foreign,
    ]


@contextmanager
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
