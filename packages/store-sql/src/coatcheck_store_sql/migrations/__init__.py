"""Creating and upgrading the schema. Alembic is imported only when there is something to do."""

from __future__ import annotations

import random
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from coatcheck.errors import SchemaOutdated, StoreUnavailable
from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.schema import SCHEMA_VERSION, Schema
from coatcheck_store_sql.settings import SqlSettings

__all__ = ["schema_version", "upgrade_schema"]


def schema_version(connection: Connection, schema: Schema) -> int:
    """Return which version the tables have; 0 if there are none.

    Raises:
        SchemaOutdated: they were made by a newer version of coatcheck, for which this one is too old.
    """
    meta = schema.meta
    if not inspect(connection).has_table(meta.name):
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


def upgrade_schema(engine: Engine, dialect: Dialect, schema: Schema, settings: SqlSettings) -> None:
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


def _upgrade(connection: Connection, dialect: Dialect, schema: Schema) -> None:
    from alembic import command  # noqa: PLC0415 - costs more than all the rest, and is seldom needed
    from alembic.config import Config  # noqa: PLC0415

    connection.exec_driver_sql(dialect.begin_writing)
    try:
        # somebody else may have done it while this process waited for the lock
        if schema_version(connection, schema) < SCHEMA_VERSION:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent))
            config.attributes.update(connection=connection, table_prefix=schema.prefix)
            command.upgrade(config, "head")
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")
