"""Settling: what a worker hands in, when it is refused, and what has been asked for since the claim."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from coatcheck.errors import InvalidTransition, LeaseLost, VersionConflict
from coatcheck.events import (
    CancelSeen,
    Event,
    GaveBack,
    Overdue,
)
from coatcheck.evolving import changer, evolve
from coatcheck.lifecycle.moving import canceled_error, due, move
from coatcheck.lifecycle.outcomes import STEPS
from coatcheck.task import (
    Lease,
    Status,
    Task,
)

__all__ = ["Settlement", "apply", "returned_grant", "settled"]


_released = changer(Task, "version", "lease", "nudged", "settled_by", "progress")


@frozen(kw_only=True)
class Settlement:
    """What a worker hands to `Store.settle`: the claimed snapshot, and what happened."""

    task: Task
    """As it was claimed or started, with its lease."""
    event: Event


def settled(
    current: Task, settlement: Settlement, now: datetime
) -> Task | VersionConflict | LeaseLost | InvalidTransition:
    """Return what `current` becomes by `settlement`, itself if already written, or why it is refused."""
    claimed, lease = settlement.task, settlement.task.lease
    if lease is None:
        return LeaseLost(f"task {claimed.id} was settled without a lease; settle what a claim returned")
    if current.settled_by == lease.nonce and current.token >= lease.token:
        return current
    refusal = _refusal(current, claimed, lease, now)
    if refusal is not None:
        return refusal
    try:
        after = apply(current, settlement.event, now)
    except InvalidTransition as error:
        return error
    progress = after.progress
    if progress.lost_leases:
        progress = evolve(progress, lost_leases=0)
    return _released(
        after,
        version=current.version + 1,
        lease=None,
        nudged=False,
        settled_by=lease.nonce,
        progress=progress,
    )


def _refusal(current: Task, claimed: Task, lease: Lease, now: datetime) -> VersionConflict | LeaseLost | None:
    """Return why the holder of `lease` may not write any more; None if it may."""
    if current.version != claimed.version:
        return VersionConflict(
            f"task {claimed.id} is at version {current.version} ({current.status}), no longer at {claimed.version}"
        )
    held = current.lease
    if held is None or held.token != lease.token or held.nonce != lease.nonce:
        return LeaseLost(f"the lease of {lease.worker_id!r} on task {claimed.id} was taken by another claim")
    if held.until <= now:
        return LeaseLost(
            f"the lease of {lease.worker_id!r} on task {claimed.id} ended at {held.until.isoformat()}"
        )
    return None


def returned_grant(task: Task, event: Event) -> datetime | None:
    """Return when the rate grant was taken that this settlement gives back unused, if it does.

    `task` is the snapshot before it. Unused is the grant of a call that was not started: the claim is given
    back, or turned out to be cancelled or overdue.
    """
    if task.lease is None or task.lease.started_at is not None:
        return None
    return task.lease.granted_at if isinstance(event, (GaveBack, CancelSeen, Overdue)) else None


def apply(task: Task, event: Event, now: datetime) -> Task:
    """Apply `event`, then what has been asked for since the claim: a cancellation, a nudge."""
    after = STEPS[type(event)](task, event, now)
    if task.cancellation_requested_at is not None:
        if after.status is Status.CANCELED:
            return after
        if after.status.queryable:
            return evolve(after, schedule=due(after, now))
        error = canceled_error(after.outcome.error, after.status)
        return move(
            task,
            "settled while flagged",
            Status.CANCELED,
            now,
            note=f"would have become {after.status}",
            attempt=after.attempt,
            progress=after.progress,
            params=after.params,
            query_params=after.query_params,
            outcome=evolve(after.outcome, error=error),
        )
    if task.nudged and after.status.queryable:
        return evolve(after, schedule=due(after, now))
    return after
