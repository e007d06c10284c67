"""PostgreSQL 14 and later, through asyncpg or psycopg."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    String,
    Table,
    bindparam,
    case,
    column,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    null,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql import visitors
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.elements import BindParameter, ClauseElement

from coatcheck.store import Capability
from coatcheck_store_sql.dialects import Guard
from coatcheck_store_sql.literals import spelled
from coatcheck_store_sql.postgresql_arrays import array, joined
from coatcheck_store_sql.postgresql_claims import ClaimStatements, seen, turn_of_mark
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.server_dialect import ServerDialect
from coatcheck_store_sql.statement import Statement, parameters_of

if TYPE_CHECKING:
    from coatcheck_store_sql.settings import SqlSettings
    from coatcheck_store_sql.sight import Ask, Sight, Turn
    from coatcheck_store_sql.step import Step

__all__ = ["PostgresqlDialect", "make_dialect"]

_LANE_LOCKS = 256
"""Over how many advisory locks the lanes are spread: a step may meet ten thousand lanes, and locks are few."""
_FIRST_LANE_LOCK = 16
_SETUP_LOCK = 15
_CHARACTERS = 8_000_000
"""How many characters one statement writes, about."""

_PASSING = frozenset({"40001", "40P01", "55P03", "57014", "23505"})
"""Serialization failure, deadlock, lock not available, statement too slow; and a key that another step has just
taken."""
_OURS = frozenset({"22", "23", "42"})
"""Classes of errors that only a fault in this code can bring about: data, integrity, syntax; but for missing tables."""
_AWAY = frozenset({"57P01", "57P02", "57P03", "57P05", "25006", "25P03", "53300", "55000", "0A000"})
"""Shutting down, crashing, starting up, idle for too long, read only, too many connections; and what a standby says
to who wants to write, and a session whose plans a migration has made invalid."""
_UNANSWERED = frozenset({"InterfaceError", "OperationalError", "InternalClientError", "ProtocolError"})
"""What the drivers raise without a code when the connection is lost."""


class PostgresqlDialect(ServerDialect):
    """PostgreSQL: row locks, advisory locks, arrays of values in one statement, the server's clock."""

    name = "postgresql"
    promises = frozenset({Capability.NOTIFIES})
    announces = True

    def __init__(self, compiler: Compiler, schema: Schema, settings: SqlSettings) -> None:
        """Compile for the driver of `compiler`."""
        super().__init__(compiler, schema, settings)
        place = f"{settings.schema or ''}.{settings.table_prefix}"
        self._space = zlib.crc32(place.encode()) - 2**31
        """What tells this store's advisory locks from those of others in the same database."""
        self.channel = f"coatcheck_{zlib.crc32(place.encode()):08x}"
        """Where work that is new is announced."""

    # -------------------------------------------------------------- statements

    def begin(self, *, shared: bool) -> str:
        """Begin a step. All that is set ends with the transaction, since the session may be a pooler's."""
        milliseconds = self.statement_milliseconds
        guards = ", ".join(f"pg_advisory_xact_lock_shared({self._space}, {int(guard)})" for guard in Guard)
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL statement_timeout = {milliseconds}; "
            f"SET LOCAL lock_timeout = {milliseconds}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}; "
            # all statements go by an index; statistics of a table that was small a moment ago mislead
            "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
        ) + (f"; SELECT {guards}" if shared else "")

    @property
    def begin_reading(self) -> str:
        """Begin a read of one snapshot."""
        return (
            "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
            f"SET LOCAL statement_timeout = {self.statement_milliseconds}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {self.statement_milliseconds}; "
            "SET LOCAL jit = off"
        )

    @cached_property
    def clock(self) -> Statement:
        """The server's time, in microseconds since 1970."""
        return self.statement(
            text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint"),
        )

    def batched(self, construct: ClauseElement) -> ClauseElement:
        """Take each parameter from an array, of all arrays side by side."""
        types = parameters_of(construct)
        rows = (
            func.unnest(*(array(name, type_) for name, type_ in types.items()))
            .table_valued(*(column(name, type_) for name, type_ in types.items()))
            .render_derived(name="given")
        )

        def replace(element: Any, **_: Any) -> Any:  # noqa: ANN401 - any part of a statement
            if isinstance(element, BindParameter) and element.required:
                return rows.c[element.key]
            return None

        if isinstance(construct, Insert):
            return _insert_of(construct, rows, replace)
        assert isinstance(construct, (Update, Delete))  # noqa: S101 - nothing else is run for many
        return cast("ClauseElement", visitors.replacement_traverse(construct, {}, replace))

    def batches(
        self, statement: Statement, given: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield one text for all; several, if there is much to be written."""
        if len(given) == 1:
            yield statement.sql, statement.ordered(given[0])
            return
        many = statement.many
        columns = {name: joined([each[name] for each in given]) for name in given[0]}
        if None in columns.values() or sum(map(len, filter(None, columns.values()))) > _CHARACTERS:
            half = len(given) // 2
            yield from self.batches(statement, given[:half])
            yield from self.batches(statement, given[half:])
            return
        yield many.sql, many.ordered(columns)

    def among(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """Match an array."""
        return column == func.any(array(name, column.type))

    def as_set(self, values: Sequence[Any]) -> object:
        """Pass an array, see `joined`; without texts that cannot be in one, since no row has them."""
        text = joined(values)
        return text if text is not None else joined([each for each in values if each.isprintable()])

    def insert_if_new(self, table: Table) -> Insert:
        """Insert on conflict do nothing."""
        return postgresql.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table) -> Insert:
        """Insert on conflict do update."""
        made = postgresql.insert(table)
        others = {each.name: made.excluded[each.name] for each in table.c if not each.primary_key}
        return made.on_conflict_do_update(index_elements=list(table.primary_key), set_=others)

    @cached_property
    def announcement(self) -> Statement:
        """Tell everybody who listens that there is work."""
        return self.statement(select(func.pg_notify(literal(self.channel), literal(""))))

    @cached_property
    def _bound(self) -> Statement:
        limit = f"{self.statement_milliseconds}ms"
        held = func.current_setting("lock_timeout")
        return self.statement(
            select(
                held,
                func.set_config(
                    "lock_timeout", case((held == "0", limit), else_=held), literal_column("true")
                ),
            )
        )

    @cached_property
    def _unbound(self) -> Statement:
        return self.statement(
            select(func.set_config("lock_timeout", bindparam("limit", type_=String), literal_column("true")))
        )

    now_text = "SELECT (extract(epoch from clock_timestamp()) * 1000)::bigint"
    takes_scripts = True

    def spelled(self, sql: str, values: Sequence[Any]) -> str:
        """Write the values out."""
        return spelled(sql, values, numbered=self._compiler.paramstyle == "numeric_dollar")

    @contextmanager
    def bounded(self, step: Step) -> Iterator[None]:
        """Set a timeout for locks, unless the caller has; a rollback to the savepoint sets it back, too."""
        ((held, _),) = step.rows(self._bound)
        yield
        step.rows(self._unbound, limit=held)

    # -------------------------------------------------------------- claims

    def name_of(self, table: Table) -> str:
        """Return how a statement names a table."""
        return str(self._compiler.identifier_preparer.format_table(table))

    @cached_property
    def claims(self) -> ClaimStatements:
        """What claims ask."""
        return ClaimStatements(self)

    def look(self, step: Step, kind: str, handlers: Collection[str], limit: int, most: int) -> Sight | None:
        """Look at everything in one round trip."""
        asked = self.claims.looks[kind]
        now = step.now_ms if step.timed or self.settings.clock is not None else None
        given = {"handlers": self.as_set(list(handlers)), "now": now, "limit": limit, "most": most}
        sight, micros = seen(step.rows(asked, **given))
        if now is None:
            step.tell_time(micros)
        return sight

    def next_turns(self, step: Step, asks: Sequence[Ask], bound: str) -> Iterable[Turn]:
        """Ask all lanes in one round trip."""
        lanes, turns, limits = map(self.as_set, zip(*asks, strict=True))
        rows = step.rows(self.claims.next_turns, lanes=lanes, turns=turns, limits=limits, bound=bound)
        return map(turn_of_mark, rows)

    def lock_gates(self, step: Step, names: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Lock them, and read the clock in the same round trip."""
        rows = list(step.rows_among(self.claims.gates_and_time, "names", names))
        if rows and self.settings.clock is None:
            step.tell_time(rows[-1][-1])
        elif rows:
            step.look_at_clock()
        return [tuple(row)[:-1] for row in rows]

    # -------------------------------------------------------------- locks

    @cached_property
    def _enter(self) -> Statement:
        keys = func.unnest(bindparam("keys", type_=ARRAY(Integer))).table_valued(column("key", Integer))
        keys = keys.render_derived(name="given")
        return self.statement(select(func.pg_advisory_xact_lock_shared(self._space_of(), keys.c.key)))

    @cached_property
    def _take(self) -> Statement:
        lane = self.schema.lane
        lock = literal(_FIRST_LANE_LOCK) + lane.c.id % _LANE_LOCKS
        may_raise = func.pg_try_advisory_xact_lock(self._space_of(), lock.cast(Integer))
        return self.statement(
            select(lane.c.id, may_raise)
            .where(self.among(lane.c.id, "ids"))
            .order_by(lane.c.id)
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def _alone(self) -> Statement:
        return self.statement(
            select(func.pg_advisory_xact_lock(self._space_of(), bindparam("guard", type_=Integer)))
        )

    def _space_of(self) -> ColumnElement[int]:
        return literal(self._space, Integer)

    def enter_lanes(self, step: Step, lanes: Collection[int]) -> None:
        """Share the lanes' advisory locks."""
        keys = sorted({_FIRST_LANE_LOCK + lane % _LANE_LOCKS for lane in lanes})
        if keys:
            step.run(self._enter, keys=keys)

    def take_lanes(self, step: Step, lanes: Collection[int]) -> dict[int, bool]:
        """Lock rows that are not locked; try the lanes' advisory locks alone."""
        return dict(step.rows_among(self._take, "ids", sorted(lanes)))

    def alone(self, step: Step, guard: Guard) -> None:
        """Take the advisory lock alone."""
        step.rows(self._alone, guard=int(guard))

    @contextmanager
    def alone_in_schema(self, connection: Connection) -> Iterator[None]:
        """Take an advisory lock until the transaction ends; make the schema, if it is to be another than the usual."""
        with connection.begin_nested() if connection.in_transaction() else connection.begin():
            connection.execute(select(func.pg_advisory_xact_lock(self._space, _SETUP_LOCK)))
            schema = self.settings.schema
            if schema is not None and schema not in inspect(connection).get_schema_names():
                connection.execute(CreateSchema(schema, if_not_exists=True))
            yield

    # -------------------------------------------------------------- errors

    def code_of(self, error: BaseException) -> str:
        """Return the SQLSTATE."""
        return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")

    def is_passing(self, error: BaseException) -> bool:
        """Whether the step may be repeated on the same connection."""
        return self.code_of(error) in _PASSING

    def is_fault(self, error: BaseException) -> bool:
        """Whether it is the database's error; a statement or value that it does not take is this code's."""
        code = self.code_of(error)
        return self.is_lost(error) or (bool(code) and (code[:2] not in _OURS or code == "42P01"))

    def is_away(self, error: BaseException) -> bool:
        """Whether the server is away, or cannot be written to at the moment."""
        code = self.code_of(error)
        return code in _AWAY or code.startswith("08")

    def is_unanswered(self, error: BaseException) -> bool:
        """Whether the driver says without a code that the connection is lost or closed."""
        kind = type(error)
        driver = kind.__module__.partition(".")[0]
        return kind.__name__ in _UNANSWERED and driver in {"asyncpg", "psycopg"} and not self.code_of(error)


def _insert_of(construct: Insert, rows: Any, replace: Any) -> Insert:  # noqa: ANN401 - a table of parameters
    """Return an insert that selects from `rows`."""
    names: list[str] = []
    values: list[Any] = []
    for key, value in (construct._values or {}).items():  # noqa: SLF001 - there is no public way
        held = construct.table.c[key] if isinstance(key, str) else key
        names.append(held.name)
        if value is None:
            values.append(null())
        elif isinstance(value, BindParameter) and not value.required:
            values.append(literal(value.value, held.type))
        else:
            values.append(visitors.replacement_traverse(value, {}, replace))
    made = insert(construct.table).from_select(names, select(*values).select_from(rows))
    made._post_values_clause = construct._post_values_clause  # noqa: SLF001 - what to do on conflict
    return made


def make_dialect(engine: AsyncEngine, settings: SqlSettings) -> PostgresqlDialect:
    """Return the dialect for the driver of an engine."""
    made = type(engine.dialect)()
    if made.paramstyle == "pyformat":
        made = type(engine.dialect)(paramstyle="format")  # type: ignore[call-arg]  # all dialects take it
    return PostgresqlDialect(made, Schema(settings.table_prefix, settings.schema), settings)
