"""MySQL 8 and MariaDB 10.6 and later, through asyncmy or aiomysql."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, String, Table, bindparam, func, literal, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement

from coatcheck.errors import ConfigurationError, NotPersistable
from coatcheck_store_sql.dialects import Guard
from coatcheck_store_sql.mysql_batches import Each, Form, form_of, joined_with_rows
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.server_dialect import ServerDialect
from coatcheck_store_sql.statement import Statement

if TYPE_CHECKING:
    from coatcheck_store_sql.drivers import Driver
    from coatcheck_store_sql.settings import SqlSettings
    from coatcheck_store_sql.step import Step

__all__ = ["MysqlDialect", "make_dialect"]

_PASSING = frozenset({1205, 1213, 3572, 1062, 1020, 1317, 3024, 1969})
"""Lock wait too long, deadlock, locked already, a key that another step has just taken, record changed; statement
interrupted or too slow."""
_AWAY = frozenset(
    {1040, 1053, 1077, 1079, 1080, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1290, 1792, 1836, 1927}
)
"""Too many connections, shutting down, network errors, killed, and read only in its kinds."""
_LOST = range(2000, 2100)
"""The client's own errors."""
_OURS = frozenset({1048, 1054, 1064, 1146, 1264, 1265, 1364, 1366, 1406, 1452})
_SETS = "sets"
"""The parameter of `Each`: a set of parameters for every time that it is asked."""
_LEAST_PACKET_BYTES = 1 << 22
"""What servers take by default, or more; until one is asked."""
_REST_BYTES = 1 << 16
"""Room for the rest of a statement."""
_MOST_BYTES_FOR_ONE = 4
_ESCAPED = "\\'\"\n\r\0\x1a"
"""What the drivers put a backslash before."""
_SET = re.compile(r"\(__\[POSTCOMPILE_\w+\]\)")


class _Set(tuple[Any, ...]):
    """The values of a set; each gets a placeholder of its own."""

    __slots__ = ()


class MysqlDialect(ServerDialect):
    """MySQL and MariaDB: row locks, several rows in one statement, the server's clock in milliseconds."""

    name = "mysql"

    def __init__(self, compiler: Compiler, schema: Schema, settings: SqlSettings) -> None:
        """Compile for the driver of `compiler`."""
        super().__init__(compiler, schema, settings)
        seconds = max(1, self.statement_milliseconds // 1000)
        self._packet_bytes = _LEAST_PACKET_BYTES
        self._forms: dict[Statement, Form] = {}
        self.preparation = (
            # set for the session, which nobody shares; a clock in UTC knows no hour twice
            "SET SESSION time_zone = '+00:00', SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
            # a process that hangs in a transaction must not hold its locks for hours; MySQL has no timeout for just
            # that, so that there an idle connection is closed, too, which costs the next step a new one
            (
                f"SET SESSION innodb_lock_wait_timeout = {seconds}, SESSION wait_timeout = {seconds} "
                f"/*M! + 28800, SESSION idle_transaction_timeout = {seconds} */"
            ),
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET NAMES utf8mb4",
        )

    async def meet(self, driver: Driver) -> None:
        """Learn how long a statement may be."""
        ((self._packet_bytes,),) = await driver.rows("SELECT @@max_allowed_packet", ())

    # -------------------------------------------------------------- statements

    def begin(self, *, shared: bool) -> str:
        """Begin a step."""
        meta = self._name(self.schema.meta)
        guards = ", ".join(f"'{_guard_name(guard)}'" for guard in Guard)
        lock = f"; SELECT name FROM {meta} WHERE name IN ({guards}) LOCK IN SHARE MODE"  # noqa: S608 - names of ours
        return "START TRANSACTION" + (lock if shared else "")

    @property
    def begin_reading(self) -> str:
        """Begin a read of one snapshot."""
        return "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT"

    def _name(self, table: Table) -> str:
        return str(self._compiler.identifier_preparer.format_table(table))

    @cached_property
    def clock(self) -> Statement:
        """The server's time, in microseconds since 1970."""
        return self.statement(
            text("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))")
        )

    def compile(self, construct: ClauseElement) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        """Leave sets open: each has as many placeholders as values."""
        compiled = construct.compile(dialect=self._compiler)
        sql = _SET.sub("(%s)", str(compiled))
        return sql, tuple(getattr(compiled, "positiontup", None) or ()), compiled.params

    def text_of(self, statement: Statement, given: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
        """Return a statement's text with its values, with placeholders for the members of sets."""
        if isinstance(statement, Each):
            return statement.asked(given[_SETS])
        return _spread(statement.sql, statement.ordered(given))

    def batched(self, construct: ClauseElement) -> ClauseElement:
        """Join the table with rows of values; `batches` writes them in."""
        return joined_with_rows(construct)

    def batches(
        self, statement: Statement, given: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield one text for many rows."""
        if len(given) == 1:
            yield statement.sql, statement.ordered(given[0])
            return
        form = self._forms.get(statement)
        if form is None:
            form = self._forms[statement] = form_of(statement, self)
        yield from form.texts(given)

    def check_part(self, part: str, text: str) -> None:
        """Refuse what is no packet of the server."""
        room = self._packet_bytes - _REST_BYTES
        if len(text) * _MOST_BYTES_FOR_ONE <= room:
            return
        size = len(text.encode()) + sum(map(text.count, _ESCAPED))
        if size > room:
            raise NotPersistable(
                part,
                f"it takes {size} bytes, and the server takes no statement of more than {self._packet_bytes}: "
                "store a URL of it instead, or raise max_allowed_packet on the server",
            )

    def among(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """Match a list."""
        return column.in_(bindparam(name, expanding=True))

    def as_set(self, values: Sequence[Any]) -> object:
        """Pass a list."""
        return _Set(values)

    def insert_if_new(self, table: Table) -> Insert:
        """Set a column of an existing row to what it is; IGNORE would swallow other errors, too."""
        made = mysql.insert(table)
        first = next(iter(table.primary_key))
        return made.on_duplicate_key_update({first.name: first})

    def upsert(self, table: Table) -> Insert:
        """Insert on duplicate key update."""
        made = mysql.insert(table)
        return made.on_duplicate_key_update(
            {each.name: made.inserted[each.name] for each in table.c if not each.primary_key}
        )

    @cached_property
    def _session(self) -> Statement:
        return self.statement(text("SELECT @@SESSION.sql_mode, @@SESSION.character_set_client"))

    @cached_property
    def _set_mode(self) -> Statement:
        return self.statement(
            text("SET SESSION sql_mode = :mode").bindparams(bindparam("mode", type_=String))
        )

    @contextmanager
    def bounded(self, step: Step) -> Iterator[None]:
        """See that the caller's session cuts and replaces nothing; `innodb_lock_wait_timeout` bounds the waits.

        Raises:
            ConfigurationError: it cannot send every character.
        """
        ((mode, charset),) = step.rows(self._session)
        if charset != "utf8mb4":
            message = (
                f"the connection to join uses the character set {charset}, which does not have every character; "
                "connect with charset=utf8mb4"
            )
            raise ConfigurationError(message)
        if "STRICT_" in mode:
            yield
            return
        step.run(self._set_mode, mode=f"{mode},STRICT_ALL_TABLES".strip(","))
        try:
            yield
        except BaseException:
            with suppress(Exception):  # what was raised inside counts
                step.run(self._set_mode, mode=mode)
            raise
        step.run(self._set_mode, mode=mode)

    # -------------------------------------------------------------- lanes

    @cached_property
    def _first_turns(self) -> Each:
        task = self.schema.task
        first = (
            select(task.c.lane, task.c.seq, task.c.turn, task.c.expires_at)
            .with_hint(
                task, f"FORCE INDEX (`{self.schema.prefix}task_turn`)"
            )  # a sort would lock the whole lane
            .where(task.c.lane == bindparam("lane"), task.c.turn >= bindparam("turn"))
            .order_by(task.c.turn)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
        return Each(first, self)

    def first_turns(
        self, step: Step, heads: Mapping[int, str], limit: int
    ) -> Iterable[tuple[Any, ...]] | None:
        """Ask many lanes in one round trip."""
        given = [{"lane": lane, "turn": head, "limit": limit} for lane, head in heads.items()]
        return chain.from_iterable(
            step.rows(self._first_turns, **{_SETS: part}) for part in Each.parts(given)
        )

    # -------------------------------------------------------------- locks

    @cached_property
    def _enter(self) -> Statement:
        lane = self.schema.lane
        return self.statement(
            select(lane.c.id).where(self.among(lane.c.id, "ids")).order_by(lane.c.id).with_for_update()
        )

    @cached_property
    def _take(self) -> Statement:
        lane = self.schema.lane
        return self.statement(
            select(lane.c.id)
            .where(self.among(lane.c.id, "ids"))
            .order_by(lane.c.id)
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def _alone(self) -> Statement:
        meta = self.schema.meta
        return self.statement(select(meta.c.name).where(meta.c.name == bindparam("name")).with_for_update())

    def enter_lanes(self, step: Step, lanes: Collection[int]) -> None:
        """Lock the lanes' rows, in the order of their ids."""
        for _ in step.rows_among(self._enter, "ids", sorted(lanes)):
            pass

    def take_lanes(self, step: Step, lanes: Collection[int]) -> dict[int, bool]:
        """Lock rows that are not locked."""
        return {lane: True for (lane,) in step.rows_among(self._take, "ids", sorted(lanes))}

    def alone(self, step: Step, guard: Guard) -> None:
        """Lock the guard's row."""
        step.rows(self._alone, name=_guard_name(guard))

    @contextmanager
    def alone_in_schema(self, connection: Connection) -> Iterator[None]:
        """Hold a named lock of the server: statements that change a schema end transactions."""
        name = f"coatcheck:{connection.engine.url.database}:{self.schema.prefix}"[:64]
        wait = max(1, int(self.settings.timeout.total_seconds()))
        got = connection.scalar(select(func.get_lock(literal(name, String), wait)))
        if got != 1:
            message = f"the lock {name} was not to be had within {wait} s"
            raise TimeoutError(message)
        try:
            yield
            connection.commit()
        finally:
            connection.rollback()
            connection.scalar(select(func.release_lock(literal(name, String))))

    # -------------------------------------------------------------- errors

    @staticmethod
    def code_of(error: BaseException) -> int:
        """Return the server's number of an error; 0 if it has none."""
        number = error.args[0] if error.args else 0
        return number if isinstance(number, int) and _is_driver_error(error) else 0

    def is_passing(self, error: BaseException) -> bool:
        """Whether the step may be repeated on the same connection."""
        return self.code_of(error) in _PASSING

    def is_fault(self, error: BaseException) -> bool:
        """Whether it is the database's error; a statement or value that it does not take is this code's."""
        code = self.code_of(error)
        return self.is_lost(error) or (bool(code) and (code not in _OURS or code == 1146))  # noqa: PLR2004 - no table

    def is_away(self, error: BaseException) -> bool:
        """Whether the server is away, or cannot be written to at the moment."""
        return self.code_of(error) in _AWAY

    def is_unanswered(self, error: BaseException) -> bool:
        """Whether it is one of the client's own errors; "not connected" has no number in some drivers."""
        nameless = type(error).__name__ == "InterfaceError" and _is_driver_error(error)
        return self.code_of(error) in _LOST or (nameless and not self.code_of(error))


def _is_driver_error(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in {"pymysql", "asyncmy", "aiomysql", "MySQLdb", "mysql"}


def _guard_name(guard: Guard) -> str:
    return f"guard_{int(guard)}"


def _spread(sql: str, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Give each member of each set a placeholder."""
    sizes = [len(value) if isinstance(value, (list, _Set)) else 0 for value in values]
    if not any(sizes):
        return sql, tuple(values)
    marks = [", ".join(["%s"] * size) if size else "%s" for size in sizes]
    spread = "".join(chain.from_iterable(zip(sql.split("%s"), [*marks, ""], strict=True)))
    flat = chain.from_iterable(value if size else (value,) for value, size in zip(values, sizes, strict=True))
    return spread, tuple(flat)


def make_dialect(engine: AsyncEngine, settings: SqlSettings) -> MysqlDialect:
    """Return the dialect for the driver of an engine."""
    if settings.schema is not None:
        message = "a schema of MySQL is a database: name it in the URL, instead of the setting schema"
        raise ConfigurationError(message)
    made = type(engine.dialect)()
    return MysqlDialect(made, Schema(settings.table_prefix), settings)
