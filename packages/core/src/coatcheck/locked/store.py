"""The store over one exclusive section: each method is one step inside it."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

from coatcheck.errors import (
    ConfigurationError,
    InvalidParams,
    StoreUnavailable,
    Unsupported,
)
from coatcheck.events import Proof, Resolution
from coatcheck.gates import Gate, GateRecord, GateUsage, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.locked import changes, claims, reading, steps, tallying
from coatcheck.locked.bell import Bell
from coatcheck.locked.claims import Claimant
from coatcheck.locked.gatekeeper import Moment
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import MILLISECOND, Records
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
from coatcheck.task import Status, Task, TaskDraft, millis

__all__ = ["LockedStore"]

T = TypeVar("T")

_ENDED = frozenset(status for status in Status if status.terminal)


class LockedStore(Store):
    """A store in plain Python. A subclass gives `_now`, `_section`, `capabilities`, `url` and `setup`.

    If it brings `__init__`, `open` or `close` of its own, these call the ones here, too.
    """

    blocking: ClassVar[bool] = False
    """Whether sections do I/O: then they run in threads, so that the event loop goes on."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._opened = False
        self._latest: datetime | None = None

    # -------------------------------------------------------------- what a subclass gives

    @abstractmethod
    def _now(self) -> datetime:
        """Return the time in aware UTC. It may go back: the store stays at its latest time until then."""

    @abstractmethod
    def _section(self) -> AbstractContextManager[Records]:
        """Return a context in which nobody else reads or writes, in any thread or process.

        What was written is kept when it is left, and undone when it is left by an exception. Once it was
        left, what was kept survives what `capabilities` says.

        Raises:
            StoreUnavailable: the records cannot be reached.
        """

    def _look_again(self) -> None:
        """Wake the waiting calls of this process: the clock jumped, or another process made work."""
        self._bell.ring_all()

    # -------------------------------------------------------------- sections

    async def _do(self, work: Callable[[Ledger], T]) -> T:
        return await asyncio.to_thread(self._step, work) if self.blocking else self._step(work)

    def _step(self, work: Callable[[Ledger], T]) -> T:
        """Do `work` as one atomic step, and wake those whom it concerns."""
        if not self._opened:
            message = f"the store {self.url} is not open; use it as `async with store:`"
            raise StoreUnavailable(message)
        with self._section() as records:
            clock = self._now()
            if self._latest is not None and clock < self._latest:
                clock = self._latest
            self._latest = clock
            ledger = Ledger(records, Moment.of(clock))
            result = work(ledger)
            ledger.flush()
            news, urgent = ledger.news, ledger.urgent
        self._bell.ring(news, urgent)
        return result

    async def open(self) -> None:
        """Open it (S16)."""
        if self._opened:
            message = f"the store {self.url} is open already; open it once, and share it"
            raise ConfigurationError(message)
        self._opened = True

    async def close(self) -> None:
        """Close it; waiting calls end with `StoreUnavailable`."""
        self._opened = False
        self._bell.ring_all()

    async def now(self) -> datetime:
        """Return the store's time (S1)."""
        return await self._do(lambda ledger: ledger.now)

    # -------------------------------------------------------------- adding and reading

    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """Add tasks (S2)."""
        if transaction is not None:
            message = f"{self.url} cannot join {transaction!r}: it has no {Capability.TRANSACTIONAL_ADD}"
            raise Unsupported(message)
        return await self._do(lambda ledger: [steps.add(ledger, draft) for draft in drafts])

    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """Return snapshots (S3)."""
        return await self._do(lambda ledger: reading.snapshots_of(ledger, task_ids))

    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks by id (S3), looking at a page of them at a time."""
        found: list[Task] = []
        while len(found) < limit:
            left, begin = limit - len(found), after
            page = await self._do(lambda ledger: reading.find_page(ledger, query, left, begin))  # noqa: B023 - done at once
            found += page.tasks
            after = page.after
            if after is None:
                break
            await asyncio.sleep(0)
        return found

    # -------------------------------------------------------------- claiming

    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for submission (S4)."""
        claimant = Claimant(worker_id, handler_keys, limit, lease)
        return await self._do(lambda ledger: claims.claim_submissions(ledger, claimant))

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for querying (S5)."""
        claimant = Claimant(worker_id, handler_keys, limit, lease)
        return await self._do(lambda ledger: claims.claim_queries(ledger, claimant))

    async def claim_stale(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim for a decision (S6)."""
        claimant = Claimant(worker_id, handler_keys, limit, lease)
        return await self._do(lambda ledger: claims.claim_stale(ledger, claimant))

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work, or until the next time at which there may be (S12).

        Returns at once while something can be claimed. News come from this process; work that another
        process makes is found at the next known time, or after `timeout`.
        """
        ends = time.monotonic() + timeout.total_seconds()
        begun = await self.now()
        with self._bell.listening(handler_keys) as listener:
            while True:
                now, at = await self._do(
                    lambda ledger: (ledger.now, claims.next_time(ledger, handler_keys, begun))
                )
                if listener.urgent or (at is not None and at <= now):
                    return True
                left = min(ends - time.monotonic(), (begun + timeout - now).total_seconds())
                if left <= 0:
                    return False
                await listener.sleep(left if at is None else min(left, (at - now).total_seconds()))

    # -------------------------------------------------------------- holding and settling

    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """Declare that calls are about to be made (S17)."""
        duration = millis(lease) * MILLISECOND
        return await self._do(lambda ledger: [steps.start(ledger, task, duration) for task in tasks])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write outcomes (S7)."""
        return await self._do(lambda ledger: [steps.settle(ledger, each) for each in settlements])

    async def renew(self, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
        """Extend leases (S8)."""
        duration = millis(lease) * MILLISECOND
        return await self._do(lambda ledger: [steps.renew(ledger, hold, duration) for hold in holds])

    async def request_cancellation(self, task_id: str) -> bool:
        """Cancel, or flag (S9)."""
        return await self._do(lambda ledger: steps.cancel(ledger, task_id))

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Make tasks due, or remember that they are to be (S10)."""
        return await self._do(lambda ledger: steps.nudge(ledger, handler_key, external_task_id))

    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """Take in late proof (S18)."""
        return await self._do(lambda ledger: steps.attest(ledger, task_id, token, proof))

    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """Carry out a person's decision (S19)."""
        return await self._do(lambda ledger: steps.resolve(ledger, task_id, expected_version, resolution))

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
        await self._do(lambda ledger: changes.set_gate(ledger, wanted, who, reason, only_if_new=only_if_new))

    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """Pause (S11)."""
        await self._do(lambda ledger: changes.pause_gate(ledger, name, who, reason, duration))

    async def resume_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Resume (S11)."""
        await self._do(lambda ledger: changes.resume_gate(ledger, name, who, reason))

    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget limits and pause (S11)."""
        await self._do(lambda ledger: changes.delete_gate(ledger, name, who, reason))

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return gates and how they stand (S11)."""
        return await self._do(lambda ledger: reading.gate_usages(ledger, names))

    async def gate_history(self, name: str) -> list[GateRecord]:
        """Return who changed a gate when, how and why (S11)."""
        return await self._do(lambda ledger: [*changes.history(ledger, name)])

    # -------------------------------------------------------------- tallies

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies (S21)."""
        return await self._do(lambda ledger: tallying.count(ledger, counts))

    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return tallies by name (S21)."""
        return await self._do(lambda ledger: tallying.tallies(ledger, prefix, limit))

    # -------------------------------------------------------------- looking after it

    async def stats(self) -> Stats:
        """Return how the store stands (S13)."""

        def promote(ledger: Ledger) -> bool:
            handlers = {str(key[1]) for key in ledger.records.under(("count",))}
            return any([ledger.promote(key) for key in handlers])  # noqa: C419 - each handler has its turn

        while await self._do(promote):  # noqa: ASYNC110 - a step each time
            await asyncio.sleep(0)
        return await self._do(reading.statistics)

    async def purge(
        self, finished_before: datetime, *, statuses: Collection[Status] | None = None, limit: int = 1000
    ) -> int:
        """Delete what has ended (S14).

        Raises:
            InvalidParams: one of the statuses is no end.
        """
        wanted = _ENDED - {Status.SUBMIT_UNKNOWN} if statuses is None else set(statuses)
        if wanted - _ENDED:
            living = ", ".join(sorted(wanted - _ENDED))
            message = f"only tasks that have ended can be purged, not {living}"
            raise InvalidParams(message)
        return await self._do(lambda ledger: steps.purge(ledger, finished_before, wanted, limit))

    async def set_aside(self, *, limit: int = 100) -> list[SetAside]:
        """Return what cannot be decoded (S20)."""
        return await self._do(lambda ledger: reading.set_aside_rows(ledger, limit))

    async def release_set_aside(self, task_ids: Collection[str] | None = None) -> int:
        """Let rows take part again that can be decoded now (S20); the others stay aside, and don't count."""
        return await self._do(lambda ledger: steps.release(ledger, task_ids))
