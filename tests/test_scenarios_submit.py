"""What really went wrong elsewhere when jobs were submitted: twice, or never."""

import asyncio
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck import App, CancelOutcome, QueryParams, Status, Store, create_store
from coatcheck.testing import FaultyStore, ManualClock, run_to_end
from coatcheck_handler_ocr import GiteeOcr
from coatcheck_sandbox import Drop, Operation, SandboxServer, Stall, When
from processes import Orders, Process
from provider import HOUR, CancellingOcr, StagedOcr, cancels, document, handler_of
from waits import PATIENCE, until


def job_of(sandbox: SandboxServer, name: str = "a.png") -> QueryParams:
    """Return the one job that the provider has of a document, as an operator would look it up there."""
    requests = sandbox.log.requests(Operation.SUBMIT)
    (job_id,) = {each.job_id for each in requests if each.document == name and each.job_id}
    return QueryParams(external_task_id=str(job_id))


async def stays_unknown(app: App, clock: ManualClock, task_id: str, sandbox: SandboxServer) -> None:
    """Work for two days of the store's time: the task stays in doubt, and nothing more is sent."""
    for _ in range(6):
        await app.worker().drain()
        clock.advance(8 * HOUR)
    task = await app.store.get(task_id)
    assert task is not None
    assert task.status is Status.SUBMIT_UNKNOWN
    assert sandbox.creating_requests("a.png") == 1


async def test_01_a_worker_dies_before_the_id_is_saved(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 1, re-enacted: 1 request; SUBMIT_UNKNOWN until resolved; adopted by its id, it succeeds."""
    dying = FaultyStore(store)

    def die() -> None:
        for method in ("settle", "renew", "attest"):
            dying.fail(method, times=1000)

    victim = App(dying, [StagedOcr(sandbox.url, at="parse_submit", act=die)])
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        life = asyncio.create_task(victim.worker().run_once())
        await until(lambda: "settle" in dying.calls)
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life
        clock.advance(timedelta(minutes=2))
        await stays_unknown(app, clock, task.id, sandbox)
        await app.manager.adopt(task.id, job_of(sandbox), who="operator")
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert sandbox.creating_requests("a.png") == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_01_a_worker_process_is_killed_before_the_id_is_saved(
    tmp_path: Path, sandbox: SandboxServer
) -> None:
    """Scenario 1, with SIGKILL: 1 request; SUBMIT_UNKNOWN until resolved; adopted by its id, it succeeds."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    orders = Orders(store_url=url, provider_url=sandbox.url)
    async with App(create_store(url), [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        with Process(tmp_path, evolve(orders, handlers={"ocr:gitee": "kill parse_submit"})) as victim:
            assert await asyncio.to_thread(victim.wait) == -signal.SIGKILL
        assert [each.status for each in sandbox.log.requests(Operation.SUBMIT)] == [200]
        with Process(tmp_path, evolve(orders, minutes_later=2)):
            unknown = await app.manager.wait(task.id, PATIENCE)
            other = await app.manager.submit(document(sandbox.url, "b.png"), tracking_timeout=HOUR)
            assert (await app.manager.wait(other.id, PATIENCE)).status is Status.SUCCEEDED
            assert await app.manager.get(task.id) == unknown
            assert unknown.status is Status.SUBMIT_UNKNOWN
            assert unknown.error is not None
            assert "may have created the job" in unknown.error.message
            await app.manager.adopt(task.id, job_of(sandbox), who="operator")
            done = await app.manager.wait(task.id, PATIENCE)
    assert done.status is Status.SUCCEEDED
    assert sandbox.creating_requests("a.png") == 1


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("when", list(When))
async def test_03_the_server_reads_the_post_then_drops_the_connection(
    store: Store, clock: ManualClock, sandbox: SandboxServer, when: When, *, reset: bool
) -> None:
    """Scenario 3: 1 request, whatever the HTTP client would like to retry; SUBMIT_UNKNOWN."""
    sandbox.faults.add(Drop(operation=Operation.SUBMIT, when=when, reset=reset))
    async with App(store, [handler_of(sandbox.url)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        await stays_unknown(app, clock, task.id, sandbox)
        if when is When.AFTER:
            await app.manager.adopt(task.id, job_of(sandbox))
        else:
            await app.manager.resubmit(task.id, tracking_timeout=HOUR, note="it is not there")
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert sandbox.created_jobs("a.png") == 1


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize(
    ("kind", "told", "requests"),
    [(GiteeOcr, CancelOutcome.UNSUPPORTED, 0), (CancellingOcr, CancelOutcome.REFUSED, 1)],
)
async def test_06_cancel_is_accepted_while_the_submit_call_is_in_flight(  # noqa: PLR0913, PLR0917 - fixtures and cases
    store: Store,
    clock: ManualClock,
    sandbox: SandboxServer,
    when: When,
    kind: type[GiteeOcr],
    told: CancelOutcome,
    requests: int,
) -> None:
    """Scenario 6: it ends CANCELED; once the id is known the remote is told if the handler can."""
    sandbox.faults.add(Stall(operation=Operation.SUBMIT, when=when))
    async with App(store, [handler_of(sandbox.url, kind=kind)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        work = asyncio.create_task(app.worker().drain())
        await asyncio.to_thread(sandbox.wait_for_requests, 1, Operation.SUBMIT)
        assert await app.manager.cancel(task.id)
        assert not await app.manager.cancel(task.id)
        await until(lambda: sandbox.release_stalled() > 0)
        await work
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.CANCELED
    assert done.external_task_id == job_of(sandbox).external_task_id
    assert done.outcome.remote_cancel is told
    assert len(cancels(sandbox)) == requests
    assert sandbox.creating_requests("a.png") == 1
    assert done.error is not None
    assert "may still run and be charged" in done.error.message


async def test_06_cancel_is_accepted_and_the_answer_to_the_submit_is_lost(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 6, at its worst: CANCELED, saying that the job may have been created."""
    sandbox.faults.add(Stall(operation=Operation.SUBMIT, when=When.AFTER))
    async with App(store, [handler_of(sandbox.url, kind=CancellingOcr)]) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        work = asyncio.create_task(app.worker().drain())
        await asyncio.to_thread(sandbox.wait_for_requests, 1, Operation.SUBMIT)
        assert await app.manager.cancel(task.id)
        await asyncio.to_thread(sandbox.stop)
        await work
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.CANCELED
    assert done.error is not None
    assert "submit outcome unknown" in done.error.message
    assert sandbox.creating_requests("a.png") == 1
