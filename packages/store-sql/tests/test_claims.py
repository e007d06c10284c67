import sqlite3
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hooks import local_of

from coatcheck.clock import ManualClock
from coatcheck.events import Finished
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.task import Status, Task, TaskDraft
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_store_sql import SqlStore
from coatcheck_store_sql.writer import DriverConnection

LEASE = timedelta(minutes=5)
BATCH = 20


async def effort(store: SqlStore, limit: int = BATCH) -> int:
    """Claim and settle a batch; return how much work SQLite had with it, in hundreds of its instructions."""
    work = 0

    def count() -> None:
        nonlocal work
        work += 1

    def watch(connection: DriverConnection, handler: object) -> None:
        driver = connection._driver
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(handler, 100)  # type: ignore[arg-type]  # count, or none

    await local_of(store).writer.do(lambda connection: watch(connection, count))
    claims = await store.claim_submissions("w", [HANDLER], limit, LEASE)
    assert len(claims.tasks) == limit
    await store.start(claims.tasks, LEASE)
    await store.settle(
        [Settlement(task=task, event=Finished(status=Status.SUCCEEDED)) for task in claims.tasks]
    )
    await local_of(store).writer.do(lambda connection: watch(connection, None))
    return work


async def fill(store: SqlStore, drafts: Sequence[TaskDraft]) -> None:
    """Add many."""
    for start in range(0, len(drafts), 5000):
        await store.add(drafts[start : start + 5000])


@pytest.mark.slow
async def test_a_claim_costs_the_same_in_a_long_queue(store: SqlStore) -> None:
    """Ten thousand waiting, delayed and finished tasks cost a claim nothing."""
    await fill(store, make_drafts(100, gates=["a"]))
    await effort(store)
    before = await effort(store)
    await fill(store, make_drafts(10_000, gates=["a"]))
    await fill(
        store, [make_draft(gates=["a"], delay=timedelta(hours=1), timeout=LEASE * 100) for _ in range(5000)]
    )
    claims = await store.claim_submissions("w", [HANDLER], 5000, LEASE)
    await store.start(claims.tasks, LEASE)
    await store.settle([Settlement(task=t, event=Finished(status=Status.SUCCEEDED)) for t in claims.tasks])
    assert await effort(store) <= 1.5 * before


@pytest.mark.slow
async def test_a_claim_costs_the_same_past_a_closed_gate(store: SqlStore) -> None:
    """Thousands of higher rank behind a paused gate, in many lanes, cost a claim nothing once they were met."""
    await fill(store, make_drafts(200, gates=["open"]))
    await effort(store)
    before = await effort(store)
    await store.pause_gate("closed", reason="test")
    await fill(store, [make_draft(gates=["closed", f"tenant-{n % 1000}"], priority=9) for n in range(5000)])
    await effort(store)  # meets the lanes, and parks them
    assert await effort(store) <= 1.5 * before


async def test_lanes_of_another_handler_wake_for_it(store: SqlStore) -> None:
    """A worker that cannot use a slot that came free leaves the wake-up to those who can."""
    await store.set_gate("g", concurrency=1)
    await store.add([make_draft(gates=["g"], handler="x")])
    (first,) = (await store.claim_submissions("w", ["x"], 9, LEASE)).tasks
    await store.add([make_draft(gates=["g"], handler="x"), make_draft(gates=["g"], handler="y")])
    for handler in ("x", "y"):
        assert (await store.claim_submissions("w", [handler], 9, LEASE)).tasks == ()
    await store.start([first], LEASE)
    await store.settle([Settlement(task=first, event=Finished(status=Status.SUCCEEDED))])
    for _ in range(3):
        assert (await store.claim_submissions("w", ["z"], 9, LEASE)).tasks == ()
    assert await store.wait(["y"], timedelta(seconds=5))
    assert len((await store.claim_submissions("w", ["y"], 9, LEASE)).tasks) == 1
    assert (await store.claim_submissions("w", ["x"], 9, LEASE)).tasks == ()


async def test_a_rate_and_slots_open_one_after_the_other(store: SqlStore, clock: ManualClock) -> None:
    """A lane that was closed twice over is looked at when the later of the two opens."""
    await store.set_gate("g", concurrency=1, rate=Rate(1, timedelta(seconds=10)))
    await store.add(make_drafts(2, gates=["g"]))
    (first,) = (await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks
    assert (await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks == ()
    clock.advance(timedelta(seconds=10))
    assert (await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks == ()
    await store.start([first], LEASE)  # the grant is old by now; what matters is the slot
    (answer,) = await store.settle([Settlement(task=first, event=Finished(status=Status.SUCCEEDED))])
    assert isinstance(answer, Task)
    assert len((await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks) == 1


async def test_slots_agree_with_the_tasks_that_hold_them(store: SqlStore) -> None:
    """Counting from lanes, as a new gate does, gives what a gate that was always there has counted."""
    await store.set_gate("old", concurrency=100)
    await store.add([make_draft(gates=["old", "new", f"tenant-{n % 3}"]) for n in range(20)])
    claims = await store.claim_submissions("w", [HANDLER], 12, LEASE)
    await store.settle([Settlement(task=t, event=Finished(status=Status.FAILED)) for t in claims.tasks[:5]])
    await store.set_gate("new", concurrency=1)
    assert [(usage.gate.name, usage.used) for usage in await store.gates()] == [("new", 7), ("old", 7)]
