"""What a task becomes by each event that a claim can be settled with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from coatcheck.errors import InvalidTransition
from coatcheck.events import (
    Accepted,
    CancelDone,
    CancelSeen,
    Deferred,
    Finished,
    GaveBack,
    GaveUp,
    LeftUnknown,
    Overdue,
    QueryErred,
    Rejected,
    Resent,
    StillGoing,
)
from coatcheck.evolving import changer, evolve
from coatcheck.lifecycle.moving import (
    MAY_STILL_RUN,
    NOTE_LIMIT,
    canceled_unsent,
    closed,
    due_in,
    move,
    require_not_started,
)
from coatcheck.task import (
    CancelOutcome,
    ErrorCode,
    Outcome,
    Progress,
    Status,
    Task,
    TaskError,
)

__all__ = ["STEPS", "accepted_changes", "finished_changes"]

_once_accepted = changer(Progress, "consecutive_errors", "accepted_at", "provider_status", "fraction")
_once_ended = changer(Outcome, "result", "error", "finished_at", "remote_cancel")
_change_progress = changer(Progress)


def _gave_back(task: Task, event: GaveBack, now: datetime) -> Task:
    schedule = due_in(task, now, event.delay)
    if task.status.queryable:
        return evolve(task, schedule=schedule)
    require_not_started(task, "giving it back")
    return move(task, "GaveBack", Status.PENDING_SUBMIT, now, note=event.note, schedule=schedule)


def _cancel_seen(task: Task, _event: CancelSeen, now: datetime) -> Task:
    require_not_started(task, "cancelling it as unsent")
    outcome = evolve(task.outcome, error=canceled_unsent(task))
    return move(task, "CancelSeen", Status.CANCELED, now, outcome=outcome)


def _overdue(task: Task, _event: Overdue, now: datetime) -> Task:
    require_not_started(task, "timing it out")
    message = "its tracking timeout ran out before it was submitted"
    if task.query_params is not None or task.in_doubt:
        message = f"its tracking timeout ran out; {MAY_STILL_RUN}"
    if task.outcome.error is not None:
        message += f" (last error: {task.outcome.error.message})"
    error = TaskError(code=ErrorCode.DEADLINE_PASSED, message=message)
    return move(task, "Overdue", Status.TRACKING_TIMED_OUT, now, outcome=evolve(task.outcome, error=error))


def accepted_changes(task: Task, event: Accepted, now: datetime) -> dict[str, Any]:
    """Return what the acceptance by the provider changes, besides the status."""
    identity, outcome = task.identity, task.outcome
    if identity.query_params_version != event.query_params_version:
        identity = evolve(identity, query_params_version=event.query_params_version)
    if outcome.error is not None or outcome.finished_at is not None:
        outcome = evolve(outcome, error=None, finished_at=None)
    return {
        "attempt": closed(task),
        "params": None,
        "query_params": event.query_params,
        "identity": identity,
        "progress": _once_accepted(
            task.progress,
            consecutive_errors=0,
            accepted_at=now,
            provider_status=event.provider_status,
            fraction=event.fraction,
        ),
        "outcome": outcome,
        "schedule": due_in(task, now, event.delay),
        "note": event.note,
    }


def _accepted(task: Task, event: Accepted, now: datetime) -> Task:
    return move(task, "Accepted", event.status, now, **accepted_changes(task, event, now))


def finished_changes(task: Task, event: Finished, now: datetime) -> dict[str, Any]:
    """Return what the end that the provider reported changes, besides the status."""
    known: dict[str, Any] = {"consecutive_errors": 0, "provider_status": event.provider_status}
    if task.status.queryable:
        known |= {"query_count": task.progress.query_count + 1, "queried_at": now}
    else:
        known["accepted_at"] = now
    if event.status is Status.SUCCEEDED:
        known["fraction"] = 1.0
    return {
        "attempt": closed(task),
        "params": None,
        "query_params": event.query_params or task.query_params,
        "progress": _change_progress(task.progress, **known),
        "outcome": _once_ended(
            task.outcome, result=event.result, error=event.error, finished_at=now, remote_cancel=None
        ),
    }


def _finished(task: Task, event: Finished, now: datetime) -> Task:
    return move(task, "Finished", event.status, now, **finished_changes(task, event, now))


def _deferred(task: Task, event: Deferred, now: datetime) -> Task:
    doubtful = _doubtful(task)
    return move(
        task,
        "Deferred",
        Status.PENDING_SUBMIT,
        now,
        note=event.error.message[:NOTE_LIMIT],
        attempt=task.attempt if doubtful else closed(task),
        progress=evolve(task.progress, consecutive_errors=task.progress.consecutive_errors + 1),
        outcome=evolve(task.outcome, error=_with_doubt(event.error) if doubtful else event.error),
        schedule=due_in(task, now, event.delay),
    )


def _doubtful(task: Task) -> bool:
    """Whether an earlier submission under the same key, sent again since, came to an end that nobody knows.

    What becomes of the present one is no proof about that one.
    """
    error = task.outcome.error
    return error is not None and error.code == ErrorCode.SUBMIT_UNKNOWN


def _with_doubt(error: TaskError) -> TaskError:
    message = f"{error.message}; the outcome of an earlier submission is unknown, so {MAY_STILL_RUN}"
    return evolve(error, code=ErrorCode.SUBMIT_UNKNOWN, message=message)


def _rejected(task: Task, event: Rejected, now: datetime) -> Task:
    error = event.error
    if _doubtful(task):
        error = evolve(_with_doubt(error), code=error.code)
    return move(
        task,
        "Rejected",
        Status.FAILED,
        now,
        attempt=closed(task),
        outcome=evolve(task.outcome, error=error),
    )


def _resent(task: Task, event: Resent, now: datetime) -> Task:
    attempt = task.attempt
    if not task.submission_started or attempt is None:
        message = f"task {task.id} was never started; give it back, there is nothing to send again"
        raise InvalidTransition(message)
    error = evolve(event.error, code=ErrorCode.SUBMIT_UNKNOWN)
    if event.window is not None and event.delay >= attempt.first_started_at + event.window - now:
        outcome = evolve(task.outcome, error=error)
        return move(task, "Resent", Status.SUBMIT_UNKNOWN, now, outcome=outcome)
    return move(
        task,
        "Resent",
        Status.PENDING_SUBMIT,
        now,
        note="outcome unknown, to be sent again under the same idempotency key",
        progress=evolve(task.progress, consecutive_errors=task.progress.consecutive_errors + 1),
        outcome=evolve(task.outcome, error=error),
        schedule=due_in(task, now, event.delay),
    )


def _left_unknown(task: Task, event: LeftUnknown, now: datetime) -> Task:
    if not task.submission_started:
        message = f"task {task.id} was never started; its submission cannot be of unknown outcome"
        raise InvalidTransition(message)
    return move(
        task, "LeftUnknown", Status.SUBMIT_UNKNOWN, now, outcome=evolve(task.outcome, error=event.error)
    )


def _queried(progress: Progress, now: datetime) -> Progress:
    return evolve(progress, query_count=progress.query_count + 1, queried_at=now)


def _still_going(task: Task, event: StillGoing, now: datetime) -> Task:
    identity = task.identity
    if event.query_params_version is not None:
        identity = evolve(identity, query_params_version=event.query_params_version)
    return move(
        task,
        "StillGoing",
        event.status,
        now,
        identity=identity,
        query_params=event.next_params or task.query_params,
        progress=_change_progress(
            task.progress,
            query_count=task.progress.query_count + 1,
            queried_at=now,
            consecutive_errors=0,
            missing_results=0,
            provider_status=event.provider_status,
            fraction=task.progress.fraction if event.fraction is None else event.fraction,
        ),
        outcome=evolve(task.outcome, error=None) if task.outcome.error else task.outcome,
        schedule=due_in(task, now, event.delay),
    )


def _query_erred(task: Task, event: QueryErred, now: datetime) -> Task:
    if not task.status.queryable:
        message = f"task {task.id} is {task.status}; only a tracked task can have a query error"
        raise InvalidTransition(message)
    progress = evolve(
        _queried(task.progress, now),
        consecutive_errors=task.progress.consecutive_errors + 1,
        missing_results=task.progress.missing_results + 1 if event.result_missing else 0,
    )
    if event.provider_status is not None:
        progress = evolve(progress, provider_status=event.provider_status)
    return evolve(
        task,
        progress=progress,
        outcome=evolve(task.outcome, error=event.error),
        schedule=due_in(task, now, event.delay),
    )


def _gave_up(task: Task, event: GaveUp, now: datetime) -> Task:
    return move(
        task,
        "GaveUp",
        Status.FAILED,
        now,
        progress=_queried(task.progress, now),
        outcome=evolve(task.outcome, error=event.error),
    )


def _cancel_done(task: Task, event: CancelDone, now: datetime) -> Task:
    message = f"cancelled; the provider's answer: {event.remote_cancel}"
    if event.note:
        message += f" ({event.note})"
    if event.remote_cancel is not CancelOutcome.CONFIRMED:
        message += f"; {MAY_STILL_RUN}"
    return move(
        task,
        "CancelDone",
        Status.CANCELED,
        now,
        note=event.note,
        outcome=evolve(
            task.outcome,
            error=TaskError(code=ErrorCode.CANCELED, message=message),
            remote_cancel=event.remote_cancel,
        ),
    )


STEPS: dict[type, Callable[..., Task]] = {
    GaveBack: _gave_back,
    CancelSeen: _cancel_seen,
    Overdue: _overdue,
    Accepted: _accepted,
    Finished: _finished,
    Deferred: _deferred,
    Rejected: _rejected,
    Resent: _resent,
    LeftUnknown: _left_unknown,
    StillGoing: _still_going,
    QueryErred: _query_erred,
    GaveUp: _gave_up,
    CancelDone: _cancel_done,
}
