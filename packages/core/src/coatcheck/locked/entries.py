"""The index entries of a task: keys of the ordered records, so that no step costs more with more tasks.

=============  ====================================  =====================================================
index          the rest of the key                   what it says
=============  ====================================  =====================================================
task           id                                    the task itself
ready, due     lane, rank                            waits for its turn to be submitted, or queried
delayed        handler, due, id                      waits for its time; then it becomes ready
waiting        minus priority, due, id               is ready (for `stats`)
lease          until, nonce of the claim             these ids were claimed so, or renewed so
own            handler, time, id                     from then on needs a decision of who has the handler
any            time, id                              from then on needs a decision of anybody
submitting     claimed at, id                        is SUBMITTING (for `stats`)
finished       status, finished at, id               has ended
dedup          0 or 1, tenant, key                   this id holds the key
external       external id, handler, id              the provider has it under this id
nudge          handler, external id                  a callback came for an id that nobody knows yet
nudged         time, handler, external id            the same, by age
aside          id                                    cannot be decoded
count          handler, status                       how many
queued         handler, minus priority               how many are ready
seen           handler                               when somebody claimed for it last
history        gate                                  who changed it, when, how and why
tally          name                                  its total, and until when it is kept
expiry         time, name                            from then on this tally may be forgotten
=============  ====================================  =====================================================
"""

from __future__ import annotations

from datetime import datetime

from coatcheck.locked.lanes import Rank, lane_name
from coatcheck.locked.ordered import Key
from coatcheck.store import STALE_GRACE
from coatcheck.task import Status, Task, as_millis, millis

__all__ = ["claimed_at", "decisions", "dedup_key", "external_key", "query_turn", "submit_turn", "waiting_key"]


def submit_turn(task: Task) -> tuple[str, Rank]:
    """Return the lane and the rank of a task that waits to be submitted."""
    schedule, route = task.schedule, task.route
    rank = schedule.rank
    since = as_millis(schedule.scheduled_at)
    if rank.credit:
        since -= millis(rank.credit)
    return lane_name(route.handler_key, route.gates), (rank.band, since, schedule.created_at, task.id)


def query_turn(task: Task) -> tuple[str, Rank]:
    """Return the lane and the rank of a task that waits to be queried."""
    route, due_at = task.route, task.schedule.due_at
    if task.lease is not None and task.lease.until > due_at:
        due_at = task.lease.until
    return lane_name(route.handler_key, (route.query_gate,) if route.query_gate else ()), (due_at, task.id)


def decisions(task: Task) -> list[Key]:
    """Return where a task is found that needs a decision, beside its deadline; no live lease is on it."""
    lease, handler_key = task.lease, task.route.handler_key
    if lease is None and task.cancellation_requested_at is None and task.status is not Status.SUBMITTING:
        return []
    since = lease.until if lease is not None else task.schedule.created_at
    keys: list[Key] = []
    if lease is not None and since >= task.schedule.deadline_at:
        keys.append(("any", since, task.id))
    flagged_at = task.cancellation_requested_at
    if task.status is Status.SUBMITTING and not task.submission_started:
        keys.append(("any", since, task.id))
    elif task.status is Status.SUBMITTING or (task.status.queryable and flagged_at is not None):
        since = max(since, flagged_at) if task.status.queryable and flagged_at is not None else since
        keys += [("own", handler_key, since, task.id), ("any", since + STALE_GRACE, task.id)]
    return keys


def waiting_key(task: Task) -> Key:
    """Return under what a ready task is counted by priority."""
    return ("waiting", -task.schedule.priority, task.schedule.due_at, task.id)


def dedup_key(task: Task) -> Key:
    """Return under what the holder of the task's dedup key is found; None is a tenant of its own."""
    tenant_id, key = task.route.tenant_id, task.identity.dedup_key or ""
    return ("dedup", 0 if tenant_id is None else 1, tenant_id or "", key)


def external_key(task: Task) -> Key:
    """Return under what the task is found by the provider's id."""
    return ("external", task.external_task_id or "", task.route.handler_key, task.id)


def claimed_at(task: Task) -> datetime:
    """Return when a SUBMITTING task was claimed for submission."""
    for entry in reversed(task.history):
        if entry.target is Status.SUBMITTING and entry.source is not Status.SUBMITTING:
            return entry.at
    return task.schedule.created_at
