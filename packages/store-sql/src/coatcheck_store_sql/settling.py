"""What happens to a claim: start, settle, renew (S7, S8, S17)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from coatcheck.codec import isolated
from coatcheck.errors import InvalidTransition, LeaseLost, NotPersistable, VersionConflict
from coatcheck.lifecycle import Settlement, nudged, renewed, returned_grant, settled, started
from coatcheck.store import (
    NUDGE_MEMORY,
    STALE_GRANT,
    Hold,
    Refusal,
    Refused,
    Renewal,
    Settled,
    Started,
)
from coatcheck.task import Lease, Task, from_millis, millis
from coatcheck_store_sql.records import Changes, hand_out, records_by_id
from coatcheck_store_sql.rows import Record, nudge_key
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import named

__all__ = ["Reminders", "renew", "settle", "start"]


def start(step: Step, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
    """Say of each claim whether its call may be made now, and extend the leases of those that may."""
    until = _end(step, lease)
    records = records_by_id(step, [task.id for task in tasks])
    changes = Changes(step)
    answers: list[Started | Refused] = []
    for task in tasks:
        record = records.get(task.id)
        if (
            record is None
            or not _holds(record.task, task.lease, step.now)
            or record.task.version != task.version
        ):
            answers.append(Refused(task, Refusal.LEASE_LOST))
            continue
        refusal = _refusal(record.task, step.now)
        if refusal is not None:
            answers.append(Refused(hand_out(record.task), refusal))
            continue
        after = started(record.task, step.now, until)
        answers.append(Started(hand_out(after)))
        # a task that is given twice is written once: starting is idempotent
        records[task.id] = changes.put(record, after) if record.task is not after else record
    changes.write()
    return answers


def _refusal(task: Task, now: datetime) -> Refusal | None:
    lease = task.lease
    if lease is None or lease.started_at is not None:
        return None
    if task.cancellation_requested_at is not None:
        return Refusal.CANCELED
    if task.schedule.deadline_at <= now:
        return Refusal.OVERDUE
    if lease.granted_at is not None and now - lease.granted_at > STALE_GRANT:
        return Refusal.GRANT_AGED
    return None


def _holds(task: Task, lease: Lease | None, now: datetime) -> bool:
    """Whether `lease` is the task's, and has not ended."""
    held = task.lease
    return (
        held is not None
        and lease is not None
        and (held.token, held.nonce) == (lease.token, lease.nonce)
        and held.until > now
    )


def _end(step: Step, lease: timedelta) -> datetime:
    return from_millis(step.now_ms + millis(lease))


def renew(step: Step, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
    """Extend the leases that are still held."""
    until = _end(step, lease)
    records = records_by_id(step, [hold.task_id for hold in holds])
    changes = Changes(step)
    done: dict[str, Record] = {}
    answers = []
    for hold in holds:
        record = done.get(hold.task_id) or records.get(hold.task_id)
        if record is None or not _holds(record.task, hold.lease, step.now):
            answers.append(Renewal(hold.task_id, held=False))
            continue
        if hold.task_id not in done:
            done[hold.task_id] = record = changes.put(record, renewed(record.task, until))
        held = record.task.lease
        answers.append(
            Renewal(
                hold.task_id,
                held=True,
                until=held.until if held else None,
                cancellation_requested=record.task.cancellation_requested_at is not None,
            )
        )
    changes.write()
    return answers


# ------------------------------------------------------------------ settling


def settle(step: Step, settlements: Sequence[Settlement]) -> list[Settled]:
    """Write outcomes, one after the other; refusals are values, and hurt no other."""
    records = records_by_id(step, [each.task.id for each in settlements])
    changes = Changes(step)
    reminders = Reminders(step)
    answers: list[Settled] = []
    for each in settlements:
        record = records.get(each.task.id)
        if record is None:
            answers.append(
                LeaseLost(f"task {each.task.id} is not there, or cannot be read and was set aside")
            )
            continue
        try:
            written = _settle(step, changes, reminders, record, each)
        except (NotPersistable, InvalidTransition) as error:
            answers.append(error)
            continue
        if isinstance(written, Record):
            # the same claim may come again in this batch, and an ended task is not remembered
            records[each.task.id] = written
            answers.append(written.task if written.task.status.terminal else hand_out(written.task))
        else:
            answers.append(written)
    changes.write()
    return answers


def _settle(
    step: Step, changes: Changes, reminders: Reminders, record: Record, settlement: Settlement
) -> Record | VersionConflict | LeaseLost | InvalidTransition:
    """Collect what the task becomes; raise what cannot be stored, or is no step of the lifecycle."""
    after = settled(record.task, settlement, step.now)
    if not isinstance(after, Task):
        return after
    if after is record.task:
        return record
    after = reminders.applied(record.task, after)
    # the event's containers are the caller's, and what is remembered must be out of reach
    written = changes.put(record, after if after.status.terminal else isolated(after))
    granted_at = returned_grant(record.task, settlement.event)
    if granted_at is not None:
        changes.give_back(gates_of(record.task), granted_at)
    return written


def gates_of(task: Task) -> tuple[str, ...]:
    """Return the gates that the claim of `task` passed, as columns name them."""
    if task.status.queryable:
        return () if task.route.query_gate is None else (named(task.route.query_gate),)
    return tuple(map(named, task.route.gates))


class Reminders:
    """Nudges that came before anybody knew their external ids (S10)."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._any: bool | None = None

    def applied(self, before: Task, after: Task) -> Task:
        """Return `after`, due at once if it saves an external id that was nudged before."""
        external_id = after.external_task_id
        if external_id is None or external_id == before.external_task_id:
            return after
        step = self._step
        if self._any is None:
            self._any = bool(step.rows(step.sql.any_nudge))
        if not self._any:
            return after
        key = nudge_key(after.route.handler_key, external_id)
        since = step.now_ms - millis(NUDGE_MEMORY)
        found = step.rows(step.sql.nudge, external_key=key, since=since)
        step.run(step.sql.drop_nudge, _external_key=key)
        return (nudged(after, step.now) or after) if found else after
