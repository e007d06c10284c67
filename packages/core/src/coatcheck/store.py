"""The contract of stores. The numbers S1 to S21 are quoted by the conformance kit.

A store is the durable source of truth: snapshots, schedule, leases, gates, and the clock. Every method
that changes anything is one atomic step, batched. All comparisons and stamps of time use the store's
clock, never the caller's. What a task becomes is computed by `coatcheck.lifecycle`; a store decides
which tasks, in which order, behind which gates, and makes the step atomic and durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeAlias

from attrs import frozen

from coatcheck.errors import InvalidTransition, LeaseLost, NotPersistable, Unsupported, VersionConflict
from coatcheck.events import Proof, Resolution
from coatcheck.gates import GateRecord, GateUsage, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.tallies import Count, Counted, Tally
from coatcheck.task import Lease, Status, Task, TaskDraft

__all__ = [
    "MAX_NUDGES",
    "NUDGE_MEMORY",
    "STALE_GRACE",
    "STALE_GRANT",
    "Added",
    "Capability",
    "Claims",
    "Filter",
    "HandlerStats",
    "Hold",
    "PriorityStats",
    "Refusal",
    "Refused",
    "Renewal",
    "SetAside",
    "Settled",
    "Started",
    "Stats",
    "Store",
]

STALE_GRACE = timedelta(seconds=60)
"""How long workers that have the handler go first at stale tasks (S6)."""
STALE_GRANT = timedelta(milliseconds=100)
"""A rate grant older than this at `start` is given back, so that the rate is counted near the call (S17)."""
NUDGE_MEMORY = timedelta(minutes=5)
"""How long a nudge for an id that is not known yet is remembered (S10)."""
MAX_NUDGES = 10_000
"""How many such nudges are remembered at most; the oldest go first (S10)."""


class Capability(StrEnum):
    """What a store promises beyond the contract (S15). What is declared is tested by the kit."""

    DURABLE = "durable"
    "An acknowledged step survives a crash of every process that uses the store."
    SHARED = "shared"
    "Several processes can use it at once."
    NOTIFIES = "notifies"
    "`wait` returns at once when another process makes work, without polling."
    TRANSACTIONAL_ADD = "transactional_add"
    "`add` can join a transaction of the caller's."
    SURVIVES_FAILOVER = "survives_failover"
    "An acknowledged step is not lost when the server fails over or its host crashes."


@frozen
class Added:
    """What came of one draft."""

    task: Task
    """The task that was created, or the one that was there already."""
    created: bool
    """Whether this call created it."""


@frozen
class Claims:
    """What a claim got."""

    tasks: tuple[Task, ...] = ()
    """Each with its lease."""
    again: bool = False
    """True if the batch is short for a passing reason while work remains: claim again without waiting."""


class Refusal(StrEnum):
    """Why `start` refused."""

    LEASE_LOST = "LEASE_LOST"
    "The lease has ended or was taken; nothing may be written any more."
    CANCELED = "CANCELED"
    "Cancellation was requested; the claim still stands and is to be settled so."
    OVERDUE = "OVERDUE"
    "The deadline has passed; the claim still stands and is to be settled so."
    GRANT_AGED = "GRANT_AGED"
    "The rate grant is older than `STALE_GRANT`; the claim still stands and is to be given back."


@frozen
class Started:
    """The call may be made now."""

    task: Task
    """With the extended lease; settle this one."""


@frozen
class Refused:
    """The call must not be made."""

    task: Task
    """As it is now, or, if the lease is lost, as the caller had it."""
    reason: Refusal


@frozen
class Renewal:
    """What came of renewing one lease."""

    task_id: str
    held: bool
    """False: the lease is lost, the outcome of the call can only be attested."""
    until: datetime | None = None
    """When it ends now, by the store's clock; None if lost."""
    cancellation_requested: bool = False
    """Whether somebody has cancelled the task since."""


@frozen(kw_only=True)
class Hold:
    """What renewing needs to know of a lease."""

    task_id: str
    lease: Lease


@frozen(kw_only=True)
class Filter:
    """Which tasks `find` returns; what is None or empty does not restrict."""

    statuses: Collection[Status] = ()
    handler_keys: Collection[str] = ()
    tenant_id: str | None = None
    account_id: str | None = None
    dedup_key: str | None = None
    external_task_id: str | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None


@frozen(kw_only=True)
class SetAside:
    """A stored task that this version cannot read (S20)."""

    task_id: str
    reason: str
    since: datetime


@frozen(kw_only=True)
class PriorityStats:
    """The queue at one priority."""

    priority: int
    waiting: int
    """PENDING_SUBMIT tasks whose time has come."""
    longest_wait: timedelta
    """How long the first of them has been due."""


@frozen(kw_only=True)
class HandlerStats:
    """Tasks of one handler."""

    handler_key: str
    by_status: Mapping[Status, int]


@frozen(kw_only=True)
class Stats:
    """How the store stands (S13)."""

    now: datetime
    handlers: Sequence[HandlerStats]
    queue: Sequence[PriorityStats]
    """Highest priority first."""
    oldest_submitting: timedelta | None
    """How long the oldest SUBMITTING task has been claimed; None if there is none."""
    query_lateness: timedelta | None
    """How late the most overdue query is; None if none is due."""
    unattended: Mapping[str, int]
    """Handler keys with tasks that are due, and that no worker has claimed for lately: how many."""
    set_aside: int
    """Rows that cannot be decoded."""


Settled: TypeAlias = Task | VersionConflict | LeaseLost | NotPersistable | InvalidTransition
"""What settling one task returns: the task as written, or why it was refused."""


class Store(ABC):
    """Holds the tasks. Open it as an async context manager; constructing it does no I/O."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """What it promises beyond the contract (S15). Known without I/O."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, for people: free of secrets."""

    async def __aenter__(self) -> Self:
        """Open it (S16)."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect, and check the schema (S16). Opening an open store is an error.

        Raises:
            SchemaOutdated: the schema is older or newer than this code can use.
            StoreUnavailable: the server cannot be reached within the timeout.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release what `open` took; waiting calls end with `StoreUnavailable`. Closing twice is fine."""

    @abstractmethod
    async def setup(self) -> None:
        """Create or migrate the schema (S16); does nothing if it is there. The store need not be open."""

    @abstractmethod
    async def now(self) -> datetime:
        """Return the store's time, in whole milliseconds (S1)."""

    @abstractmethod
    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """Add tasks, all or none, in order (S2).

        An id that exists with the same params digest is returned as not created. A dedup key that is taken
        within the same tenant returns its holder; FAILED and CANCELED tasks do not hold their key.

        Raises:
            DuplicateTask: an id exists with other params.
            DedupConflict: a dedup key is held by a task with other params.
            ConfigurationError: the drafts' rank mode is not the one that the store holds.
            Unsupported: `transaction` is given and the store has no `transactional_add`.
        """

    def join(self, drafts: Sequence[TaskDraft], transaction: object) -> list[Added]:
        """Add like `add`, in a synchronous transaction of the caller's, in the caller's thread (S2).

        Raises:
            Unsupported: the store has no `transactional_add`.
        """
        message = f"{self.url} cannot join {transaction!r}: it has no {Capability.TRANSACTIONAL_ADD}"
        raise Unsupported(message)

    async def get(self, task_id: str) -> Task | None:
        """Return an isolated snapshot, or None (S3)."""
        return (await self.get_many([task_id])).get(task_id)

    @abstractmethod
    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """Return isolated snapshots of those that exist and can be decoded, by id (S3)."""

    @abstractmethod
    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks by id, ascending, the first `limit` whose id is above `after` (S3)."""

    @abstractmethod
    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim due PENDING_SUBMIT tasks whose gates are all open, in rank order (S4).

        Not those flagged for cancellation or past their deadline. Each becomes SUBMITTING and takes its
        gates' slots and rate grants, all in one step. A task behind a closed gate delays no other.
        """

    @abstractmethod
    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim SUBMITTED and RUNNING tasks that are due, earliest first, behind their query gates (S5).

        A claim that no rate has granted is started with it, since a query creates nothing: `started_at` is stamped.
        """

    @abstractmethod
    async def claim_stale(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """Claim tasks that need a decision rather than a turn, whatever the gates (S6).

        Those are, unless a lease on them is live: any non-terminal task past its deadline, for any worker;
        SUBMITTED and RUNNING tasks flagged for cancellation, and started SUBMITTING tasks whose lease ended,
        for workers that have the handler, and after `STALE_GRACE` for any. In the same step, SUBMITTING tasks
        whose lease ended before they were started go back to the queue by themselves and are not returned.
        """

    @abstractmethod
    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """Declare that the calls of these claims are about to be made, in order (S17).

        Extends each lease to `lease` from now and stamps `started_at`; idempotent per token; versions stay.
        The provider may be called only after this was acknowledged.
        """

    @abstractmethod
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write outcomes and release leases, in order, refusals as values (S7).

        One refused or unstorable outcome never hurts the others. Repeating a settle that the same lease has
        committed succeeds. Slots and, for claims given back, rate grants return to their gates.
        """

    @abstractmethod
    async def renew(self, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
        """Extend the leases that are still held, in order (S8). Versions stay; an expired lease is lost."""

    @abstractmethod
    async def request_cancellation(self, task_id: str) -> bool:
        """Cancel a pending task, or flag one that is under way (S9).

        True only the first time, and only if the task is not terminal; False also if there is none.
        """

    @abstractmethod
    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """Make every such task due now, or flag it if it is leased; return how many (S10).

        An unknown id is remembered for `NUDGE_MEMORY` and applied in the step that saves the id.
        """

    @abstractmethod
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
        """Set a gate's limits, leaving its pause; with `only_if_new`, only if nobody has set any (S11)."""

    @abstractmethod
    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """Grant nothing at this gate from the next claim on, for `duration` or until resumed (S11).

        A pause in force that lasts longer stands, so that a worker's pause for a 429 never shortens an
        operator's; one that lasts as long or longer takes its place. To shorten a pause, resume first.
        """

    @abstractmethod
    async def resume_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Undo a pause; resuming a gate that is not paused does nothing (S11)."""

    @abstractmethod
    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget a gate's limits and pause; the gate is open then (S11)."""

    @abstractmethod
    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates, or those of `names`, by name, with live usage (S11)."""

    @abstractmethod
    async def gate_history(self, name: str) -> list[GateRecord]:
        """Return who changed a gate when, how and why, the oldest first (S11).

        Kept as `coatcheck.gates.recorded` says, in the step that changes the gate, also once it is deleted. What
        changes nothing is not recorded: `only_if_new` where there are limits, the limits that it has already, a pause
        that a longer one outlasts, resuming what is not paused, deleting what is not defined.
        """

    @abstractmethod
    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies, in order, in one step; no two counts of a fleet are lost or mixed up (S21).

        Raises:
            InvalidParams: a total would leave the range of `MAX_TALLY`; then none is counted.
        """

    @abstractmethod
    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return the tallies whose names begin so, by name: the first `limit` (S21). Those forgotten are not shown."""

    @abstractmethod
    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Return True early when there may be work for these handlers, False after `timeout` (S12)."""

    @abstractmethod
    async def stats(self) -> Stats:
        """Return how the store stands (S13)."""

    @abstractmethod
    async def purge(
        self, finished_before: datetime, *, statuses: Collection[Status] | None = None, limit: int = 1000
    ) -> int:
        """Delete at most `limit` tasks that finished before then; return how many (S14).

        `statuses` are terminal ones; None means all of them but SUBMIT_UNKNOWN, which goes only if named.
        """

    @abstractmethod
    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """Take in late proof of what the submission started under `token` came to (S18).

        Raises:
            TaskNotFound: there is no such task.
        """

    @abstractmethod
    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """Carry out a person's decision on a task that ended in doubt (S19).

        Raises:
            TaskNotFound: there is no such task.
            VersionConflict: it has moved on since `expected_version`.
            InvalidTransition: the decision does not fit the task's status.
        """

    @abstractmethod
    async def set_aside(self, *, limit: int = 100) -> list[SetAside]:
        """Return the rows that this version could not decode, by id (S20)."""

    @abstractmethod
    async def release_set_aside(self, task_ids: Collection[str] | None = None) -> int:
        """Let set-aside rows take part again, after an upgrade; None means all; return how many (S20)."""
