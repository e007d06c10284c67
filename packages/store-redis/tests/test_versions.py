"""S16: clients of several versions at one namespace, and which may not work at it."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import pytest
import redis_hooks as hooks
from redis_hooks import NEWER, ask

import coatcheck_store_redis.store as room
from coatcheck.clock import ManualClock
from coatcheck.errors import SchemaOutdated
from coatcheck.events import Event
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.store.outcomes import accepted, deferred, going, succeeded, unknown
from coatcheck_store_redis import RedisStore, create

LEASE = timedelta(minutes=5)
MORE = b"what a newer version adds to a record"
GATE = {"shared_with": "another namespace"}


@pytest.fixture
def clock() -> ManualClock:
    """The clock of both clients."""
    return ManualClock()


class Newer:
    """A client of the next version: it knows a field more of tasks, of records and of gates, and writes it."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store

    async def add(self, count: int, **keywords: list[str]) -> list[str]:
        """Add tasks that have its fields."""
        added = await self.store.add([make_draft(**keywords) for _ in range(count)])  # type: ignore[arg-type]
        for each in added:
            document = json.loads(await hooks.document_of(self.store, each.task.id)) | NEWER
            await hooks.overwrite(self.store, each.task.id, json.dumps(document).encode())
            record = await self._record(each.task.id)
            record = record[:-4] + len(MORE).to_bytes(4, "big") + MORE
            await ask(self.store, "SET", self._key("t", each.task.id), record)
        return [each.task.id for each in added]

    async def more_of(self, task_id: str) -> bytes:
        """Return what a record has at its end."""
        return (await self._record(task_id))[-len(MORE) :]

    async def set_gate(self, name: str, **limits: int) -> None:
        """Set a gate that has its fields."""
        await self.store.set_gate(name, **limits)  # type: ignore[arg-type]
        for field, value in GATE.items():
            await ask(self.store, "HSET", self._key("gate", name), field, value)

    async def fields_of_gate(self, name: str) -> dict[str, str]:
        """Return those that only it knows."""
        told = await ask(self.store, "HGETALL", self._key("gate", name))
        pairs = zip(told[::2], told[1::2], strict=True)
        return {key.decode(): value.decode() for key, value in pairs if key.decode() in GATE}

    async def _record(self, task_id: str) -> bytes:
        return cast("bytes", await ask(self.store, "GET", self._key("t", task_id)))

    def _key(self, family: str, name: str) -> str:
        return f"{self.store.prefix}{family}:{name}"


@pytest.fixture
async def newer(redis_url: str, clock: ManualClock) -> AsyncIterator[Newer]:
    """A client of the next version."""
    async with create(redis_url, clock=clock) as store:
        yield Newer(store)


@pytest.fixture
async def older(redis_url: str, clock: ManualClock) -> AsyncIterator[RedisStore]:
    """A client of this version, which is the older one here."""
    async with create(redis_url, clock=clock) as store:
        yield store


async def claimed(store: RedisStore, limit: int = 100) -> list[Task]:
    """Claim for submission and declare the calls."""
    claims = await store.claim_submissions("w", [HANDLER], limit, LEASE)
    return [each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]


async def settle(store: RedisStore, task: Task, event: Event) -> Task:
    """Settle one."""
    (answer,) = await store.settle([Settlement(task=task, event=event)])
    assert isinstance(answer, Task)
    return answer


# ------------------------------------------------------------------ side by side


async def test_two_versions_work_at_the_same_tasks(newer: Newer, older: RedisStore) -> None:
    """Either adds, claims, settles and queries what the other has; fields that one doesn't know stay, in each step."""
    stores = [older, newer.store]
    theirs = await newer.add(6)
    ours = [each.task.id for each in await older.add(make_drafts(6))]
    for number in range(12):
        store, other = stores[number % 2], stores[(number + 1) % 2]
        (task,) = await claimed(store, 1)
        if number % 3 == 0:
            task = await settle(store, task, deferred())
            (task,) = await claimed(other, 1)
        await settle(store if number % 3 else other, task, unknown() if number > 9 else accepted())
    turns: list[tuple[RedisStore, Event]] = [(older, going()), (newer.store, succeeded())]
    for store, event in turns:
        queries = (await store.claim_queries("w", [HANDLER], 100, LEASE)).tasks
        assert len(queries) == 10
        for task in queries:
            await settle(store, task, event)
    for store in stores:
        found = {task.id: task for task in await store.find(Filter())}
        assert sum(task.status is Status.SUCCEEDED for task in found.values()) == 10
        assert {task_id: found[task_id].extra for task_id in theirs} == dict.fromkeys(theirs, NEWER)
        assert {task_id: found[task_id].extra for task_id in ours} == {task_id: {} for task_id in ours}
    assert {await newer.more_of(task_id) for task_id in theirs} == {MORE}
    assert await older.set_aside() == []


async def test_a_dead_worker_of_one_version_is_followed_by_the_other(
    newer: Newer, older: RedisStore, clock: ManualClock
) -> None:
    """Leases that ended are taken over, tasks cancelled, whoever of the two had them."""
    ids = await newer.add(3)
    sent, *_ = await claimed(newer.store, 1)
    assert len((await newer.store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks) == 1
    assert await older.request_cancellation(ids[2])
    clock.advance(LEASE)
    (stale,) = (await older.claim_stale("other", [HANDLER], 9, LEASE)).tasks
    assert stale.id == sent.id
    assert stale.token > sent.token
    await settle(older, stale, unknown())
    (again,) = await claimed(older)
    await settle(older, again, succeeded())
    ends = await newer.store.get_many(ids)
    assert sorted(task.status for task in ends.values()) == [
        Status.CANCELED,
        Status.SUBMIT_UNKNOWN,
        Status.SUCCEEDED,
    ]
    assert [task.extra for task in ends.values()] == [NEWER] * 3
    assert {await newer.more_of(task_id) for task_id in ids} == {MORE}


async def test_two_versions_share_gates(newer: Newer, older: RedisStore) -> None:
    """Limits hold for both, whoever set them; what one doesn't know of a gate stays when it changes the rest."""
    await newer.set_gate("shared", concurrency=2)
    await newer.add(2, gates=["shared"])
    await older.add([make_draft(gates=["shared"]) for _ in range(2)])
    assert len(await claimed(older, 1)) == 1
    assert len(await claimed(newer.store)) == 1
    assert await claimed(older) == []
    await older.pause_gate("shared", reason="test")
    await older.resume_gate("shared")
    await older.set_gate("shared", concurrency=3, rate=Rate(100, timedelta(seconds=1)))
    assert len(await claimed(newer.store)) == 1
    for store in (older, newer.store):
        (usage,) = await store.gates(["shared"])
        assert (usage.gate.concurrency, usage.used) == (3, 3)
    assert await newer.fields_of_gate("shared") == GATE


# ------------------------------------------------------------------ versions of the layout


async def version_at(store: RedisStore) -> dict[bytes, bytes]:
    """Return what the namespace says of its version."""
    told = await ask(store, "HGETALL", f"{store.prefix}schema")
    return dict(zip(told[::2], told[1::2], strict=True))


def become(monkeypatch: pytest.MonkeyPatch, version: int, usable_from: int) -> None:
    """Let the code be of another version of the layout."""
    monkeypatch.setattr(room, "SCHEMA", version)
    monkeypatch.setattr(room, "USABLE_FROM", usable_from)


async def test_a_newer_layout_is_refused(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither `open` nor `setup` touches it, and both say which versions there are, and what to do."""
    newer_code, known = room.SCHEMA + 8, room.SCHEMA
    with monkeypatch.context() as later:
        become(later, newer_code, newer_code)
        await create(redis_url).setup()
    store = create(redis_url)
    for step in (store.open, store.setup):
        with pytest.raises(SchemaOutdated, match=f"version {newer_code}.*knows version {known}: upgrade it"):
            await step()
    assert await version_at(store) == {
        b"version": b"%d" % newer_code,
        b"usable_from": b"%d" % newer_code,
    }
    await store.close()


async def test_a_newer_layout_that_older_code_can_use_is_used(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older worker goes on, also after a restart, and leaves the version as it is."""
    async with create(redis_url) as before:
        await before.add(make_drafts(1))
        with monkeypatch.context() as later:
            become(later, room.SCHEMA + 1, room.SCHEMA)
            async with create(redis_url) as newer_store:
                await newer_store.add(make_drafts(1))
        assert len(await claimed(before, 1)) == 1
    async with create(redis_url) as after:
        await after.setup()
        assert len(await claimed(after)) == 1
        assert (await version_at(after))[b"version"] == b"%d" % (room.SCHEMA + 1)


async def test_an_older_layout_is_upgraded(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `setup`, while the store is closed, once; its tasks are there as before."""
    async with create(redis_url) as before:
        (added,) = await before.add(make_drafts(1))
    become(monkeypatch, room.SCHEMA + 1, room.SCHEMA + 1)
    after = create(redis_url)
    await after.setup()
    await after.setup()
    async with after:
        assert await version_at(after) == {
            b"version": b"%d" % room.SCHEMA,
            b"usable_from": b"%d" % room.SCHEMA,
        }
        assert await after.get_many([added.task.id]) == {added.task.id: added.task}
