"""Creating and upgrading the tables: by `setup`, in your own Alembic migrations, or as SQL for a person to run.

`versions` holds a script for each version of the schema, written with Alembic's operations. The table `meta` says
which version there is, and which version code has to know at least. Alembic is imported only when there is
something to do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from coatcheck.errors import SchemaOutdated, StoreUnavailable
from coatcheck_store_sql.dialects import SqliteDialect
from coatcheck_store_sql.schema import SCHEMA_VERSION, Schema
from coatcheck_store_sql.server_dialect import ServerDialect
from coatcheck_store_sql.settings import SqlSettings

if TYPE_CHECKING:
    from alembic.operations import Operations

    from coatcheck_store_sql.migrations.running import Scripts

__all__ = [
    "drop_tables",
    "include_name",
    "schema_sql",
    "schema_version",
    "upgrade",
    "upgrade_schema",
    "upgrade_server",
]


def schema_version(connection: Connection, schema: Schema) -> int:
    """Return which version the tables have; 0 if there are none.

    Raises:
        SchemaOutdated: they were made by a newer version of coatcheck, for which this one is too old.
    """
    meta = schema.meta
    if not inspect(connection).has_table(meta.name, schema=meta.schema):
        return 0
    numbers = {row[0]: row[1] for row in connection.execute(select(meta.c.name, meta.c.number))}
    version = numbers.get("schema") or 0
    readable_by = numbers.get("readable_by") or version
    if readable_by > SCHEMA_VERSION:
        message = (
            f"the tables {schema.prefix}* have schema {version}, which needs code that knows schema "
            f"{readable_by}; this one knows {SCHEMA_VERSION}: upgrade coatcheck-store-sql here"
        )
        raise SchemaOutdated(message)
    return int(version)


# ------------------------------------------------------------------ by setup


def upgrade_schema(engine: Engine, dialect: SqliteDialect, schema: Schema, settings: SqlSettings) -> None:
    """Create the tables or bring them up to date, unless they are; several processes may do it at once.

    Raises:
        SchemaOutdated: they were made by a newer version of coatcheck.
        StoreUnavailable: the database cannot be opened or written.
    """
    deadline = time.monotonic() + settings.timeout.total_seconds()
    while True:
        try:
            with engine.connect() as connection:
                dialect.prepare(connection, settings)
                if schema_version(connection, schema) < SCHEMA_VERSION:
                    _upgrade(connection, dialect, schema)
        except SQLAlchemyError as error:
            if not dialect.is_busy(error) or time.monotonic() > deadline:
                message = f"the database cannot be opened, or its tables not be made: {error}"
                raise StoreUnavailable(message) from error
        else:
            return
        time.sleep(random.uniform(0.002, 0.02))  # noqa: S311 - a nap


def _upgrade(connection: Connection, dialect: SqliteDialect, schema: Schema) -> None:
    connection.exec_driver_sql(dialect.begin_writing)
    try:
        # somebody else may have done it while this process waited for the lock
        migrate(connection, schema)
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def upgrade_server(connection: Connection, dialect: ServerDialect, schema: Schema) -> None:
    """Create the tables of a server or bring them up to date, unless they are; one process at a time.

    Raises:
        SchemaOutdated: they were made by a newer version of coatcheck.
        ConfigurationError: there are tables that are not ours, or not whole, under the names of ours.
    """
    with dialect.alone_in_schema(connection):
        migrate(connection, schema)


def migrate(connection: Connection, schema: Schema, scripts: Scripts | None = None) -> None:
    """Bring the tables up to the last of the scripts, by default to what this code knows.

    Raises:
        SchemaOutdated: they were made by a newer version of coatcheck.
        ConfigurationError: see `upgrade_server`.
    """
    version = schema_version(connection, schema)
    if scripts is None and version >= SCHEMA_VERSION:
        return
    from coatcheck_store_sql.migrations import running  # noqa: PLC0415 - costs much, and is seldom needed

    running.run(connection, schema, version, scripts)


# ------------------------------------------------------------------ by others


def upgrade(
    op: Operations, *, since: int, to: int, table_prefix: str = "coatcheck_", schema: str | None = None
) -> None:
    """Create or upgrade coatcheck's tables in a migration of your own Alembic environment, online or offline.

    A migration never changes, so it names both versions: ``upgrade(op, since=0, to=2)`` makes the tables. When a
    new version of coatcheck-store-sql knows schema 3, another migration does ``upgrade(op, since=2, to=3)``.

    Args:
        op: ``alembic.op``.
        since: the version of the tables that are there; 0: none are.
        to: the version to make of them.
        table_prefix: the store's setting.
        schema: the store's setting.

    Raises:
        ConfigurationError: there is no way from the one version to the other here, or a name is no name.
    """
    from coatcheck_store_sql.migrations import running  # noqa: PLC0415

    SqlSettings(table_prefix=table_prefix, schema=schema)  # refuses what is no name
    running.run_in(op, Schema(table_prefix, schema), since, to)


def drop_tables(op: Operations, *, table_prefix: str = "coatcheck_", schema: str | None = None) -> None:
    """Drop coatcheck's tables, with all tasks, in the ``downgrade`` of a migration of your own.

    Args:
        op: ``alembic.op``.
        table_prefix: the store's setting.
        schema: the store's setting.
    """
    for table in reversed(Schema(table_prefix, schema).metadata.sorted_tables):
        op.drop_table(table.name, schema=schema, if_exists=True)


def include_name(
    table_prefix: str = "coatcheck_", schema: str | None = None
) -> Callable[[str | None, str, Mapping[str, str | None]], bool]:
    """Return an ``include_name`` for ``context.configure``, so that autogenerate leaves coatcheck's tables alone.

    Args:
        table_prefix: the store's setting.
        schema: the store's setting.
    """
    ours = {table.name for table in Schema(table_prefix).metadata.tables.values()}

    def include(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
        return not (type_ == "table" and name in ours and parent_names.get("schema_name") == schema)

    return include


def schema_sql(
    dialect: str,
    *,
    table_prefix: str = "coatcheck_",
    schema: str | None = None,
    since: int = 0,
    to: int = SCHEMA_VERSION,
) -> str:
    """Return the SQL that creates or upgrades the tables, for a person or a tool such as Flyway to run.

    It begins and ends no transaction; run it in one, except on MySQL, where such statements end transactions.

    Args:
        dialect: ``"postgresql"``, ``"mysql"``, ``"mariadb"`` or ``"sqlite"``.
        table_prefix: the store's setting.
        schema: the store's setting.
        since: the version of the tables that are there; 0: none are.
        to: the version to make of them.

    Raises:
        ConfigurationError: the dialect is none of these, there is no way between the versions, or a name is no name.
    """
    from coatcheck_store_sql.migrations import running  # noqa: PLC0415

    SqlSettings(table_prefix=table_prefix, schema=schema)
    return running.text_of(dialect, Schema(table_prefix, schema), since, to)
