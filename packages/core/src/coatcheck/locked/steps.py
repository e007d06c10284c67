"""What a `LockedStore` does to one task or gate, inside one exclusive section."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from coatcheck import lifecycle
from coatcheck.errors import (
    ConfigurationError,
    DedupConflict,
    DuplicateTask,
    InvalidTransition,
    LeaseLost,
    NotPersistable,
    TaskNotFound,
    UndecodableRow,
    VersionConflict,
)
from coatcheck.events import Proof, Resolution
from coatcheck.evolving import constructor
from coatcheck.lifecycle import Settlement
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.snapshots import proven, snapshot
from coatcheck.store import (
    STALE_GRANT,
    Added,
    Hold,
    Refusal,
    Refused,
    Renewal,
    Settled,
    Started,
)
from coatcheck.task import Lease, Status, Task, TaskDraft

__all__ = [
    "add",
    "attest",
    "cancel",
    "nudge",
    "purge",
    "release",
    "renew",
    "resolve",
    "settle",
    "start",
]


_added, _started = constructor(Added), constructor(Started)

# ------------------------------------------------------------------ adding


def add(ledger: Ledger, draft: TaskDraft) -> Added:
    """Add one task (S2)."""
    _check_mode(ledger, draft.rank.mode)
    known = _existing(ledger, draft.id)
    if known is not None:
        if known.identity.params_digest != draft.identity.params_digest:
            message = f"task {draft.id} exists, with other params; give each submission an id of its own"
            raise DuplicateTask(message)
        return Added(snapshot(known), created=False)
    task = lifecycle.created(draft, ledger.now)
    kept = proven(task)
    holder_id = ledger.holder_of(task) if task.identity.dedup_key is not None else None
    if holder_id is None:
        return _added(_handed_out(task, kept, ledger.add(kept)), created=True)
    holder = _existing(ledger, holder_id)
    if holder is None or holder.identity.params_digest != task.identity.params_digest:
        message = (
            f"the dedup key {task.identity.dedup_key!r} is held by task {holder_id} with other params; "
            "use another key, or wait until that task is purged"
        )
        raise DedupConflict(message, holder_id)
    return Added(snapshot(holder), created=False)


def _check_mode(ledger: Ledger, mode: str) -> None:
    known = ledger.records.get(("mode",))
    if known is None:
        ledger.records.put(("mode",), mode)
    elif known != mode:
        message = (
            f"this store ranks its tasks by {known!r}, and a draft is ranked by {mode!r}; give every app that "
            "uses the store the same priority_ageing"
        )
        raise ConfigurationError(message)


def _existing(ledger: Ledger, task_id: str) -> Task | None:
    """Return the task, or None if there is none; a row that cannot be decoded is there, too."""
    task = ledger.load(task_id)
    if task is None and ledger.records.get(("aside", task_id)) is not None:
        message = f"task {task_id} exists, but cannot be read by this version; see set_aside()"
        raise UndecodableRow(message)
    return task


# ------------------------------------------------------------------ holding and settling


def start(ledger: Ledger, claimed: Task, duration: timedelta) -> Started | Refused:
    """Declare that the call of one claim is about to be made (S17)."""
    now, task = ledger.now, ledger.load(claimed.id)
    if task is None or claimed.lease is None or not _holds(task, claimed.lease, now):
        return Refused(claimed, Refusal.LEASE_LOST)
    if task.lease is not None and task.lease.started_at is None:
        reason = _refusal(task, task.lease, now)
        if reason is not None:
            return Refused(snapshot(task), reason)
    return _started(snapshot(ledger.keep(lifecycle.started(task, now, now + duration))))


def _holds(task: Task, lease: Lease, now: datetime) -> bool:
    held = task.lease
    return held is not None and held.token == lease.token and held.nonce == lease.nonce and held.until > now


def _refusal(task: Task, lease: Lease, now: datetime) -> Refusal | None:
    if task.cancellation_requested_at is not None:
        return Refusal.CANCELED
    if task.schedule.deadline_at <= now:
        return Refusal.OVERDUE
    if lease.granted_at is not None and now - lease.granted_at > STALE_GRANT:
        return Refusal.GRANT_AGED
    return None


def renew(ledger: Ledger, hold: Hold, duration: timedelta) -> Renewal:
    """Extend one lease (S8)."""
    task = ledger.load(hold.task_id)
    if task is None:
        return Renewal(hold.task_id, held=False)
    flagged = task.cancellation_requested_at is not None
    if not _holds(task, hold.lease, ledger.now):
        return Renewal(task.id, held=False, cancellation_requested=flagged)
    after = ledger.keep(lifecycle.renewed(task, ledger.now + duration))
    until = after.lease.until if after.lease else None
    return Renewal(task.id, held=True, until=until, cancellation_requested=flagged)


def settle(ledger: Ledger, settlement: Settlement) -> Settled:
    """Write one outcome, or return why it is refused (S7)."""
    task = ledger.load(settlement.task.id)
    if task is None:
        return LeaseLost(f"task {settlement.task.id} is not here any more, or cannot be read by this version")
    try:
        after = lifecycle.settled(task, settlement, ledger.now)
        if not isinstance(after, Task):
            return after
        if after is task:
            return snapshot(task)
        kept = proven(after, task)
    except (NotPersistable, InvalidTransition) as refusal:
        return refusal
    granted_at = lifecycle.returned_grant(task, settlement.event)
    if granted_at is not None:
        route = task.route
        gates = (route.query_gate,) if task.status.queryable else route.gates
        ledger.gates.take_back(filter(None, gates), granted_at)
    return _handed_out(after, kept, ledger.write(task, kept))


def _handed_out(task: Task, kept: Task, written: Task) -> Task:
    """Return what was `written`, sharing no container with it: `task`, if its copy `kept` was written as it was.

    What `task` has of the row that was replaced is nobody else's any more. What came from outside may be
    equal to no JSON, such as a tuple, and is handed out as it was kept.
    """
    return task if written is kept and _json_of(task) == _json_of(kept) else snapshot(written)


def _json_of(task: Task) -> tuple[object, ...]:
    query_params = task.query_params
    provider_params = None if query_params is None else query_params.provider_params
    return task.params, task.metadata, task.outcome.result, provider_params


# ------------------------------------------------------------------ from outside


def cancel(ledger: Ledger, task_id: str) -> bool:
    """Cancel a task, or flag it; return whether this was the call that did (S9)."""
    task = ledger.load(task_id)
    after = lifecycle.cancellation_requested(task, ledger.now) if task is not None else None
    if task is None or after is None:
        return False
    ledger.write(task, after)
    return True


def nudge(ledger: Ledger, handler_key: str, external_task_id: str) -> int:
    """Make tasks due, or flag them, or remember that it is to be done; return how many there are (S10)."""
    keys = ledger.records.under(("external", external_task_id, handler_key))
    if not keys:
        ledger.nudges.remember(handler_key, external_task_id)
    tracked = 0
    for key in keys:
        task = ledger.load(str(key[3]))
        if task is None or task.status.terminal:
            continue
        tracked += 1
        after = lifecycle.nudged(task, ledger.now)
        if after is not None:
            ledger.write(task, after)
    return tracked


def attest(ledger: Ledger, task_id: str, token: int, proof: Proof) -> Task:
    """Take in late proof (S18)."""
    task = _found(ledger, task_id)
    return _become(ledger, task, lifecycle.attested(task, token, proof, ledger.now))


def resolve(ledger: Ledger, task_id: str, expected_version: int, resolution: Resolution) -> Task:
    """Carry out a person's decision (S19)."""
    task = _found(ledger, task_id)
    if task.version != expected_version:
        message = (
            f"task {task_id} is at version {task.version} ({task.status}), no longer at {expected_version}; "
            "look at it again before deciding"
        )
        raise VersionConflict(message)
    return _become(ledger, task, lifecycle.resolved(task, resolution, ledger.now))


def _found(ledger: Ledger, task_id: str) -> Task:
    task = ledger.load(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    return task


def _become(ledger: Ledger, task: Task, after: Task) -> Task:
    if after is task:
        return snapshot(task)
    kept = proven(after, task)
    return _handed_out(after, kept, ledger.write(task, kept))


# ------------------------------------------------------------------ housekeeping


def purge(ledger: Ledger, finished_before: datetime, statuses: Collection[Status], limit: int) -> int:
    """Delete at most `limit` tasks that ended so before then; return how many (S14)."""
    purged = 0
    for status in sorted(statuses):
        begin, end = ("finished", status.value), ("finished", status.value, finished_before)
        for key in ledger.records.scan(begin, end, max(limit - purged, 0)):
            task = ledger.load(str(key[3]))
            ledger.records.delete(key)
            if task is not None:
                ledger.remove(task)
                purged += 1
    return purged


def release(ledger: Ledger, task_ids: Collection[str] | None) -> int:
    """Let rows take part again that can be decoded now; return how many (S20)."""
    released = 0
    for key in ledger.records.under(("aside",)):
        task_id = str(key[1])
        task = ledger.load(task_id) if task_ids is None or task_id in task_ids else None
        if task is not None:
            ledger.records.delete(key)
            ledger.place(task)
            released += 1
    return released
