"""Single steps on tasks: cancel, nudge, attest, resolve, purge, and letting set-aside rows in again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from coatcheck.codec import isolated
from coatcheck.errors import TaskNotFound, VersionConflict
from coatcheck.events import Proof, Resolution
from coatcheck.lifecycle import attested, cancellation_requested, nudged, resolved
from coatcheck.store import MAX_NUDGES, NUDGE_MEMORY
from coatcheck.task import Status, Task, as_millis, millis
from coatcheck_store_sql.dialects import Guard
from coatcheck_store_sql.places import place_of
from coatcheck_store_sql.records import Changes, read_rows, records_by_id, records_by_seq
from coatcheck_store_sql.rows import external_key, nudge_key
from coatcheck_store_sql.settling import Reminders
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import named

__all__ = ["attest", "nudge", "purge", "release_set_aside", "request_cancellation", "resolve"]


def request_cancellation(step: Step, task_id: str) -> bool:
    """Cancel a pending task, or flag one that is under way; return whether this changed anything."""
    record = records_by_id(step, [task_id]).get(task_id)
    after = cancellation_requested(record.task, step.now) if record is not None else None
    if record is None or after is None:
        return False
    changes = Changes(step)
    changes.put(record, after)
    changes.write()
    return True


def nudge(step: Step, handler_key: str, external_task_id: str) -> int:
    """Make every such task due now, or flag it; remember the id if no task has it yet."""
    rows = _rows_of_external_id(step, handler_key, external_task_id)
    if not rows:
        # who is saving the id at this moment does not see what is remembered here
        step.alone(Guard.NAMING)
        rows = _rows_of_external_id(step, handler_key, external_task_id)
    if not rows:
        _remember(step, nudge_key(handler_key, external_task_id))
        return 0
    live = [each for each in records_by_seq(step, rows) if not each.task.status.terminal]
    changes = Changes(step)
    for record in live:
        after = nudged(record.task, step.now)
        if after is not None:
            changes.put(record, after)
    changes.write()
    return len(live)


def _rows_of_external_id(step: Step, handler_key: str, external_task_id: str) -> list[int]:
    rows = step.rows(
        step.sql.tasks_by_external_key,
        external_key=external_key(external_task_id),
        handler_key=named(handler_key),
    )
    return [seq for (seq,) in rows]


def _remember(step: Step, key: str) -> None:
    """Remember a nudge for as long as it may be of use, in bounded number; no other step is at it."""
    ((last,),) = step.rows(step.sql.last_nudge)
    number = 1 + (last or 0)
    step.run(step.sql.put_nudge, external_key=key, at=step.now_ms, number=number)
    step.run(step.sql.drop_old_nudges, since=step.now_ms - millis(NUDGE_MEMORY), first=number - MAX_NUDGES)


def attest(step: Step, task_id: str, token: int, proof: Proof) -> Task:
    """Take in late proof of a submission."""
    return _change(step, task_id, lambda task: attested(task, token, proof, step.now))


def resolve(step: Step, task_id: str, expected_version: int, resolution: Resolution) -> Task:
    """Carry out a person's decision."""

    def decide(task: Task) -> Task:
        if task.version != expected_version:
            message = (
                f"task {task_id} is at version {task.version} ({task.status}), no longer at "
                f"{expected_version}; look at it again before deciding"
            )
            raise VersionConflict(message)
        return resolved(task, resolution, step.now)

    return _change(step, task_id, decide)


def _change(step: Step, task_id: str, decide: Callable[[Task], Task]) -> Task:
    record = records_by_id(step, [task_id]).get(task_id)
    if record is None:
        raise TaskNotFound(task_id)
    after = decide(record.task)
    if after is record.task:
        return isolated(after)
    after = Reminders(step).applied(record.task, after)
    changes = Changes(step)
    written = changes.put(record, isolated(after))
    changes.write()
    return isolated(written.task)


def purge(step: Step, finished_before: datetime, statuses: Collection[Status], limit: int) -> int:
    """Delete at most `limit` ended tasks; return how many."""
    sql, before = step.sql, as_millis(finished_before)
    # a fraction of a millisecond after a stamp is after it
    if finished_before.microsecond % 1000:
        before += 1
    seqs: list[int] = []
    for status in sorted(statuses):
        left = limit - len(seqs)
        seqs += (seq for (seq,) in step.rows(sql.finished, status=status.value, before=before, limit=left))
    step.many(sql.drop_bodies, [{"_task": seq} for seq in seqs])
    step.many(sql.drop_task, [{"_seq": seq} for seq in seqs])
    return len(seqs)


def release_set_aside(step: Step, task_ids: Collection[str] | None) -> int:
    """Let set-aside rows take part again that can be read now; return how many."""
    wanted = None if task_ids is None else set(task_ids)
    seqs = [seq for seq, task_id in step.rows(step.sql.set_aside_rows) if wanted is None or task_id in wanted]
    records, _ = read_rows(step, step.rows_among(step.sql.tasks_by_seq, "seqs", seqs))
    changes = Changes(step)
    rows = []
    for record in records:
        place = place_of(record.task, record.submit_lane, record.query_lane, step.now_ms)
        changes.enter(place)
        rows.append({"_seq": record.seq, **place._asdict()})
    step.many(step.sql.unset_aside, rows)
    changes.write()
    return len(rows)
