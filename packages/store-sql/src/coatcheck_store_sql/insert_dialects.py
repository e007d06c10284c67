"""How statements that a caller executes say it on each kind of database, without locking what others need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

from sqlalchemy import ColumnElement, case, literal, literal_column, select, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.dialects.mysql.mariadb import MariaDBDialect
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.sql.elements import ClauseElement

from coatcheck.errors import ConfigurationError
from coatcheck_store_sql.dialects import Dialect, SqliteDialect
from coatcheck_store_sql.lanes import Lane
from coatcheck_store_sql.places import SUBMIT
from coatcheck_store_sql.postgresql import PostgresqlDialect
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.settings import SqlSettings

__all__ = ["InsertDialect", "insert_dialect"]


class InsertDialect(ABC):
    """One kind of database."""

    concurrent: ClassVar[bool] = True
    """Whether several transactions can write at once."""
    announcement: ClauseElement | None = None
    """What announces that there is work, when the transaction commits."""

    def __init__(self, compiler: Compiler, schema: Schema) -> None:
        """Compile by `compiler`."""
        self._compiler = compiler
        self.schema = schema

    def compiled(self, construct: ClauseElement) -> tuple[str, tuple[Any, ...]]:
        """Return a statement's text, and its values in their order."""
        compiled = construct.compile(dialect=self._compiler)
        names = getattr(compiled, "positiontup", None) or ()
        return str(compiled), tuple(compiled.params[name] for name in names)

    @abstractmethod
    def lanes(self, lanes: Sequence[Lane]) -> Iterator[ClauseElement]:
        """Add the lanes that are new, with what belongs to them."""

    @abstractmethod
    def lane_id(self, lane: Lane, number: int) -> ColumnElement[int]:
        """Return the id of a lane, the one of that number among `lanes`."""

    @abstractmethod
    def rank_mode(self, mode: str) -> Iterator[ClauseElement]:
        """Let the store rank by this mode, if it has ranked by none."""

    @abstractmethod
    def if_mode(self, mode: str, value: str) -> ColumnElement[Any]:
        """Return the value, or null if the store ranks by another mode."""


class _Conflicts(InsertDialect):
    """SQLite and PostgreSQL: ON CONFLICT DO NOTHING, which locks no row that is there."""

    def __init__(self, compiler: Compiler, schema: Schema, dialect: Dialect) -> None:
        """Insert as `dialect` does."""
        super().__init__(compiler, schema)
        self._insert = dialect.insert_if_new

    def lanes(self, lanes: Sequence[Lane]) -> Iterator[ClauseElement]:
        """Insert what is not there."""
        schema = self.schema
        for lane in lanes:
            yield self._insert(schema.lane).values(
                digest=lane.digest, kind=lane.kind, handler_key=lane.handler_key, gates=lane.gates_text
            )
            yield self._insert(schema.attendance).values(handler_key=lane.handler_key, at=0)
            for gate in lane.gates if lane.kind == SUBMIT else ():
                found = select(literal(gate), schema.lane.c.id).where(schema.lane.c.digest == lane.digest)
                yield self._insert(schema.lane_gate).from_select(["gate", "lane"], found)

    def lane_id(self, lane: Lane, number: int) -> ColumnElement[int]:
        """Look it up."""
        table = self.schema.lane
        return select(table.c.id).where(table.c.digest == lane.digest).scalar_subquery()

    def rank_mode(self, mode: str) -> Iterator[ClauseElement]:
        """Insert it if there is none."""
        yield self._insert(self.schema.meta).values(name="rank_mode", text=mode)

    def if_mode(self, mode: str, value: str) -> ColumnElement[Any]:
        """Look it up."""
        meta = self.schema.meta
        found = select(literal(value)).where(meta.c.name == "rank_mode", meta.c.text == mode)
        return found.select_from(meta).scalar_subquery()


class _Sqlite(_Conflicts):
    concurrent = False


class _Variables(InsertDialect):
    """MySQL and MariaDB: what is there is looked up into variables of the session.

    A look-up within an insert, and an insert of what is there, would lock it until the caller commits.
    """

    def lanes(self, lanes: Sequence[Lane]) -> Iterator[ClauseElement]:
        """Look each up; insert it if it is not there."""
        schema, quote = self.schema, self._compiler.identifier_preparer.format_table
        lane_table, attendance, lane_gate = map(quote, (schema.lane, schema.attendance, schema.lane_gate))
        for number, lane in enumerate(lanes):
            this, new = f"@coatcheck_lane_{number}", f"@coatcheck_new_{number}"
            yield text(
                f"SELECT MAX(id), MAX(id) IS NULL INTO {this}, {new} FROM {lane_table} WHERE digest = :digest"  # noqa: S608 - names of ours
            ).bindparams(digest=lane.digest)
            yield text(
                f"INSERT INTO {lane_table} (digest, kind, handler_key, gates) "  # noqa: S608 - names of ours
                f"SELECT :digest, :kind, :handler, :gates FROM DUAL WHERE {new} "
                f"ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID({lane_table}.id)"
            ).bindparams(digest=lane.digest, kind=lane.kind, handler=lane.handler_key, gates=lane.gates_text)
            yield text(f"SELECT IF({new}, LAST_INSERT_ID(), {this}) INTO {this}")
            yield text(
                f"INSERT INTO {attendance} (handler_key, at) SELECT :handler, 0 FROM DUAL WHERE {new} "  # noqa: S608 - names of ours
                f"ON DUPLICATE KEY UPDATE handler_key = {attendance}.handler_key"
            ).bindparams(handler=lane.handler_key)
            for gate in lane.gates if lane.kind == SUBMIT else ():
                yield text(
                    f"INSERT INTO {lane_gate} (gate, lane) SELECT :gate, {this} FROM DUAL WHERE {new} "  # noqa: S608 - names of ours
                    f"ON DUPLICATE KEY UPDATE gate = {lane_gate}.gate"
                ).bindparams(gate=gate)

    def lane_id(self, lane: Lane, number: int) -> ColumnElement[int]:
        """Take it from its variable."""
        return cast("ColumnElement[int]", literal_column(f"@coatcheck_lane_{number}"))

    def rank_mode(self, mode: str) -> Iterator[ClauseElement]:
        """Look it up; insert it if there is none."""
        meta = self._compiler.identifier_preparer.format_table(self.schema.meta)
        found = "@coatcheck_mode"
        yield text(f"SELECT MAX(text) INTO {found} FROM {meta} WHERE name = 'rank_mode'")  # noqa: S608 - names of ours
        yield text(
            f"INSERT INTO {meta} (name, text) SELECT 'rank_mode', :mode FROM DUAL WHERE {found} IS NULL "  # noqa: S608 - names of ours
            f"ON DUPLICATE KEY UPDATE name = {meta}.name"
        ).bindparams(mode=mode)
        yield text(f"SELECT COALESCE({found}, :mode) INTO {found}").bindparams(mode=mode)

    def if_mode(self, mode: str, value: str) -> ColumnElement[Any]:
        """Compare with the variable."""
        return case((literal_column("@coatcheck_mode") == mode, value), else_=None)


_STYLES = {
    "sqlite": ("qmark", "format"),
    "postgresql": ("format", "numeric_dollar"),
    "mysql": ("format",),
    "mariadb": ("format",),
}


def insert_dialect(name: str, prefix: str, schema: str | None, paramstyle: str | None) -> InsertDialect:
    """Return the dialect of that name for a store's tables.

    Raises:
        ConfigurationError: there is none, it has no such placeholders, or a name is no name.
    """
    styles = _STYLES.get(name)
    if styles is None:
        message = f"there are no insert statements for {name!r}; there are for {', '.join(_STYLES)}"
        raise ConfigurationError(message)
    style: Any = paramstyle or styles[0]
    if style not in styles:
        message = f"the drivers of {name} take no {style!r} placeholders; they take {' or '.join(styles)}"
        raise ConfigurationError(message)
    settings = SqlSettings(table_prefix=prefix, schema=schema)
    tables = Schema(prefix, schema)
    if name == "sqlite":
        return _Sqlite(sqlite.dialect(paramstyle=style), tables, SqliteDialect())
    if name == "postgresql":
        compiler = postgresql.dialect(paramstyle=style)  # type: ignore[no-untyped-call]  # it has no types
        dialect = PostgresqlDialect(compiler, tables, settings)
        made = _Conflicts(compiler, tables, dialect)
        made.announcement = dialect.announcement.construct
        return made
    kind = MariaDBDialect if name == "mariadb" else mysql.dialect
    return _Variables(kind(paramstyle=style), tables)
