"""The store contract, as the conformance kit tests it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started, Store
from coatcheck.task import JSON, Task
from coatcheck_conformance import StoreConformance, StoreSpec, make_drafts
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_conformance.store.spec import Repair

LEASE = timedelta(minutes=5)
NEWER: dict[str, JSON] = {"escalation": {"level": 2}}
"""A field of a task that this version does not know."""


def overwrite(store: Store, task_id: str, column: str, value: str) -> str:
    """Overwrite what is stored of a task, as an edit by hand would; return what was there."""
    engine = create_engine(store.url, poolclass=NullPool)
    with engine.begin() as connection:
        given = {"id": task_id, "value": value}
        before = connection.scalar(text(f"SELECT {column} FROM coatcheck_task WHERE id = :id"), given)
        connection.execute(
            text(f"UPDATE coatcheck_task SET {column} = :value, rev = rev + 1 WHERE id = :id"), given
        )
    return str(before)


async def corrupt(store: Store, task_id: str) -> Repair:
    """Damage the stored history of a task."""
    before = await asyncio.to_thread(overwrite, store, task_id, "history", '[{"half')

    async def repair() -> None:
        await asyncio.to_thread(overwrite, store, task_id, "history", before)

    return repair


async def previous(store: Store) -> list[Task]:
    """Write rows as a version does that has no history yet, or that has one field more."""
    await store.add(make_drafts(2))
    claims = await store.claim_submissions("worker-1", ["kit:one"], 2, LEASE)
    started = [each for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
    await store.settle([Settlement(task=each.task, event=accepted()) for each in started])
    await store.add(make_drafts(2))
    written = []
    for number, task in enumerate(await store.find(Filter())):
        if number % 2:
            await asyncio.to_thread(overwrite, store, task.id, "extra", json.dumps(NEWER))
            written.append(evolve(task, extra=NEWER))
        else:
            await asyncio.to_thread(overwrite, store, task.id, "history", "[]")
            written.append(evolve(task, history=()))
    return written


@asynccontextmanager
async def transaction(store: Store) -> AsyncIterator[object]:
    """Open a transaction on a connection of the caller's own."""
    engine = create_async_engine(store.url.replace("sqlite:", "sqlite+aiosqlite:"), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


class TestSqlite(StoreConformance):
    """SQLite keeps the whole contract."""

    @pytest.fixture
    def store_spec(self, tmp_path: Path) -> StoreSpec:
        """Return a new file for each rule."""
        return StoreSpec(
            "coatcheck_store_sql:create",
            f"sqlite:///{tmp_path / 'tasks.db'}",
            clock="clock",
            corrupt=corrupt,
            transaction=transaction,
            previous=previous,
        )
