"""The store: each method names the step that a thread carries out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.pool import NullPool

from coatcheck.errors import ConfigurationError, InvalidParams, StoreUnavailable
from coatcheck.events import Proof, Resolution
from coatcheck.gates import Gate, GateUsage, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import (
    Added,
    Capability,
    Claims,
    Filter,
    Hold,
    Refused,
    Renewal,
    SetAside,
    Settled,
    Started,
    Stats,
    Store,
)
from coatcheck.task import Status, Task, TaskDraft, as_millis
from coatcheck_store_sql import adding, claims, desk, gates, reading, settling, stale
from coatcheck_store_sql.bell import Bell
from coatcheck_store_sql.dialects import SqliteDialect
from coatcheck_store_sql.migrations import upgrade_schema
from coatcheck_store_sql.places import QUERY, SUBMIT
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.statements import Statements
from coatcheck_store_sql.step import Executor, Memory, Step
from coatcheck_store_sql.transactions import JoinedConnection, join, join_async
from coatcheck_store_sql.waiting import Watched, watch
from coatcheck_store_sql.writer import DriverConnection, Reader, Writer

__all__ = ["SqlStore"]

T = TypeVar("T")

_PURGED = frozenset(status for status in Status if status.terminal and status is not Status.SUBMIT_UNKNOWN)


class _HostClock:
    """The host's clock, uncut, so that a stamp can be rounded up."""

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)


class SqlStore(Store):
    """Tasks in a SQL database. Made by `coatcheck_store_sql.create`."""

    def __init__(self, place: URL | Engine, settings: SqlSettings) -> None:
        """Keep what is needed to open it; nothing is touched yet.

        Args:
            place: where the database is; an engine stays its maker's, and is not disposed of.
            settings: how to work.
        """
        self._place = place
        self._where = place if isinstance(place, URL) else place.url
        self._settings = settings
        self._dialect = SqliteDialect()
        self._schema = Schema(settings.table_prefix)
        self._sql = Statements(self._schema, self._dialect)
        self._clock = settings.clock or _HostClock()
        self._bell = Bell()
        self._memory = Memory()
        self._pid: int | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Durable, shared by processes of one host, and joining transactions (S15).

        With ``synchronous="full"`` an acknowledged step survives a crash of the host, too.
        """
        always = {Capability.DURABLE, Capability.SHARED, Capability.TRANSACTIONAL_ADD}
        full = self._settings.synchronous == "full"
        return frozenset(always | {Capability.SURVIVES_FAILOVER} if full else always)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._where.render_as_string(hide_password=True)

    # -------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Open it, creating or upgrading the tables (S16)."""
        if self._pid is not None:
            message = f"the store {self.url} is open already; open it once, and share it"
            raise ConfigurationError(message)
        self._pid = os.getpid()
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except BaseException:
            self._pid = None
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
        self._writer = Writer(
            engine,
            self._dialect,
            self._settings,
            on_commit=self._bell.ring,
            on_rollback=self._memory.forget,
        )
        self._reader = Reader(engine, self._dialect, self._settings, "reader")
        self._watcher = Reader(engine, self._dialect, self._settings, "watcher")
        self._threads = (self._writer, self._reader, self._watcher)
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
        """Finish what was asked for and close the connections (S16)."""
        pid, self._pid = self._pid, None
        if pid is None:
            return
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if pid != os.getpid():
            return  # its threads and connections stayed in the process that this one was forked from
        await asyncio.to_thread(self._stop)
        self._bell.ring()

    async def setup(self) -> None:
        """Create or upgrade the tables (S16)."""
        await asyncio.to_thread(upgrade_schema, self._engine(), self._dialect, self._schema, self._settings)

    def _check_open(self) -> None:
        """Refuse to work while closed, or in a process that was forked from the one that opened the store.

        Raises:
            StoreUnavailable: it is closed.
            ConfigurationError: it was opened in another process.
        """
        if self._pid == os.getpid():
            return
        if self._pid is None:
            message = f"the store {self.url} is not open; use it as `async with store:`"
            raise StoreUnavailable(message)
        message = (
            f"the store {self.url} was opened by process {self._pid}, and this one was forked from it; "
            "open a store after the fork, in each process"
        )
        raise ConfigurationError(message)

    # -------------------------------------------------------------- steps

    def _step(self, executor: Executor, memory: Memory) -> Step:
        """Return a step at the clock's time, but never before the last stamp that any process has stored."""
        ((last,),) = executor.rows(self._sql.clock, {})
        clock = self._clock.now()
        now = as_millis(clock)
        stamp = now + (clock.microsecond % 1000 > 0)
        return Step(executor, self._sql, memory, max(now, last), max(stamp, last))

    async def _write(self, work: Callable[[Step], T]) -> T:
        """Do `work` as a step of the writer."""
        self._check_open()

        def run(connection: DriverConnection) -> T:
            before = connection.changes
            step = self._step(connection, self._memory)
            result = work(step)
            if connection.changes != before:
                step.stamp_clock()
            return result

        return await self._writer.do(run)

    async def _read(self, work: Callable[[Step], T]) -> T:
        """Do `work` on a snapshot of the database."""
        self._check_open()
        return await self._reader.do(lambda connection: work(self._step(connection, _NOTHING_KNOWN)))

    # -------------------------------------------------------------- adding and reading

    async def now(self) -> datetime:
        """Return the time (S1)."""
        return await self._read(lambda step: step.now)

    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """Add tasks, in a step of their own or in the caller's transaction (S2)."""
        if transaction is None:
            return await self._write(lambda step: adding.add(step, drafts))
        return await join_async(transaction, lambda joined: self.join(drafts, joined))

    def join(self, drafts: Sequence[TaskDraft], transaction: object) -> list[Added]:
        """Add tasks in a synchronous session's or connection's transaction, in this thread (S2)."""
        self._check_open()

        def work(connection: JoinedConnection) -> list[Added]:
            connection.run(self._sql.lock, ({},))
            # what is written here may be rolled back, so nothing of it is remembered
            step = self._step(connection, Memory(capacity=1))
            added = adding.add(step, drafts)
            step.stamp_clock()
            return added

        return join(
            transaction,
            work,
            place=self._where.database or "",
            dialect=self._dialect,
            on_commit=self._bell.ring,
        )

    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """Return snapshots by id (S3)."""
        return await self._read(lambda step: reading.get_many(step, task_ids))

    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks that match, by id (S3)."""
        return await self._read(lambda step: reading.find(step, query, limit, after))

    # -------------------------------------------------------------- claiming

    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for submission (S4)."""
        return await self._write(
            lambda step: claims.claim_turns(step, SUBMIT, worker_id, handler_keys, limit, lease)
        )

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for querying (S5)."""
        return await self._write(
            lambda step: claims.claim_turns(step, QUERY, worker_id, handler_keys, limit, lease)
        )

    async def claim_stale(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for a decision (S6)."""
        return await self._write(lambda step: stale.claim_stale(step, worker_id, handler_keys, limit, lease))

    # -------------------------------------------------------------- holding and settling

    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """Declare that calls are about to be made (S17)."""
        return await self._write(lambda step: settling.start(step, tasks, lease))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write outcomes (S7)."""
        return await self._write(lambda step: settling.settle(step, settlements))

    async def renew(self, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
        """Extend leases (S8)."""
        return await self._write(lambda step: settling.renew(step, holds, lease))

    async def request_cancellation(self, task_id: str) -> bool:
        """Cancel, or flag (S9)."""
        return await self._write(lambda step: desk.request_cancellation(step, task_id))

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Make tasks due, or remember that they are to be (S10)."""
        return await self._write(lambda step: desk.nudge(step, handler_key, external_task_id))

    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """Take in late proof (S18)."""
        return await self._write(lambda step: desk.attest(step, task_id, token, proof))

    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """Carry out a person's decision (S19)."""
        return await self._write(lambda step: desk.resolve(step, task_id, expected_version, resolution))

    # -------------------------------------------------------------- gates

    async def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        only_if_new: bool = False,
    ) -> None:
        """Set limits (S11). A gate that was only ever paused counts as new."""
        wanted = Gate(name=name, concurrency=concurrency, rate=rate)
        await self._write(lambda step: gates.set_gate(step, wanted, only_if_new=only_if_new))

    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """Pause (S11). A pause never shortens one that lasts longer."""
        await self._write(lambda step: gates.pause_gate(step, name, reason, who, duration))

    async def resume_gate(self, name: str) -> None:
        """Resume (S11)."""
        await self._write(lambda step: gates.resume_gate(step, name))

    async def delete_gate(self, name: str) -> None:
        """Forget limits and pause (S11)."""
        await self._write(lambda step: gates.delete_gate(step, name))

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates and how they stand (S11)."""
        return await self._read(lambda step: gates.gate_usages(step, names))

    # -------------------------------------------------------------- waiting

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work (S12).

        What this process commits wakes at once; what others commit is seen at the next look, every
        `poll_interval`, which asks SQLite only whether anything has changed.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout.total_seconds()
        keys = tuple(dict.fromkeys(handler_keys))
        begun = as_millis(await self.now())
        seen: Watched | None = None
        with self._bell.listening() as sleeper:
            while True:
                self._check_open()
                seen = await self._watcher.do(partial(self._watch, keys, begun, seen))
                if seen.next_time is not None and seen.next_time <= seen.now:
                    return True
                left = min(ends - loop.time(), timeout.total_seconds() - (seen.now - begun) / 1000)
                if left <= 0:
                    return False
                await sleeper.sleep(min(left, self._settings.poll_interval.total_seconds()))

    def _watch(
        self, keys: Collection[str], since: int, last: Watched | None, connection: DriverConnection
    ) -> Watched:
        ((state,),) = connection.execute("PRAGMA data_version")
        return watch(self._step(connection, _NOTHING_KNOWN), state, keys, since, last)

    # -------------------------------------------------------------- looking after it

    async def stats(self) -> Stats:
        """Return how the store stands (S13)."""
        return await self._read(reading.stats)

    async def purge(
        self, finished_before: datetime, *, statuses: Collection[Status] | None = None, limit: int = 1000
    ) -> int:
        """Delete what has ended (S14).

        Raises:
            InvalidParams: one of the statuses is no end.
        """
        wanted = _PURGED if statuses is None else frozenset(statuses)
        living = sorted(status for status in wanted if not status.terminal)
        if living:
            message = f"only tasks that have ended can be purged, not {', '.join(living)}"
            raise InvalidParams(message)
        return await self._write(lambda step: desk.purge(step, finished_before, wanted, limit))

    async def set_aside(self, *, limit: int = 100) -> list[SetAside]:
        """Return what cannot be decoded (S20)."""
        return await self._read(lambda step: reading.set_aside_rows(step, limit))

    async def release_set_aside(self, task_ids: Collection[str] | None = None) -> int:
        """Let rows take part again that can be decoded now (S20)."""
        return await self._write(lambda step: desk.release_set_aside(step, task_ids))


_NOTHING_KNOWN = Memory(capacity=1)
"""For reads, which neither trust nor change what the writer remembers."""
