import random
import statistics
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from coatcheck import (
    ExponentialRetry,
    InvalidParams,
    QueryResult,
    Status,
    SubmitDeferred,
    Task,
    TaskChange,
)
from coatcheck.task import Lease, Outcome, Progress
from coatcheck.testing import ManualClock, ScriptedHandler, make_task, memory_app, run_to_end
from coatcheck_retries import LearnedRetry, fixed, learned, per_handler, proportional

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
GOING = QueryResult.running()


def job(age: timedelta = timedelta(), handler: str = "test") -> Task:
    """Return a job that was accepted that long ago."""
    made = make_task(handler_key=handler, tracking_timeout=timedelta(days=9))
    began = made.schedule.created_at
    lease = Lease(worker_id="w", token=1, nonce="n", until=began + age + MINUTE, started_at=began + age)
    return evolve(made, lease=lease, progress=Progress(accepted_at=began))


def done(took: float, since: float | None = None, handler: str = "test", **changes: Any) -> TaskChange:
    """Return the end of a job that took so many seconds, and was not done `since` seconds before."""
    task = job(timedelta(seconds=took), handler)
    began = task.schedule.created_at
    not_yet = None if since is None else began + timedelta(seconds=took - since)
    before = evolve(task, status=Status.RUNNING, progress=Progress(accepted_at=began, queried_at=not_yet))
    before = evolve(before, **changes)
    finished = Outcome(finished_at=began + timedelta(seconds=took))
    after = evolve(before, status=Status.SUCCEEDED, lease=None, outcome=finished)
    return TaskChange(before=before, after=after, event="Finished")


def exact(**settings: Any) -> LearnedRetry:
    """Return a policy that leaves nothing to chance."""
    return learned(jitter=0, seed=1, **settings)


def first_delay(policy: LearnedRetry, handler: str = "test") -> float:
    """Return how many seconds it waits before the first query."""
    return policy.next_query_delay(job(handler=handler), None).total_seconds()


def test_it_asks_when_a_job_is_likely_to_be_done() -> None:
    """When so many of those that took longer than this one had been done; bounded by the job's own age."""
    policy = exact(likely=0.5)
    policy.coatcheck_tasks_changed([done(took, since=0.001) for took in range(1, 101)])
    assert first_delay(policy) == pytest.approx(51, abs=2)
    assert policy.next_query_delay(job(40 * SECOND), GOING).total_seconds() == pytest.approx(31, abs=2)
    assert policy.next_query_delay(job(2 * SECOND), GOING) == 2 * SECOND
    assert exact(likely=0.1).pace(job()) == SECOND


def test_until_it_knows_enough_it_is_proportional() -> None:
    """Also for a job that takes longer than nearly all before it."""
    policy, fallback = exact(minimum=30), proportional(jitter=0)
    policy.coatcheck_tasks_changed([done(60, since=1)] * 29)
    for age in (timedelta(), 20 * SECOND, 3 * MINUTE):
        assert policy.next_query_delay(job(age), GOING) == fallback.next_query_delay(job(age), GOING)
    policy.coatcheck_tasks_changed([done(60, since=1)])
    assert first_delay(policy) == pytest.approx(60, abs=1)
    late = job(2 * MINUTE)
    assert policy.next_query_delay(late, GOING) == fallback.next_query_delay(late, GOING)


def test_its_own_lateness_is_not_taken_for_a_duration() -> None:
    """Jobs that are all done at the first query do not make the next first query later and later."""
    dice = random.Random(5)
    policy = learned(seed=1)
    durations = [max(1.0, dice.gauss(60, 10)) for _ in range(4_000)]
    firsts = []
    for number, duration in enumerate(durations):
        age, not_yet = policy.next_query_delay(job(), None).total_seconds(), 0.0
        firsts.append(age)
        while age < duration:
            not_yet = age
            age += policy.next_query_delay(job(timedelta(seconds=age)), GOING).total_seconds()
        policy.coatcheck_tasks_changed([done(age, since=age - not_yet if not_yet else None)])
        assert age < 3 * duration + 2, number
    for begin in (500, 2_000, 3_500):
        assert 30 < statistics.fmean(firsts[begin : begin + 500]) < 65


def test_it_notices_that_a_provider_has_become_quicker_or_slower() -> None:
    """Within a few hundred jobs."""
    policy = learned(seed=1)

    def work(seconds: float, jobs: int) -> float:
        late = []
        for _ in range(jobs):
            age, not_yet = policy.next_query_delay(job(), None).total_seconds(), 0.0
            while age < seconds:
                not_yet = age
                age += policy.next_query_delay(job(timedelta(seconds=age)), GOING).total_seconds()
            policy.coatcheck_tasks_changed([done(age, since=age - not_yet if not_yet else None)])
            late.append(age - seconds)
        return statistics.fmean(late[-100:])

    assert work(100, 500) < 20
    assert work(10, 1_500) < 10
    assert work(200, 500) < 40


def test_what_says_nothing_of_a_duration_is_left_out() -> None:
    """Ends at submission, errors before the end, cancellations, and times that make no sense."""
    policy = exact(minimum=2)
    errors = Progress(accepted_at=job().schedule.created_at, consecutive_errors=1)
    telling = done(60, since=1)
    policy.coatcheck_tasks_changed(
        [
            evolve(telling, before=None),
            evolve(telling, event="CancelDone"),
            done(60, progress=errors),
            done(60, status=Status.SUBMITTING),
            done(0),
            done(-5),
            done(60, since=-1),
        ]
        * 5
    )
    assert first_delay(policy) == 1
    policy.coatcheck_tasks_changed([telling] * 2)
    assert first_delay(policy) > 50


def test_each_handler_has_its_own_durations() -> None:
    """A video says nothing about a page."""
    policy = exact()
    policy.coatcheck_tasks_changed([done(240, since=1, handler="video")] * 50)
    policy.coatcheck_tasks_changed([done(12, since=1, handler="ocr")] * 50)
    assert first_delay(policy, "video") == pytest.approx(240, abs=1)
    assert first_delay(policy, "ocr") == pytest.approx(12, abs=1)
    assert first_delay(policy, "other") == 1


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"likely": 0}, "likely must be above 0 and below 1"),
        ({"likely": 1}, "likely must be above 0 and below 1"),
        ({"minimum": 1}, "minimum must be at least 2"),
        ({"minimum": 50, "remembers": 40}, "remembers must not be below minimum"),
        ({"share": 0}, "share must be above 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        learned(**settings)


async def test_an_app_teaches_its_policy() -> None:
    """Nothing has to be registered: the policy of the app, or one of a handler, hears of what its worker commits."""
    clock = ManualClock()
    policy, own = learned(minimum=5, jitter=0, seed=1), learned(minimum=5, jitter=0, seed=1)
    pages = ScriptedHandler("pages", dict, query=[GOING] * 6 * 20)
    films = ScriptedHandler("films", list)
    films.retry = own
    app = memory_app(pages, films, clock=clock, retry=per_handler({"pages": policy}))
    async with app:
        for _ in range(20):
            await app.manager.submit({"a": 1}, tracking_timeout=timedelta(hours=9))
            await app.manager.submit([1], tracking_timeout=timedelta(hours=9))
        await run_to_end(app, clock)
    assert first_delay(policy, "pages") > 1
    assert first_delay(own, "films") >= 1
    assert policy.pace(job(handler="films")) == SECOND


# ------------------------------------------------------------------ a policy for each handler


def test_each_handler_has_its_policy() -> None:
    """For all three questions; those that are not named have the other one."""
    policy = per_handler({"a": fixed(3 * SECOND, jitter=0)}, otherwise=fixed(7 * SECOND, jitter=0))
    for handler, delay in (("a", 3 * SECOND), ("b", 7 * SECOND)):
        task = job(handler=handler)
        assert policy.next_query_delay(task, GOING) == delay
        assert policy.next_error_delay(task, ValueError()) == delay
        assert policy.next_submit_delay(task, SubmitDeferred("busy")) == delay
    assert per_handler({}).otherwise == ExponentialRetry()


def test_each_policy_is_told_of_its_own_handlers_once() -> None:
    """One that serves two handlers gets both, and one that does not learn is left alone."""
    shared = exact(minimum=3)
    policy = per_handler({"a": shared, "b": shared, "c": fixed()}, otherwise=ExponentialRetry())
    policy.coatcheck_tasks_changed([done(60, since=1, handler=key) for key in "abcd" * 2])
    policy.coatcheck_tasks_changed([done(60, since=1, handler="a")])
    assert first_delay(shared, "a") > 50
    assert (first_delay(shared, "b"), first_delay(shared, "d")) == (1, 1)
