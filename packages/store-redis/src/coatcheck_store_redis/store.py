"""The store: each method names the step that its room carries out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from coatcheck.clock import ManualClock
from coatcheck.codec import isolated
from coatcheck.errors import ConfigurationError, InvalidParams, SchemaOutdated, StoreUnavailable, Unsupported
from coatcheck.events import Proof, Resolution
from coatcheck.gates import Gate, GateRecord, GateUsage, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.locked.bell import Bell
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
from coatcheck.task import Status, Task, TaskDraft, from_millis, millis
from coatcheck_store_redis import claiming, counting, desk, gates, reading, settling
from coatcheck_store_redis.calls import Calls
from coatcheck_store_redis.claiming import Claimant
from coatcheck_store_redis.clients import Connected
from coatcheck_store_redis.durability import Durability
from coatcheck_store_redis.gathering import Gathering
from coatcheck_store_redis.news import News
from coatcheck_store_redis.rows import Rows
from coatcheck_store_redis.settings import RedisSettings
from coatcheck_store_redis.troubles import FAULTS, told

__all__ = ["RedisStore"]

SCHEMA = 1
"""The version of the layout of the keys."""
USABLE_FROM = 1
"""The oldest version of the code's layout that can work with keys of this one."""
_EXPIRE_EVERY_SECONDS, _EXPIRED_AT_ONCE = 1.0, 10_000
_PURGED = frozenset(status for status in Status if status.terminal and status is not Status.SUBMIT_UNKNOWN)


class RedisStore(Store):
    """Tasks in Redis or Valkey. Made by `coatcheck_store_redis.create`."""

    def __init__(self, connected: Connected, settings: RedisSettings) -> None:
        """Keep the way to the server; nothing is touched yet."""
        self.settings = settings
        self.prefix = f"{{{settings.namespace}}}:"
        """What the names of all keys begin with."""
        self._connected = connected
        self._durability = Durability(settings, connected, f"{self.prefix}fence")
        self.calls = Calls(
            connected, self._durability, self.prefix, settings.timeout.total_seconds(), settings.clock
        )
        self._rows = Rows(self.calls)
        self._gathering = Gathering(self.calls)
        self._bell = Bell()
        self._news: dict[asyncio.AbstractEventLoop, News] = {}
        self._pid: int | None = None
        self._quiet: Callable[[], None] | None = None
        self._expires_next = 0.0

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it promises beyond the contract (S15); see `docs/stores.md`."""
        promised = {Capability.DURABLE, Capability.SHARED, Capability.NOTIFIES}
        if self.settings.survives_failover:
            promised.add(Capability.SURVIVES_FAILOVER)
        return frozenset(promised)

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._connected.url

    # -------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Open it (S16); an empty namespace is set up.

        Raises:
            SchemaOutdated: the keys were written by a version that is too new for this one.
            ConfigurationError: it is open already, or the server cannot be used, or not as the settings say.
            StoreUnavailable: the server cannot be reached.
        """
        if self._pid is not None:
            message = f"the store {self.url} is open already; open it once, and share it"
            raise ConfigurationError(message)
        await self._meet()
        await self._set_up()
        self._pid = os.getpid()
        clock = self.settings.clock
        if isinstance(clock, ManualClock):
            self._quiet = clock.on_advance(self._bell.ring_all)

    async def _meet(self) -> None:
        try:
            async with asyncio.timeout(self.settings.timeout.total_seconds()):
                await self._durability.meet()
        except FAULTS as error:
            raise StoreUnavailable(told(error, self.url)) from error

    async def close(self) -> None:
        """Close it (S16); a client that was given stays open."""
        pid, self._pid = self._pid, None
        if pid is None or pid != os.getpid():
            return  # after a fork the connections stay with the process that made them
        if self._quiet is not None:
            self._quiet()
            self._quiet = None
        self._bell.ring_all()
        news, self._news = self._news, {}
        for each in news.values():
            await each.close()
        await self._connected.close()

    async def setup(self) -> None:
        """Write down which version of the layout the keys have, unless that is known (S16)."""
        await self._set_up()
        if self._pid is None:
            await self._connected.close()

    async def _set_up(self) -> None:
        _, version, usable_from = await self.calls.step("schema", (SCHEMA, USABLE_FROM))
        if int(version) > SCHEMA and int(usable_from or version) > SCHEMA:
            message = (
                f"the keys of {self.prefix}* in {self.url} have version {int(version)}, and this coatcheck-store-redis "
                f"knows version {SCHEMA}: upgrade it"
            )
            raise SchemaOutdated(message)

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

    # -------------------------------------------------------------- adding and reading

    async def now(self) -> datetime:
        """Return the time (S1)."""
        self._check_open()
        (now,) = await self.calls.look("read", ())
        return from_millis(now)

    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """Add tasks (S2); a script holds up others in proportion to their number."""
        self._check_open()
        if transaction is not None:
            message = f"{self.url} cannot join {transaction!r}: it has no {Capability.TRANSACTIONAL_ADD}"
            raise Unsupported(message)
        return await self._gathering.add(drafts)

    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """Return snapshots by id (S3)."""
        self._check_open()
        read = await self._rows.read(task_ids)
        return {task_id: isolated(known.task) for task_id, known in read.found.items()}

    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks that match, by id (S3).

        By an external id, or by few tasks' statuses, it is quick; else it looks at all tasks, page by page.
        """
        self._check_open()
        return await reading.find(self.calls, self._rows, query, limit, after)

    # -------------------------------------------------------------- claiming

    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for submission (S4)."""
        return await claiming.claim_turns(self._claimant(worker_id, handler_keys, lease), "s", limit)

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for querying (S5)."""
        return await claiming.claim_turns(self._claimant(worker_id, handler_keys, lease), "d", limit)

    async def claim_stale(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for a decision (S6)."""
        await self._expire()
        return await claiming.claim_stale(self._claimant(worker_id, handler_keys, lease), limit)

    def _claimant(self, worker_id: str, handler_keys: Collection[str], lease: timedelta) -> Claimant:
        self._check_open()
        return Claimant(self.calls, self._rows, worker_id, tuple(dict.fromkeys(handler_keys)), millis(lease))

    async def _expire(self) -> None:
        """Delete what has been kept for long enough, once in a while."""
        keep, now = self.settings.keep_finished, time.monotonic()
        if keep is None or now < self._expires_next:
            return
        self._expires_next = now + _EXPIRE_EVERY_SECONDS
        await desk.purge(self.calls, await self.now() - keep, _PURGED, _EXPIRED_AT_ONCE)

    # -------------------------------------------------------------- holding and settling

    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """Declare that calls are about to be made (S17)."""
        self._check_open()
        return await settling.start(self.calls, self._rows, tasks, lease)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write outcomes (S7)."""
        self._check_open()
        return await settling.settle(self._rows, settlements)

    async def renew(self, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
        """Extend leases (S8)."""
        self._check_open()
        return await settling.renew(self.calls, self._rows, holds, lease)

    async def request_cancellation(self, task_id: str) -> bool:
        """Cancel, or flag (S9)."""
        self._check_open()
        return await desk.request_cancellation(self._rows, task_id)

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Make tasks due, or remember that they are to be (S10)."""
        self._check_open()
        return await desk.nudge(self.calls, self._rows, handler_key, external_task_id)

    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """Take in late proof (S18)."""
        self._check_open()
        return await desk.attest(self._rows, task_id, token, proof)

    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """Carry out a person's decision (S19)."""
        self._check_open()
        return await desk.resolve(self._rows, task_id, expected_version, resolution)

    # -------------------------------------------------------------- gates and tallies

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
        self._check_open()
        gate = Gate(name=name, concurrency=concurrency, rate=rate)
        await gates.set_gate(self.calls, gate, who, reason, only_if_new=only_if_new)

    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """Pause (S11). A pause never shortens one that lasts longer."""
        self._check_open()
        await gates.pause_gate(self.calls, name, who, reason, duration)

    async def resume_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Resume (S11)."""
        self._check_open()
        await gates.resume_gate(self.calls, name, who, reason)

    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget limits and pause (S11)."""
        self._check_open()
        await gates.delete_gate(self.calls, name, who, reason)

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates and how they stand (S11)."""
        self._check_open()
        return await gates.gate_usages(self.calls, names)

    async def gate_history(self, name: str) -> list[GateRecord]:
        """Return who has changed a gate (S11)."""
        self._check_open()
        return await gates.gate_history(self.calls, name)

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies (S21); a call whose answer was lost is repeated within its time, and counts once."""
        self._check_open()
        return await counting.count(self.calls, counts)

    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return the tallies whose names begin so (S21)."""
        self._check_open()
        return await counting.tallies(self.calls, prefix, limit)

    # -------------------------------------------------------------- waiting

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work (S12); news come from the server, and after `poll_interval` it looks itself."""
        self._check_open()
        ends = time.monotonic() + timeout.total_seconds()
        begun: int | None = None
        interval = self.settings.poll_interval.total_seconds()
        with self._bell.listening(handler_keys) as listener:
            await self._listening(interval)
            while True:
                self._check_open()
                now, at = await self.calls.look("look", ("" if begun is None else begun, *handler_keys))
                begun = now if begun is None else begun
                if at != b"" and int(at) <= now:
                    return True
                passed = (now - begun) / 1000
                left = min(ends - time.monotonic(), timeout.total_seconds() - passed)
                if left <= 0:
                    return False
                nap = left if at == b"" else min(left, (int(at) - now) / 1000)
                await listener.sleep(min(nap, interval))
                if listener.urgent:  # it was told that there may be work: the claim will see
                    self._check_open()
                    return True

    async def _listening(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        news = self._news.get(loop)
        if news is None:
            news = self._news[loop] = News(self._connected, self.prefix, self._bell)
        await news.listen(seconds)

    # -------------------------------------------------------------- looking after it

    async def stats(self) -> Stats:
        """Return how the store stands (S13)."""
        self._check_open()
        return await reading.stats(self.calls)

    async def purge(
        self, finished_before: datetime, *, statuses: Collection[Status] | None = None, limit: int = 1000
    ) -> int:
        """Delete what has ended (S14), some hundred tasks at a time.

        Raises:
            InvalidParams: one of the statuses is no end.
        """
        self._check_open()
        wanted = _PURGED if statuses is None else frozenset(statuses)
        living = sorted(status for status in wanted if not status.terminal)
        if living:
            message = f"only tasks that have ended can be purged, not {', '.join(living)}"
            raise InvalidParams(message)
        return await desk.purge(self.calls, finished_before, wanted, limit)

    async def set_aside(self, *, limit: int = 100) -> list[SetAside]:
        """Return what cannot be decoded (S20)."""
        self._check_open()
        return await desk.set_aside_rows(self.calls, limit)

    async def release_set_aside(self, task_ids: Collection[str] | None = None) -> int:
        """Let rows take part again that can be decoded now (S20)."""
        self._check_open()
        return await desk.release_set_aside(self.calls, self._rows, task_ids)
