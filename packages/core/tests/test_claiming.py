"""What a worker does with claims that it may not, or cannot, call."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

import pytest
from attrs import frozen

from coatcheck import App, Postpone, QueryResult, Rate, StandardAdmission, Status, SubmitOptions, Task, gates
from coatcheck.faulty import FaultyStore
from coatcheck.gates import Admission
from coatcheck.memory import MemoryStore
from coatcheck.store import STALE_GRACE, Claims, Refused, Started, Store
from coatcheck.task import CancelOutcome, ErrorCode
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end

HOUR = timedelta(hours=1)


@frozen
class Page:
    """What the handler takes."""

    url: str = "https://example.com/a.png"


class Meddling(FaultyStore):
    """A store in which something happens between a claim and its start."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before_start: list[Callable[[Sequence[Task]], object]] = []
        self.claims_take_seconds = 0.0

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim, and answer late."""
        claims = await super().claim_queries(worker_id, handler_keys, limit, lease)
        await asyncio.sleep(self.claims_take_seconds)
        return claims

    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """Let it happen, then start."""
        if self.before_start:
            what = self.before_start.pop(0)(tasks)
            if asyncio.iscoroutine(what):
                await what
        return await super().start(tasks, lease)


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Meddling:
    """A store to meddle with."""
    return Meddling(MemoryStore(clock=clock))


async def submit(app: App, timeout: timedelta = HOUR, **options: object) -> Task:
    """Submit a page."""
    return await app.manager.submit(
        Page(),
        tracking_timeout=timeout,
        options=SubmitOptions(**options),  # type: ignore[arg-type]
    )


async def now(app: App, task: Task) -> Task:
    """Return the task as it is now."""
    found = await app.manager.get(task.id)
    assert found is not None
    return found


def scan(**script: object) -> ScriptedHandler[Page]:
    """Return a scripted handler."""
    return ScriptedHandler("scan", Page, **script)  # type: ignore[arg-type]


async def test_a_cancellation_seen_at_start_sends_nothing(store: Meddling) -> None:
    """Cancelled between claim and call: CANCELED, and the provider never hears of it."""
    handler = scan()
    store.before_start.append(lambda tasks: store.request_cancellation(tasks[0].id))
    async with App(store, [handler]) as app:
        task = await submit(app)
        await app.worker().run_once()
        assert (await now(app, task)).status is Status.CANCELED
    assert not handler.submitted


async def test_a_deadline_seen_at_start_sends_nothing(store: Meddling, clock: ManualClock) -> None:
    """Overdue between claim and call: timed out."""
    handler = scan()
    store.before_start.append(lambda _tasks: clock.advance(timedelta(seconds=31)))
    async with App(store, [handler]) as app:
        task = await submit(app, timedelta(seconds=30))
        await app.worker().run_once()
        assert (await now(app, task)).status is Status.TRACKING_TIMED_OUT
    assert not handler.submitted


async def test_a_lease_lost_before_start_sends_nothing(store: Meddling, clock: ManualClock) -> None:
    """The claim is forgotten, and the task goes back to the queue by itself."""
    handler = scan()
    store.before_start.append(lambda _tasks: clock.advance(timedelta(seconds=61)))
    async with App(store, [handler]) as app:
        await submit(app)
        await app.worker().run_once()
        assert not handler.submitted
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert len(handler.submitted) == 1


@pytest.mark.parametrize(
    "word",
    [None, False, "later", Postpone(until=datetime(2030, 1, 2), reason="naive")],  # noqa: DTZ001 - on purpose
    ids=str,
)
async def test_a_word_of_admission_that_means_nothing_postpones_the_task(
    store: Meddling, caplog: pytest.LogCaptureFixture, word: object
) -> None:
    """Neither admit nor postpone, or until no one knows when: nothing is sent, and no lease is lost."""

    class Odd(StandardAdmission):
        async def admit(self, task: Task, now: datetime) -> Admission:
            return word  # type: ignore[return-value] # on purpose

    handler = scan()
    async with App(store, [handler], admission=Odd()) as app:
        task = await submit(app)
        assert await app.worker().run_once() == 1
        after = await now(app, task)
    assert after.status is Status.PENDING_SUBMIT
    assert after.schedule.due_at > task.schedule.due_at
    assert not handler.submitted
    assert "failed on task" in caplog.text


async def test_an_aged_rate_grant_is_given_back_and_claims_shrink(
    store: Meddling, clock: ManualClock
) -> None:
    """The rate is counted near the call: what waited too long for it is claimed again, in smaller helpings."""
    handler = scan()
    late = timedelta(milliseconds=150)
    store.before_start += [lambda _tasks: clock.advance(late)]
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.provider("scan"), rate=Rate(1000))
        for _ in range(8):
            await submit(app)
        worker = app.worker()
        assert await worker.run_once() == 8
        assert not handler.submitted
        (usage,) = await app.manager.gates()
        assert (usage.used, usage.granted) == (0, 0)
        assert await worker.run_once() == 4
        assert len(handler.submitted) == 4
        assert await worker.run_once() >= 4
        assert len(handler.submitted) == 8


async def test_a_query_of_a_task_cancelled_meanwhile_becomes_a_remote_cancel(
    store: Meddling, clock: ManualClock
) -> None:
    """Seen at start, the worker that has the claim tells the provider at once."""
    handler = scan(query=[QueryResult.running()] * 5, cancel=[CancelOutcome.CONFIRMED])
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.query("scan"), rate=Rate(1000))
        task = await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        store.before_start.append(lambda tasks: store.request_cancellation(tasks[0].id))
        await app.worker().run_once()
        after = await now(app, task)
    assert after.status is Status.CANCELED
    assert after.outcome.remote_cancel is CancelOutcome.CONFIRMED
    assert not handler.queried


async def test_a_start_that_fails_gives_a_query_back(store: Meddling, clock: ManualClock) -> None:
    """The store did not answer: nobody is asked, and the task is asked about later."""
    handler = scan()
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.query("scan"), rate=Rate(1000))
        task = await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        store.fail("start")
        with pytest.raises(ConnectionError):
            await app.worker().run_once()
        after = await now(app, task)
    assert after.status is Status.SUBMITTED
    assert after.lease is None
    assert not handler.queried


async def test_a_query_is_started_by_its_claim(store: Meddling, clock: ManualClock) -> None:
    """A query creates nothing, so it needs no declaration of its own: one step less for each."""
    handler = scan(query=[QueryResult.running()])
    async with App(store, [handler]) as app:
        await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        assert await app.worker().run_once() == 1
    assert len(handler.queried) == 1
    assert store.calls.count("start") == 1  # of the submission


async def test_a_query_whose_claim_took_long_is_started_once_more(
    store: Meddling, clock: ManualClock
) -> None:
    """The lease must last for the call: what was claimed slowly gets its lease anew before the provider is asked."""
    handler = scan(query=[QueryResult.running()])
    async with App(store, [handler]) as app:
        await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        store.claims_take_seconds = 0.3
        worker = app.worker(lease=timedelta(seconds=1), call_timeout=timedelta(seconds=0.8))
        assert await worker.run_once() == 1
    assert len(handler.queried) == 1
    assert store.calls.count("start") == 2


async def test_a_worker_that_is_stopped_between_claim_and_start_gives_back(store: Meddling) -> None:
    """Unstarted claims go back to the queue, unspent."""
    handler = scan()
    app = App(store, [handler])
    async with app:
        worker = app.worker()
        original = store.claim_submissions

        async def claim_then_stop(*args: object) -> object:
            claims = await original(*args)  # type: ignore[arg-type]
            if claims.tasks:
                worker.stop()
            return claims

        store.claim_submissions = claim_then_stop  # type: ignore[assignment, method-assign]
        task = await submit(app)
        async with worker:
            await asyncio.sleep(0)
            while (await now(app, task)).version < 2:
                await asyncio.sleep(0.005)
        after = await now(app, task)
    assert after.status is Status.PENDING_SUBMIT
    assert after.progress.submit_attempts == 0
    assert not handler.submitted


async def test_a_budget_of_nothing_claims_nothing(store: Meddling) -> None:
    """A worker for queries alone submits nothing."""
    handler = scan()
    async with App(store, [handler]) as app:
        await submit(app)
        assert await app.worker(submissions=0).drain() == 0
    assert "claim_submissions" not in store.calls


async def test_a_rescuer_looks_a_lost_submission_up(
    store: Meddling, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that can look up finds the job that a dead worker had created."""
    monkeypatch.setattr("coatcheck.calls.FIND_AFTER_SECONDS", (0.0,))
    from coatcheck import SubmitResult  # noqa: PLC0415 - of this test alone

    handler = scan(find=[SubmitResult.accepted("found-1")])
    async with App(store, [handler]) as app:
        task = await submit(app)
        claims = await store.claim_submissions("dead", ["scan"], 1, timedelta(seconds=10))
        await store.start(claims.tasks, timedelta(seconds=10))
        clock.advance(timedelta(seconds=11))
        await app.worker().run_once()
        after = await now(app, task)
    assert after.status is Status.SUBMITTED
    assert after.external_task_id == "found-1"


async def test_without_its_handler_a_lost_submission_is_left_unknown_after_a_grace(
    store: Meddling, clock: ManualClock
) -> None:
    """Workers that have the handler go first; then anybody says that nobody knows."""
    async with App(store, [scan()]) as app:
        task = await submit(app)
        claims = await store.claim_submissions("dead", ["scan"], 1, timedelta(seconds=10))
        await store.start(claims.tasks, timedelta(seconds=10))
        stranger: ScriptedHandler[Page] = ScriptedHandler("other", Page)
        other = App(store, [stranger])
        clock.advance(timedelta(seconds=11))
        await other.worker().run_once()
        assert (await now(app, task)).status is Status.SUBMITTING
        clock.advance(STALE_GRACE)
        await other.worker().run_once()
        after = await now(app, task)
    assert after.status is Status.SUBMIT_UNKNOWN
    assert after.error is not None
    assert after.error.code == ErrorCode.SUBMIT_UNKNOWN


async def test_run_ends_at_the_first_signal() -> None:
    """`run` handles SIGTERM: it winds down and returns, and the old signal handlers are back."""
    before = signal.getsignal(signal.SIGTERM)
    app = App(MemoryStore(), [scan()])
    async with app:
        task = await submit(app)
        running = asyncio.create_task(app.worker().run())
        await app.manager.wait(task.id, timedelta(seconds=10))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_store_that_cannot_be_waited_on_is_survived() -> None:
    """The worker looks again after a moment instead."""
    store = Meddling(MemoryStore())
    store.fail("wait", times=2)
    app = App(store, [scan()])
    async with app, app.worker():
        while store.calls.count("wait") < 3:
            await asyncio.sleep(0.01)
        task = await submit(app)
        assert (await app.manager.wait(task.id, timedelta(seconds=10))).status is Status.SUCCEEDED


async def test_a_worker_that_cannot_settle_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """A store that stays away keeps nobody alive for ever; the log says how many outcomes are lost."""
    caplog.set_level(logging.INFO, logger="coatcheck")
    store = Meddling(MemoryStore())
    handler = scan()
    app = App(store, [handler])
    async with app:
        async with app.worker(stop_timeout=timedelta(milliseconds=100)):
            store.fail("settle", times=10_000)
            await submit(app)
            while not handler.submitted:
                await asyncio.sleep(0.005)
        store.recover()
    assert "1 outcomes could not be settled" in caplog.text
