"""The store: each method names the step that its room carries out."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from coatcheck.errors import ConfigurationError, InvalidParams, StoreUnavailable
from coatcheck.events import Proof, Resolution
from coatcheck.gates import Gate, GateRecord, GateUsage, Rate
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
from coatcheck.tallies import Count, Counted, Tally
from coatcheck.task import Status, Task, TaskDraft
from coatcheck_store_sql import changes, claims, desk, gates, reading, settling, stale, tallying
from coatcheck_store_sql.inserts import ParamStyle, Written
from coatcheck_store_sql.migrations import schema_sql
from coatcheck_store_sql.places import QUERY, SUBMIT
from coatcheck_store_sql.rooms import Room
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.transactions import join_async

__all__ = ["SqlStore"]

T = TypeVar("T")

_PURGED = frozenset(status for status in Status if status.terminal and status is not Status.SUBMIT_UNKNOWN)
_ROUNDS = 16
"""How many rounds one claim makes before it says "again"."""


class SqlStore(Store):
    """Tasks in a SQL database. Made by `coatcheck_store_sql.create`."""

    def __init__(self, room: Room) -> None:
        """Keep the room in which steps will run; nothing is touched yet."""
        self.room = room
        self._pid: int | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it promises beyond the contract (S15); see `docs/stores.md`."""
        return self.room.capabilities

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self.room.url

    # -------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Open it (S16). A file gets its tables now; on a server `setup` has to have made them.

        Raises:
            SchemaOutdated: the tables are missing, too old, or too new for this version.
            StoreUnavailable: the database cannot be reached.
        """
        if self._pid is not None:
            message = f"the store {self.url} is open already; open it once, and share it"
            raise ConfigurationError(message)
        self._pid = os.getpid()
        try:
            await self.room.open()
        except BaseException:
            self._pid = None
            raise

    async def close(self) -> None:
        """Finish what was asked for and close the connections (S16)."""
        pid, self._pid = self._pid, None
        if pid is None:
            return
        if pid != os.getpid():
            self.room.leave()  # its connections stayed in the process that this one was forked from
            return
        await self.room.close()

    async def setup(self) -> None:
        """Create or upgrade the tables (S16)."""
        await self.room.setup()

    def schema_sql(self, *, since: int = 0) -> str:
        """Return the SQL that makes this store's tables, or upgrades those of schema `since`; nothing is done.

        Raises:
            ConfigurationError: there is no way from that version to this one.
        """
        schema = self.room.sql.schema
        dialect = self.url.partition(":")[0].partition("+")[0]
        return schema_sql(dialect, table_prefix=schema.prefix, schema=schema.metadata.schema, since=since)

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

    async def _write(self, work: Callable[[Step], T], *, shared: bool = True, repeatable: bool = True) -> T:
        """Do `work` as a step; see `Room.write`."""
        self._check_open()
        return await self.room.write(work, shared=shared, repeatable=repeatable)

    async def _read(self, work: Callable[[Step], T], *, brief: bool = False) -> T:
        """Do `work` on a snapshot of the database; see `Room.read`."""
        self._check_open()
        return await self.room.read(work, brief=brief)

    # -------------------------------------------------------------- adding and reading

    async def now(self) -> datetime:
        """Return the time (S1)."""
        return await self._read(lambda step: step.now, brief=True)

    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """Add tasks, in a step of their own or in the caller's transaction (S2)."""
        if transaction is None:
            self._check_open()
            return await self.room.add(drafts)
        return await join_async(transaction, lambda joined: self.join(drafts, joined))

    def join(self, drafts: Sequence[TaskDraft], transaction: object) -> list[Added]:
        """Add tasks in a synchronous session's or connection's transaction, in this thread (S2)."""
        self._check_open()
        return self.room.join(transaction, drafts)

    def insert_statements(
        self, drafts: Sequence[TaskDraft], *, paramstyle: ParamStyle | None = None
    ) -> Written:
        """Return SQL that adds the drafts, for a cursor of yours in a transaction that is not SQLAlchemy's.

        As `coatcheck_store_sql.insert_statements`, which needs no open store. This knows the store's tables and its
        clock, and makes beforehand what a long transaction must not make. For any thread; it waits for the server.

        Args:
            drafts: what `Manager.prepare` returned.
            paramstyle: the placeholders, if not the usual ones: ``?`` for SQLite, ``%s`` for servers.

        Raises:
            ConfigurationError: the store ranks by another mode, or there are no such placeholders.
            NotPersistable: something in a draft cannot be stored.
            StoreUnavailable: the server cannot be reached.
        """
        self._check_open()
        return self.room.insert_statements(drafts, paramstyle)

    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """Return snapshots by id (S3)."""
        return await self._read(lambda step: reading.get_many(step, task_ids), brief=True)

    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks that match, by id (S3)."""
        return await self._read(lambda step: reading.find(step, query, limit, after))

    # -------------------------------------------------------------- claiming

    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for submission (S4)."""
        return await self._claim(SUBMIT, worker_id, handler_keys, limit, lease)

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for querying (S5)."""
        return await self._claim(QUERY, worker_id, handler_keys, limit, lease)

    async def _claim(
        self, kind: str, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim in rounds, each a step of its own: a step waits for locks only once."""
        tasks: list[Task] = []
        again = True
        for _ in range(_ROUNDS):
            left = limit - len(tasks)
            try:
                found = await self._write(
                    partial(
                        claims.claim_turns,
                        kind=kind,
                        worker_id=worker_id,
                        handler_keys=handler_keys,
                        limit=left,
                        lease=lease,
                    )
                )
            except StoreUnavailable:
                if not tasks:
                    raise
                break  # what earlier rounds claimed is the caller's
            tasks += found.tasks
            again = found.again
            if not again or len(tasks) >= limit:
                break
        return Claims(tuple(tasks), again=again and len(tasks) < limit)

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
        return await self._write(lambda step: desk.request_cancellation(step, task_id), repeatable=False)

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Make tasks due, or remember that they are to be (S10)."""
        return await self._write(lambda step: desk.nudge(step, handler_key, external_task_id), shared=False)

    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """Take in late proof (S18)."""
        return await self._write(lambda step: desk.attest(step, task_id, token, proof))

    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """Carry out a person's decision (S19)."""
        return await self._write(
            lambda step: desk.resolve(step, task_id, expected_version, resolution), repeatable=False
        )

    # -------------------------------------------------------------- gates

    async def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        only_if_new: bool = False,
        who: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Set limits (S11). A gate that was only ever paused counts as new."""
        wanted = Gate(name=name, concurrency=concurrency, rate=rate)
        await self._write(
            lambda step: changes.set_gate(step, wanted, who, reason, only_if_new=only_if_new), shared=False
        )

    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """Pause (S11). A pause never shortens one that lasts longer."""
        await self._write(lambda step: changes.pause_gate(step, name, who, reason, duration), shared=False)

    async def resume_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Resume (S11)."""
        await self._write(lambda step: changes.resume_gate(step, name, who, reason))

    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget limits and pause (S11)."""
        await self._write(lambda step: changes.delete_gate(step, name, who, reason))

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates and how they stand (S11)."""
        return await self._read(lambda step: gates.gate_usages(step, names))

    async def gate_history(self, name: str) -> list[GateRecord]:
        """Return who changed a gate when, how and why (S11)."""
        return [*await self._read(lambda step: changes.history(step, name), brief=True)]

    # -------------------------------------------------------------- tallies

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies (S21). Whether it was made is unknown if the connection is lost at the commit.

        Raises:
            InvalidParams: a total would leave the range of `MAX_TALLY`; then none is counted.
        """
        if tallying.only_looks(counts):
            return await self._read(lambda step: tallying.look(step, counts))
        return await self._write(lambda step: tallying.count(step, counts), shared=False, repeatable=False)

    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return tallies by name (S21)."""
        return await self._read(lambda step: tallying.tallies(step, prefix, limit))

    # -------------------------------------------------------------- waiting

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work (S12). What this process commits wakes at once."""
        self._check_open()
        return await self.room.wait(handler_keys, timeout)

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
