"""Threads that own a connection: one that writes, gathering what waits into one commit, and some that read.

A driver call blocks, and handing each to a pool costs more than the call; so steps are functions that run
whole in the thread that has the connection. The writer takes everything that is waiting, runs it in one
transaction, and answers all after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from attrs import define, field
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from coatcheck.errors import CoatcheckError, StoreUnavailable
from coatcheck_store_sql.dialects import SqliteDialect
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.statements import Statement

__all__ = ["DriverConnection", "Reader", "Work", "Writer"]

T = TypeVar("T")

_GROUP = 128
"""How many steps one transaction takes at most, so that the first does not wait long for the last."""
_NAPS_SECONDS = (0.0005, 0.004)
"""How long the writer sleeps, at random between these, before it asks again for the lock."""


class DriverConnection:
    """A connection of a SQLAlchemy engine, with statements run on the driver itself: ten times as fast."""

    def __init__(self, engine: Engine, dialect: SqliteDialect, settings: SqlSettings) -> None:
        self._connection = engine.connect()
        try:
            dialect.prepare(self._connection, settings)
            driver = self._connection.connection.dbapi_connection
        except BaseException:
            self._connection.close()
            raise
        self._driver = cast("sqlite3.Connection", driver)

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows."""
        one = statement.one
        return self._driver.execute(one.sql, one.ordered(given)).fetchall()

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of `given`."""
        one = statement.one
        if len(given) == 1:
            self._driver.execute(one.sql, one.ordered(given[0]))
        else:
            self._driver.executemany(one.sql, [one.ordered(each) for each in given])

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement without parameters."""
        return self._driver.execute(text).fetchall()

    @property
    def changes(self) -> int:
        """How many rows were changed since it was opened."""
        return self._driver.total_changes

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._driver.in_transaction

    def close(self) -> None:
        """Close it."""
        self._connection.close()


Work = Callable[[DriverConnection], T]
"""What a thread does with its connection, inside a transaction."""


@define(eq=False)
class _Job(Generic[T]):
    work: Work[T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    given_up: bool = False
    """Whether nobody waits for it any more: then it is not begun."""
    result: T | None = None
    error: BaseException | None = field(default=None)

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.result))


class _Thread(ABC):
    """A thread with a connection, and the queue of what it is to do."""

    def __init__(self, engine: Engine, dialect: SqliteDialect, settings: SqlSettings, name: str) -> None:
        self._engine = engine
        self._dialect = dialect
        self._settings = settings
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._closed = False
        self._ended = False
        self._broken: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"coatcheck-{name}", daemon=True)

    # -------------------------------------------------------------- the callers' side

    def start(self) -> None:
        """Start it, and wait until its connection stands; blocks."""
        self._thread.start()
        self._ready.wait()
        if self._broken is not None:
            self._thread.join()
            raise self._broken

    async def do(self, work: Work[T]) -> T:
        """Let the thread do `work`, and return what it returns.

        Raises:
            StoreUnavailable: it took longer than the timeout, or the store was closed.
        """
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(work, loop, loop.create_future())
        if self._closed:
            raise StoreUnavailable(_CLOSED)
        self._queue.put(job)
        if self._closed and not self._thread.is_alive():
            self._drain()  # it ended in between, and nobody else would answer
        timeout = loop.call_later(self._settings.timeout.total_seconds(), self._time_out, job)
        try:
            return await job.future
        finally:
            job.given_up = True
            timeout.cancel()

    def _time_out(self, job: _Job[Any]) -> None:
        job.given_up = True
        seconds = self._settings.timeout.total_seconds()
        job.error = StoreUnavailable(
            f"the store did not answer within {seconds:g} s; whether the step was made is unknown, "
            "so look, or repeat it"
        )
        job.answer()

    def stop(self) -> None:
        """Let it finish what was asked for, end it, and close its connection; blocks."""
        self._closed = True
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self._drain()

    # -------------------------------------------------------------- the thread's side

    def _main(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - raised again by start()
            self._broken = error
            self._ready.set()
            return
        self._ready.set()
        try:
            self._serve(connection)
        finally:
            self._closed = True
            connection.close()
            self._drain()

    def _connect(self) -> DriverConnection:
        deadline = time.monotonic() + self._settings.timeout.total_seconds()
        while True:
            try:
                return DriverConnection(self._engine, self._dialect, self._settings)
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not self._dialect.is_busy(error) or time.monotonic() > deadline:
                    raise StoreUnavailable(f"the database cannot be opened: {error}") from error
            time.sleep(random.uniform(*_NAPS_SECONDS))  # noqa: S311 - a nap

    def _serve(self, connection: DriverConnection) -> None:
        while not self._ended:
            batch = self._next_batch()
            if batch:
                self._work_on(connection, batch)
                _answer(batch)

    def _next_batch(self) -> list[_Job[Any]]:
        batch: list[_Job[Any]] = []
        job = self._queue.get()
        while True:
            if job is None:
                self._ended = True
                break
            if not job.given_up:
                batch.append(job)
            if len(batch) >= self._group:
                break
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
        return batch

    _group = 1
    """How many jobs it takes at once."""

    @abstractmethod
    def _work_on(self, connection: DriverConnection, batch: Sequence[_Job[Any]]) -> None:
        """Run the jobs, and give each its result or its error."""

    def _drain(self) -> None:
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if job is not None:
                job.error = StoreUnavailable(_CLOSED)
                _answer([job])

    def _fault(self, error: BaseException) -> BaseException:
        """Return what callers are told of an error."""
        if isinstance(error, CoatcheckError) or not isinstance(error, Exception):
            return error
        if not self._dialect.is_fault(error):
            return error
        fault = StoreUnavailable(f"the database failed: {error}")
        fault.__cause__ = error
        return fault


_CLOSED = "the store is closed; open it, as in `async with store:`"


def _answer(batch: Sequence[_Job[Any]]) -> None:
    """Hand the results to the loops that wait for them, one wake-up for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in batch:
        loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed with calls still waiting
            loop.call_soon_threadsafe(_answer_all, jobs)


def _answer_all(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.answer()


class Reader(_Thread):
    """Runs each job in a read transaction of its own: one snapshot, and no lock."""

    def _work_on(self, connection: DriverConnection, batch: Sequence[_Job[Any]]) -> None:
        for job in batch:
            try:
                connection.execute(self._dialect.begin_reading)
                try:
                    job.result = job.work(connection)
                finally:
                    connection.execute("ROLLBACK")
            except BaseException as error:  # noqa: BLE001 - the caller's
                job.error = self._fault(error)


class Writer(_Thread):
    """Runs what is waiting in one transaction. What fails is repeated alone, so that it hurts no other."""

    _group = _GROUP

    def __init__(
        self,
        engine: Engine,
        dialect: SqliteDialect,
        settings: SqlSettings,
        *,
        on_commit: Callable[[], None],
        on_rollback: Callable[[], None],
    ) -> None:
        super().__init__(engine, dialect, settings, "writer")
        self._on_commit = on_commit
        self._on_rollback = on_rollback

    def _work_on(self, connection: DriverConnection, batch: Sequence[_Job[Any]]) -> None:
        try:
            self._transact(connection, batch)
        except BaseException as error:  # noqa: BLE001 - the callers'
            self._on_rollback()
            if len(batch) > 1 and not isinstance(error, _LockedOut):
                for job in batch:
                    self._work_on(connection, [job])
                return
            for job in batch:
                job.error = self._fault(error)

    def _transact(self, connection: DriverConnection, batch: Sequence[_Job[Any]]) -> None:
        self._begin(connection)
        before = connection.changes
        try:
            for job in batch:
                if not job.given_up:
                    job.result = job.work(connection)
            wrote = connection.changes != before
            self._end(connection, wrote=wrote)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if wrote:
            self._on_commit()

    def _end(self, connection: DriverConnection, *, wrote: bool) -> None:
        """Commit; a step that changed nothing leaves nothing for other processes to look at."""
        self._patiently(lambda: connection.execute("COMMIT" if wrote else "ROLLBACK"))

    def _begin(self, connection: DriverConnection) -> None:
        self._patiently(lambda: connection.execute(self._dialect.begin_writing))

    def _patiently(self, step: Callable[[], object]) -> None:
        """Do `step` as soon as no other process is in the way."""
        deadline = time.monotonic() + self._settings.timeout.total_seconds()
        while True:
            try:
                step()
            except (SQLAlchemyError, sqlite3.Error) as error:
                if not self._dialect.is_busy(error):
                    raise
                if time.monotonic() > deadline:
                    seconds = self._settings.timeout.total_seconds()
                    message = (
                        f"another connection has held the database's write lock for {seconds:g} s; try again"
                    )
                    raise _LockedOut(message) from error
            else:
                return
            time.sleep(random.uniform(*_NAPS_SECONDS))  # noqa: S311 - a nap


class _LockedOut(StoreUnavailable):
    """The write lock could not be had in time."""
