"""What really went wrong elsewhere, on stores that processes share: redeploys, restarts, floods, dead workers."""

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck import App, QueryParams, Status, Submission, SubmitOptions, create_store, gates
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.testing import ManualClock, ScriptedHandler
from coatcheck_handler_ocr import OcrRequest
from coatcheck_sandbox import Operation, SandboxServer, describe
from processes import Orders, Process
from provider import HOUR, QUICK, CancellingOcr, cancels, document, handler_of
from servers import Kind
from servers.fixtures import Own
from servers.redis import Redis
from servers.sentinel import Guarded
from waits import PATIENCE, until

pytestmark = [pytest.mark.crowd, pytest.mark.slow, pytest.mark.timeout(180)]

FIGURES = logging.getLogger(__name__)
"""Seen with ``--log-cli-level=INFO``."""
SERVERS = ("postgresql", "mariadb", "redis")
LEASE = timedelta(minutes=1)
BACK_WITHIN_SECONDS = 30


class TimedHandler(ScriptedHandler[OcrRequest]):
    """Notes when jobs are done."""

    def __init__(self) -> None:
        super().__init__("scan", OcrRequest)
        self.done_at: list[float] = []

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Say that it is done."""
        self.done_at.append(asyncio.get_running_loop().time())
        return await super().query(params, context)

    def per_second(self) -> float:
        """Return how many were done in each of the last two seconds."""
        now = asyncio.get_running_loop().time()
        return sum(at > now - 2 for at in self.done_at) / 2


# ------------------------------------------------------------------ 2: a redeploy


async def asks(worker: Process, sandbox: SandboxServer) -> None:
    """Wait for its next query."""
    asked = len(sandbox.log.requests(Operation.QUERY))
    await until(lambda: worker.works and len(sandbox.log.requests(Operation.QUERY)) > asked, "a query")


async def end(worker: Process) -> None:
    """Ask it to finish, as a deploy does."""
    worker.send(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait) == 0


async def test_02_workers_are_redeployed_while_a_paid_job_runs(
    tmp_path: Path, url: str, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 2: the next worker asks for the same external id; the provider sees one creating request."""
    sandbox.jobs.delay = HOUR
    orders = Orders(store_url=url, provider_url=sandbox.url)
    async with App(create_store(url), [handler_of(sandbox.url, kind=CancellingOcr)], retry=QUICK) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=HOUR)
        with Process(tmp_path, orders) as old:
            await asks(old, sandbox)
            await end(old)
        with Process(tmp_path, evolve(orders, minutes_later=1)) as new:
            await asks(new, sandbox)
            clock.advance(HOUR)
            done = await app.manager.wait(task.id, PATIENCE)
            await end(new)
    assert done.status is Status.SUCCEEDED
    assert sandbox.creating_requests("a.png") == 1
    assert {each.job_id for each in sandbox.log.requests(Operation.QUERY)} == {done.external_task_id}
    assert cancels(sandbox) == []


# ------------------------------------------------------------------ 19: the server restarts


async def check_that_it_comes_back(url: str, restart: Callable[[], None], **settings: object) -> None:
    """Let `restart` take the server away and bring it back, under load; see that all ends, and soon."""
    await create_store(url).setup()
    handler, loop = TimedHandler(), asyncio.get_running_loop()
    acknowledged: list[str] = []
    over = asyncio.Event()

    async def offer(app: App) -> None:
        """Submit twenty a second, whatever happens."""
        while not over.is_set():
            request = OcrRequest(url=f"https://example.com/{len(acknowledged)}.png")
            acknowledged.append((await app.manager.submit(request, tracking_timeout=HOUR)).id)
            await asyncio.sleep(0.05)

    async with AsyncExitStack() as stack:
        store = create_store(url, **settings)
        app = await stack.enter_async_context(App(store, [handler], retry=QUICK))
        await stack.enter_async_context(app.worker())
        offering = asyncio.create_task(offer(app))
        await until(lambda: len(handler.done_at) > 40, "a load")
        before = handler.per_second()
        await asyncio.to_thread(restart)
        back = loop.time()
        await asyncio.sleep(2)  # what is counted is what was done since
        await until(lambda: handler.per_second() >= 0.95 * before, "the old throughput")
        took = loop.time() - back
        over.set()
        await offering
        ends = [await app.manager.wait(task_id, PATIENCE) for task_id in acknowledged]
    FIGURES.info("back after seconds: %s", took)
    FIGURES.info("tasks per second before: %s", before)
    FIGURES.info("tasks: %s", len(acknowledged))
    assert took < BACK_WITHIN_SECONDS
    assert before > 5
    assert {task.status for task in ends} == {Status.SUCCEEDED}
    sent = Counter(params.url for params, _ in handler.submitted)
    assert max(sent.values()) == 1
    assert len(sent) == len(acknowledged)


@pytest.mark.parametrize("kind", SERVERS)
async def test_19_the_server_restarts_under_load(own_server: Own, kind: Kind) -> None:
    """Scenario 19: back to 95 % of the throughput within 30 s, and nothing that was acknowledged is lost."""
    server = await asyncio.to_thread(own_server, kind, durable=True)

    def restart() -> None:
        server.stop()
        time.sleep(1)
        server.start()

    await check_that_it_comes_back(server.new_database(), restart)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    """Start a Redis master, two replicas and a Sentinel."""
    servers = Guarded(Redis, replicas=2, durable=True)
    yield servers
    servers.close()


async def test_19_a_sentinel_replaces_the_server_under_load(guarded: Guarded) -> None:
    """Scenario 19, where a replica takes over: as after a restart, since a replica has acknowledged every step."""

    def replace() -> None:
        old = guarded.chosen
        old.stop()
        guarded.wait_for_successor(old)

    await check_that_it_comes_back(guarded.new_database(), replace, acknowledge="all", ack_replicas=1)


# ------------------------------------------------------------------ 22: floods and closed gates


async def test_22_a_flood_of_high_priority_does_not_starve_the_low(url: str, clock: ManualClock) -> None:
    """Scenario 22: with ageing on, what waits long enough comes before what is more important and new."""
    minute = timedelta(minutes=1)
    store = create_store(url, clock=clock)
    async with App(store, [TimedHandler()], priority_ageing=minute) as app:
        low = await app.manager.submit(OcrRequest(url="https://example.com/low.png"), tracking_timeout=HOUR)
        high = SubmitOptions(priority=10)
        important = OcrRequest(url="https://example.com/high.png")
        flood = [Submission(params=important, tracking_timeout=HOUR, options=high)] * 20
        served: list[str] = []
        rounds = 0
        while low.id not in served:
            await app.manager.submit_many(flood)
            claims = await store.claim_submissions("w", ["scan"], 10, LEASE)
            assert len(claims.tasks) == 10
            served = [task.id for task in claims.tasks]
            clock.advance(minute)
            rounds += 1
            assert rounds < 30
    # those of the first ten minutes came before it, at half the speed at which they came
    assert 15 < rounds <= 22


async def test_22_tasks_behind_a_closed_gate_block_nobody(url: str) -> None:
    """Scenario 22: a paused tenant's thousand tasks of high priority hold up no other's."""
    store = create_store(url)
    async with App(store, [TimedHandler()]) as app:
        await app.manager.pause(gates.tenant("paused"), reason="test")
        request = OcrRequest(url="https://example.com/a.png")
        stuck = SubmitOptions(tenant_id="paused", priority=9)
        one = Submission(params=request, tracking_timeout=HOUR, options=stuck)
        await app.manager.submit_many([one] * 1_000)
        free = [await app.manager.submit(request, tracking_timeout=HOUR) for _ in range(20)]
        claims = await store.claim_submissions("w", ["scan"], 20, LEASE)
    assert [task.id for task in claims.tasks] == [task.id for task in free]


# ------------------------------------------------------------------ 23: a dead worker's slot


@pytest.mark.parametrize("point", ["parse_submit", "parse_query"])
async def test_23_a_worker_dies_with_a_slot(tmp_path: Path, url: str, point: str) -> None:
    """Scenario 23: the only slot comes back when the lease has ended, and the next task gets it."""
    gate = gates.provider("ocr:gitee")
    lease = {"lease": 2.0, "call_timeout": 1.8}
    with SandboxServer(recognizer=describe, delay=timedelta(milliseconds=50)) as sandbox:
        async with App(create_store(url), [handler_of(sandbox.url)], retry=QUICK) as app:
            await app.manager.set_gate(gate, concurrency=1)
            first, second = [
                await app.manager.submit(document(sandbox.url, name), tracking_timeout=HOUR)
                for name in ("a.png", "b.png")
            ]
            handlers = {"ocr:gitee": f"kill {point}"}
            orders = Orders(store_url=url, provider_url=sandbox.url, handlers=handlers, worker=lease)
            with Process(tmp_path, orders) as doomed:
                assert await asyncio.to_thread(doomed.wait) == -signal.SIGKILL
            (held,) = await app.store.gates([gate])
            assert held.used == 1
            async with app.worker():
                ends = [await app.manager.wait(task.id, PATIENCE) for task in (first, second)]
            (after,) = await app.store.gates([gate])
        counts = [sandbox.creating_requests(name) for name in ("a.png", "b.png")]
    doubt = Status.SUBMIT_UNKNOWN if point == "parse_submit" else Status.SUCCEEDED
    assert [task.status for task in ends] == [doubt, Status.SUCCEEDED]
    assert counts == [1, 1]
    assert after.used == 0


# ------------------------------------------------------------------ 26: eight processes


@pytest.mark.parametrize("url", SERVERS, indirect=True)
async def test_26_eight_processes_on_one_server(tmp_path: Path, url: str, sandbox: SandboxServer) -> None:
    """Scenario 26: nobody sees a deadlock or a lock, nothing is lost, and every task is submitted once."""
    names = [[f"{process}-{number}.png" for number in range(12)] for process in range(8)]
    orders = [Orders(store_url=url, provider_url=sandbox.url, submits=mine) for mine in names]
    with Process(tmp_path, *orders) as processes:
        await until(lambda: processes.works, "the start of all")
        async with App(create_store(url)) as app:

            async def all_done() -> bool:
                (stats,) = (await app.manager.stats()).handlers or (None,)
                return stats is not None and stats.by_status.get(Status.SUCCEEDED) == 8 * 12

            await until(all_done, "the end of all tasks")
            tasks = await app.manager.find(limit=1000)
        processes.send(signal.SIGTERM)
        assert await asyncio.to_thread(processes.wait) == 0
    # not "blocked": a busy machine makes a worker warn of an event loop that came late
    assert processes.lines_with(r"deadlock|\blocked|lock (?:wait|time)|\baway\b|traceback") == []
    documents = [name for mine in names for name in mine]
    assert {sandbox.creating_requests(name) for name in documents} == {1}
    assert len({task.attempt.worker_id for task in tasks if task.attempt}) > 1
