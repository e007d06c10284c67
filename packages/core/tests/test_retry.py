"""When to ask again."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import InvalidParams, QueryFailed, SubmitDeferred
from coatcheck.results import QueryResult
from coatcheck.retry import ExponentialRetry
from coatcheck.task import Progress, Task
from coatcheck.testing import make_task

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
TASK = make_task()


def seen(query_count: int = 0, consecutive_errors: int = 0) -> Task:
    """Return a task with these counts."""
    return evolve(TASK, progress=Progress(query_count=query_count, consecutive_errors=consecutive_errors))


def steady(**settings: Any) -> ExponentialRetry:
    """Return a policy without jitter."""
    return ExponentialRetry(**{"jitter": 0, **settings})


def test_delays_grow_to_the_maximum() -> None:
    """Each delay is `factor` times the one before, until the maximum."""
    policy = steady(initial=SECOND, factor=2, maximum=timedelta(seconds=10))
    delays = [policy.next_query_delay(seen(query_count=n), None) for n in range(6)]
    assert delays == [timedelta(seconds=s) for s in (1, 2, 4, 8, 10, 10)]


@pytest.mark.parametrize(("factor", "count"), [(1.001, 100_000), (1e6, 3), (1e300, 2), (2, 10**9)])
def test_the_maximum_is_reached_whatever_the_factor(factor: float, count: int) -> None:
    """Slow growth arrives too, and fast growth overflows nowhere."""
    assert steady(factor=factor).next_query_delay(seen(query_count=count), None) == timedelta(seconds=30)


def test_a_factor_of_one_is_a_steady_beat() -> None:
    """Without growth every delay is the first."""
    policy = steady(factor=1)
    assert policy.next_query_delay(seen(query_count=1000), None) == SECOND
    assert steady(factor=1, maximum=SECOND).next_query_delay(seen(query_count=1000), None) == SECOND


def test_deferrals_and_errors_are_counted_apart() -> None:
    """Submissions and errors wait by the errors in a row, queries by their number."""
    policy = steady(factor=2)
    task = seen(query_count=7, consecutive_errors=2)
    assert policy.next_submit_delay(task, SubmitDeferred("busy")) == 2 * SECOND
    assert policy.next_error_delay(task, ValueError()) == 2 * SECOND
    assert policy.next_query_delay(seen(), QueryResult.running()) == SECOND


@given(st.integers(0, 10_000), st.integers())
def test_jitter_stays_within_its_share(count: int, seed: int) -> None:
    """A delay of its own making is shortened by at most the jitter, and never longer than the maximum."""
    policy = ExponentialRetry(jitter=0.25, seed=seed)
    full = steady().next_query_delay(seen(query_count=count), None)
    delay = policy.next_query_delay(seen(query_count=count), None)
    assert 0.75 * full - timedelta(microseconds=1) <= delay <= full


def test_jitter_survives_at_the_maximum() -> None:
    """Many tasks of one moment spread out, also when all wait the longest."""
    policy = ExponentialRetry(seed=1)
    assert len({policy.next_query_delay(seen(query_count=1000), None) for _ in range(100)}) > 90


@given(st.timedeltas(min_value=SECOND, max_value=timedelta(minutes=15)), st.integers())
def test_a_hint_is_never_undercut(hint: timedelta, seed: int) -> None:
    """Asking earlier than told is an error: jitter only adds to a hint, and by no more than its share."""
    policy = ExponentialRetry(seed=seed)
    for delay in (
        policy.next_query_delay(seen(), QueryResult.running(retry_after=hint)),
        policy.next_submit_delay(seen(), SubmitDeferred("busy", retry_after=hint)),
        policy.next_error_delay(seen(), QueryFailed("busy", retry_after=hint)),
    ):
        assert delay is not None
        assert hint <= delay + timedelta(microseconds=1)
        assert delay <= max(hint, SECOND) * 1.25 + timedelta(microseconds=1)


def test_a_hint_is_clamped() -> None:
    """A provider that asks for a year is asked again after the ceiling; one that asks for less does not hurry."""
    policy = steady(ceiling=MINUTE)
    assert policy.next_query_delay(seen(), QueryResult.running(retry_after=timedelta(days=365))) == MINUTE
    for hint in (timedelta(), timedelta(seconds=-5), timedelta(milliseconds=1)):
        assert policy.next_query_delay(seen(), QueryResult.running(retry_after=hint)) == SECOND


def test_the_floor_holds() -> None:
    """No delay is shorter than the floor, whatever the jitter."""
    policy = ExponentialRetry(jitter=1, floor=SECOND, seed=0)
    assert min(policy.next_query_delay(seen(), None) for _ in range(100)) == SECOND


def test_errors_end_only_if_told() -> None:
    """By default errors never make a task fail; a limit gives up at that many in a row."""
    assert steady().next_error_delay(seen(consecutive_errors=10_000), ValueError()) is not None
    policy = steady(max_consecutive_errors=3)
    assert policy.next_error_delay(seen(consecutive_errors=2), ValueError()) is not None
    assert policy.next_error_delay(seen(consecutive_errors=3), ValueError()) is None


@pytest.mark.parametrize("meant", ["7", 7, None])
def test_another_meaning_of_retry_after_is_no_hint(meant: object) -> None:
    """Errors of SDKs have an attribute of that name, too, in units of their own: it counts for nothing."""
    error = ConnectionError()
    error.retry_after = meant  # type: ignore[attr-defined] # as SDKs do
    assert steady().next_error_delay(seen(consecutive_errors=1), error) == SECOND


def test_a_seed_repeats() -> None:
    """Two policies of one seed make the same delays."""
    one, two = ExponentialRetry(seed=7), ExponentialRetry(seed=7)
    assert one == two
    assert one.next_query_delay(seen(), None) == two.next_query_delay(seen(), None)


@pytest.mark.parametrize(
    "settings",
    [
        {"initial": timedelta()},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"maximum": timedelta(milliseconds=1)},
        {"floor": -SECOND},
        {"ceiling": SECOND, "floor": MINUTE},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"max_consecutive_errors": 0},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    """A policy that could not work is an error when it is made, which names the rule."""
    with pytest.raises(InvalidParams, match=next(iter(settings))):
        ExponentialRetry(**settings)
