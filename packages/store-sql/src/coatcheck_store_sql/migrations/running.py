"""Runs the scripts in `versions`: on a connection, within somebody else's migration, or into a text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, Table, func, inspect, literal_column, select, update
from sqlalchemy.schema import CreateSchema

from coatcheck.errors import ConfigurationError
from coatcheck_store_sql.migrations import versions
from coatcheck_store_sql.schema import Schema

__all__ = ["Scripts", "run", "run_in", "scripts_of", "text_of"]

Scripts = Mapping[int, ModuleType]
"""What makes each version of the one before. A script has ``upgrade()``, and may have ``readable_by``: the version
that code has to know at least to work on what it makes; by default its own. What a script adds has to be nullable or
have a default, if older code is to go on. ``makes`` names the tables that it creates, without the prefix: an upgrade
that was interrupted may have left some of them."""

_NAME = re.compile(r"v(\d{4})_\w+")
_DIALECTS = ("postgresql", "mysql", "mariadb", "sqlite")


def scripts_of(package: ModuleType) -> Scripts:
    """Return the scripts in a package, by the number in their names."""
    names = sorted(module.name for module in iter_modules(package.__path__) if _NAME.fullmatch(module.name))
    return {int(name[1:5]): import_module(f"{package.__name__}.{name}") for name in names}


def run(connection: Connection, schema: Schema, since: int, scripts: Scripts | None = None) -> None:
    """Bring tables of version `since` up to date on a connection.

    Raises:
        ConfigurationError: there are tables that are not ours, or not whole, under the names of ours.
    """
    chosen = scripts or scripts_of(versions)
    wanted = _between(chosen, since, max(chosen))
    tables: Iterable[Table] = schema.metadata.tables.values()
    if since:
        made = {
            f"{schema.prefix}{name}" for script in wanted.values() for name in getattr(script, "makes", ())
        }
        tables = [table for table in tables if table.name in made]
    _clear(connection, schema, tables)
    context = MigrationContext.configure(connection, opts=_options(schema))
    with Operations.context(context) as op:
        _run(op, schema, wanted)


def run_in(op: Any, schema: Schema, since: int, to: int) -> None:  # noqa: ANN401 - a module of Alembic's
    """Run the scripts within a migration of somebody else's Alembic environment.

    Raises:
        ConfigurationError: there is no way from the one version to the other.
    """
    scripts = _between(scripts_of(versions), since, to)
    options = op.get_context().opts
    before = dict(options)
    options.update(_options(schema))
    try:
        if not since:
            _create_schema(op, schema)
        _run(op, schema, scripts)
    finally:
        options.clear()
        options.update(before)


def text_of(dialect: str, schema: Schema, since: int, to: int) -> str:
    """Return the SQL that the scripts would run.

    Raises:
        ConfigurationError: the dialect is not served, or there is no way from the one version to the other.
    """
    if dialect not in _DIALECTS:
        message = f"there is no SQL for {dialect!r}; there is for {', '.join(_DIALECTS)}"
        raise ConfigurationError(message)
    scripts = _between(scripts_of(versions), since, to)
    text = io.StringIO()
    options = {**_options(schema), "as_sql": True, "output_buffer": text}
    context = MigrationContext.configure(dialect_name=dialect, opts=options)
    with Operations.context(context) as op:
        if not since:
            _create_schema(op, schema)
        _run(op, schema, scripts)
    return text.getvalue()


def _options(schema: Schema) -> dict[str, Any]:
    return {"table_prefix": schema.prefix, "table_schema": schema.metadata.schema}


def _between(scripts: Scripts, since: int, to: int) -> Scripts:
    wanted = range(since + 1, to + 1)
    if not wanted or set(wanted) - scripts.keys():
        message = (
            f"there is no way from schema {since} to {to}; this version of coatcheck-store-sql knows schema "
            f"{max(scripts)}, and the way up to it from any before"
        )
        raise ConfigurationError(message)
    return {number: scripts[number] for number in wanted}


def _run(op: Any, schema: Schema, scripts: Scripts) -> None:  # noqa: ANN401 - a module of Alembic's
    meta = schema.meta
    for number, script in scripts.items():
        script.upgrade()
        made = {"schema": number, "readable_by": getattr(script, "readable_by", number)}
        for name, value in made.items():
            # as literals: it may become a text
            wanted = meta.c.name == literal_column(f"'{name}'")
            op.execute(update(meta).where(wanted).values(number=literal_column(str(value))))


def _create_schema(op: Any, schema: Schema) -> None:  # noqa: ANN401 - a module of Alembic's
    name = schema.metadata.schema
    if name is not None and op.get_context().dialect.name == "postgresql":
        op.execute(CreateSchema(name, if_not_exists=True))


def _clear(connection: Connection, schema: Schema, tables: Iterable[Table]) -> None:
    """Remove tables that a setup has left that was interrupted, where making them cannot be rolled back.

    Raises:
        ConfigurationError: it is more than empty tables.
    """
    if connection.dialect.name not in {"mysql", "mariadb"}:
        return
    there = set(inspect(connection).get_table_names())
    left = [table for table in tables if table.name in there]
    for table in left:
        if table is not schema.meta and connection.scalar(select(func.count()).select_from(table)):
            message = (
                f"the table {table.name} has rows, but by {schema.meta.name} it is yet to be made; restore "
                f"{schema.meta.name}, or use another table_prefix"
            )
            raise ConfigurationError(message)
    for table in left:
        table.drop(connection)
