"""A failover in the middle: what comes back older and is paid for twice, and what acknowledgements make of it."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from coatcheck import (
    App,
    ExponentialRetry,
    Handler,
    QueryContext,
    QueryParams,
    QueryResult,
    Status,
    SubmitContext,
    SubmitResult,
    Task,
)
from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck.store import Started
from coatcheck_store_redis import RedisStore, create
from servers.redis import Redis
from servers.replicated import ask, in_step, info, until
from servers.sentinel import Guarded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=1.5)
SHORT = timedelta(milliseconds=300)
PATIENCE = timedelta(seconds=60)
KEY = "count"


@frozen
class Job:
    """Params of a job."""

    name: str


class Counting(Handler[Job]):
    """A provider that counts creating requests."""

    key = KEY

    def __init__(self) -> None:
        self.creating: Counter[str] = Counter()

    async def submit(self, params: Job, context: SubmitContext) -> SubmitResult:
        """Count, and accept."""
        self.creating[params.name] += 1
        return SubmitResult.accepted(params.name)

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Be done."""
        return QueryResult.succeeded("read")


@pytest.fixture
def servers() -> Iterator[Guarded]:
    """Start a master, a replica and a Sentinel."""
    found = Guarded(Redis, durable=True)
    yield found
    found.close()


@pytest.fixture
def provider() -> Counting:
    """Give a provider that has nothing."""
    return Counting()


@asynccontextmanager
async def opened(servers: Guarded, provider: Counting, **settings: Any) -> AsyncIterator[App]:
    """Open an app on a store behind the Sentinel."""
    store = create(servers.url(), timeout=timedelta(seconds=20), **settings)
    async with App(store, [provider], retry=ExponentialRetry(initial=timedelta(milliseconds=20))) as app:
        yield app


def catch_up(servers: Guarded) -> None:
    """Wait until the replica has all that the master has."""
    master, replica = servers.servers

    def caught_up() -> bool:
        given = info(master, "replication")["master_repl_offset"]
        return in_step(replica) and info(replica, "replication")["slave_repl_offset"] == given

    until("the replica has all", caught_up)


def cut_off(servers: Guarded) -> None:
    """Part the replica from its master, as a broken network does."""
    ask(servers.servers[1], "REPLICAOF", "127.0.0.1", "1")


def fail_over(servers: Guarded) -> None:
    """Kill the master, and wait until the replica has taken its place."""
    servers.servers[0].kill()
    servers.wait_for_successor(servers.servers[0])


def follow(servers: Guarded) -> None:
    """Let the old master follow the new one, so that starts are acknowledged again; the Sentinel would, in time."""
    old, new = servers.servers
    old.start()
    ask(old, "REPLICAOF", "127.0.0.1", str(new.port))
    until("it follows", lambda: in_step(old))


async def call(app: App, provider: Counting, task: Task) -> None:
    """Do what a worker does that then dies together with the master: claim, start, and call the provider."""
    claims = await app.store.claim_submissions("doomed", [KEY], 1, LEASE)
    assert [each.id for each in claims.tasks] == [task.id]
    (started,) = await app.store.start(claims.tasks, LEASE)
    assert isinstance(started, Started)
    provider.creating["page"] += 1


async def test_without_acknowledgement_a_failover_pays_twice(servers: Guarded, provider: Counting) -> None:
    """The replica knows nothing of the start: the task comes back as it was before, and is sent again."""
    async with opened(servers, provider) as app:
        task = await app.manager.submit(Job("page"), tracking_timeout=HOUR)
        catch_up(servers)
        cut_off(servers)
        await call(app, provider, task)
        fail_over(servers)
        back = await app.manager.get(task.id)
        assert back is not None
        assert back.status is Status.PENDING_SUBMIT
        async with app.worker():
            ended = await app.manager.wait(task.id, PATIENCE)
    assert ended.status is Status.SUCCEEDED
    assert provider.creating == {"page": 2}


async def test_a_start_that_is_not_acknowledged_calls_nobody(servers: Guarded, provider: Counting) -> None:
    """The same with `acknowledge`: the start fails while the replica lacks it, and the task is sent once, later."""
    async with opened(servers, provider, acknowledge="start", ack_replicas=1, ack_timeout=SHORT) as app:
        task = await app.manager.submit(Job("page"), tracking_timeout=HOUR)
        catch_up(servers)
        cut_off(servers)
        with pytest.raises(StoreUnavailable, match="1 of 1 replicas did not have it within 0.3 s"):
            await call(app, provider, task)
        fail_over(servers)
        back = await app.manager.get(task.id)
        assert back is not None
        assert back.status is Status.PENDING_SUBMIT
        assert not provider.creating
        follow(servers)
        async with app.worker():
            ended = await app.manager.wait(task.id, PATIENCE)
    assert ended.status is Status.SUCCEEDED
    assert provider.creating == {"page": 1}


async def test_a_start_that_is_acknowledged_is_still_known(servers: Guarded, provider: Counting) -> None:
    """Whoever is promoted knows that the provider may have it: the task is in doubt, and nobody sends it again."""
    async with opened(servers, provider, acknowledge="start", ack_replicas=1) as app:
        task = await app.manager.submit(Job("page"), tracking_timeout=HOUR)
        await call(app, provider, task)
        cut_off(servers)
        fail_over(servers)
        async with app.worker():
            ended = await app.manager.wait(task.id, PATIENCE)
    assert ended.status is Status.SUBMIT_UNKNOWN
    assert provider.creating == {"page": 1}


async def test_a_worker_puts_back_what_is_not_acknowledged(servers: Guarded, provider: Counting) -> None:
    """While the replica is away nothing is sent; once it is back, everything is, once."""
    async with opened(servers, provider, acknowledge="start", ack_replicas=1, ack_timeout=SHORT) as app:
        replica = servers.servers[1]
        replica.pause()
        tasks = [await app.manager.submit(Job(f"{n}"), tracking_timeout=HOUR) for n in range(5)]
        async with app.worker():
            seen = tasks[0]
            while not seen.token:
                seen = await app.manager.get(tasks[0].id) or seen
            assert not provider.creating
            replica.resume()
            ended = [await app.manager.wait(task.id, PATIENCE) for task in tasks]
    assert {task.status for task in ended} == {Status.SUCCEEDED}
    assert provider.creating == {f"{n}": 1 for n in range(5)}


async def test_all_steps_survive_a_failover(servers: Guarded, provider: Counting) -> None:
    """With `survives_failover` each acknowledged step is there afterwards, as it was."""
    safe = {"acknowledge": "all", "ack_replicas": 1, "survives_failover": True}
    async with opened(servers, provider, **safe) as app:
        tasks = [await app.manager.submit(Job(f"{n}"), tracking_timeout=HOUR) for n in range(20)]
        claims = await app.store.claim_submissions("doomed", [KEY], 5, HOUR)
        assert await app.manager.cancel(tasks[9].id)
        await app.manager.set_gate("some", concurrency=3)
        before = await app.store.get_many([task.id for task in tasks])
        cut_off(servers)
        fail_over(servers)
        assert await app.store.get_many([task.id for task in tasks]) == before
        assert {each.id for each in claims.tasks} <= before.keys()
        assert [gate.gate.concurrency for gate in await app.store.gates(["some"])] == [3]


async def test_what_cannot_be_kept_is_not_promised(servers: Guarded) -> None:
    """A store that waits for fewer replicas than there are does not open with `survives_failover`."""
    store: RedisStore = create(servers.url(), survives_failover=True)
    with pytest.raises(ConfigurationError, match="any of 1 replicas may take over, and steps wait for 0"):
        await store.open()
    await store.close()
