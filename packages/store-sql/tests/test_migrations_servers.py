"""The tables on servers: made by several processes at once, by hand, by others' migrations, and upgraded in use."""

import asyncio
import multiprocessing
import sys
import types
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import crew
import pytest
import sqlalchemy as sa
from alembic import command, op
from alembic.config import Config
from sqlalchemy import Engine, inspect, make_url, text
from sqlalchemy.pool import NullPool

from coatcheck.clock import ManualClock
from coatcheck.errors import ConfigurationError, SchemaOutdated
from coatcheck.events import Abandon, Event, Overdue
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.tallies import Count
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import accepted, failed, succeeded, unknown
from coatcheck_store_sql import SqlStore, changes, create, migrations, schema_sql
from coatcheck_store_sql.migrations import running, versions
from coatcheck_store_sql.schema import Schema

sys.path.insert(0, str(Path(__file__).parent))
import places

kind, place, engine = places.kind, places.place, places.engine
pytestmark = pytest.mark.slow

LEASE = timedelta(minutes=5)


# ------------------------------------------------------------------ setup


def test_several_processes_set_up_at_once(place: str) -> None:
    """Whoever comes second finds the tables there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        list(pool.map(crew.set_up, [place] * 4, timeout=50))

    async def use() -> None:
        async with create(place) as store:
            await store.add([make_draft(id="fine")])

    asyncio.run(use())


async def test_a_server_without_tables_names_the_command(kind: str, place: str) -> None:
    """Opening never changes a server; the message says who makes the tables."""
    if kind == "sqlite":
        async with create(place):
            return
    with pytest.raises(SchemaOutdated, match="coatcheck store setup"):
        await create(place).open()


async def test_a_newer_schema_is_refused_unless_it_can_be_read(place: str, engine: Engine) -> None:
    """The tables say which code they need."""
    await create(place).setup()
    with engine.begin() as connection:
        connection.execute(text("UPDATE coatcheck_meta SET number = 9 WHERE name = 'schema'"))
    async with create(place) as store:
        await store.add([make_draft(id="fine")])
    await create(place).setup()
    with engine.begin() as connection:
        connection.execute(text("UPDATE coatcheck_meta SET number = 8 WHERE name = 'readable_by'"))
    for what in (create(place).open, create(place).setup):
        with pytest.raises(SchemaOutdated, match=r"schema 9.*knows schema 8.*upgrade coatcheck-store-sql"):
            await what()


@pytest.mark.parametrize("kind", ["mariadb"])
async def test_an_interrupted_setup_is_taken_up(place: str, engine: Engine) -> None:
    """Where tables cannot be made in one transaction, empty leftovers are made anew; what has rows is not touched."""
    await create(place).setup()
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE coatcheck_meta"))
        connection.execute(text("DROP TABLE coatcheck_gate"))
    await create(place).setup()
    async with create(place) as store:
        await store.add([make_draft(id="fine")])
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE coatcheck_meta"))
    with pytest.raises(ConfigurationError, match="coatcheck_task has rows"):
        await create(place).setup()


@pytest.mark.parametrize("kind", ["mariadb"])
async def test_an_interrupted_upgrade_is_taken_up(place: str, engine: Engine) -> None:
    """What an upgrade has left half made is made anew, and the tasks stay; what has rows is not touched."""
    await create(place).setup()
    async with create(place) as store:
        await store.add([make_draft(id="kept")])
        with engine.begin() as connection:
            connection.execute(text("UPDATE coatcheck_meta SET number = 1 WHERE name = 'schema'"))
            connection.execute(text("DROP INDEX coatcheck_tally_expires ON coatcheck_tally"))
            connection.execute(text("DROP TABLE coatcheck_gate_history"))
        await create(place).setup()
        assert [each["name"] for each in inspect(engine).get_indexes("coatcheck_tally")] == [
            "coatcheck_tally_expires"
        ]
        assert await store.get("kept") is not None
        await store.count([Count(name="a", lifetime=LEASE)])
        assert await store.gate_history("g") == []
    with engine.begin() as connection:
        connection.execute(text("UPDATE coatcheck_meta SET number = 1 WHERE name = 'schema'"))
    with pytest.raises(ConfigurationError, match="coatcheck_tally has rows"):
        await create(place).setup()


@pytest.mark.parametrize("kind", ["postgresql"])
async def test_tables_can_be_in_a_schema(place: str, engine: Engine) -> None:
    """PostgreSQL's schema is made, whatever it is called, and two stores with the same prefix don't meet."""
    mixed, plain = create(place, schema="Jobs", table_prefix="Order_"), create(place)
    await mixed.setup()
    await mixed.setup()
    await plain.setup()
    async with mixed, plain:
        await mixed.add([make_draft(id="mine")])
        assert await plain.get("mine") is None
        assert [task.id for task in (await mixed.claim_submissions("w", [HANDLER], 9, LEASE)).tasks] == [
            "mine"
        ]
        async with create_joined(place) as connection:
            await mixed.add([make_draft(id="joined")], transaction=connection)
        assert await mixed.get("joined") is not None
    assert inspect(engine).has_table("Order_task", schema="Jobs")


def create_joined(place: str) -> Any:
    """Begin a transaction of somebody else's."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    return create_async_engine(
        make_url(place).set(drivername="postgresql+asyncpg"), poolclass=NullPool
    ).begin()


# ------------------------------------------------------------------ as SQL


async def test_the_sql_makes_what_setup_makes(kind: str, place: str, engine: Engine) -> None:
    """A person who runs the text has the tables that the code uses."""
    sql = schema_sql(kind, table_prefix="shop_")
    with engine.begin() as connection:
        for statement in sql.split(";\n"):
            plain = statement.strip().rstrip(";")
            if plain and plain not in {"BEGIN", "COMMIT"}:
                connection.exec_driver_sql(plain.replace("%", "%%") if kind != "sqlite" else plain)
    await create(place, table_prefix="made_").setup()
    looked = inspect(engine)
    tables = [table.name for table in Schema("").metadata.sorted_tables]
    for table in tables:
        made, written = looked.get_columns(f"made_{table}"), looked.get_columns(f"shop_{table}")
        shown = [
            [(one["name"], one["nullable"], str(one["type"].compile(engine.dialect))) for one in columns]
            for columns in (made, written)
        ]
        assert shown[0] == shown[1]
        assert len(looked.get_indexes(f"made_{table}")) == len(looked.get_indexes(f"shop_{table}"))
    async with create(place, table_prefix="shop_") as store:
        await store.add([make_draft(id="fine")])
        assert len((await store.claim_submissions("w", [HANDLER], 9, LEASE)).tasks) == 1


def test_the_sql_names_the_schema() -> None:
    """On PostgreSQL the schema is made first, and all names have it."""
    sql = schema_sql("postgresql", schema="jobs")
    assert "CREATE SCHEMA IF NOT EXISTS jobs" in sql
    assert "CREATE TABLE jobs.coatcheck_task" in sql


@pytest.mark.parametrize(
    ("dialect", "versions", "told"),
    [
        ("oracle", {}, "postgresql"),
        ("sqlite", {"to": 99}, "knows schema"),
        ("sqlite", {"since": 1, "to": 1}, "no way"),
    ],
)
def test_sql_that_cannot_be_had_is_refused(dialect: str, versions: dict[str, Any], told: str) -> None:
    """The message says what there is."""
    with pytest.raises(ConfigurationError, match=told):
        schema_sql(dialect, **versions)


# ------------------------------------------------------------------ in migrations of others

ENVIRONMENT = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.pool import NullPool

from coatcheck_store_sql.migrations import include_name

metadata = MetaData()
Table("invoices", metadata, Column("id", Integer, primary_key=True))
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, include_name=include_name("shop_"))
        with context.begin_transaction():
            context.run_migrations()
"""
TEMPLATE = '''"""${message}"""
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
from alembic import op
import sqlalchemy as sa
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    ${downgrades if downgrades else "pass"}
'''
MIGRATION = """
from alembic import op
import sqlalchemy as sa
from coatcheck_store_sql import migrations

revision, down_revision = "a1", None

def upgrade():
    migrations.upgrade(op, since=0, to=1, table_prefix="shop_")
    op.create_table("invoices", sa.Column("id", sa.Integer, primary_key=True))

def downgrade():
    op.drop_table("invoices")
    migrations.drop_tables(op, table_prefix="shop_")
"""
LATER = """
from alembic import op
from coatcheck_store_sql import migrations

revision, down_revision = "a2", "a1"

def upgrade():
    migrations.upgrade(op, since=1, to=2, table_prefix="shop_")

def downgrade():
    pass
"""


@pytest.fixture
def environment(engine: Engine, tmp_path: Path) -> Config:
    """Make the Alembic environment of an application."""
    folder = tmp_path / "alembic"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENVIRONMENT)
    (folder / "script.py.mako").write_text(TEMPLATE)
    (folder / "versions" / "a1_first.py").write_text(MIGRATION)
    (folder / "versions" / "a2_later.py").write_text(LATER)
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option(
        "sqlalchemy.url", engine.url.render_as_string(hide_password=False).replace("%", "%%")
    )
    return config


def test_an_applications_migrations_make_and_drop_the_tables(
    environment: Config, place: str, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line in a migration makes our tables, autogenerate leaves them alone, `setup` finds nothing to do."""
    command.upgrade(environment, "head")

    async def use() -> None:
        await create(place, table_prefix="shop_").setup()
        async with create(place, table_prefix="shop_") as store:
            await store.add([make_draft(id="fine")])
            await store.count([Count(name="a", lifetime=LEASE)])

    with engine.connect() as connection:
        assert migrations.schema_version(connection, Schema("shop_")) == 2
    asyncio.run(use())
    command.check(environment)  # raises if autogenerate found something to do
    command.revision(environment, "next", autogenerate=True)
    command.upgrade(environment, "head")
    asyncio.run(use())
    command.downgrade(environment, "base")
    assert not [name for name in inspect(engine).get_table_names() if name.startswith("shop_")]
    capsys.readouterr()
    command.upgrade(environment, "a2", sql=True)
    said = capsys.readouterr().out
    for table in ("shop_task", "invoices", "shop_tally"):
        assert f"CREATE TABLE {table} " in said


# ------------------------------------------------------------------ upgrading what is in use


def made_up() -> running.Scripts:
    """Return a schema 3, which the code of schema 1 can use: a column, filled for old rows, a table, an index."""
    script = types.ModuleType("v0003_made_up")

    def upgrade() -> None:
        options = op.get_context().opts
        task = f"{options['table_prefix']}task"
        op.add_column(task, sa.Column("shade", sa.String(16), server_default="grey", nullable=False))
        op.add_column(task, sa.Column("note", sa.String(64)))
        op.execute(sa.text(f"UPDATE {task} SET note = id"))
        op.create_index(f"{task}_note", task, ["note"])
        op.create_table(f"{options['table_prefix']}later", sa.Column("id", sa.Integer, primary_key=True))

    script.upgrade, script.readable_by = upgrade, 1  # type: ignore[attr-defined]  # a made-up module
    return {**running.scripts_of(versions), 3: script}


async def begun(store: SqlStore, wanted: int) -> list[Task]:
    """Claim and start as many submissions."""
    claims = await store.claim_submissions("w", [HANDLER], wanted, LEASE)
    tasks = [each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
    assert len(tasks) == wanted
    return tasks


async def settled(store: SqlStore, tasks: Sequence[Task], events: Sequence[Event]) -> list[Task]:
    """Settle tasks, which has to succeed."""
    pairs = zip(tasks, events, strict=True)
    answers = await store.settle([Settlement(task=task, event=event) for task, event in pairs])
    assert all(isinstance(each, Task) for each in answers), answers
    return [each for each in answers if isinstance(each, Task)]


async def write_every_status(store: SqlStore, clock: ManualClock) -> None:
    """Leave tasks in every status, claimed and not, due and not, some with long bodies."""
    long = {"long": "x" * 9000}
    await store.set_gate("g", concurrency=20)
    await store.add([make_draft(timeout=timedelta(minutes=1))])
    clock.advance(timedelta(minutes=2))
    overdue = await store.claim_stale("w", [HANDLER], 9, LEASE)
    await settled(store, overdue.tasks, [Overdue()])
    await store.add([make_draft(params=long, gates=["g"], dedup_key=f"k{number}") for number in range(9)])
    tasks = await begun(store, 7)
    events: list[Event] = [
        accepted(), accepted(status=Status.RUNNING), accepted(status=Status.RUNNING), succeeded("y" * 9000), failed(),
        unknown(),
    ]  # fmt: skip
    await settled(store, tasks[:6], events)
    assert len((await store.claim_queries("dead", [HANDLER], 1, LEASE)).tasks) == 1
    assert len((await store.claim_submissions("dead", [HANDLER], 1, LEASE)).tasks) == 1
    await store.add([make_draft(id="canceled"), make_draft(delay=timedelta(minutes=30), dedup_key="later")])
    await store.request_cancellation("canceled")
    stored = await store.find(Filter(), limit=99)
    assert {task.status for task in stored} == set(Status)


async def one_round(store: SqlStore) -> int:
    """Do what a worker would; return how many tasks were brought on."""
    submissions = (await store.claim_submissions("w", [HANDLER], 3, LEASE)).tasks
    started = [each.task for each in await store.start(submissions, LEASE) if isinstance(each, Started)]
    await settled(store, started, [accepted(status=Status.RUNNING) for _ in started])
    queries = (await store.claim_queries("w", [HANDLER], 3, LEASE)).tasks
    await settled(store, queries, [succeeded() for _ in queries])
    stale = (await store.claim_stale("w", [HANDLER], 3, LEASE)).tasks
    await settled(store, stale, [unknown() for _ in stale])
    for task in await store.find(Filter(statuses=[Status.SUBMIT_UNKNOWN]), limit=99):
        await store.resolve(task.id, task.version, Abandon(who="test"))
    return len(started) + len(queries) + len(stale)


async def test_old_and_new_code_work_side_by_side(
    place: str, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of this schema in every status go on to their end under both, and old code keeps what it does not know."""
    writer = create(place, clock=clock)
    await writer.setup()
    async with writer:
        await write_every_status(writer, clock)
        before = {task.id: task for task in await writer.find(Filter(), limit=99)}
    old = create(place, clock=clock)
    await old.open()
    schema = Schema("coatcheck_")
    with engine.begin() as connection:
        running.run(connection, schema, migrations.schema_version(connection, schema), made_up())
    for module in ("server", "migrations"):
        monkeypatch.setattr(f"coatcheck_store_sql.{module}.SCHEMA_VERSION", 3)
    async with create(place, clock=clock) as new:
        monkeypatch.undo()
        assert {task.id: task for task in await new.find(Filter(), limit=99)} == before
        await new.add([make_draft(id="new", dedup_key="new")])
        await old.add([make_draft(id="old", dedup_key="old")])
        (again,) = await old.add([make_draft(dedup_key="new")])
        assert again.task.id == "new"
        clock.advance(timedelta(minutes=31))
        while await one_round(old) + await one_round(new):
            pass
        ended = {task.id: task.status for task in await old.find(Filter(), limit=99)}
    assert {status for status in ended.values() if not status.terminal} == set()
    assert ended.keys() == {*before, "new", "old"}
    for task in before.values():
        if task.status.terminal and task.status is not Status.SUBMIT_UNKNOWN:
            assert ended[task.id] == task.status
    (gate,) = await old.gates(["g"])
    assert gate.used == 0
    await old.close()
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id, note, shade FROM coatcheck_task")).all()
    assert {task_id: note for task_id, note, _ in rows if task_id in before} == {
        each: each for each in before
    }
    assert {shade for _, _, shade in rows} == {"grey"}
    async with create(place, clock=clock) as now:  # old code goes on after a restart
        await now.add([make_draft()])


def be_the_first_version(patch: pytest.MonkeyPatch) -> None:
    """Let the code know schema 1 only, and write no histories."""
    for module in ("server", "migrations"):
        patch.setattr(f"coatcheck_store_sql.{module}.SCHEMA_VERSION", 1)
    patch.setattr(changes, "_record", lambda *_: None)


async def test_schema_1_is_upgraded_in_use(
    kind: str, place: str, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of schema 1 in every status are untouched, workers of both versions go on, and only new ones record."""
    first = {1: running.scripts_of(versions)[1]}
    with engine.begin() as connection:
        running.run(connection, Schema("coatcheck_"), 0, first)
    with monkeypatch.context() as patch:
        be_the_first_version(patch)
        old = create(place, clock=clock)
        await old.open()
        await write_every_status(old, clock)
        before = {task.id: task for task in await old.find(Filter(), limit=99)}
        (gate,) = await old.gates()
    if kind != "sqlite":
        with pytest.raises(SchemaOutdated, match="has schema 1, not 2"):
            await create(place, clock=clock).open()
    await create(place, clock=clock).setup()
    async with create(place, clock=clock) as new:
        assert {task.id: task for task in await new.find(Filter(), limit=99)} == before
        assert (await new.gates(), await new.gate_history("g")) == ([gate], [])
        await new.set_gate("g", concurrency=25, who="ada", reason="upgraded")
        with monkeypatch.context() as patch:
            be_the_first_version(patch)
            await old.pause_gate("g", reason="by old code")
        await new.resume_gate("g", who="grace")
        assert [each.who for each in await new.gate_history("g")] == ["ada", "grace"]
        (counted,) = await new.count([Count(name="a", lifetime=LEASE)])
        assert counted.total == 1
        clock.advance(timedelta(minutes=31))
        while await one_round(old) + await one_round(new):
            pass
        ended = await new.find(Filter(), limit=99)
        assert {task.id for task in ended} == before.keys()
        assert all(task.status.terminal for task in ended)
        (gate,) = await old.gates(["g"])
        assert (gate.used, gate.gate.concurrency) == (0, 25)
    await old.close()
    with monkeypatch.context() as patch:
        be_the_first_version(patch)
        async with create(place, clock=clock) as again:  # old code goes on after a restart
            await again.add([make_draft()])
