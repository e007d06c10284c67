"""The store's own steps: adding, claiming, starting, renewing, cancelling, nudging."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from coatcheck.errors import InvalidTransition
from coatcheck.evolving import changer, constructor, evolve
from coatcheck.lifecycle.moving import (
    canceled_error,
    canceled_unsent,
    due,
    later,
    move,
    noted,
    require_not_started,
)
from coatcheck.task import (
    Attempt,
    Lease,
    Progress,
    Schedule,
    Status,
    Task,
    TaskDraft,
    Transition,
)

__all__ = [
    "cancellation_requested",
    "claimed_for_query",
    "claimed_for_submission",
    "claimed_stale",
    "created",
    "lease_ended",
    "nudged",
    "renewed",
    "started",
]

_new_attempt, _new_schedule, _new_task = constructor(Attempt), constructor(Schedule), constructor(Task)
_new_transition = constructor(Transition)
_with_lease, _with_until = changer(Task, "lease"), changer(Lease, "until")
_with_start = changer(Lease, "started_at")
_once_started, _with_attempt = (
    changer(Lease, "until", "started_at"),
    changer(Task, "lease", "attempt", "progress"),
)
_once_claimed, _with_submit_attempts = (
    changer(Task, "version", "token", "lease"),
    changer(Progress, "submit_attempts"),
)


def created(draft: TaskDraft, now: datetime) -> Task:
    """Return the task that `draft` becomes when it is added at `now`."""
    scheduled = later(now, draft.delay)
    if draft.not_before is not None:
        # a fraction of a millisecond counts up, so that nothing is early
        whole = draft.not_before.replace(microsecond=draft.not_before.microsecond // 1000 * 1000)
        wanted = whole if whole == draft.not_before else whole + timedelta(milliseconds=1)
        scheduled = max(scheduled, wanted.astimezone(now.tzinfo))
    deadline = later(now, draft.tracking_timeout)
    return _new_task(
        id=draft.id,
        status=Status.PENDING_SUBMIT,
        version=0,
        token=0,
        route=draft.route,
        schedule=_new_schedule(
            priority=draft.priority,
            rank=draft.rank,
            created_at=now,
            scheduled_at=scheduled,
            due_at=min(scheduled, deadline),
            deadline_at=deadline,
        ),
        identity=draft.identity,
        params=draft.params,
        metadata=draft.metadata,
        history=(_new_transition(at=now, source=None, target=Status.PENDING_SUBMIT, token=0),),
    )


def claimed_for_submission(task: Task, lease: Lease, now: datetime) -> Task:
    """Give the task to a worker that submits it; it takes a slot of each of its gates."""
    return move(
        task,
        "claimed",
        Status.SUBMITTING,
        now,
        worker_id=lease.worker_id,
        version=task.version + 1,
        token=lease.token,
        lease=lease,
        holds_slots=True,
    )


def claimed_for_query(task: Task, lease: Lease, now: datetime) -> Task:
    """Give the task to a worker that queries it; the call is started with the claim unless a rate has granted it.

    A query creates nothing, so there is nothing that only a started one can have done. A grant has to be counted near
    the call, and comes back if there is none.
    """
    return _claimed(task, lease if lease.granted_at is not None else _with_start(lease, started_at=now), now)


def claimed_stale(task: Task, lease: Lease, now: datetime) -> Task:
    """Give a task that needs a decision to a worker that makes it; a started submission stays started."""
    if task.submission_started and task.lease is not None:
        lease = evolve(lease, started_at=task.lease.started_at)
    return _claimed(task, lease, now)


def _claimed(task: Task, lease: Lease, now: datetime) -> Task:
    claimed = _once_claimed(task, version=task.version + 1, token=lease.token, lease=lease)
    if task.lease is None:
        return claimed
    note = f"the lease of {task.lease.worker_id} ended without an outcome"
    progress = evolve(task.progress, lost_leases=task.progress.lost_leases + 1)
    return evolve(claimed, progress=progress, history=noted(task, now, note, lease.worker_id).history)


def lease_ended(task: Task, now: datetime) -> Task:
    """Put a claimed submission that was never started back into the queue; its worker is gone."""
    require_not_started(task, "taking it back")
    changes: dict[str, Any] = {
        "note": "its worker is gone; it was never started",
        "version": task.version + 1,
        "lease": None,
        "progress": evolve(task.progress, lost_leases=task.progress.lost_leases + 1),
    }
    if task.cancellation_requested_at is not None:
        error = canceled_error(task.outcome.error)
        return move(
            task,
            "settled while flagged",
            Status.CANCELED,
            now,
            outcome=evolve(task.outcome, error=error),
            **changes,
        )
    return move(task, "lease ended", Status.PENDING_SUBMIT, now, schedule=due(task, now), **changes)


def started(task: Task, now: datetime, until: datetime) -> Task:
    """Declare that the provider call of this lease is about to be made. Idempotent; the version stays."""
    lease = task.lease
    if lease is None:
        message = f"task {task.id} is not leased; claim it before starting it"
        raise InvalidTransition(message)
    if lease.started_at is not None:
        return _with_lease(task, lease=_with_until(lease, until=max(lease.until, until)))
    lease = _once_started(lease, until=max(lease.until, until), started_at=now)
    if task.status is not Status.SUBMITTING:
        return _with_lease(task, lease=lease)
    first = task.attempt.first_started_at if task.attempt else now
    return _with_attempt(
        task,
        lease=lease,
        attempt=_new_attempt(
            token=lease.token, worker_id=lease.worker_id, started_at=now, first_started_at=first, open=True
        ),
        progress=_with_submit_attempts(task.progress, submit_attempts=task.progress.submit_attempts + 1),
    )


def renewed(task: Task, until: datetime) -> Task:
    """Extend the lease; the version stays."""
    if task.lease is None:
        message = f"task {task.id} is not leased; there is nothing to renew"
        raise InvalidTransition(message)
    return _with_lease(task, lease=_with_until(task.lease, until=max(task.lease.until, until)))


def cancellation_requested(task: Task, now: datetime) -> Task | None:
    """Accept a cancellation: at once if nothing was sent, else by a flag. None if it changes nothing."""
    if task.status.terminal or task.cancellation_requested_at is not None:
        return None
    if task.status is Status.PENDING_SUBMIT:
        return move(
            task,
            "cancellation",
            Status.CANCELED,
            now,
            version=task.version + 1,
            lease=None,
            cancellation_requested_at=now,
            outcome=evolve(task.outcome, error=canceled_unsent(task)),
        )
    return evolve(task, cancellation_requested_at=now)


def nudged(task: Task, now: datetime) -> Task | None:
    """Make the next query due now, or as soon as the lease is settled. None if it changes nothing."""
    if not task.status.queryable and task.status is not Status.SUBMITTING:
        return None
    if task.lease is not None and task.lease.until > now:
        return evolve(task, nudged=True)
    if not task.status.queryable or task.schedule.due_at <= now:
        return None
    return evolve(task, schedule=due(task, now))
