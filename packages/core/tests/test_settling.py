"""Writing outcomes when the store, the policies or the outcomes are odd."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import AdmissionPolicy, App, ExponentialRetry, Gates, QueryResult, Rate, Status, TaskChange
from coatcheck.errors import InvalidTransition, LeaseLost, StoreError, TaskNotFound
from coatcheck.faulty import FaultyStore
from coatcheck.gates import GateChange, PauseGate, ResumeGate, SetGate
from coatcheck.lifecycle import Settlement
from coatcheck.memory import MemoryStore
from coatcheck.store import Settled
from coatcheck.task import Task, TaskDraft
from coatcheck.testing import ManualClock, QueryStep, ScriptedHandler, run_to_end

HOUR = timedelta(hours=1)


@frozen
class Page:
    """What the handler takes."""

    url: str = "https://example.com/a.png"


class Refusing(FaultyStore):
    """A store whose next settles are answered by a script."""

    answers: list[Settled]

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Answer by the script, then as the store."""
        if self.answers:
            return [self.answers.pop(0) for _ in settlements]
        return await super().settle(settlements)


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


def refusing(clock: ManualClock, *answers: Settled) -> Refusing:
    """Return a store that answers so."""
    store = Refusing(MemoryStore(clock=clock))
    store.answers = list(answers)
    return store


def scan(*answers: QueryStep) -> ScriptedHandler[Page]:
    """Return a handler whose queries are answered so."""
    return ScriptedHandler("scan", Page, query=answers)


async def submit(app: App) -> Task:
    """Submit a page."""
    return await app.manager.submit(Page(), tracking_timeout=HOUR)


async def test_an_impossible_outcome_is_dropped_and_said(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The lifecycle has no such arrow: the lease ends, and the task is rescued."""
    store = refusing(clock, InvalidTransition("no such arrow"))
    async with App(store, [scan()]) as app:
        await submit(app)
        await app.worker().run_once()
    assert "an impossible outcome was dropped: no such arrow" in caplog.text


async def test_a_refused_query_outcome_is_dropped(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker has the task: nothing is lost, it is asked again."""
    store = refusing(clock)
    async with App(store, [scan()]) as app:
        await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        store.answers = [LeaseLost("taken")]
        await app.worker().run_once()
        (done,) = await run_to_end(app, clock)
    assert "refused and dropped" in caplog.text
    assert done.status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("error", "says"),
    [(TaskNotFound("x"), "is gone; the provider has it as"), (StoreError("no"), "late proof was refused")],
)
async def test_an_id_that_cannot_be_attested_is_at_least_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, error: Exception, says: str
) -> None:
    """A paid job's id is never thrown away in silence."""
    store = refusing(clock, LeaseLost("taken"))
    store.fail("attest", error=error)
    async with App(store, [scan()]) as app:
        await submit(app)
        await app.worker().run_once()
    assert says in caplog.text
    assert "scan-1" in caplog.text


async def test_an_outage_while_attesting_is_waited_out(clock: ManualClock) -> None:
    """The proof is taken in when the store is back."""
    store = refusing(clock, LeaseLost("taken"))
    store.fail("attest", times=2)
    async with App(store, [scan()]) as app:
        task = await submit(app)
        await app.worker().run_once()
        after = await app.manager.get(task.id)
    assert after is not None
    assert after.external_task_id == "scan-1"


class Reacting(AdmissionPolicy):
    """Changes gates when tasks change, and breaks in between."""

    def __init__(self, *answers: list[GateChange] | Exception) -> None:
        self.answers = list(answers)

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name no gate."""
        return Gates()

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Answer by the script."""
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_observed_changes_move_gates(clock: ManualClock) -> None:
    """Limits, pauses and resumes, in order."""
    policy = Reacting(
        [
            SetGate(name="g", concurrency=3, rate=Rate(7)),
            PauseGate(name="g", reason="r"),
            ResumeGate(name="g"),
        ]
    )
    async with App(MemoryStore(clock=clock), [scan()], admission=policy) as app:
        await submit(app)
        await run_to_end(app, clock)
        (usage,) = await app.manager.gates()
    assert (usage.gate.concurrency, usage.gate.rate, usage.gate.pause) == (3, Rate(7), None)


async def test_a_policy_or_a_gate_that_breaks_stops_nothing(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are logged; the task goes on."""
    store = FaultyStore(MemoryStore(clock=clock))
    store.fail("pause_gate", error=ZeroDivisionError("gate bug"))
    policy = Reacting(RuntimeError("policy bug"), [PauseGate(name="g", reason="r")])
    async with App(store, [scan()], admission=policy) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert "policy bug" in caplog.text
    assert "gate bug" in caplog.text


class BrokenRetry(ExponentialRetry):
    """A policy with a bug in every method."""

    def next_submit_delay(self, task: object, error: object) -> timedelta:
        """Break."""
        raise ZeroDivisionError

    def next_query_delay(self, task: object, result: object) -> timedelta:
        """Break."""
        raise ZeroDivisionError

    def next_error_delay(self, task: object, error: object) -> timedelta:
        """Break."""
        raise ZeroDivisionError


async def test_a_broken_retry_policy_is_replaced_by_the_default(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named in the log, and the task goes on."""
    script: list[QueryStep] = [
        QueryResult.running(),
        RuntimeError("x"),
        QueryResult.unlisted("odd"),
        QueryResult.incomplete(),
    ]
    handler = scan(*script)
    async with App(MemoryStore(clock=clock), [handler], retry=BrokenRetry()) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert "the default takes its place" in caplog.text


@pytest.mark.parametrize("answer", [None, 7, "soon"])
async def test_a_retry_policy_that_answers_nonsense_is_replaced_by_the_default(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, answer: object
) -> None:
    """What is no timedelta never reaches the store; None gives up only after an error."""
    policy = ExponentialRetry()
    asked = type("Odd", (ExponentialRetry,), {"next_query_delay": lambda *_: answer})()
    async with App(MemoryStore(clock=clock), [scan(QueryResult.running())], retry=asked) as app:
        task = await submit(app)
        await app.worker().run_once()
        (going,) = await app.manager.find()
        assert going.status is Status.SUBMITTED
        assert clock.now() < going.schedule.due_at <= clock.now() + policy.maximum
        assert going.id == task.id
    assert "which is no timedelta" in caplog.text


@pytest.mark.parametrize("result", [QueryResult.unlisted("odd"), QueryResult.incomplete(), RuntimeError("x")])
async def test_a_policy_that_gives_up_ends_the_task(
    clock: ManualClock, result: QueryResult | RuntimeError
) -> None:
    """After so many errors in a row, whatever their kind."""
    handler = scan(result, result, result)
    policy = ExponentialRetry(max_consecutive_errors=2)
    async with App(MemoryStore(clock=clock), [handler], retry=policy) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert len(handler.queried) == 2


async def test_a_nonsense_answer_to_a_query_is_an_error(clock: ManualClock) -> None:
    """The job is asked about again."""

    def nonsense(*_: object) -> QueryResult:
        return "done"  # type: ignore[return-value]

    handler = scan(nonsense)
    async with App(MemoryStore(clock=clock), [handler]) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert done.progress.query_count == 2


@pytest.mark.parametrize(("late", "status"), [(False, Status.SUCCEEDED), (True, Status.FAILED)])
async def test_not_found_means_not_yet_and_later_lost(
    clock: ManualClock, *, late: bool, status: Status
) -> None:
    """Within the grace the job may not be visible yet; long after, the provider has lost it, by that name."""
    count = 40 if late else 2
    handler = scan(*[QueryResult.not_found()] * count)
    async with App(MemoryStore(clock=clock), [handler]) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is status
    if late:
        assert done.error is not None
        assert done.error.code == "provider_lost"
