"""Late proof of a submission, and the decisions of people about tasks that ended in doubt."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from coatcheck.errors import InvalidTransition
from coatcheck.events import (
    Abandon,
    Accepted,
    Adopt,
    Extend,
    Finished,
    Proof,
    Resolution,
)
from coatcheck.evolving import evolve
from coatcheck.lifecycle.moving import MAY_STILL_RUN, canceled_error, closed, due, later, move, noted
from coatcheck.lifecycle.outcomes import accepted_changes, finished_changes
from coatcheck.task import (
    ErrorCode,
    Schedule,
    Status,
    Task,
    TaskError,
)

__all__ = ["attested", "resolved"]


def attested(task: Task, token: int, proof: Proof, now: datetime) -> Task:
    """Take in late proof of the submission that was started under `token`. Never throws an id away.

    While that submission is the open question, the task becomes what the proof says and every rescuer is
    fenced. A cancelled task keeps the id for the remote cancel. Anything else is noted in the history.
    """
    event = proof.event
    external_id = event.query_params.external_task_id if event.query_params else None
    mine = task.attempt is not None and task.attempt.token == token
    unanswered = task.attempt is not None and task.attempt.open
    if mine and unanswered and task.status in _OPEN_TO_PROOF:
        return _proven(task, event, proof.worker_id, now)
    if task.external_task_id == external_id and external_id is not None:
        return _with_remote_cancel(task, proof, now)
    if task.status is Status.CANCELED and mine and (unanswered or external_id) and task.query_params is None:
        return _with_remote_cancel(_kept(task, proof, now), proof, now)
    note = f"late proof of the submission under token {token}: {event.status}, external id {external_id!r}"
    if any(entry.note == note for entry in task.history):
        return task
    # whoever holds the task now may still settle it
    version = task.version if task.lease is not None else task.version + 1
    return evolve(noted(task, now, note, proof.worker_id), version=version)


_OPEN_TO_PROOF = frozenset({Status.PENDING_SUBMIT, Status.SUBMITTING, Status.SUBMIT_UNKNOWN})


def _kept(task: Task, proof: Proof, now: datetime) -> Task:
    """Keep with a cancelled task what its submission came to: the id for the remote cancel, and the result."""
    event, outcome = proof.event, task.outcome
    if isinstance(event, Finished) and outcome.result is None:
        outcome = evolve(outcome, result=event.result)
    told = (
        f"has it as {event.query_params.external_task_id!r}" if event.query_params else f"says {event.status}"
    )
    kept = evolve(
        task,
        version=task.version + 1,
        attempt=closed(task),
        query_params=event.query_params,
        outcome=outcome,
    )
    if isinstance(event, Accepted):
        kept = evolve(kept, identity=evolve(kept.identity, query_params_version=event.query_params_version))
    return noted(kept, now, f"late proof: the provider {told}", proof.worker_id)


def _proven(task: Task, event: Accepted | Finished, worker_id: str | None, now: datetime) -> Task:
    changes = (
        accepted_changes(task, event, now)
        if isinstance(event, Accepted)
        else finished_changes(task, event, now)
    )
    fence: dict[str, Any] = {"version": task.version + 1, "token": task.token + 1, "lease": None}
    changes |= {**fence, "note": "late proof of the started submission", "worker_id": worker_id}
    changes |= {"nudged": False, "progress": evolve(changes["progress"], lost_leases=0)}
    flagged = task.cancellation_requested_at is not None
    if event.status.queryable:
        after = move(task, "attested", event.status, now, **changes)
        return evolve(after, schedule=due(after, now)) if flagged or task.nudged else after
    if not flagged or event.status is Status.CANCELED:
        return move(task, "attested", event.status, now, **changes)
    changes["outcome"] = evolve(
        changes["outcome"], error=canceled_error(changes["outcome"].error, event.status)
    )
    return move(task, "attested", Status.CANCELED, now, **changes)


def _with_remote_cancel(task: Task, proof: Proof, now: datetime) -> Task:
    """Record what came of the remote cancel of a task that had been cancelled before its id was known."""
    if proof.remote_cancel is None or task.status is not Status.CANCELED or task.outcome.remote_cancel:
        return task
    after = evolve(
        task, version=task.version + 1, outcome=evolve(task.outcome, remote_cancel=proof.remote_cancel)
    )
    return noted(after, now, f"remote cancel: {proof.remote_cancel}", proof.worker_id)


def resolved(task: Task, resolution: Resolution, now: datetime) -> Task:
    """Carry out a person's decision about a task that ended in doubt; it takes no slot of any gate."""
    said = f"{type(resolution).__name__.lower()} by {resolution.who or 'unknown'}"
    common: dict[str, Any] = {
        "note": f"{said}: {resolution.note}" if resolution.note else said,
        "version": task.version + 1,
        "token": task.token + 1,
        "lease": None,
        "progress": evolve(task.progress, consecutive_errors=0, lost_leases=0),
    }
    name = type(resolution).__name__
    if isinstance(resolution, Abandon):
        maybe_sent = task.query_params is not None or (task.attempt is not None and task.attempt.open)
        message = f"{common['note']}; {MAY_STILL_RUN}" if maybe_sent else common["note"]
        error = TaskError(code=ErrorCode.ABANDONED, message=message)
        return move(
            task,
            name,
            Status.FAILED,
            now,
            attempt=closed(task),
            outcome=evolve(task.outcome, error=error, finished_at=now),
            **common,
        )
    common["attempt"] = closed(task)
    common["outcome"] = evolve(task.outcome, result=None, error=None, finished_at=None, remote_cancel=None)
    common["schedule"] = _rescheduled(task, resolution.tracking_timeout, now)
    if isinstance(resolution, Adopt):
        common["progress"] = evolve(common["progress"], accepted_at=now)
        return move(
            task,
            name,
            Status.SUBMITTED,
            now,
            params=None,
            query_params=resolution.query_params,
            identity=evolve(task.identity, query_params_version=resolution.query_params_version),
            **common,
        )
    if isinstance(resolution, Extend) and task.query_params is not None:
        return move(task, name, Status.SUBMITTED, now, **common)
    if isinstance(resolution, Extend) and task.attempt is not None and task.attempt.open:
        message = (
            f"task {task.id} was started and its id is not known, so more time cannot help; "
            "adopt it with its id, or abandon it"
        )
        raise InvalidTransition(message)
    return move(task, name, Status.PENDING_SUBMIT, now, **common)


def _rescheduled(task: Task, tracking_timeout: timedelta | None, now: datetime) -> Schedule:
    schedule = task.schedule
    if tracking_timeout is not None:
        deadline = later(now, tracking_timeout)
    elif schedule.deadline_at > now:
        deadline = schedule.deadline_at
    else:
        deadline = now + (schedule.deadline_at - schedule.created_at)
    return evolve(schedule, due_at=min(now, deadline), deadline_at=deadline)
