"""How many statements a claim on PostgreSQL takes: apart from its rows, it costs round trips."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import hooks
import pytest
from sqlalchemy import create_engine, insert
from sqlalchemy.pool import NullPool

from coatcheck.events import GaveBack
from coatcheck.lifecycle import Settlement
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.drivers import AsyncpgDriver

pytestmark = pytest.mark.slow
LEASE = timedelta(minutes=5)
BATCH = 200
CLAIMS = 8
"""How many claims are counted, after one that learns."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what is sent to PostgreSQL, apart from announcements, which have a connection of their own."""
    sent: list[str] = []

    def watched(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(driver: AsyncpgDriver, sql: str, *values: object) -> Any:
            if "pg_notify" not in sql:
                sent.append(sql)
            return await method(driver, sql, *values)

        return call

    for name in ("rows", "simple"):
        monkeypatch.setattr(AsyncpgDriver, name, watched(getattr(AsyncpgDriver, name)))
    return sent


async def opened(url: str, names: Sequence[str], limit: int | None) -> SqlStore:
    """Return an open store with tasks behind gates of these names by turns; each has this limit, if there is one."""
    store = create(url)
    await store.setup()
    if names and limit is not None:
        place = hooks.url_of(store)
        driver = hooks.BLOCKING[place.get_backend_name()]
        engine = create_engine(place.set(drivername=driver), poolclass=NullPool)
        gate = {"limited": 1, "concurrency": limit, "used": 0}
        with engine.begin() as connection:
            connection.execute(insert(store.room.sql.schema.gate), [{"name": name, **gate} for name in names])
        engine.dispose()
    await store.open()
    gates = [[name] for name in names] or [[]]
    drafts = [make_draft(gates=each) for _ in range(max(1, 5 * BATCH // len(gates))) for each in gates]
    for first in range(0, len(drafts), 5000):
        await store.add(drafts[first : first + 5000])
    return store


async def counted(store: SqlStore, asked: list[str]) -> list[int]:
    """Return how many statements claims took whose tasks are given back each time."""
    counts = []
    for _ in range(CLAIMS + 1):
        asked.clear()
        tasks: tuple[Task, ...] = (await store.claim_submissions("w", [HANDLER], BATCH, LEASE)).tasks
        counts.append(len(asked))
        assert len(tasks) == BATCH
        await store.settle([Settlement(task=task, event=GaveBack()) for task in tasks])
    return counts[1:]


@pytest.mark.parametrize("names", [[], ["nobody", "has", "defined"]], ids=["no gate", "no defined gate"])
async def test_a_claim_without_gates_looks_once(
    postgresql_url: str, asked: list[str], names: list[str]
) -> None:
    """It begins, looks, writes and commits; now and then it also writes where the lane begins."""
    store = await opened(postgresql_url, names, None)
    try:
        counts = await counted(store, asked)
    finally:
        await store.close()
    assert min(counts) == 4, asked
    assert sorted(counts)[CLAIMS // 2] == 4, counts
    assert max(counts) <= 7, counts


@pytest.mark.parametrize(("tenants", "most"), [(1, 9), (100, 12), (10_000, 16)])
async def test_a_claim_past_gates_takes_few_statements(
    postgresql_url: str, asked: list[str], tenants: int, most: int
) -> None:
    """However many lanes and gates there are, they are asked together."""
    limit = 2 * BATCH if tenants == 1 else 5
    store = await opened(postgresql_url, [f"tenant-{n}" for n in range(tenants)], limit)
    try:
        counts = await counted(store, asked)
    finally:
        await store.close()
    assert max(counts) <= most, counts


async def test_small_claims_of_many_tenants_ask_together_too(postgresql_url: str, asked: list[str]) -> None:
    """Where lanes give one task each, and begin behind their heads, they are not asked one by one."""
    store = await opened(postgresql_url, [f"tenant-{n}" for n in range(100)], 10 * BATCH)
    counts = []
    try:
        for limit in (BATCH, 20, 50, 10, 100, 30, 20, 40):
            asked.clear()
            claims = await store.claim_submissions("w", [HANDLER], limit, LEASE)
            assert len(claims.tasks) == limit
            # a claim that sees only some of the lanes may take several rounds, each of which begins with a look
            counts.append(len(asked) / sum("edge AS MATERIALIZED" in sql for sql in asked))
    finally:
        await store.close()
    assert max(counts) <= 14, counts


async def test_an_idle_claim_looks_and_leaves(postgresql_url: str, asked: list[str]) -> None:
    """Where there is nothing to do, a claim begins, looks and commits, for several handlers, too."""
    store = await opened(postgresql_url, [], None)
    try:
        for _ in range(3):
            asked.clear()
            assert (await store.claim_submissions("w", ["x", "y", "z"], BATCH, LEASE)).tasks == ()
        assert len(asked) == 3, asked
        asked.clear()
        assert (await store.claim_queries("w", ["x", "y", "z"], BATCH, LEASE)).tasks == ()
        assert len(asked) == 3, asked
    finally:
        await store.close()
