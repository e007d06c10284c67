"""Adds that meet on their way to a server are one step, and each is still made as a whole or not at all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.errors import DuplicateTask
from coatcheck.store import Filter
from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.gathering import Gathering


@pytest.fixture(params=["postgresql", "mariadb"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SqlStore]:
    """Open a store on a server."""
    store = create(request.getfixturevalue(f"{request.param}_url"))
    await store.setup()
    async with store:
        yield store


def count_steps(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows by one with each step that writes."""
    steps: list[None] = []
    write = store.room.write_adds  # type: ignore[attr-defined]  # a server

    async def counted(*arguments: Any, **keywords: Any) -> Any:
        steps.append(None)
        return await write(*arguments, **keywords)

    monkeypatch.setattr(store.room, "write_adds", counted)
    return steps


async def test_adds_at_once_are_a_few_steps(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four callers who add at the same time share a few transactions, and each gets its own answer."""
    steps = count_steps(store, monkeypatch)
    added = await asyncio.gather(*(store.add([make_draft(id=f"task-{n}")]) for n in range(64)))
    assert [each.task.id for (each,) in added] == [f"task-{n}" for n in range(64)]
    assert all(each.created for (each,) in added)
    assert len(await store.find(Filter(), limit=100)) == 64
    assert len(steps) <= 8


async def test_a_conflict_is_its_callers_own(store: SqlStore) -> None:
    """Of adds that met, those without a conflict are made, and those with one add nothing."""
    await store.add([make_draft(id="taken", params={"n": 1})])
    calls = [store.add([make_draft(id=f"good-{n}")]) for n in range(5)]
    bad = store.add([make_draft(id="also"), make_draft(id="taken", params={"n": 2})])
    *good, refused = await asyncio.gather(*calls, bad, return_exceptions=True)
    assert isinstance(refused, DuplicateTask)
    assert not any(isinstance(each, BaseException) for each in good)
    assert {task.id for task in await store.find(Filter())} == {"taken", *(f"good-{n}" for n in range(5))}


async def test_the_same_key_at_once_is_one_task(store: SqlStore) -> None:
    """Callers who add the same dedup key at the same time get one and the same task."""
    added = await asyncio.gather(*(store.add([make_draft(dedup_key="order-7")]) for _ in range(20)))
    assert len({each.task.id for (each,) in added}) == 1
    assert sum(each.created for (each,) in added) == 1


async def test_adds_in_turn_wait_for_nothing(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who adds one task after the other never waits for others to come."""
    hurried: list[object] = []
    monkeypatch.setattr(Gathering, "_hurry", lambda _, call: hurried.append(call))
    for _ in range(20):
        async with asyncio.timeout(10):
            await store.add([make_draft()])
    assert hurried == []
