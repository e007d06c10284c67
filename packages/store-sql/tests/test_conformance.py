"""The store contract, as the conformance kit tests it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from coatcheck.store import Store
from coatcheck_conformance import StoreConformance, StoreSpec
from coatcheck_conformance.store.spec import Repair


def write_history(store: Store, task_id: str, history: str) -> str:
    """Overwrite the stored history of a task, as an edit by hand would; return what was there."""
    engine = create_engine(store.url, poolclass=NullPool)
    with engine.begin() as connection:
        given = {"id": task_id, "history": history}
        before = connection.scalar(text("SELECT history FROM coatcheck_task WHERE id = :id"), given)
        connection.execute(
            text("UPDATE coatcheck_task SET history = :history, rev = rev + 1 WHERE id = :id"), given
        )
    return str(before)


async def corrupt(store: Store, task_id: str) -> Repair:
    """Damage the stored history of a task."""
    before = await asyncio.to_thread(write_history, store, task_id, '[{"half')

    async def repair() -> None:
        await asyncio.to_thread(write_history, store, task_id, before)

    return repair


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
        )
