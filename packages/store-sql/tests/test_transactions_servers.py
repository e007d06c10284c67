"""Joining callers' transactions on servers, whatever driver and kind of session they use."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    func,
    insert,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from coatcheck.errors import ConfigurationError, DedupConflict, DuplicateTask, StoreUnavailable
from coatcheck.events import Finished
from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create

INVOICES = Table("invoices", MetaData(), Column("id", Integer, primary_key=True))
LEASE = timedelta(minutes=1)
SOON = 5.0
"""Seconds within which what waits for nobody is done."""

SYNC = ["postgresql+psycopg", "postgresql+psycopg2", "mysql+pymysql"]
ASYNC = ["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy", "mysql+aiomysql"]


@pytest.fixture
def driver() -> str:
    """Name the driver of the caller, where a test does not."""
    return "postgresql+asyncpg"


@pytest.fixture
def address(driver: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database."""
    kind = "postgresql" if driver.startswith("postgresql") else "mariadb"
    found: str = request.getfixturevalue(f"{kind}_url")
    return found


@pytest.fixture
async def store(address: str) -> AsyncIterator[SqlStore]:
    """Open a store."""
    made = create(address, timeout=timedelta(seconds=10))
    await made.setup()
    async with made:
        yield made


@pytest.fixture
def engine(address: str, driver: str) -> Iterator[Engine]:
    """Give the caller's own engine, with a table of their own."""
    name = (
        driver
        if driver in SYNC
        else driver.partition("+")[0] + ("+psycopg" if "post" in driver else "+pymysql")
    )
    made = create_engine(make_url(address).set(drivername=name), poolclass=NullPool)
    INVOICES.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
async def async_engine(address: str, driver: str) -> AsyncIterator[AsyncEngine]:
    """Give the caller's own asynchronous engine."""
    made = create_async_engine(make_url(address).set(drivername=driver), poolclass=NullPool)
    async with made.begin() as connection:
        await connection.run_sync(INVOICES.metadata.create_all)
    yield made
    await made.dispose()


@pytest.mark.parametrize("driver", ["mysql+pymysql"])
async def test_a_lax_session_cuts_nothing(address: str, store: SqlStore) -> None:
    """MySQL cuts and replaces text unless it is told not to: it is, for the add only."""
    url = make_url(address).set(drivername="mysql+pymysql")
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'"))
        with pytest.raises(Exception, match="Data too long|NotPersistable|characters"):
            store.join([make_draft(id="x" * 200)], connection)
        await store.add([make_draft(id="fine", metadata={"smile": "😀"})], transaction=connection)
        assert connection.scalar(text("SELECT @@SESSION.sql_mode")) == "NO_ENGINE_SUBSTITUTION"
        connection.execute(text("SET NAMES utf8mb3"))
        with pytest.raises(ConfigurationError, match="charset=utf8mb4"):
            await store.add([make_draft(id="smile", metadata={"smile": "😀"})], transaction=connection)
        connection.execute(text("SET NAMES utf8mb4"))
    found = await store.get("fine")
    assert found is not None
    assert found.metadata == {"smile": "😀"}


async def test_a_connection_without_transactions_is_refused(
    store: SqlStore, async_engine: AsyncEngine
) -> None:
    """What commits by itself cannot be joined."""
    async with async_engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            await store.add([make_draft()], transaction=connection)


async def test_an_async_scoped_session_is_joined(store: SqlStore, async_engine: AsyncEngine) -> None:
    """The session of the scope is taken."""
    scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
    await store.add([make_draft(id="scoped")], transaction=scoped)
    await scoped.commit()
    await scoped.remove()
    assert await store.get("scoped") is not None


def invoices(engine: Engine) -> int:
    """Count the caller's own rows."""
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(INVOICES)) or 0


async def soon(work: object) -> object:
    """Wait for something that nobody may keep waiting."""
    return await asyncio.wait_for(work, SOON)  # type: ignore[arg-type]  # anything to await


@pytest.mark.parametrize("driver", ASYNC)
async def test_async_sessions_and_connections_commit_and_roll_back_both(
    store: SqlStore, engine: Engine, async_engine: AsyncEngine
) -> None:
    """The task and the caller's rows are there together, from the commit on, or not at all."""
    async with AsyncSession(async_engine) as session:
        await session.execute(insert(INVOICES).values(id=1))
        (added,) = await store.add(
            [make_draft(id="session", gates=["g"], params={"ü": "\0"})], transaction=session
        )
        assert await store.get("session") is None
        await session.commit()
    assert await store.get("session") == added.task
    async with AsyncSession(async_engine) as session:  # not in a transaction yet
        await store.add([make_draft(id="first of all", dedup_key="k")], transaction=session)
        await session.rollback()
    async with async_engine.begin() as connection:
        await store.add([make_draft(id="connection")], transaction=connection)
    async with async_engine.connect() as connection:
        await store.add([make_draft(id="left", gates=["other"])], transaction=connection)
    async with AsyncSession(async_engine) as session, session.begin():
        await session.run_sync(lambda mine: store.join([make_draft(id="run_sync", gates=["new"])], mine))
    wanted = ["session", "first of all", "connection", "left", "run_sync"]
    assert set(await store.get_many(wanted)) == {"session", "connection", "run_sync"}
    assert invoices(engine) == 1
    claims = await store.claim_submissions("w", [HANDLER], 9, LEASE)
    assert {task.id for task in claims.tasks} == {"session", "connection", "run_sync"}


@pytest.mark.parametrize("driver", SYNC)
async def test_sync_sessions_are_joined_in_the_callers_thread(store: SqlStore, engine: Engine) -> None:
    """Threads of callers add what has lanes that nobody has met, while the loop of the store runs elsewhere."""

    def work() -> None:
        with Session(engine) as session, session.begin():
            session.execute(insert(INVOICES).values(id=1))
            store.join([make_draft(id="session", gates=["a"])], session)
        scoped = scoped_session(sessionmaker(engine))
        store.join([make_draft(id="scoped", gates=["b"])], scoped)
        scoped.commit()
        store.join([make_draft(id="dropped", gates=["c"])], scoped)
        scoped.rollback()
        scoped.remove()
        with engine.begin() as connection:
            store.join([make_draft(id="connection", gates=["d"])], connection)

    await asyncio.to_thread(work)
    with engine.begin() as connection:  # in the thread of the loop, which cannot run meanwhile
        store.join([make_draft(id="blocking", gates=["e"])], connection)
    with engine.begin() as connection:
        await store.add([make_draft(id="awaited", gates=["f"])], transaction=connection)
    wanted = ["session", "scoped", "dropped", "connection", "blocking", "awaited"]
    assert set(await store.get_many(wanted)) == {*wanted} - {"dropped"}
    assert invoices(engine) == 1


def test_a_store_whose_loop_has_ended_is_joined(postgresql_url: str) -> None:
    """`join` needs no running loop."""
    store = create(postgresql_url)
    asyncio.run(store.setup())
    asyncio.run(store.open())
    engine = create_engine(make_url(postgresql_url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        store.join([make_draft(id="joined", gates=["new"])], connection)
    assert asyncio.run(store.get("joined")) is not None
    asyncio.run(store.close())


@pytest.mark.parametrize("driver", ASYNC)
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
        (again,) = await store.add([make_draft(dedup_key="k")], transaction=session)
        (mine,) = await store.add([make_draft(id="fine", dedup_key="mine")], transaction=session)
        (too,) = await store.add([make_draft(dedup_key="mine")], transaction=session)
        await session.execute(insert(INVOICES).values(id=2))
        await session.commit()
    assert again.task.id == "known"
    assert not again.created
    assert too.task == mine.task
    assert invoices(engine) == 2
    assert set(await store.get_many(["known", "beside", "fine"])) == {"known", "fine"}


@pytest.mark.parametrize("driver", ASYNC)
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_keys_taken_behind_the_snapshot_are_seen(
    level: str, store: SqlStore, engine: Engine, async_engine: AsyncEngine
) -> None:
    """At any isolation level a key that was taken since the transaction began returns the task that holds it."""
    async with async_engine.connect() as plain:
        connection = await plain.execution_options(isolation_level=level)
        await connection.execute(select(func.count()).select_from(INVOICES))  # the snapshot
        await store.add([make_draft(id="theirs", dedup_key="k", gates=["unseen"])])
        (again,) = await store.add([make_draft(dedup_key="k", gates=["unseen"])], transaction=connection)
        assert (again.task.id, again.created) == ("theirs", False)
        await store.add([make_draft(id="mine", gates=["unseen"])], transaction=connection)
        await connection.execute(insert(INVOICES).values(id=1))
        await connection.commit()
    assert await store.get("mine") is not None
    assert invoices(engine) == 1


@pytest.mark.parametrize("driver", ASYNC)
async def test_concurrent_transactions_with_one_key_add_one_task(
    store: SqlStore, async_engine: AsyncEngine
) -> None:
    """The second transaction waits for the first one's end, then finds its task, or takes its place."""
    for end, created in (("commit", False), ("rollback", True)):
        async with async_engine.connect() as first, async_engine.connect() as second:
            (one,) = await store.add([make_draft(dedup_key=end)], transaction=first)
            await second.execute(select(func.count()).select_from(INVOICES))
            adding = asyncio.ensure_future(store.add([make_draft(dedup_key=end)], transaction=second))
            await asyncio.sleep(0.2)
            assert not adding.done()
            await getattr(first, end)()
            (other,) = await asyncio.wait_for(adding, SOON)
            await second.commit()
            assert other.created is created
            assert (other.task.id == one.task.id) is not created


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
async def test_waiting_for_a_key_has_an_end(
    postgresql_url: str, store: SqlStore, async_engine: AsyncEngine
) -> None:
    """Who waits too long for another transaction is told so, can go on, and has their own timeout as before."""
    async with (
        create(postgresql_url, timeout=timedelta(seconds=1)) as hasty,
        async_engine.connect() as first,
        async_engine.connect() as second,
    ):
        await hasty.add([make_draft(id="one", dedup_key="k")], transaction=first)
        await second.execute(insert(INVOICES).values(id=1))
        with pytest.raises(StoreUnavailable, match="Roll it back and repeat it"):
            await asyncio.wait_for(hasty.add([make_draft(id="two", dedup_key="k")], transaction=second), SOON)
        await hasty.add([make_draft(id="other")], transaction=second)
        assert await second.scalar(text("SHOW lock_timeout")) == "0"
        await second.execute(text("SET LOCAL lock_timeout = '7s'"))
        await hasty.add([make_draft(id="another")], transaction=second)
        assert await second.scalar(text("SHOW lock_timeout")) == "7s"
        await second.commit()
    assert set(await store.get_many(["one", "two", "other", "another"])) == {"other", "another"}


def crossing(store: SqlStore, engine: Engine) -> list[BaseException | Connection]:
    """Let two transactions take two keys in opposite orders."""
    both = threading.Barrier(2)
    ended: list[BaseException | Connection] = []

    def work(first: str, second: str, invoice: int) -> None:
        connection = engine.connect()
        connection.execute(insert(INVOICES).values(id=invoice))
        store.join([make_draft(dedup_key=first)], connection)
        both.wait(SOON)
        try:
            store.join([make_draft(dedup_key=second)], connection)
            connection.commit()
            ended.append(connection)
        except StoreUnavailable as error:
            with closing(connection):
                try:
                    connection.execute(insert(INVOICES).values(id=invoice + 10))
                    connection.commit()
                except SQLAlchemyError as refused:
                    error.add_note(str(refused))
            ended.append(error)

    threads = [threading.Thread(target=work, args=each) for each in (("a", "b", 1), ("b", "a", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for each in ended:
        if isinstance(each, Connection):
            each.close()
    return ended


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+pymysql"])
async def test_a_deadlock_never_commits_a_half(driver: str, store: SqlStore, engine: Engine) -> None:
    """PostgreSQL undoes the add only, so the caller goes on; MySQL all of the transaction, so nothing more is taken."""
    await store.add([make_draft()])
    ended = await asyncio.to_thread(crossing, store, engine)
    (error,) = [each for each in ended if isinstance(each, StoreUnavailable)]
    assert len(ended) == 2
    with engine.connect() as connection:
        there = set(connection.scalars(select(INVOICES.c.id)))
    whole = {1, 2} & there
    if "postgresql" in driver:
        assert there in ({1, 2, 11}, {1, 2, 12}), error
    else:
        assert there == whole
        assert len(whole) == 1
        assert "rolled back all" in str(error)


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_transaction_that_lasts_keeps_nobody_waiting(
    store: SqlStore, async_engine: AsyncEngine
) -> None:
    """While it is open, others add to the same lane, which was new, claim, start, settle, and set gates."""
    async with AsyncSession(async_engine) as session, AsyncSession(async_engine) as other:
        await store.add([make_draft(id="slow", gates=["g", "h"], dedup_key="s")], transaction=session)
        await soon(store.add([make_draft(id="quick", gates=["g", "h"])]))
        await soon(store.add([make_draft(id="joined", gates=["g", "h"])], transaction=other))
        await soon(other.commit())
        await soon(store.set_gate("g", concurrency=5))
        await soon(store.pause_gate("h", reason="test"))
        await soon(store.resume_gate("h"))
        claims = await asyncio.wait_for(store.claim_submissions("w", [HANDLER], 9, LEASE), SOON)
        assert {task.id for task in claims.tasks} == {"quick", "joined"}
        begun = await asyncio.wait_for(store.start(claims.tasks, LEASE), SOON)
        settled = await asyncio.wait_for(
            store.settle(
                [
                    Settlement(task=each.task, event=Finished(status=Status.SUCCEEDED, result=1))
                    for each in begun
                    if isinstance(each, Started)
                ]
            ),
            SOON,
        )
        assert all(isinstance(each, Task) for each in settled)
        await soon(store.nudge(HANDLER, "unknown"))
        await soon(store.stats())
        await soon(store.purge(await store.now() + timedelta(hours=1)))
        await soon(store.delete_gate("g"))
        await session.commit()
    claims = await store.claim_submissions("w", [HANDLER], 9, LEASE)
    assert [task.id for task in claims.tasks] == ["slow"]


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "mysql+asyncmy"])
async def test_a_returned_holder_can_be_settled_meanwhile(store: SqlStore, async_engine: AsyncEngine) -> None:
    """A transaction that was given an existing task keeps nobody from settling that."""
    await store.add([make_draft(id="held", dedup_key="k")])
    async with AsyncSession(async_engine) as session:
        (again,) = await store.add([make_draft(dedup_key="k")], transaction=session)
        assert not again.created
        claims = await asyncio.wait_for(store.claim_submissions("w", [HANDLER], 9, LEASE), SOON)
        begun = [each for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
        (settled,) = await asyncio.wait_for(
            store.settle([Settlement(task=begun[0].task, event=Finished(status=Status.SUCCEEDED, result=1))]),
            SOON,
        )
        assert isinstance(settled, Task)
        await session.commit()


async def joined_by_session(store: SqlStore, engine: AsyncEngine, seen: Callable[[], bool]) -> None:
    """Add in a session, behind a savepoint of the caller's."""
    async with AsyncSession(engine) as session:
        async with session.begin_nested():
            await store.add([make_draft()], transaction=session)
        await asyncio.sleep(0.3)
        assert not seen()
        await session.commit()


async def joined_by_connection(store: SqlStore, engine: AsyncEngine, seen: Callable[[], bool]) -> None:
    """Add on a connection."""
    async with engine.connect() as connection:
        await store.add([make_draft()], transaction=connection)
        await asyncio.sleep(0.3)
        assert not seen()
        await connection.commit()


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "mysql+asyncmy"])
@pytest.mark.parametrize("join", [joined_by_session, joined_by_connection])
async def test_the_commit_wakes_waiting_workers(
    join: Callable[..., object], store: SqlStore, address: str, async_engine: AsyncEngine
) -> None:
    """Workers of this process and of others wake at the caller's commit, and not before."""
    async with create(address) as other:
        waits = [asyncio.create_task(each.wait([HANDLER], timedelta(seconds=30))) for each in (store, other)]
        await join(store, async_engine, lambda: any(each.done() for each in waits))  # type: ignore[misc]
        assert await asyncio.wait_for(asyncio.gather(*waits), SOON) == [True, True]


@pytest.mark.parametrize("driver", ["mysql+asyncmy"])
@pytest.mark.parametrize("join", [joined_by_session, joined_by_connection])
async def test_the_commit_rings_in_this_process(
    join: Callable[..., object], address: str, store: SqlStore, async_engine: AsyncEngine
) -> None:
    """Who waits here need not look: the commit itself wakes, also where servers announce nothing."""
    del store  # it has made the tables
    async with create(address, poll_interval=timedelta(seconds=60)) as patient:
        waiting = asyncio.create_task(patient.wait([HANDLER], timedelta(seconds=60)))
        await asyncio.sleep(0.3)  # it sleeps
        await join(patient, async_engine, waiting.done)  # type: ignore[misc]
        assert await asyncio.wait_for(waiting, SOON)


async def test_postgresql_announces_at_the_commit(
    postgresql_url: str, store: SqlStore, async_engine: AsyncEngine
) -> None:
    """Another process need not look: it is told."""
    async with create(postgresql_url, poll_interval=timedelta(seconds=60)) as other:
        waiting = asyncio.create_task(other.wait([HANDLER], timedelta(seconds=60)))
        await asyncio.sleep(0.3)  # it has begun to listen
        async with async_engine.begin() as connection:
            await store.add([make_draft()], transaction=connection)
        assert await asyncio.wait_for(waiting, SOON)


async def test_a_session_that_is_joined_often_listens_once(store: SqlStore, engine: Engine) -> None:
    """A session that lives long does not gather listeners."""
    with Session(engine) as session:
        for _ in range(3):
            await store.add([make_draft()], transaction=session)
            session.rollback()
        assert len(list(session.dispatch.after_commit)) == 1
