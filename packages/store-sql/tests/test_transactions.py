import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from coatcheck.errors import ConfigurationError, DedupConflict, DuplicateTask, StoreUnavailable
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create

INVOICES = Table("invoices", MetaData(), Column("id", Integer, primary_key=True))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Give the application's own engine, with a table of its own."""
    engine = create_engine(url, poolclass=NullPool)
    INVOICES.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(engine: Engine) -> AsyncIterator[AsyncEngine]:
    """Give the application's own asynchronous engine."""
    url = engine.url.set(drivername="sqlite+aiosqlite")
    made = create_async_engine(url, poolclass=NullPool)
    yield made
    await made.dispose()


def invoices(engine: Engine) -> int:
    """Count the application's own rows."""
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(INVOICES)) or 0


async def test_an_async_session_commits_both(
    store: SqlStore, engine: Engine, async_engine: AsyncEngine
) -> None:
    """The task and the application's rows appear together, and not before the commit."""
    async with AsyncSession(async_engine) as session:
        await session.execute(insert(INVOICES).values(id=1))
        (added,) = await store.add([make_draft(id="joined", gates=["g"])], transaction=session)
        assert added.created
        assert await store.get("joined") is None
        await session.commit()
    assert await store.get("joined") == added.task
    assert invoices(engine) == 1
    assert len((await store.claim_submissions("w", [HANDLER], 9, timedelta(minutes=1))).tasks) == 1


async def test_an_async_session_rolls_both_back(
    store: SqlStore, engine: Engine, async_engine: AsyncEngine
) -> None:
    """Nothing of a transaction that was rolled back is there, nor remembered."""
    for number in range(2):
        async with AsyncSession(async_engine) as session:
            await session.execute(insert(INVOICES).values(id=1))
            await store.add([make_draft(id=f"gone-{number}", gates=["new gate"])], transaction=session)
            await session.rollback()
        assert await store.get(f"gone-{number}") is None
    assert invoices(engine) == 0
    await store.add([make_draft(id="kept", gates=["another gate"])])
    await store.add([make_draft(id="kept too", gates=["new gate"])])
    claims = await store.claim_submissions("w", [HANDLER], 9, timedelta(minutes=1))
    assert [task.id for task in claims.tasks] == ["kept", "kept too"]


async def test_an_async_connection_is_joined(store: SqlStore, async_engine: AsyncEngine) -> None:
    """A connection serves as well as a session."""
    async with async_engine.begin() as connection:
        await store.add([make_draft(id="joined")], transaction=connection)
    assert await store.get("joined") is not None


def test_a_sync_session_is_joined_in_the_callers_thread(url: str, engine: Engine) -> None:
    """`join` needs no event loop, and takes sessions, scoped sessions and connections."""
    store = create(url)
    asyncio.run(store.open())
    try:
        with Session(engine) as session, session.begin():
            store.join([make_draft(id="session")], session)
        scoped = scoped_session(sessionmaker(engine))
        store.join([make_draft(id="scoped")], scoped)
        scoped.commit()
        scoped.remove()
        with engine.begin() as connection:
            store.join([make_draft(id="connection")], connection)
        with engine.connect() as connection:
            store.join([make_draft(id="rolled back")], connection)
        ids = ["session", "scoped", "connection", "rolled back"]
        assert set(asyncio.run(store.get_many(ids))) == set(ids[:3])
    finally:
        asyncio.run(store.close())


async def test_a_conflict_leaves_the_transaction_whole(
    store: SqlStore, engine: Engine, async_engine: AsyncEngine
) -> None:
    """A refused add never aborts the caller's transaction, and leaves nothing of itself."""
    await store.add([make_draft(id="known", dedup_key="k")])
    async with AsyncSession(async_engine) as session:
        await session.execute(insert(INVOICES).values(id=1))
        with pytest.raises(DuplicateTask):
            await store.add(
                [make_draft(id="beside"), make_draft(id="known", params={"other": 1})], transaction=session
            )
        with pytest.raises(DedupConflict):
            await store.add(
                [make_draft(id="beside"), make_draft(dedup_key="k", params={"other": 1})], transaction=session
            )
        await store.add([make_draft(id="fine")], transaction=session)
        await session.execute(insert(INVOICES).values(id=2))
        await session.commit()
    assert invoices(engine) == 2
    assert set(await store.get_many(["known", "beside", "fine"])) == {"known", "fine"}


async def test_dedup_holds_inside_the_transaction(store: SqlStore, async_engine: AsyncEngine) -> None:
    """What the transaction has added holds its key for the rest of the transaction."""
    async with AsyncSession(async_engine) as session:
        (first,) = await store.add([make_draft(dedup_key="k")], transaction=session)
        (second,) = await store.add([make_draft(dedup_key="k")], transaction=session)
        await session.commit()
    assert second.task == first.task
    assert not second.created


@pytest.mark.parametrize("kind", ["session", "connection"])
async def test_the_commit_wakes_waiting_workers(url: str, async_engine: AsyncEngine, kind: str) -> None:
    """Workers are woken by the caller's commit, and see nothing before it."""
    async with create(url) as store:
        waiting = asyncio.create_task(store.wait([HANDLER], timedelta(seconds=30)))
        async with AsyncSession(async_engine) as session, async_engine.connect() as connection:
            joined = session if kind == "session" else connection
            await store.add([make_draft()], transaction=joined)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await joined.commit()
            assert await asyncio.wait_for(waiting, 10)


async def test_a_lock_held_elsewhere_is_store_unavailable(url: str, store: SqlStore, engine: Engine) -> None:
    """The caller is told that the database is locked, and its transaction can go on."""
    holder = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with engine.connect() as connection:
        connection.execute(text("PRAGMA busy_timeout = 50"))
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            store.join([make_draft(id="late")], connection)
        holder.execute("ROLLBACK")
        holder.close()
        store.join([make_draft(id="then")], connection)
        connection.commit()
    assert set(await store.get_many(["late", "then"])) == {"then"}


async def test_another_database_is_refused(store: SqlStore, tmp_path: object) -> None:
    """Tasks join transactions of the database that they are in."""
    other = create_engine(f"sqlite:///{tmp_path}/other.db", poolclass=NullPool)
    with other.connect() as connection, pytest.raises(ConfigurationError, match="other.db"):
        store.join([make_draft()], connection)


async def test_what_is_no_transaction_is_refused(store: SqlStore) -> None:
    """The message says what can be joined."""
    with pytest.raises(ConfigurationError, match="AsyncSession"):
        await store.add([make_draft()], transaction=object())
