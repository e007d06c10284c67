"""What really went wrong elsewhere when jobs were asked about: wrong verdicts."""

import asyncio
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from coatcheck import App, ExponentialRetry, QueryParams, Status, Store, Task, create_store
from coatcheck.task import ErrorCode
from coatcheck.testing import ManualClock, run_to_end
from coatcheck_sandbox import Operation, SandboxServer, Stall
from processes import Orders, Process
from provider import HOUR, QUICK, CancellingOcr, cancels, document, handler_of
from waits import PATIENCE, until

SHORT = timedelta(milliseconds=100)


async def now(app: App, task: Task) -> Task:
    """Return the task as it is now."""
    found = await app.manager.get(task.id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("http", "worker"),
    [({"read_timeout": SHORT}, {}), ({}, {"call_timeout": SHORT})],
    ids=["of-the-http-client", "of-the-worker"],
)
async def test_09_ten_query_timeouts_in_a_row(
    store: Store, clock: ManualClock, sandbox: SandboxServer, http: dict[str, Any], worker: dict[str, Any]
) -> None:
    """Scenario 9: the remote job finishes, so the task ends SUCCEEDED, and was never given up."""
    impatient = App(store, [handler_of(sandbox.url, **http)])
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        await app.worker().run_once()
        sandbox.faults.add(Stall(operation=Operation.QUERY, times=None))
        for errors in range(1, 11):
            clock.advance((await now(app, task)).schedule.due_at - clock.now())
            await impatient.worker(**worker).run_once()
            after = await now(app, task)
            assert after.status.queryable
            assert after.progress.consecutive_errors == errors
            assert after.error is not None
            assert after.error.code == ErrorCode.QUERY_FAILED
        sandbox.faults.clear()
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert done.error is None
    assert done.progress.query_count >= 11
    assert 0 < len(sandbox.log.requests(Operation.QUERY)) <= done.progress.query_count
    assert sandbox.creating_requests("a.png") == 1


def _extend(app: App, task: Task) -> Any:
    return app.manager.extend(task.id, tracking_timeout=HOUR, who="operator")


def _adopt(app: App, task: Task) -> Any:
    return app.manager.adopt(task.id, QueryParams(external_task_id=str(task.external_task_id)))


@pytest.mark.parametrize("resolve", [_extend, _adopt])
async def test_13_the_deadline_passes_while_the_remote_runs(
    store: Store, clock: ManualClock, sandbox: SandboxServer, resolve: Callable[[App, Task], Any]
) -> None:
    """Scenario 13: TRACKING_TIMED_OUT says it may still run and be charged; the late result can be had."""
    sandbox.jobs.delay = 2 * HOUR
    seldom = ExponentialRetry(initial=timedelta(minutes=10), maximum=timedelta(minutes=10))
    async with App(store, [handler_of(sandbox.url)], retry=seldom) as app:
        await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        (late,) = await run_to_end(app, clock)
        assert late.status is Status.TRACKING_TIMED_OUT
        assert late.error is not None
        assert "the remote job may still run and be charged" in late.error.message
        asked = len(sandbox.log.requests(Operation.QUERY))
        clock.advance(2 * HOUR)
        await app.worker().drain()
        assert len(sandbox.log.requests(Operation.QUERY)) == asked
        await resolve(app, late)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert isinstance(done.result, dict)
    assert "a.png" in str(done.result["markdown"])
    assert sandbox.creating_requests("a.png") == 1


async def test_14_the_tracker_restarts(store: Store, clock: ManualClock, sandbox: SandboxServer) -> None:
    """Scenario 14: workers come and go, also in the middle of a query; the remote job is not cancelled."""
    sandbox.jobs.delay = timedelta(minutes=5)
    async with App(store, [handler_of(sandbox.url, kind=CancellingOcr)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        async with app.worker():
            await until(lambda: bool(sandbox.log.requests(Operation.SUBMIT)))
        for _ in range(3):
            sandbox.faults.add(Stall(operation=Operation.QUERY))
            asked = len(sandbox.log.requests(Operation.QUERY))
            clock.advance(timedelta(seconds=40))
            async with app.worker(stop_timeout=timedelta()):
                await asyncio.to_thread(sandbox.wait_for_requests, asked + 1, Operation.QUERY)
        assert (await now(app, task)).status.queryable
        (done,) = await run_to_end(app, clock)
    _followed(done, sandbox)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_14_the_tracking_process_restarts(
    tmp_path: Path, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 14, with processes: followed on under the same id, no request to cancel."""
    sandbox.jobs.delay = HOUR
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    orders = Orders(store_url=url, provider_url=sandbox.url)
    async with App(create_store(url), [handler_of(sandbox.url)], retry=QUICK) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        for minutes, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
            with Process(tmp_path, evolve(orders, minutes_later=minutes)) as tracker:
                await _asks(tracker, sandbox)
                tracker.send(how)
                assert await asyncio.to_thread(tracker.wait) == (0 if how is signal.SIGTERM else -how)
            assert (await now(app, task)).status.queryable
        with Process(tmp_path, evolve(orders, minutes_later=3)) as tracker:
            await _asks(tracker, sandbox)
            clock.advance(HOUR)
            done = await app.manager.wait(task.id, PATIENCE)
    _followed(done, sandbox)


async def _asks(tracker: Process, sandbox: SandboxServer) -> None:
    """Wait for its next query."""
    asked = len(sandbox.log.requests(Operation.QUERY))
    await until(lambda: tracker.works and len(sandbox.log.requests(Operation.QUERY)) > asked, "a query")


def _followed(done: Task, sandbox: SandboxServer) -> None:
    """Check that the one job was followed to its end, and nobody asked to cancel it."""
    assert done.status is Status.SUCCEEDED
    assert sandbox.creating_requests("a.png") == 1
    assert {each.job_id for each in sandbox.log.requests(Operation.QUERY)} == {done.external_task_id}
    assert cancels(sandbox) == []
    assert {each.method for each in sandbox.requests} == {"GET", "POST"}
