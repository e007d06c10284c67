"""What is special to the memory store; what every store must do is in the conformance kit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.clock import ManualClock
from coatcheck.codec import digest
from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck.events import Accepted, Rejected
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.locked import Key
from coatcheck.memory import MemoryStore, _MemoryRecords, create
from coatcheck.store import Capability
from coatcheck.task import ErrorCode, Identity, QueryParams, Route, Task, TaskDraft, TaskError, new_task_id

HANDLER = "ocr:test"
SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=1)
LONG = timedelta(minutes=9)
REJECTED = Rejected(error=TaskError(code=ErrorCode.SUBMIT_REJECTED, message="no"))


def draft(*gates: str, **changes: Any) -> TaskDraft:
    """Return a draft behind these gates."""
    task_id = new_task_id()
    values: dict[str, Any] = {
        "id": task_id,
        "route": Route(handler_key=HANDLER, provider_key=HANDLER, gates=gates),
        "params": None,
        "identity": Identity(params_digest=digest(None), idempotency_key=task_id),
        "tracking_timeout": timedelta(hours=1),
    }
    return TaskDraft(**(values | changes))


async def claim(store: MemoryStore, limit: int = 100) -> list[Task]:
    """Claim once for submission."""
    return list((await store.claim_submissions("w", [HANDLER], limit, LEASE)).tasks)


# ------------------------------------------------------------------ records

KEYS = st.tuples(st.just("i"), st.integers(0, 30), st.text("ab", max_size=2))
WRITES = st.lists(st.tuples(st.sampled_from(["put", "delete", "scan"]), KEYS), max_size=60)


def scanned(records: _MemoryRecords) -> list[Key]:
    """Return all keys, as a scan gives them."""
    return list(records.under(("i",)))


@given(WRITES, KEYS, KEYS, st.none() | st.integers(0, 5), st.sampled_from([0, 3, 99]))
def test_scans_are_those_of_a_sorted_list(
    writes: list[tuple[str, Key]], first: Key, last: Key, limit: int | None, most_left: int
) -> None:
    """Whatever was written, deleted and scanned, a scan gives the lowest keys of its range, ascending."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coatcheck.memory._CHUNK", 2)
        patch.setattr("coatcheck.memory._MOST_LEFT", most_left)
        records, plain = _MemoryRecords(), dict[Key, int]()
        for number, (write, key) in enumerate(writes):
            if write == "put":
                records.put(key, number)
                plain[key] = number
            elif write == "scan":
                assert (
                    records.scan(key, ("i", 30), limit)
                    == sorted(k for k in plain if key <= k < ("i", 30))[:limit]
                )
            else:
                assert records.delete(key) == (plain.pop(key, None) is not None)
        assert scanned(records) == sorted(plain)
        assert {key: records.get(key) for key in plain} == plain
        assert records.scan(first, last, limit) == sorted(k for k in plain if first <= k < last)[:limit]


@given(WRITES, WRITES)
def test_rolling_back_undoes_a_section(before: list[tuple[str, Key]], after: list[tuple[str, Key]]) -> None:
    """What was written since the last commit is gone, and what it replaced is there again."""
    records = _MemoryRecords()

    def write(writes: list[tuple[str, Key]], mark: int) -> None:
        for number, (kind, key) in enumerate(writes):
            if kind == "put":
                records.put(key, mark + number)
            elif kind == "scan":
                scanned(records)
            else:
                records.delete(key)

    write(before, 0)
    records.commit()
    was = {key: records.get(key) for key in scanned(records)}
    write(after, 1000)
    records.roll_back()
    assert {key: records.get(key) for key in scanned(records)} == was


# ------------------------------------------------------------------ the store


def test_it_promises_little_and_says_so() -> None:
    """It notifies within its process, which is all there is, and promises nothing else."""
    store = create("memory://")
    assert store.capabilities == {Capability.NOTIFIES}
    assert store.url == "memory://"
    with pytest.raises(ConfigurationError, match="memory://"):
        create("memory://shared")


async def test_it_keeps_what_it_holds_as_long_as_it_lives() -> None:
    """Closing and opening loses nothing; opening twice is an error, closing twice is fine."""
    store = MemoryStore()
    async with store:
        (added,) = await store.add([draft()])
        with pytest.raises(ConfigurationError, match="open already"):
            await store.open()
    await store.close()
    async with store:
        assert await store.get(added.task.id) == added.task


async def test_closing_ends_waiting_calls() -> None:
    """Who waits when the store is closed is told so."""
    store = MemoryStore()
    await store.open()
    wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await wait


def test_threads_with_loops_of_their_own_share_it_exactly() -> None:
    """However many loops and threads claim at once, no task goes to two and no slot is held twice."""
    store = MemoryStore()
    asyncio.run(store.open())
    asyncio.run(store.set_gate("g", concurrency=7))
    asyncio.run(store.add([draft("g") for _ in range(300)]))
    held, most, done = [0], [0], list[str]()
    lock = threading.Lock()

    async def work() -> None:
        while tasks := await claim(store, 3):
            with lock:
                held[0] += len(tasks)
                most[0] = max(most[0], held[0])
                done.extend(task.id for task in tasks)
            await asyncio.sleep(0)
            with lock:
                held[0] -= len(tasks)
            await store.settle([Settlement(task=task, event=REJECTED) for task in tasks])

    async def worker() -> None:
        while len(done) < 300:
            await work()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(asyncio.run, worker()) for _ in range(4)]:
            each.result()
    assert len(done) == len(set(done)) == 300
    assert most[0] <= 7


def test_a_task_added_in_one_thread_wakes_another() -> None:
    """`wait` in one event loop hears of what is added in another, at once."""
    store = MemoryStore()
    asyncio.run(store.open())
    waiting = threading.Event()

    async def wait() -> bool:
        asyncio.get_running_loop().call_soon(waiting.set)
        return await store.wait([HANDLER], LONG)

    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(asyncio.run, wait())
        assert waiting.wait(30)
        asyncio.run(store.add([draft()]))
        assert woken.result(30) is True


Setup = Callable[[MemoryStore], Awaitable[object]]


async def _delayed(store: MemoryStore) -> None:
    await store.add([draft(delay=5 * SECOND)])


async def _due_query(store: MemoryStore) -> None:
    await store.add([draft()])
    (task,) = await claim(store)
    await store.start([task], LEASE)
    accepted = Accepted(query_params=QueryParams(external_task_id="e"), delay=5 * SECOND)
    await store.settle([Settlement(task=task, event=accepted)])


async def _rate(store: MemoryStore) -> None:
    await store.set_gate("g", rate=Rate(1, 5 * SECOND))
    await store.add([draft("g"), draft("g")])
    (task,) = await claim(store)
    await store.settle([Settlement(task=task, event=REJECTED)])


async def _pause(store: MemoryStore) -> None:
    await store.add([draft("g")])
    await store.pause_gate("g", reason="test", duration=5 * SECOND)


async def _lease_end(store: MemoryStore) -> None:
    await store.add([draft()])
    await store.claim_submissions("w", [HANDLER], 1, 5 * SECOND)


async def _deadline(store: MemoryStore) -> None:
    await store.pause_gate("g", reason="test")
    await store.add([draft("g", tracking_timeout=5 * SECOND)])


@pytest.mark.parametrize("setup", [_delayed, _due_query, _rate, _pause, _lease_end, _deadline])
async def test_a_wait_ends_exactly_when_the_known_time_comes(setup: Setup) -> None:
    """A delay, a query, a window, a pause, a lease or a deadline that ends wakes at its millisecond."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await setup(store)
        await claim(store)
        wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
        await asyncio.sleep(0)
        clock.advance(5 * SECOND - timedelta(milliseconds=1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not wait.done()
        clock.advance(timedelta(milliseconds=1))
        assert await wait is True


async def _resume(store: MemoryStore) -> None:
    await store.resume_gate("g")


async def _release(store: MemoryStore) -> None:
    (task,) = (await store.get_many(_release_ids)).values()
    await store.settle([Settlement(task=task, event=REJECTED)])


_release_ids: list[str] = []


async def _flag(store: MemoryStore) -> None:
    assert await store.request_cancellation(_release_ids[1])


@pytest.mark.parametrize("act", [_resume, _flag])
async def test_a_wait_ends_when_somebody_makes_work(act: Setup) -> None:
    """A resumed gate, and a cancellation that a worker has to carry out, wake at once."""
    async with MemoryStore(ManualClock()) as store:
        await store.pause_gate("g", reason="test")
        (one, other) = await store.add([draft(), draft()])
        _release_ids[:] = [one.task.id, other.task.id]
        tasks = await claim(store)
        await store.start(tasks, LEASE)
        accepted = [
            Accepted(query_params=QueryParams(external_task_id=each.id), delay=LONG) for each in tasks
        ]
        await store.settle(
            [Settlement(task=task, event=event) for task, event in zip(tasks, accepted, strict=True)]
        )
        await store.add([draft("g")])
        assert await claim(store) == []
        wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not wait.done()
        await act(store)
        assert await wait is True


async def test_a_released_slot_wakes_who_waits_for_it() -> None:
    """When a slot comes back, whoever waits for the lane behind it is woken."""
    async with MemoryStore(ManualClock()) as store:
        await store.set_gate("g", concurrency=1)
        await store.add([draft("g"), draft("g")])
        (task,) = await claim(store)
        assert await claim(store) == []
        wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not wait.done()
        await store.settle([Settlement(task=task, event=REJECTED)])
        assert await wait is True
        assert len(await claim(store)) == 1


async def test_a_wait_ends_with_its_timeout_on_either_clock() -> None:
    """A manual clock that moves past the timeout ends a wait; so does real time, if the clock is forgotten."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
        await asyncio.sleep(0)
        clock.advance(LONG)
        assert await wait is False
        assert await store.wait([HANDLER], timedelta(milliseconds=5)) is False


async def test_settled_leases_wake_nobody() -> None:
    """The end of a lease that was settled long ago is no news."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await store.add([draft() for _ in range(10)])
        tasks = await claim(store)
        await store.settle([Settlement(task=task, event=REJECTED) for task in tasks])
        wait = asyncio.ensure_future(store.wait([HANDLER], LONG))
        await asyncio.sleep(0)
        clock.advance(2 * LEASE)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not wait.done()
        clock.advance(LONG)
        assert await wait is False
