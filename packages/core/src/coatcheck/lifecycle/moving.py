"""Taking an arrow: the one place where a status changes, and what all moves share."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from coatcheck.errors import InvalidTransition
from coatcheck.evolving import changer, constructor, evolve
from coatcheck.lifecycle.arrows import ALLOWED
from coatcheck.task import (
    Attempt,
    ErrorCode,
    Schedule,
    Status,
    Task,
    TaskError,
    Transition,
)

__all__ = [
    "HISTORY_LIMIT",
    "MAY_STILL_RUN",
    "NOTE_LIMIT",
    "canceled_error",
    "canceled_unsent",
    "closed",
    "due",
    "due_in",
    "later",
    "move",
    "noted",
    "require_not_started",
]

HISTORY_LIMIT = 32
"""How many transitions a task keeps: the first, and the latest."""

MAY_STILL_RUN = "the remote job may still run and be charged"
NOTE_LIMIT = 200
"""Characters of an error that go into a note of the history; the whole of it is in `outcome.error`."""


_MILLISECOND = timedelta(milliseconds=1)

_new_transition, _change_task = constructor(Transition), changer(Task)
_with_due_at, _with_open = changer(Schedule, "due_at"), changer(Attempt, "open")


def later(now: datetime, delay: timedelta) -> datetime:
    """Return the instant `delay` after `now`, in whole milliseconds, rounded up."""
    odd = delay.microseconds % 1000
    return now + delay + (_MILLISECOND - timedelta(microseconds=odd)) if odd else now + delay


def _same(a: Transition, b: Transition) -> bool:
    return a.source is b.source and a.target is b.target and a.note == b.note


def _fold(old: Transition, new: Transition) -> Transition:
    return evolve(new, count=old.count + new.count)


def _remember(history: tuple[Transition, ...], entry: Transition) -> tuple[Transition, ...]:
    """Append `entry`, folding a repetition of the last one or two transitions into a count."""
    if history and _same(history[-1], entry):
        return (*history[:-1], _fold(history[-1], entry))
    if history[-3:-2] and _same(history[-2], entry) and _same(history[-3], history[-1]):
        return (*history[:-3], _fold(history[-3], history[-1]), _fold(history[-2], entry))
    if len(history) >= HISTORY_LIMIT:
        return (history[0], *history[2:], entry)
    return (*history, entry)


def move(
    task: Task,
    event: str,
    target: Status,
    now: datetime,
    *,
    note: str = "",
    worker_id: str | None = None,
    **changes: Any,  # noqa: ANN401 - the fields of Task, checked by attrs when it is made
) -> Task:
    """Take one arrow of the table: the only place where a status changes."""
    source = task.status
    if (source, event, target) not in ALLOWED:
        message = f"task {task.id} is {source}; {event!r} does not lead from there to {target}"
        raise InvalidTransition(message)
    if source is not target:
        changes["history"] = _remember(
            task.history,
            _new_transition(
                at=now,
                source=source,
                target=target,
                token=changes.get("token", task.token),
                worker_id=worker_id or (task.lease.worker_id if task.lease else None),
                note=note,
            ),
        )
    if not target.active:
        changes["holds_slots"] = False
    if target.terminal:
        outcome = changes.get("outcome", task.outcome)
        if outcome.finished_at != now:
            changes["outcome"] = evolve(outcome, finished_at=now)
    return _change_task(task, status=target, **changes)


def noted(task: Task, now: datetime, note: str, worker_id: str | None = None) -> Task:
    """Write something into the history that changes no status."""
    entry = _new_transition(
        at=now, source=task.status, target=task.status, token=task.token, worker_id=worker_id, note=note
    )
    return evolve(task, history=_remember(task.history, entry))


def due(task: Task, at: datetime) -> Schedule:
    """Return the schedule with the next turn at that time, never after the deadline."""
    return _with_due_at(task.schedule, due_at=min(at, task.schedule.deadline_at))


def due_in(task: Task, now: datetime, delay: timedelta) -> Schedule:
    """Make it due after `delay`, which may be longer than any calendar."""
    schedule = task.schedule
    deadline = schedule.deadline_at
    at = min(later(now, delay), deadline) if delay < deadline - now else deadline
    return _with_due_at(schedule, due_at=at)


def canceled_error(known: TaskError | None, instead_of: Status | None = None) -> TaskError:
    """Return the error of a cancelled task that keeps what is known of the submission."""
    message = "cancelled"
    if instead_of is Status.SUCCEEDED:
        message += "; the job had succeeded by then, and its result is kept"
    elif instead_of is Status.SUBMIT_UNKNOWN:
        message += f"; submit outcome unknown, so {MAY_STILL_RUN}"
    if known is not None:
        message += f" (last known: {known.message})"
    return TaskError(
        code=ErrorCode.CANCELED, message=message, provider_code=known.provider_code if known else None
    )


def canceled_unsent(task: Task) -> TaskError:
    """Return the error of a task that was cancelled before this submission was sent."""
    message = "cancelled before it was submitted"
    if task.in_doubt:
        message = f"cancelled before it was submitted again; submit outcome unknown, so {MAY_STILL_RUN}"
    return TaskError(code=ErrorCode.CANCELED, message=message)


def closed(task: Task) -> Attempt | None:
    """Return the last attempt with its question answered."""
    attempt = task.attempt
    return _with_open(attempt, open=False) if attempt is not None and attempt.open else attempt


def require_not_started(task: Task, event: str) -> None:
    """Raise `InvalidTransition` if a request may have been sent under the present lease."""
    if task.submission_started:
        message = f"task {task.id} was started; {event} would forget that a request may have been sent"
        raise InvalidTransition(message)
