"""What really went wrong elsewhere with workers that were thought dead and were not."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck import App, Status, Store, SubmitOptions, Task, create_store
from coatcheck.testing import ManualClock
from coatcheck_sandbox import Operation, SandboxServer
from processes import SHORT_LEASE, Orders, Process, between_writes
from provider import HOUR, QUICK, StagedOcr, document, handler_of
from waits import PATIENCE, until

POINTS = ("build_submit", "parse_submit", "parse_query")
"""Where a worker is stopped: before it sends, with the job's id in hand, and with the result in hand."""


@pytest.fixture(params=("memory", "sqlite", "redis"))
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Store:
    """A closed store with a manual clock."""
    if request.param == "redis":
        return create_store(request.getfixturevalue("redis_url"), clock=clock)
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    return create_store(url, clock=clock)


class Stop:
    """Stops a handler at a point until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go_on = threading.Event()

    def __call__(self) -> None:
        """Stand still."""
        self.reached.set()
        self._go_on.wait()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Never leave a thread standing when a test fails."""
        try:
            yield
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Let it go on."""
        self._go_on.set()


def notes_of(task: Task) -> str:
    """Return what the history says, a line for each entry."""
    return "\n".join(f"{entry.worker_id}: {entry.target} {entry.note}" for entry in task.history)


async def now(app: App, task: Task) -> Task:
    """Return the task as it is now."""
    found = await app.manager.get(task.id)
    assert found is not None
    return found


async def test_15_a_worker_past_its_lease_wakes_up_with_a_result(
    store: Store, clock: ManualClock, sandbox: SandboxServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 15: another took over, so what the first writes is refused; the history shows it."""
    stop = Stop()
    zombie = App(store, [StagedOcr(sandbox.url, at="parse_query", act=stop)]).worker()
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=30))
        with stop.in_place():
            life = asyncio.create_task(zombie.run_once())
            await until(stop.reached.is_set)
            clock.advance(timedelta(minutes=2))
            other = app.worker()
            await other.drain()
            done = await now(app, task)
            assert done.status is Status.SUCCEEDED
            stop.let_go()
            await life
        assert await now(app, task) == done
    assert f"{other.id}: SUBMITTED the lease of {zombie.id} ended without an outcome" in notes_of(done)
    assert f"{other.id}: SUCCEEDED" in notes_of(done)
    assert "an outcome was refused and dropped" in caplog.text
    assert sandbox.creating_requests("a.png") == 1


async def test_15_a_worker_past_its_lease_wakes_up_with_the_id_of_a_paid_job(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 15: its write is refused, and the id, which is proof of the job, is kept all the same."""
    stop = Stop()
    zombie = App(store, [StagedOcr(sandbox.url, at="parse_submit", act=stop)]).worker()
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        with stop.in_place():
            life = asyncio.create_task(zombie.run_once())
            await until(stop.reached.is_set)
            clock.advance(timedelta(minutes=2))
            other = app.worker()
            await other.drain()
            assert (await now(app, task)).status is Status.SUBMIT_UNKNOWN
            stop.let_go()
            await life
        clock.advance(timedelta(minutes=1))
        await app.worker().drain()
        done = await now(app, task)
    assert done.status is Status.SUCCEEDED
    assert f"{other.id}: SUBMITTING the lease of {zombie.id} ended without an outcome" in notes_of(done)
    assert f"{other.id}: SUBMIT_UNKNOWN" in notes_of(done)
    assert f"{zombie.id}: SUBMITTED late proof" in notes_of(done)
    assert sandbox.creating_requests("a.png") == 1


async def test_15_a_worker_past_its_lease_wakes_up_before_it_has_sent(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 15: it can send no more, since it asks whether it still holds the task right before."""
    stop = Stop()
    zombie = App(store, [StagedOcr(sandbox.url, at="build_submit", act=stop)]).worker()
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        with stop.in_place():
            life = asyncio.create_task(zombie.run_once())
            await until(stop.reached.is_set)
            clock.advance(timedelta(minutes=2))
            await app.worker().drain()
            unknown = await now(app, task)
            assert unknown.status is Status.SUBMIT_UNKNOWN
            await zombie._keeper.renew()
            stop.let_go()
            await life
        assert await now(app, task) == unknown
    assert sandbox.log.requests(Operation.SUBMIT) == []


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_15_a_worker_process_is_stopped_past_its_lease(
    tmp_path: Path, request: pytest.FixtureRequest, sandbox: SandboxServer, kind: str
) -> None:
    """Scenario 15, with SIGSTOP: what it writes when it wakes is refused, and what it has not sent stays so."""
    database = tmp_path / "tasks.db"
    url: str = f"sqlite:///{database}" if kind == "sqlite" else request.getfixturevalue("redis_url")
    at_a_safe_moment: AbstractContextManager[None] = (
        between_writes(database) if kind == "sqlite" else nullcontext()
    )
    stops = {f"stops at {point}": f"hold {point}" for point in POINTS}
    handlers = [handler_of(sandbox.url, key=key) for key in stops]
    tasks: dict[str, Task] = {}
    with ExitStack() as processes:
        app = App(create_store(url), handlers, retry=QUICK)
        async with app:
            for key, point in zip(stops, POINTS, strict=True):
                options = SubmitOptions(handler_key=key)
                page = document(sandbox.url, f"{point}.png")
                tasks[point] = await app.manager.submit(page, tracking_timeout=HOUR, options=options)
            orders = Orders(store_url=url, provider_url=sandbox.url, handlers=stops, worker=SHORT_LEASE)
            zombie = processes.enter_context(Process(tmp_path, orders))
            await until(lambda: zombie.works and all(f"{key} holds" in zombie.log for key in stops), "a stop")
            with at_a_safe_moment:
                zombie.send(signal.SIGSTOP)
            async with app.worker() as other:
                ended = {point: await app.manager.wait(task.id, PATIENCE) for point, task in tasks.items()}
                assert [each.status for each in ended.values()] == [
                    Status.SUBMIT_UNKNOWN,
                    Status.SUBMIT_UNKNOWN,
                    Status.SUCCEEDED,
                ]
                zombie.let_go()
                zombie.send(signal.SIGCONT)
                await until(lambda: zombie.log.count("refused and dropped") == 2, "the refusal")
                await until(lambda: "late proof of its submission was taken in" in zombie.log, "the proof")
                adopted = await app.manager.wait(tasks["parse_submit"].id, PATIENCE)
                zombie.send(signal.SIGTERM)
                assert await asyncio.to_thread(zombie.wait) == 0
            after = {point: await now(app, task) for point, task in tasks.items()}
    assert adopted.status is Status.SUCCEEDED
    assert after == {**ended, "parse_submit": adopted}
    for task in after.values():
        assert f"{other.id}: " in notes_of(task)
        assert f"-{zombie.pid}-" in notes_of(task)
        assert "ended without an outcome" in notes_of(task)
    counts = [sandbox.creating_requests(f"{point}.png") for point in POINTS]
    assert counts == [0, 1, 1]
