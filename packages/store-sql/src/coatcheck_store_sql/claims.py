"""Claims by turn: submissions in rank order and queries in order of time, behind exact gates.

Lanes wait with a turn before which none stands in them, their head. A claim merges the lanes with the first
heads, and takes tasks in the order of their turns while their gates are open. A lane that meets a closed gate
is parked under it, and costs nothing until the gate may be open again; so what a claim costs follows from the
lanes and gates that it meets, not from how many tasks wait.

Where several steps write at once, a claim locks in this order: the gates of the lanes it looks at, by name, and
waits for them; then tasks and lanes, of which it leaves to others what they have locked. See docs/decisions/0027,
and 0032 for how few round trips that takes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from datetime import timedelta

from coatcheck.lifecycle import claimed_for_query, claimed_for_submission
from coatcheck.store import Claims
from coatcheck.task import Lease, Task, from_millis, millis
from coatcheck_store_sql.places import SUBMIT
from coatcheck_store_sql.records import Changes, hand_out
from coatcheck_store_sql.rounds import Round
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import named

__all__ = ["attend", "claim", "claim_turns", "make_lease"]

_ATTENDANCE_MILLISECONDS = 10_000
"""How exactly it is known when a worker last claimed for a handler."""


def claim_turns(
    step: Step, kind: str, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
) -> Claims:
    """Claim up to `limit` tasks whose turn it is, in lanes of `kind` (S4, S5)."""
    handlers = sorted(set(map(named, handler_keys)))
    if not handlers or limit < 1:
        return Claims()
    found = Round(step, kind, handlers, limit)
    records = found.grant()
    found.write()
    changes = Changes(step, found.gates)
    claimed = claimed_for_submission if kind == SUBMIT else claimed_for_query
    tasks = [
        changes.put(
            record, claim(step, record.task, claimed, worker_id, lease, rated=record.seq in found.rated)
        ).task
        for record in records
    ]
    changes.write()
    found.leave_lanes()
    attend(step, handlers)
    return Claims(tuple(hand_out(task) for task in tasks), again=found.more and len(tasks) < limit)


def claim(
    step: Step,
    task: Task,
    claimed: Callable[..., Task],
    worker_id: str,
    lease: timedelta,
    *,
    rated: bool = False,
) -> Task:
    """Return `task` with a new lease for `worker_id`."""
    return claimed(task, make_lease(step, task, worker_id, lease, rated=rated), step.now)


def make_lease(step: Step, task: Task, worker_id: str, lease: timedelta, *, rated: bool = False) -> Lease:
    """Return a lease on `task` from now on; `rated` says that a rate granted this turn."""
    return Lease(
        worker_id=worker_id,
        token=task.token + 1,
        nonce=secrets.token_hex(8),
        until=from_millis(step.now_ms + millis(lease)),
        granted_at=from_millis(step.stamp) if rated else None,
    )


def attend(step: Step, handlers: Collection[str]) -> None:
    """Note that somebody claims for these handlers, now and then; last, since others want to note it, too."""
    attended = step.memory.attended
    late = [key for key in handlers if step.now_ms - attended.get(key, -(10**15)) >= _ATTENDANCE_MILLISECONDS]
    step.many(step.sql.attend, [{"handler_key": key, "at": step.now_ms} for key in sorted(late)])
    attended.update(dict.fromkeys(late, step.now_ms))
