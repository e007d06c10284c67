"""Histories of gates in tables: written under the gate's lock, by exact names, of any length, and never by claims."""

import asyncio
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from coatcheck.errors import NotPersistable
from coatcheck.gates import MAX_GATE_RECORDS, GateAction
from coatcheck.lifecycle import Settlement
from coatcheck.store import Hold, Started
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_store_sql import SqlStore, create

sys.path.insert(0, str(Path(__file__).parent))
import places

kind, place, engine = places.kind, places.place, places.engine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LEASE = timedelta(minutes=5)
STORES = 8


async def test_changes_of_eight_stores_are_recorded_once_each(place: str) -> None:
    """Whether a gate is there or comes and goes, each change is recorded once, in the order in which they were made."""
    rounds = 2

    async def change(store: SqlStore, number: int) -> None:
        for each in range(rounds):
            await store.set_gate("g", concurrency=1 + number * rounds + each, who=f"{number}")
            await store.delete_gate("g", who=f"{number}")

    async with AsyncExitStack() as stack:
        await create(place).setup()
        stores = [await stack.enter_async_context(create(place)) for _ in range(STORES)]
        await asyncio.gather(*(change(store, number) for number, store in enumerate(stores)))
        history = await stores[0].gate_history("g")
        assert await stores[0].gates() == []
    limited = [each for each in history if each.action is GateAction.LIMITED]
    assert sorted(each.gate.concurrency or 0 for each in limited) == list(range(1, STORES * rounds + 1))
    assert {each.times for each in history} == {1}
    deleted = [n for n, each in enumerate(history) if each.action is GateAction.DELETED]
    assert deleted[-1] == len(history) - 1
    # what is not there is not deleted once more
    assert all(history[n - 1].action is GateAction.LIMITED for n in deleted)


async def test_a_history_of_long_reasons_is_kept(place: str) -> None:
    """The column holds the longest histories that there are, and every character."""
    reasons = [f"{number} \x00 \N{PILE OF POO} " + "long " * 1000 for number in range(MAX_GATE_RECORDS)]
    await create(place).setup()
    async with create(place) as store:
        for number, reason in enumerate(reasons):
            await store.set_gate("g", concurrency=1 + number % 2, reason=reason)
        assert [each.reason for each in await store.gate_history("g")] == reasons


async def test_names_that_no_gate_can_have_are_refused(place: str) -> None:
    """A name that is too long for its column, and a reason that is no text, are refused with nothing changed."""
    await create(place).setup()
    async with create(place) as store:
        with pytest.raises(NotPersistable, match="255"):
            await store.set_gate("g" * 256, concurrency=1)
        with pytest.raises(NotPersistable, match="surrogate"):
            await store.set_gate("g", concurrency=1, reason="\ud800")
        assert (await store.gates(), await store.gate_history("g")) == ([], [])


async def test_what_workers_do_touches_neither_histories_nor_tallies(place: str, engine: Engine) -> None:
    """Adding, claiming, starting, renewing and settling behind limits go on without the tables."""
    await create(place).setup()
    async with create(place) as store:
        await store.set_gate("g", concurrency=5)
        with engine.begin() as connection:
            for table in ("gate_history", "tally"):
                connection.execute(text(f"DROP TABLE coatcheck_{table}"))
        await store.add([make_draft(gates=["g"]) for _ in range(3)])
        claimed = (await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks
        begun = [each.task for each in await store.start(claimed, LEASE) if isinstance(each, Started)]
        assert all(
            each.held
            for each in await store.renew(
                [Hold(task_id=task.id, lease=task.lease) for task in begun if task.lease], LEASE
            )
        )
        settled = await store.settle([Settlement(task=task, event=accepted()) for task in begun])
        assert len([each for each in settled if isinstance(each, Task)]) == 3
        await store.claim_queries("w", [HANDLER], 9, LEASE)
        await store.claim_stale("w", [HANDLER], 9, LEASE)
