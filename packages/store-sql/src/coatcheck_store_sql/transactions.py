"""Joining a caller's SQLAlchemy transaction: the task is there if, and only if, their own rows are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import greenlet_spawn

from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck_store_sql.bell import Bell
from coatcheck_store_sql.dialects import Dialect, original
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

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what is done inside if it fails, and nothing else of the caller's transaction.

        Raises:
            StoreUnavailable: the server has rolled back all of the transaction, as MySQL does to end a deadlock.
                What the caller does with the connection fails until they have rolled it back, too, lest a half of
                their work be committed.
        """
        nested = self._connection.begin_nested()
        try:
            yield
        except BaseException as error:
            try:
                nested.rollback()
            except SQLAlchemyError as gone:
                self._connection.invalidate(gone)
                message = (
                    f"the server has rolled back all of the caller's transaction ({original(error)}); roll it back "
                    "here, too, and repeat it"
                )
                raise StoreUnavailable(message) from error
            raise
        nested.commit()


def join(
    transaction: object,
    work: Callable[[JoinedConnection], T],
    *,
    place: URL,
    dialect: Dialect,
    bell: Bell,
) -> T:
    """Do `work` on a synchronous session or connection, in this thread; ring once it commits.

    Raises:
        ConfigurationError: it is no session or connection, one of another database than `place`, or one without
            transactions.
        StoreUnavailable: the database cannot do it now, mostly because of what others do; the caller's transaction
            stands as it was, unless the message says otherwise.
    """
    if isinstance(transaction, scoped_session):
        transaction = transaction()
    if isinstance(transaction, Session):
        connection = transaction.connection()
    elif isinstance(transaction, Connection):
        connection = transaction
    else:
        raise ConfigurationError(_wanted(transaction))
    _check_same_place(connection, place)
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        message = "the connection commits every statement by itself (AUTOCOMMIT), so there is no transaction to join"
        raise ConfigurationError(message)
    try:
        done = work(JoinedConnection(connection))
    except SQLAlchemyError as error:
        if not dialect.is_busy(original(error)):
            raise
        raise StoreUnavailable(_advice(dialect, error)) from error
    if isinstance(transaction, Session):
        _ring_after(transaction, ("after_commit",), ("after_rollback",), bell.ring)
    else:
        # a connection tells of its commit right before it
        commits, rollbacks = ("commit", "commit_twophase"), ("rollback", "rollback_twophase")
        _ring_after(connection, commits, rollbacks, bell.ring_around)
    return done


async def join_async(transaction: object, work: Callable[[object], T]) -> T:
    """Do `work` with the synchronous side of a session or connection, whichever kind it is.

    Raises:
        ConfigurationError: it is no session or connection.
    """
    if isinstance(transaction, async_scoped_session):
        transaction = transaction()
    if isinstance(transaction, (AsyncSession, AsyncConnection)):
        return await transaction.run_sync(work)
    return await greenlet_spawn(work, transaction)


def _advice(dialect: Dialect, error: SQLAlchemyError) -> str:
    if dialect.concurrent:
        return (
            f"the caller's transaction cannot add tasks now ({original(error)}); it stands as it was before. Roll it "
            "back and repeat it; with the isolation level READ COMMITTED this is seldom needed"
        )
    return (
        "the caller's transaction cannot write now: another connection has written since it began to read, "
        "or holds the lock. Roll it back and repeat it; beginning it with BEGIN IMMEDIATE prevents this"
    )


# ------------------------------------------------------------------ ringing at the commit

_Pending = set[Callable[[], None]]
_pending: WeakKeyDictionary[Session | Connection, _Pending] = WeakKeyDictionary()
"""What to call when they commit; each is listened to once, however often it is joined."""


def _ring_after(
    target: Session | Connection, commits: Sequence[str], rollbacks: Sequence[str], ring: Callable[[], None]
) -> None:
    pending = _pending.get(target)
    if pending is None:
        pending = _pending[target] = set()
        for name in commits:
            event.listen(target, name, _Ringing(pending))
        for name in rollbacks:
            event.listen(target, name, _Forgetting(pending))
    pending.add(ring)


class _Ringing:
    """Rings at the end of a transaction, not at that of a savepoint."""

    def __init__(self, pending: _Pending) -> None:
        self._pending = pending

    def __call__(self, target: Session | Connection, *_: object) -> None:
        if isinstance(target, Session) and target.in_nested_transaction():
            return
        rings = tuple(self._pending)
        self._pending.clear()
        for ring in rings:
            ring()


class _Forgetting:
    """Rings no more for what was rolled back."""

    def __init__(self, pending: _Pending) -> None:
        self._pending = pending

    def __call__(self, target: Session | Connection, *_: object) -> None:
        if not (isinstance(target, Session) and target.in_nested_transaction()):
            self._pending.clear()


# ------------------------------------------------------------------ checking


def _wanted(transaction: object) -> str:
    return (
        f"transaction must be a SQLAlchemy Session, Connection, AsyncSession or AsyncConnection, not "
        f"{transaction!r}"
    )


def _check_same_place(connection: Connection, place: URL) -> None:
    url = connection.engine.url
    if _kind(url) == _kind(place) and _same_database(url, place):
        return
    message = (
        f"the transaction to join is on {url.render_as_string(hide_password=True)}, but this store is on "
        f"{place.render_as_string(hide_password=True)}; tasks join transactions of the database that they are in"
    )
    raise ConfigurationError(message)


def _kind(url: URL) -> str:
    return url.get_backend_name().replace("mariadb", "mysql")


def _same_database(one: URL, other: URL) -> bool:
    """Whether both name the same file, or a database of the same name: a server may go by several names.

    An engine that connects by a function of its maker's may name none.
    """
    if _kind(one) != "sqlite":
        return one.database is None or one.database == other.database
    if not one.database or not other.database:
        return one.database == other.database
    return Path(one.database).resolve() == Path(other.database).resolve()
