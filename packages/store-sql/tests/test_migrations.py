import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from coatcheck.errors import SchemaOutdated
from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import create
from coatcheck_store_sql.schema import SCHEMA_VERSION, Schema


def execute(url: str, statement: str) -> None:
    """Run one statement on the file."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(statement)


async def test_migrations_make_what_the_schema_says(url: str) -> None:
    """The frozen migrations and the tables that the code uses are the same."""
    await create(url, table_prefix="a_").setup()
    schema = Schema("a_")
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        options = {"compare_type": True}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata)
    assert differences == []


async def test_partial_indexes_are_the_same_in_migrations(url: str) -> None:
    """What an index leaves out is not compared by Alembic, so it is compared here."""
    await create(url).setup()
    engine = create_engine("sqlite://")
    Schema("coatcheck_").metadata.create_all(engine)
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"

    def plain(rows: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, sql.replace('"', "").replace("coatcheck_task.", "")) for name, sql in rows]

    with engine.connect() as connection, closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        made = plain(iter(file.execute(query)))
        wanted = plain((row[0], row[1]) for row in connection.exec_driver_sql(query))
    engine.dispose()
    assert made == wanted


async def test_setup_twice_changes_nothing(url: str) -> None:
    """`setup` does nothing if the tables are there."""
    store = create(url)
    await store.setup()
    async with store:
        await store.add([make_draft(id="kept")])
    await store.setup()
    async with store:
        assert await store.get("kept") is not None


async def test_stores_of_two_prefixes_share_a_file(url: str) -> None:
    """Tables of another prefix are another store."""
    async with create(url, table_prefix="a_") as one, create(url, table_prefix="b_") as other:
        await one.add([make_draft(id="mine")])
        assert await other.get("mine") is None


async def test_a_newer_schema_is_refused(url: str) -> None:
    """A schema that needs newer code is refused, saying what to upgrade."""
    await create(url).setup()
    execute(url, "UPDATE coatcheck_meta SET number = 99 WHERE name IN ('schema', 'readable_by')")
    with pytest.raises(SchemaOutdated, match=r"schema 99.*upgrade coatcheck-store-sql"):
        await create(url).open()


async def test_a_newer_schema_that_this_code_can_use_is_used(url: str) -> None:
    """Workers of version N and N-1 run together: what was only added is left alone."""
    await create(url).setup()
    execute(url, f"UPDATE coatcheck_meta SET number = {SCHEMA_VERSION + 1} WHERE name = 'schema'")
    execute(url, "ALTER TABLE coatcheck_task ADD COLUMN later TEXT")
    async with create(url) as store:
        await store.add([make_draft(id="fine")])
        assert await store.get("fine") is not None


async def test_files_of_other_programs_are_left_alone(url: str) -> None:
    """A database that holds other tables gets ours beside them."""
    execute(url, "CREATE TABLE invoices (id INTEGER)")
    async with create(url) as store:
        await store.add([make_draft()])
    execute(url, "INSERT INTO invoices VALUES (1)")


def test_opening_an_existing_store_does_not_load_alembic(url: str) -> None:
    """What is needed once costs nothing every time."""
    asyncio.run(create(url).setup())
    code = f"""
import asyncio, sys
from coatcheck_store_sql import create
async def run():
    async with create({url!r}) as store:
        await store.now()
asyncio.run(run())
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
