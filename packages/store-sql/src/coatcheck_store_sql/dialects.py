"""What differs between databases: how a step begins, how sets are matched, what an error means.

The rest of the package is written against `Dialect`; another database is another subclass.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Table, bindparam, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement

from coatcheck_store_sql.settings import SqlSettings

__all__ = ["Dialect", "SqliteDialect"]


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    """SQLAlchemy's name for it."""

    @abstractmethod
    def compile(self, construct: ClauseElement) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        """Return the SQL text, the names of its parameters in order, and the values that are fixed."""

    @abstractmethod
    def among(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """Return the condition that `column` is in the set given as parameter `name`, see `as_set`."""

    @abstractmethod
    def as_set(self, values: Sequence[Any]) -> object:
        """Return what to pass for a set of strings or integers, however many."""

    @abstractmethod
    def insert_if_new(self, table: Table) -> Insert:
        """Return an insert that leaves an existing row of the same key as it is."""

    @abstractmethod
    def upsert(self, table: Table) -> Insert:
        """Return an insert that replaces the other columns of an existing row of the same primary key."""

    @abstractmethod
    def prepare(self, connection: Connection, settings: SqlSettings) -> None:
        """Make a fresh connection fit for steps; its transactions begin and end with explicit statements."""

    begin_writing: ClassVar[str]
    """The statement that begins a step that writes."""
    begin_reading: ClassVar[str]
    """The statement that begins a consistent read."""

    @abstractmethod
    def is_busy(self, error: Exception) -> bool:
        """Whether the step failed only because another connection was at it, so that trying again helps."""

    @abstractmethod
    def is_fault(self, error: Exception) -> bool:
        """Whether the error is the database's own: it is away, full, damaged or locked."""


_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_HELD_FOR_MILLISECONDS = 60
"""How long SQLite itself waits for a lock, in growing naps, before the writer asks anew with short ones."""


class SqliteDialect(Dialect):
    """SQLite: one writer at a time, readers never wait, the clock is the host's."""

    name = "sqlite"
    begin_writing = "BEGIN IMMEDIATE"
    begin_reading = "BEGIN"

    def __init__(self) -> None:
        self._compiler: Compiler = sqlite.dialect(paramstyle="qmark")

    def compile(self, construct: ClauseElement) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        """Compile to the ``?`` style that sqlite3 takes."""
        compiled = construct.compile(dialect=self._compiler, compile_kwargs={"render_postcompile": True})
        return str(compiled), tuple(getattr(compiled, "positiontup", None) or ()), compiled.params

    def among(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """Match a JSON array, so that one statement serves sets of any size."""
        values = func.json_each(bindparam(name)).table_valued("value")
        return column.in_(select(values.c.value))

    def as_set(self, values: Sequence[Any]) -> object:
        """Write a JSON array."""
        return json.dumps(list(values))

    def insert_if_new(self, table: Table) -> Insert:
        """Insert on conflict do nothing."""
        return sqlite.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table) -> Insert:
        """Insert on conflict do update."""
        insert = sqlite.insert(table)
        others = {each.name: insert.excluded[each.name] for each in table.c if not each.primary_key}
        return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=others)

    def prepare(self, connection: Connection, settings: SqlSettings) -> None:
        """Set the pragmas: WAL, how durable, and a cache that holds a day's hot pages."""
        connection.execution_options(isolation_level="AUTOCOMMIT")
        # what is set here must not come back to a caller's pool
        connection.detach()
        for pragma in (
            f"busy_timeout = {_HELD_FOR_MILLISECONDS}",
            "journal_mode = WAL",
            f"synchronous = {settings.synchronous.upper()}",
            "cache_size = -32768",
            "temp_store = MEMORY",
            "wal_autocheckpoint = 4000",
            "journal_size_limit = 67108864",
        ):
            connection.exec_driver_sql(f"PRAGMA {pragma}")

    def is_busy(self, error: Exception) -> bool:
        """Whether SQLite said busy or locked, in any of their kinds."""
        code = getattr(_original(error), "sqlite_errorcode", None)
        return isinstance(code, int) and code & 0xFF in _BUSY

    def is_fault(self, error: Exception) -> bool:
        """Whether it is an error of the file, the disk or the lock, not of a statement."""
        return (
            isinstance(
                _original(error), (sqlite3.OperationalError, sqlite3.InterfaceError, sqlite3.InternalError)
            )
            or type(_original(error)) is sqlite3.DatabaseError
        )


def _original(error: Exception) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
