"""A file: one thread writes, two read. See docs/decisions/0018."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.pool import NullPool

from coatcheck.store import Added, Capability
from coatcheck.task import TaskDraft, as_millis
from coatcheck_store_sql.adding import add
from coatcheck_store_sql.bell import Bell
from coatcheck_store_sql.dialects import SqliteDialect
from coatcheck_store_sql.inserts import ParamStyle, Written, insert_statements
from coatcheck_store_sql.migrations import upgrade_schema
from coatcheck_store_sql.rooms import Room
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.statements import Statements
from coatcheck_store_sql.step import Executor, Memory, Step, Time
from coatcheck_store_sql.transactions import JoinedConnection, join
from coatcheck_store_sql.waiting import Watched, watch
from coatcheck_store_sql.words import named
from coatcheck_store_sql.writer import DriverConnection, Reader, Writer

__all__ = ["LocalRoom"]

T = TypeVar("T")


class _HostClock:
    """The host's clock, uncut, so that a stamp can be rounded up."""

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)


class LocalRoom(Room):
    """An SQLite file."""

    def __init__(self, place: URL | Engine, settings: SqlSettings) -> None:
        """Keep what is needed to open it; an engine stays its maker's, and is not disposed of."""
        self._place = place
        self._where = place if isinstance(place, URL) else place.url
        self.url = self._where.render_as_string(hide_password=True)
        self._settings = settings
        self._dialect = SqliteDialect()
        self._schema = Schema(settings.table_prefix)
        self.sql = Statements(self._schema, self._dialect)
        self._clock = settings.clock or _HostClock()
        self._bell = Bell()
        self._memory = Memory()
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Durable, shared by processes of one host, and joining transactions.

        With ``synchronous="full"`` an acknowledged step survives a crash of the host, too.
        """
        always = {Capability.DURABLE, Capability.SHARED, Capability.TRANSACTIONAL_ADD}
        full = self._settings.synchronous == "full"
        return frozenset(always | {Capability.SURVIVES_FAILOVER} if full else always)

    # -------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Create or upgrade the tables, and start the threads."""
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except BaseException:
            if not opening.done():  # the caller was cancelled; the thread was not
                opening.add_done_callback(self._undo_opening)
            raise
        subscribe = getattr(self._clock, "on_advance", None)
        if subscribe is not None:
            self._unsubscribe = subscribe(self._bell.ring)

    def _open(self) -> None:
        engine = self._engine()
        upgrade_schema(engine, self._dialect, self._schema, self._settings)
        self._memory.forget()
        self.writer = Writer(
            engine,
            self._dialect,
            self._settings,
            on_commit=self._bell.ring,
            on_rollback=self._memory.forget,
        )
        self._reader = Reader(engine, self._dialect, self._settings, "reader")
        self._watcher = Reader(engine, self._dialect, self._settings, "watcher")
        self._threads = (self.writer, self._reader, self._watcher)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self._stop()
            raise

    def _undo_opening(self, opening: asyncio.Future[None]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._stop()

    def _engine(self) -> Engine:
        if isinstance(self._place, Engine):
            return self._place
        return create_engine(self._place, poolclass=NullPool)

    def _stop(self) -> None:
        for thread in self._threads:
            thread.stop()

    async def close(self) -> None:
        """Let the threads finish what was asked for, and end them."""
        self.leave()
        await asyncio.to_thread(self._stop)
        self._bell.ring()

    def leave(self) -> None:
        """Let go of the clock."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def setup(self) -> None:
        """Create or upgrade the tables."""
        await asyncio.to_thread(upgrade_schema, self._engine(), self._dialect, self._schema, self._settings)

    # -------------------------------------------------------------- steps

    def _time(self, executor: Executor) -> Time:
        """Return the clock's time, but never before the last stamp that any process has stored."""
        ((last,),) = executor.rows(self.sql.clock, {})
        clock = self._clock.now()
        now = as_millis(clock)
        stamp = now + (clock.microsecond % 1000 > 0)
        return max(now, last), max(stamp, last)

    def _step(self, executor: Executor, memory: Memory) -> Step:
        return Step(executor, self.sql, memory, self._time)

    async def write(self, work: Callable[[Step], T], *, shared: bool = True, repeatable: bool = True) -> T:
        """Let the writer do it."""

        def run(connection: DriverConnection) -> T:
            before = connection.changes
            step = self._step(connection, self._memory)
            result = work(step)
            if connection.changes != before:
                step.run(self.sql.stamp_clock, now=step.stamp)
            return result

        return await self.writer.do(run)

    async def read(self, work: Callable[[Step], T], *, brief: bool = False) -> T:
        """Let the reader do it."""
        return await self._reader.do(lambda connection: work(self._step(connection, _NOTHING_KNOWN)))

    def join(self, transaction: object, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add them on the caller's connection."""

        def run(connection: JoinedConnection) -> list[Added]:
            connection.run(self.sql.lock, ({},))
            # what is written here may be rolled back, so nothing of it is remembered
            step = Step(connection, self.sql, Memory(capacity=1), self._time, joined=True)
            added = add(step, drafts)
            step.run(self.sql.stamp_clock, now=step.stamp)
            return added

        return join(transaction, run, place=self._where, dialect=self._dialect, bell=self._bell)

    def insert_statements(self, drafts: Sequence[TaskDraft], paramstyle: ParamStyle | None) -> Written:
        """Return SQL that adds tasks; the host's clock is the store's."""
        prefix = self._settings.table_prefix
        return insert_statements(drafts, table_prefix=prefix, paramstyle=paramstyle, now=self._clock.now())

    # -------------------------------------------------------------- waiting

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work.

        What this process commits wakes at once; what others commit is seen at the next look, which asks SQLite
        only whether anything has changed.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout.total_seconds()
        keys = tuple(dict.fromkeys(map(named, handler_keys)))
        begun = as_millis(await self.read(lambda step: step.now))
        poll = self._settings.poll_interval or _POLL_INTERVAL
        seen: Watched | None = None
        with self._bell.listening() as sleeper:
            while True:
                seen = await self._watcher.do(partial(self._watch, keys, begun, seen))
                if seen.next_time is not None and seen.next_time <= seen.now:
                    return True
                left = min(ends - loop.time(), timeout.total_seconds() - (seen.now - begun) / 1000)
                if left <= 0:
                    return False
                await sleeper.sleep(min(left, poll.total_seconds()))

    def _watch(
        self, keys: Collection[str], since: int, last: Watched | None, connection: DriverConnection
    ) -> Watched:
        ((state,),) = connection.execute("PRAGMA data_version")
        return watch(self._step(connection, _NOTHING_KNOWN), state, keys, since, last)


_NOTHING_KNOWN = Memory(capacity=1)
"""For reads, which neither trust nor change what the writer remembers."""
_POLL_INTERVAL = timedelta(milliseconds=20)
