"""Workers that die at any moment, a provider that is seldom well, and deploys: nothing is lost or paid for twice."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define, field

from coatcheck import App, QueryParams, Status, Store, Submission, Task, create_store, gates
from coatcheck_sandbox import Answer, Drop, Operation, SandboxServer, SlowBody, Stall, When, describe
from processes import SHORT_LEASE, Orders, Process
from provider import HOUR, document, handler_of
from waits import PATIENCE, until

pytestmark = [pytest.mark.crowd, pytest.mark.slow, pytest.mark.timeout(240)]

GATE = gates.provider("ocr:gitee")
SLOTS = 4
TASKS = 150
WORKERS = 3
KILLS = 6
SEED = 20260101


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    """A provider whose jobs take a moment by the host's clock."""
    with SandboxServer(recognizer=describe, delay=timedelta(milliseconds=100), seed=SEED) as server:
        yield server


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the tasks are."""
    return f"sqlite:///{tmp_path / 'tasks.db'}"


def _make_it_unreliable(provider: SandboxServer) -> None:
    submit, query = Operation.SUBMIT, Operation.QUERY
    provider.faults.add(
        Answer(operation=submit, status=429, probability=0.05, times=None),
        Answer(operation=submit, status=429, retry_after="1", probability=0.05, times=2),
        Answer(operation=submit, status=500, probability=0.02, times=None),
        Answer(operation=submit, status=502, when=When.AFTER, probability=0.02, times=None),
        Drop(operation=submit, probability=0.02, times=None),
        Drop(operation=submit, when=When.AFTER, reset=True, probability=0.02, times=None),
        SlowBody(operation=submit, seconds=0.3, probability=0.1, times=None),
        Answer(operation=query, status=429, probability=0.03, times=None),
        Answer(operation=query, status=500, probability=0.03, times=None),
        Drop(operation=query, probability=0.03, times=None),
        SlowBody(operation=query, seconds=0.3, probability=0.05, times=None),
    )


@define
class Fleet:
    """Worker processes that are replaced when they are killed."""

    folder: Path
    orders: Orders
    stack: AsyncExitStack
    running: list[Process] = field(factory=list)

    def start_one(self) -> None:
        """Start one more."""
        self.running.append(self.stack.enter_context(Process(self.folder, self.orders)))

    async def kill_one(self, chance: random.Random, provider: SandboxServer) -> None:
        """Kill one that works, after the provider has seen some more requests; start another one."""
        victim = chance.choice(self.running)
        await until(lambda: victim.works, "work")
        goal = len(provider.requests) + chance.randrange(5, 40)
        await until(lambda: victim.works and len(provider.requests) >= goal, "more requests")
        victim.send(signal.SIGKILL)
        self.running.remove(victim)
        self.start_one()

    async def end(self) -> None:
        """Ask all to finish, and check that they do, in peace."""
        for each in self.running:
            await until(lambda each=each: each.works, "work")  # type: ignore[misc]  # bound at once
            each.send(signal.SIGTERM)
        assert [await asyncio.to_thread(each.wait) for each in self.running] == [0] * len(self.running)


@asynccontextmanager
async def watched(store: Store, most: list[int]) -> AsyncIterator[None]:
    """Write down, again and again, how many slots of the gate are in use."""

    async def watch() -> None:
        while True:
            (usage,) = await store.gates([GATE])
            most.append(usage.used)
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def all_ended(app: App) -> bool:
    """Whether every task has ended."""
    counts: Counter[Status] = Counter()
    for each in (await app.manager.stats()).handlers:
        counts.update(each.by_status)
    return sum(counts[status] for status in Status if status.terminal) == TASKS


async def settle_doubts(app: App, provider: SandboxServer, names: dict[str, str]) -> int:
    """Do as an operator does: adopt the jobs that the provider has, resubmit what it has not."""
    jobs = {each.document: each.job_id for each in provider.log.requests(Operation.SUBMIT) if each.job_id}
    doubtful = [task for task in await app.manager.find(limit=TASKS) if task.status is Status.SUBMIT_UNKNOWN]
    for task in doubtful:
        job_id = jobs.get(names[task.id])
        if job_id is None:
            await app.manager.resubmit(task.id, tracking_timeout=HOUR, who="operator")
        else:
            await app.manager.adopt(task.id, QueryParams(external_task_id=job_id), who="operator")
    return len(doubtful)


def possibly_created(provider: SandboxServer) -> Counter[str | None]:
    """Count, by document, the creating requests that were not answered with a certain no (429)."""
    requests = provider.log.requests(Operation.SUBMIT)
    return Counter(each.document for each in requests if each.status != 429)


async def test_killed_workers_and_an_unreliable_provider_lose_nothing_and_pay_once(
    tmp_path: Path, url: str, provider: SandboxServer
) -> None:
    """Every task ends; no job is created twice; gates hold; what is in doubt is named, and can be resolved."""
    chance = random.Random(SEED)
    _make_it_unreliable(provider)
    used: list[int] = []
    app = App(create_store(url), [handler_of(provider.url)])
    async with app, AsyncExitStack() as stack:
        await app.manager.set_gate(GATE, concurrency=SLOTS)
        await stack.enter_async_context(watched(app.store, used))
        orders = Orders(store_url=url, provider_url=provider.url, worker={"lease": 3, "call_timeout": 2.5})
        fleet = Fleet(tmp_path, orders, stack)
        documents = [f"{number}.png" for number in range(TASKS)]
        tasks = await app.manager.submit_many(
            [Submission(params=document(provider.url, name), tracking_timeout=HOUR) for name in documents]
        )
        names = {task.id: name for task, name in zip(tasks, documents, strict=True)}
        for _ in range(WORKERS):
            fleet.start_one()
        for _ in range(KILLS):
            await fleet.kill_one(chance, provider)
        await until(lambda: all_ended(app), "the end of all tasks", seconds=150)
        ended = await app.manager.find(limit=TASKS)
        _check(ended, provider, names)
        provider.faults.clear()
        doubts = await settle_doubts(app, provider, names)
        await until(lambda: all_ended(app), "the end of what was in doubt")
        resolved = await app.manager.find(limit=TASKS)
        await fleet.end()
    assert {task.status for task in resolved} == {Status.SUCCEEDED}
    assert all("sha256" in str(task.result) for task in resolved)
    assert all(provider.created_jobs(name) == 1 for name in documents)
    assert 0 < doubts < TASKS / 2
    assert 0 < max(used) <= SLOTS


def _check(ended: list[Task], provider: SandboxServer, names: dict[str, str]) -> None:
    assert len(ended) == TASKS
    assert {task.status for task in ended} == {Status.SUCCEEDED, Status.SUBMIT_UNKNOWN}
    assert all("sha256" in str(task.result) for task in ended if task.status is Status.SUCCEEDED)
    assert max(possibly_created(provider).values()) == 1
    for task in ended:
        assert provider.created_jobs(names[task.id]) <= 1
        assert not task.holds_slots
        assert task.lease is None


async def test_a_deploy_lets_calls_in_flight_finish(
    tmp_path: Path, url: str, provider: SandboxServer
) -> None:
    """SIGTERM: nothing new is begun, what is in flight is recorded, and it exits with 0."""
    provider.faults.add(Stall(operation=Operation.SUBMIT, when=When.AFTER))
    async with App(create_store(url), [handler_of(provider.url)]) as app:
        task = await app.manager.submit(document(provider.url), tracking_timeout=HOUR)
        with Process(tmp_path, Orders(store_url=url, provider_url=provider.url)) as worker:
            await until(lambda: worker.works and len(provider.log.requests(Operation.SUBMIT)) == 1)
            worker.send(signal.SIGTERM)
            await until(lambda: "finishing what is in flight" in worker.log)
            later = await app.manager.submit(document(provider.url, "b.png"), tracking_timeout=HOUR)
            await until(lambda: provider.release_stalled() > 0)
            assert await asyncio.to_thread(worker.wait) == 0
        after = await app.store.get_many([task.id, later.id])
    assert after[task.id].status is Status.SUBMITTED
    assert after[task.id].lease is None
    assert after[later.id] == later


async def test_a_deploy_does_not_wait_for_ever(tmp_path: Path, url: str, provider: SandboxServer) -> None:
    """Past the stop timeout calls are recorded as they are: a submission as unknown, a query as not made."""
    asked, sent = document(provider.url, "asked.png"), document(provider.url, "sent.png")
    provider.faults.add(
        Stall(operation=Operation.QUERY, document="asked.png", times=None),
        Stall(operation=Operation.SUBMIT, document="sent.png", when=When.AFTER),
    )
    patient = Orders(
        store_url=url,
        provider_url=provider.url,
        worker={"stop_timeout": 0.5},
    )
    async with App(create_store(url), [handler_of(provider.url)]) as app:
        tasks = [await app.manager.submit(each, tracking_timeout=HOUR) for each in (asked, sent)]
        with Process(tmp_path, patient) as worker:
            await until(lambda: worker.works and len(provider.log.requests(Operation.QUERY)) == 1)
            await until(lambda: provider.creating_requests("sent.png") == 1)
            worker.send(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait) == 0
        after = await app.store.get_many([task.id for task in tasks])
    assert after[tasks[0].id].status.queryable
    assert after[tasks[0].id].lease is None
    assert after[tasks[1].id].status is Status.SUBMIT_UNKNOWN
    assert "2 calls were still in flight" in worker.log


async def test_a_second_signal_exits_at_once(tmp_path: Path, url: str, provider: SandboxServer) -> None:
    """Whoever is in a hurry need not wait for calls in flight; the next worker takes care of what is left."""
    provider.faults.add(Stall(operation=Operation.QUERY))
    orders = Orders(store_url=url, provider_url=provider.url, worker={**SHORT_LEASE, "stop_timeout": 3600})
    async with App(create_store(url), [handler_of(provider.url)]) as app:
        task = await app.manager.submit(document(provider.url), tracking_timeout=HOUR)
        with Process(tmp_path, orders) as worker:
            await until(lambda: worker.works and len(provider.log.requests(Operation.QUERY)) == 1)
            worker.send(signal.SIGTERM)
            await until(lambda: "finishing what is in flight" in worker.log)
            worker.send(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait) == 130
        async with app.worker():
            done = await app.manager.wait(task.id, PATIENCE)
    assert done.status is Status.SUCCEEDED
    assert provider.creating_requests("a.png") == 1
