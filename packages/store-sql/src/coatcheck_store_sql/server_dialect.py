"""What the dialects of database servers have in common."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import Dialect as Compiler
from sqlalchemy.sql.elements import ClauseElement

from coatcheck.store import Capability
from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.script import NeedsAnswer
from coatcheck_store_sql.statement import Statement

if TYPE_CHECKING:
    from coatcheck_store_sql.drivers import Driver
    from coatcheck_store_sql.schema import Schema
    from coatcheck_store_sql.settings import SqlSettings
    from coatcheck_store_sql.step import Step

__all__ = ["ServerDialect"]


class ServerDialect(Dialect):
    """A database server, which several steps write to at once, and whose clock counts."""

    def __init__(self, compiler: Compiler, schema: Schema, settings: SqlSettings) -> None:
        """Compile for the driver of `compiler`, for the tables of `schema`."""
        self._compiler = compiler
        self.schema = schema
        self.settings = settings

    @property
    def statement_milliseconds(self) -> int:
        """How long one statement may take, and a transaction may be left lying: less than a call may."""
        return max(1, int(self.settings.timeout.total_seconds() * 1000 / 2))

    def statement(self, construct: ClauseElement) -> Statement:
        """Make a statement of a construct."""
        return Statement(construct, self)

    @abstractmethod
    def begin(self, *, shared: bool) -> str:
        """Return what begins a step that writes; `shared`: it holds every `Guard` together with others."""

    @property
    @abstractmethod
    def begin_reading(self) -> str:
        """Return what begins a read of one snapshot."""

    @property
    @abstractmethod
    def clock(self) -> Statement:
        """The server's time, in microseconds since 1970."""

    takes_scripts: ClassVar[bool] = False
    """Whether several statements can go as one text."""

    def spelled(self, sql: str, values: Sequence[Any]) -> str:
        """Return a statement with its values written out, for a text of several."""
        raise NeedsAnswer

    promises: ClassVar[frozenset[Capability]] = frozenset()
    """What it promises beyond what all servers do."""
    announces: ClassVar[bool] = False
    """Whether it passes announcements on."""
    channel: str = ""
    """Where."""

    @property
    def announcement(self) -> Statement | None:
        """What announces that there is work."""
        return None

    @contextmanager
    def bounded(self, step: Step) -> Iterator[None]:
        """Let no statement of a joined step wait for a lock without end; what the caller has set stands afterwards."""
        yield

    def announce_in(self, step: Step) -> None:
        """Let the caller's transaction announce the work that it makes when it is committed."""
        if self.announcement is not None:
            step.rows(self.announcement)

    def text_of(self, statement: Statement, given: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
        """Return a statement's text with its values."""
        one = statement.one
        return one.sql, one.ordered(given)

    preparation: tuple[str, ...] = ()
    """What is run once on each new connection."""

    async def meet(self, driver: Driver) -> None:
        """Learn from a new connection what the server is like."""

    @abstractmethod
    def alone_in_schema(self, connection: Connection) -> AbstractContextManager[None]:
        """Let only one process at a time look at the schema and change it."""

    # -------------------------------------------------------------- errors

    @abstractmethod
    def is_passing(self, error: BaseException) -> bool:
        """Whether the step was rolled back for a passing reason, and may be repeated at once."""

    @abstractmethod
    def is_away(self, error: BaseException) -> bool:
        """Whether the server said that it is away, or cannot be written to at the moment."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether the connection is lost, or never came to be."""
        return (
            self.is_away(error)
            or isinstance(error, (OSError, TimeoutError, asyncio.TimeoutError, EOFError))
            or self.is_unanswered(error)
        )

    @abstractmethod
    def is_unanswered(self, error: BaseException) -> bool:
        """Whether it is the driver's own way to say that the connection is lost."""

    def is_busy(self, error: BaseException) -> bool:
        """Whether trying again helps."""
        return self.is_passing(error) or self.is_lost(error)
