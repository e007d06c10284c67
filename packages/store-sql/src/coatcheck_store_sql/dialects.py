"""What differs between databases: how sets are matched, how much is written at once, what is locked.

The steps of the package are written against `Dialect`; another database is another subclass.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import ColumnElement, Connection, Table, bindparam, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement

from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.sight import Ask, Sight, Turn

if TYPE_CHECKING:
    from coatcheck_store_sql.statement import Statement
    from coatcheck_store_sql.step import Step

__all__ = ["Dialect", "Guard", "SqliteDialect", "original"]


class Guard(IntEnum):
    """What steps hold together and a few hold alone, until they are committed; see docs/decisions/0027."""

    COUNTING = 0
    "Held by steps that change how many slots tasks hold; alone by who counts them for a gate that is new."
    NAMING = 1
    "Held by steps that save external ids; alone by a nudge for an id that no task has."


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    """SQLAlchemy's name for it."""
    now_text: ClassVar[str] = ""
    """SQL for the server's time in milliseconds, where one statement asks all that `wait` looks at."""
    concurrent: ClassVar[bool] = True
    """Whether several steps can write at once."""

    _compiler: Compiler

    def compile(self, construct: ClauseElement) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        """Return the SQL text, the names of its parameters in order, and the values that are fixed."""
        compiled = construct.compile(dialect=self._compiler, compile_kwargs={"render_postcompile": True})
        return str(compiled), tuple(getattr(compiled, "positiontup", None) or ()), compiled.params

    def batched(self, construct: ClauseElement) -> ClauseElement:
        """Return what does the work of `construct` for many sets of parameters at once."""
        return construct

    @abstractmethod
    def batches(
        self, statement: Statement, given: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield texts with their values that run `statement` for each of `given`, in as few as is good."""

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

    def check_part(self, part: str, text: str) -> None:  # noqa: B027 - most take what there is
        """Refuse a long part of a task that the database would not take.

        Raises:
            NotPersistable: it is too long.
        """

    def first_turns(
        self, step: Step, heads: Mapping[int, str], limit: int
    ) -> Iterable[tuple[Any, ...]] | None:
        """Return what `turns` says of many lanes at once: lane, seq, turn, deadline; None if that has no use here."""
        return None

    def next_turns(self, step: Step, asks: Sequence[Ask], bound: str) -> Iterable[Turn]:
        """Lock and return the next turns of each lane that is asked, in any order, without what others have locked.

        Turns from `bound` on may be left out.
        """
        alike: dict[int, dict[int, str]] = {}
        for ask in asks:
            # a few sizes, so that few statements are needed
            size = ask.limit if len(asks) == 1 else 1 << (ask.limit - 1).bit_length()
            alike.setdefault(size, {})[ask.lane] = ask.turn
        for limit, lanes in alike.items():
            rows = self.first_turns(step, lanes, limit) if len(lanes) > 1 else None
            if rows is None:
                for lane, turn in lanes.items():
                    for found in step.rows(step.sql.turns, lane=lane, turn=turn, limit=limit):
                        yield Turn(lane, *found)
            else:
                yield from (Turn(*row) for row in rows)

    def look(self, step: Step, kind: str, handlers: Collection[str], limit: int, most: int) -> Sight | None:
        """Return what a claim is to see, see `looking`, in one round trip; None if that has no use here."""
        return None

    # -------------------------------------------------------------- locks

    def lock_gates(self, step: Step, names: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Lock the gates of these names, in this order; return their rows. The step's time is read after that."""
        rows = list(step.rows_among(step.sql.gates_by_name, "names", names))
        if rows:
            step.look_at_clock()
        return rows

    def enter_lanes(self, step: Step, lanes: Collection[int]) -> None:
        """Keep the heads of these lanes from being raised until this step, which lets tasks in, is committed."""
        return

    def take_lanes(self, step: Step, lanes: Collection[int]) -> dict[int, bool]:
        """Lock those of these lanes that nobody else has locked; return them, and whether their head may be raised."""
        return dict.fromkeys(lanes, True)

    def alone(self, step: Step, guard: Guard) -> None:
        """Wait until no other step is on its way that holds `guard`, and let none begin until this one is committed."""
        return

    # -------------------------------------------------------------- errors

    @abstractmethod
    def is_busy(self, error: BaseException) -> bool:
        """Whether the step failed only because another connection was at it, so that trying again helps."""

    @abstractmethod
    def is_fault(self, error: BaseException) -> bool:
        """Whether the error is the database's own: it is away, full, damaged or locked."""


_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_HELD_FOR_MILLISECONDS = 60
"""How long SQLite itself waits for a lock, in growing naps, before the writer asks anew with short ones."""


class SqliteDialect(Dialect):
    """SQLite: one writer at a time, readers never wait, the clock is the host's."""

    name = "sqlite"
    concurrent = False
    begin_writing: ClassVar[str] = "BEGIN IMMEDIATE"
    begin_reading: ClassVar[str] = "BEGIN"

    def __init__(self) -> None:
        """Compile to the ``?`` style that sqlite3 takes."""
        self._compiler = sqlite.dialect(paramstyle="qmark")

    def batches(
        self, statement: Statement, given: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield one for each: SQLite is called, not asked over a wire."""
        for each in given:
            yield statement.sql, statement.ordered(each)

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
        """Set the pragmas: WAL, how durable, and a cache that holds a day's hot pages.

        The transactions of the connection begin and end with explicit statements.
        """
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

    def is_busy(self, error: BaseException) -> bool:
        """Whether SQLite said busy or locked, in any of their kinds."""
        code = getattr(original(error), "sqlite_errorcode", None)
        return isinstance(code, int) and code & 0xFF in _BUSY

    def is_fault(self, error: BaseException) -> bool:
        """Whether it is an error of the file, the disk or the lock, not of a statement."""
        cause = original(error)
        return (
            isinstance(cause, (sqlite3.OperationalError, sqlite3.InterfaceError, sqlite3.InternalError))
            or type(cause) is sqlite3.DatabaseError
        )


def original(error: BaseException) -> BaseException:
    """Return the driver's error inside SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
