"""What the conformance kit needs to reach into the tables of a SQL store, of whatever kind; named across a spawn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import cast

from attrs import evolve
from sqlalchemy import URL, create_engine, select, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started, Store
from coatcheck.task import JSON, Task
from coatcheck_conformance import make_drafts
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_conformance.store.spec import Repair
from coatcheck_store_sql import SqlStore
from coatcheck_store_sql.local import LocalRoom
from coatcheck_store_sql.server import ServerRoom

LEASE = timedelta(minutes=5)
NEWER: dict[str, JSON] = {"escalation": {"level": 2}}
"""A field of a task that this version does not know."""
BLOCKING = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
WAITING = {"sqlite": "sqlite+aiosqlite"}


def local_of(store: Store) -> LocalRoom:
    """Return the room of a store on a file."""
    room = cast("SqlStore", store).room
    assert isinstance(room, LocalRoom)
    return room


def url_of(store: Store) -> URL:
    """Return where a store is, with its password."""
    room = cast("SqlStore", store).room
    if isinstance(room, LocalRoom):
        return room._where
    assert isinstance(room, ServerRoom)
    return room._engine.url


def overwrite(store: Store, task_id: str, column: str, value: str) -> str:
    """Overwrite what is stored of a task, as an edit by hand would; return what was there."""
    url = url_of(store)
    table = cast("SqlStore", store).room.sql.schema.task
    engine = create_engine(url.set(drivername=BLOCKING[url.get_backend_name()]), poolclass=NullPool)
    with engine.begin() as connection:
        before = connection.scalar(select(table.c[column]).where(table.c.id == task_id))
        connection.execute(
            update(table).where(table.c.id == task_id).values({column: value, "rev": table.c.rev + 1})
        )
    engine.dispose()
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
    url = url_of(store)
    name = WAITING.get(url.get_backend_name(), url.drivername)
    engine = create_async_engine(url.set(drivername=name), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()
