"""Joining a caller's SQLAlchemy transaction: the task is there if, and only if, their own rows are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.statements import Statement

__all__ = ["JoinedConnection", "join", "join_async"]

T = TypeVar("T")


class JoinedConnection:
    """Runs statements through a caller's SQLAlchemy connection, inside the caller's transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return [tuple(row) for row in self._connection.execute(statement.construct, given)]  # type: ignore[call-overload]  # a select

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of `given`."""
        self._connection.execute(statement.construct, list(given))  # type: ignore[call-overload]  # any construct


def join(
    transaction: object,
    work: Callable[[JoinedConnection], T],
    *,
    place: str,
    dialect: Dialect,
    on_commit: Callable[[], None],
) -> T:
    """Do `work` on a synchronous session or connection, in this thread; call `on_commit` once it commits.

    Raises:
        ConfigurationError: it is no session or connection, or one of another database than `place`.
        StoreUnavailable: the database is locked by somebody else; the caller's transaction stands as it was.
    """
    if isinstance(transaction, scoped_session):
        transaction = transaction()
    if isinstance(transaction, Session):
        connection = transaction.connection()
        event.listen(transaction, "after_commit", lambda _session: on_commit(), once=True)
    elif isinstance(transaction, Connection):
        connection = transaction
        event.listen(connection, "commit", lambda _connection: on_commit(), once=True)
    else:
        raise ConfigurationError(_wanted(transaction))
    _check_same_place(connection, place)
    try:
        return work(JoinedConnection(connection))
    except SQLAlchemyError as error:
        if not dialect.is_busy(error):
            raise
        message = (
            "the caller's transaction cannot write now: another connection has written since it began to read, "
            "or holds the lock. Roll it back and repeat it; beginning it with BEGIN IMMEDIATE prevents this"
        )
        raise StoreUnavailable(message) from error


async def join_async(transaction: object, work: Callable[[object], T]) -> T:
    """Do `work` with the synchronous side of a session or connection, whichever kind it is.

    Raises:
        ConfigurationError: it is no session or connection.
    """
    if isinstance(transaction, async_scoped_session):
        transaction = transaction()
    if isinstance(transaction, (AsyncSession, AsyncConnection)):
        return await transaction.run_sync(work)
    return work(transaction)


def _wanted(transaction: object) -> str:
    return (
        f"transaction must be a SQLAlchemy Session, Connection, AsyncSession or AsyncConnection, not "
        f"{transaction!r}"
    )


def _check_same_place(connection: Connection, place: str) -> None:
    url = connection.engine.url
    if url.get_backend_name() != "sqlite" or not url.database or not _same_file(url.database, place):
        message = (
            f"the transaction to join is on {url.render_as_string(hide_password=True)}, but this store is on "
            f"{place}; tasks join transactions of the database that they are in"
        )
        raise ConfigurationError(message)


def _same_file(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()
