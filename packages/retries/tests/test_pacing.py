from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from coatcheck import InvalidParams, QueryFailed, QueryResult, SubmitDeferred, Task
from coatcheck.task import Lease, Progress
from coatcheck.testing import make_task
from coatcheck_retries import PacedRetry, equal_jitter, fixed, full_jitter, proportional
from coatcheck_retries.pacing import age_of, asked_at, grown

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
GOING = QueryResult.running()


def job(age: timedelta = timedelta(), *, timeout: timedelta = 24 * HOUR, **counts: Any) -> Task:
    """Return a job that was accepted that long ago."""
    made = make_task(tracking_timeout=timeout)
    began = made.schedule.created_at
    lease = Lease(worker_id="w", token=1, nonce="n", until=began + age + MINUTE, started_at=began + age)
    return evolve(made, lease=lease, progress=Progress(accepted_at=began, **counts))


def exact(make: Any, **settings: Any) -> PacedRetry:
    """Return a policy that leaves nothing to chance."""
    policy: PacedRetry = make(jitter=0, **settings)
    return policy


def test_exponential_delays_double_up_to_the_maximum() -> None:
    """From `initial` on, with every query; and after errors with every error."""
    policy = exact(equal_jitter, maximum=20 * SECOND)
    told = [policy.next_query_delay(job(query_count=n), GOING).total_seconds() for n in range(7)]
    assert told == [1, 2, 4, 8, 16, 20, 20]
    errors = [policy.next_error_delay(job(consecutive_errors=n), ValueError()) for n in range(1, 5)]
    assert errors == [n * SECOND for n in (1, 2, 4, 8)]
    deferred = policy.next_submit_delay(job(consecutive_errors=3), SubmitDeferred("busy"))
    assert deferred == 4 * SECOND


def test_full_jitter_takes_the_whole_delay_and_equal_jitter_half() -> None:
    """Anything between nothing and the delay; or between half of it and the delay. Also at the maximum."""
    for make, lowest in ((full_jitter, 0), (equal_jitter, 30)):
        policy = make(seed=1)
        delays = [
            policy.next_query_delay(job(query_count=10_000), GOING).total_seconds() for _ in range(2_000)
        ]
        assert lowest <= min(delays) < lowest + 1
        assert 59 < max(delays) <= 60
        assert (lowest + 60) / 2 - 2 < sum(delays) / len(delays) < (lowest + 60) / 2 + 2


def test_fixed_is_fixed() -> None:
    """However long it takes."""
    policy = exact(fixed, interval=3 * SECOND)
    assert {policy.next_query_delay(job(n * HOUR, query_count=n), GOING) for n in range(5)} == {3 * SECOND}


def test_proportional_waits_for_a_share_of_the_age() -> None:
    """A job of ten seconds is asked about every few seconds, one of ten minutes every few minutes."""
    policy = exact(proportional, share=0.25)
    ages = (timedelta(), 10 * SECOND, 2 * MINUTE, 10 * MINUTE, 10 * HOUR)
    told = [policy.next_query_delay(job(age), GOING).total_seconds() for age in ages]
    assert told == [1, 2.5, 30, 150, 300]
    assert exact(proportional, share=1e12).next_query_delay(job(HOUR), GOING) == 5 * MINUTE


def test_a_ten_minute_job_is_not_asked_about_200_times() -> None:
    """Fixed intervals of three seconds would; this one is asked about thirty times, and is late by a quarter."""
    policy, age, queries = proportional(seed=1), timedelta(), 0
    while age < 10 * MINUTE:
        queries += 1
        age += policy.next_query_delay(job(age, query_count=queries), GOING)
    assert queries < 40
    assert age < 12.5 * MINUTE


@pytest.mark.parametrize("make", [full_jitter, equal_jitter, fixed, proportional])
def test_the_larger_of_hint_and_own_delay_counts_within_floor_and_ceiling(make: Any) -> None:
    """A hint from an answer or an error is a lower bound, up to the ceiling; a short one changes nothing."""
    policy = make(floor=2 * SECOND, ceiling=MINUTE, seed=1)
    for _ in range(50):
        for hint, least, most in (
            (30 * SECOND, 30, 60),
            (HOUR, 60, 120),
            (timedelta(), 2, 60),
            (-SECOND, 2, 60),
        ):
            for delay in (
                policy.next_query_delay(job(query_count=2), QueryResult.running(retry_after=hint)),
                policy.next_error_delay(job(consecutive_errors=2), QueryFailed("busy", retry_after=hint)),
                policy.next_submit_delay(job(consecutive_errors=2), SubmitDeferred("busy", retry_after=hint)),
            ):
                assert least <= delay.total_seconds() <= most


def test_a_hint_of_an_sdk_in_units_of_its_own_is_none() -> None:
    """Only a duration is one."""
    error = ConnectionError()
    error.retry_after = 3600  # type: ignore[attr-defined] # as some have it
    assert exact(fixed).next_error_delay(job(consecutive_errors=1), error) == 10 * SECOND


def test_the_last_query_comes_before_the_deadline() -> None:
    """And not at it, when it would come too late; a hint that leads past it is heeded all the same."""
    policy = exact(fixed, interval=5 * MINUTE)
    almost = job(59 * MINUTE, timeout=HOUR)
    assert policy.next_query_delay(almost, GOING) == 57 * SECOND
    assert policy.next_query_delay(job(HOUR - 10 * SECOND, timeout=HOUR), GOING) == 9 * SECOND
    told = policy.next_query_delay(almost, QueryResult.running(retry_after=2 * MINUTE))
    assert told == 2 * MINUTE
    past = job(2 * HOUR, timeout=HOUR)
    assert policy.next_query_delay(past, GOING) == 5 * MINUTE


def test_it_gives_up_after_so_many_errors_in_a_row() -> None:
    """If it is told to; by default only the deadline ends a task."""
    policy = fixed(max_consecutive_errors=3)
    assert policy.next_error_delay(job(consecutive_errors=2), ValueError()) is not None
    assert policy.next_error_delay(job(consecutive_errors=3), ValueError()) is None
    assert fixed().next_error_delay(job(consecutive_errors=10**6), ValueError()) is not None


@pytest.mark.parametrize(
    ("make", "settings", "rule"),
    [
        (fixed, {"interval": timedelta()}, "initial must be positive"),
        (fixed, {"interval": HOUR}, "maximum must not be below initial"),
        (fixed, {"floor": -SECOND}, "floor must not be negative"),
        (fixed, {"floor": HOUR, "ceiling": 2 * HOUR}, "maximum must not be below floor"),
        (fixed, {"ceiling": SECOND, "floor": MINUTE}, "ceiling must not be below floor"),
        (fixed, {"jitter": 1.5}, "jitter must be between 0 and 1"),
        (fixed, {"max_consecutive_errors": 0}, "max_consecutive_errors must be at least 1, or None"),
        (full_jitter, {"factor": 0.5}, "factor must be at least 1"),
        (proportional, {"share": 0}, "share must be above 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any, settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        make(**settings)


def test_the_age_is_told_by_the_snapshot_alone() -> None:
    """From the acceptance to the start of the call; nothing, before there was one."""
    made = make_task()
    at = made.schedule.created_at
    assert (asked_at(made), age_of(made)) == (at, timedelta())
    queried = evolve(made, progress=Progress(accepted_at=at + SECOND, queried_at=at + MINUTE))
    assert (asked_at(queried), age_of(queried)) == (at + MINUTE, 59 * SECOND)
    assert age_of(job(HOUR)) == HOUR
    assert asked_at(made) < datetime(2100, 1, 1, tzinfo=UTC)


def test_growth_never_overflows() -> None:
    """After any number of steps it is the maximum."""
    assert grown(SECOND, 2.0, 10**9, HOUR) == HOUR
    assert grown(SECOND, 1.0, 10**9, HOUR) == SECOND
    assert grown(HOUR, 2.0, 5, HOUR) == HOUR
