"""The parts of a task as JSON objects, each with what a newer version has put into it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from coatcheck.codec.texts import dumps, loads
from coatcheck.evolving import constructor
from coatcheck.task import (
    Attempt,
    CancelOutcome,
    Identity,
    Lease,
    Outcome,
    Progress,
    QueryParams,
    Rank,
    Route,
    Schedule,
    Status,
    TaskError,
    Transition,
    as_millis,
    from_millis,
    millis,
)

__all__ = [
    "Document",
    "decode_attempt",
    "decode_identity",
    "decode_lease",
    "decode_outcome",
    "decode_progress",
    "decode_query_params",
    "decode_route",
    "decode_schedule",
    "decode_transition",
    "encode_attempt",
    "encode_identity",
    "encode_lease",
    "encode_outcome",
    "encode_progress",
    "encode_query_params",
    "encode_route",
    "encode_schedule",
    "encode_transition",
    "status_of",
]

Document = dict[str, Any]
"""A JSON object."""

_new_attempt, _new_identity, _new_lease = constructor(Attempt), constructor(Identity), constructor(Lease)
_new_outcome, _new_progress, _new_rank = constructor(Outcome), constructor(Progress), constructor(Rank)
_new_route, _new_schedule, _new_transition = (
    constructor(Route),
    constructor(Schedule),
    constructor(Transition),
)


def _with_extra(document: Document, extra_json: str) -> Document:
    """Add what a newer version had put in, after what this one knows."""
    return document | cast("Document", loads(extra_json))


def _extra_json(rest: Document) -> str | None:
    """Return what is left of a document that all known fields were taken from."""
    return dumps(rest) if rest else None


_STATUSES = {status.value: status for status in Status}


def status_of(word: str) -> Status:
    """Return the status that is written so."""
    return _STATUSES.get(word) or Status(word)  # which says what is wrong


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_millis(value)


def encode_route(route: Route) -> Document:
    """Leave out what is None."""
    document: Document = {"handler_key": route.handler_key, "provider_key": route.provider_key}
    if route.account_id is not None:
        document["account_id"] = route.account_id
    if route.tenant_id is not None:
        document["tenant_id"] = route.tenant_id
    if route.gates:
        document["gates"] = list(route.gates)
    if route.query_gate is not None:
        document["query_gate"] = route.query_gate
    return document if route.extra_json is None else _with_extra(document, route.extra_json)


def decode_route(document: Document) -> Route:
    """Read what `encode_route` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_route(
        handler_key=take("handler_key"),
        provider_key=take("provider_key"),
        account_id=take("account_id", None),
        tenant_id=take("tenant_id", None),
        gates=tuple(take("gates", ())),
        query_gate=take("query_gate", None),
        extra_json=_extra_json(rest),
    )


def encode_schedule(schedule: Schedule) -> Document:
    """Write the rank beside the times."""
    rank, created_at = schedule.rank, as_millis(schedule.created_at)
    document: Document = {"priority": schedule.priority}
    if rank.band:
        document["band"] = rank.band
    if rank.credit:
        document["credit"] = millis(rank.credit)
    document["mode"] = rank.mode
    document["created_at"] = created_at
    document["scheduled_at"] = as_millis(schedule.scheduled_at)
    document["due_at"] = as_millis(schedule.due_at)
    document["deadline_at"] = as_millis(schedule.deadline_at)
    return document if schedule.extra_json is None else _with_extra(document, schedule.extra_json)


def decode_schedule(document: Document) -> Schedule:
    """Read what `encode_schedule` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_schedule(
        priority=take("priority"),
        rank=_new_rank(
            band=take("band", 0), credit=timedelta(milliseconds=take("credit", 0)), mode=take("mode")
        ),
        created_at=from_millis(take("created_at")),
        scheduled_at=from_millis(take("scheduled_at")),
        due_at=from_millis(take("due_at")),
        deadline_at=from_millis(take("deadline_at")),
        extra_json=_extra_json(rest),
    )


def encode_identity(identity: Identity) -> Document:
    """Leave out a dedup key that is None."""
    document: Document = {
        "params_digest": identity.params_digest,
        "idempotency_key": identity.idempotency_key,
        "params_version": identity.params_version,
        "query_params_version": identity.query_params_version,
    }
    if identity.dedup_key is not None:
        document["dedup_key"] = identity.dedup_key
    return document if identity.extra_json is None else _with_extra(document, identity.extra_json)


def decode_identity(document: Document) -> Identity:
    """Read what `encode_identity` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_identity(
        params_digest=take("params_digest"),
        idempotency_key=take("idempotency_key"),
        dedup_key=take("dedup_key", None),
        params_version=take("params_version", 1),
        query_params_version=take("query_params_version", 1),
        extra_json=_extra_json(rest),
    )


def encode_lease(lease: Lease) -> Document:
    """Leave out what is None."""
    document: Document = {
        "worker_id": lease.worker_id,
        "token": lease.token,
        "nonce": lease.nonce,
        "until": as_millis(lease.until),
    }
    if lease.granted_at is not None:
        document["granted_at"] = as_millis(lease.granted_at)
    if lease.started_at is not None:
        document["started_at"] = as_millis(lease.started_at)
    return document if lease.extra_json is None else _with_extra(document, lease.extra_json)


def decode_lease(document: Document) -> Lease:
    """Read what `encode_lease` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_lease(
        worker_id=take("worker_id"),
        token=take("token"),
        nonce=take("nonce"),
        until=from_millis(take("until")),
        granted_at=_time(take("granted_at", None)),
        started_at=_time(take("started_at", None)),
        extra_json=_extra_json(rest),
    )


def encode_attempt(attempt: Attempt) -> Document:
    """Write all of it."""
    document: Document = {
        "token": attempt.token,
        "worker_id": attempt.worker_id,
        "open": attempt.open,
        "started_at": as_millis(attempt.started_at),
        "first_started_at": as_millis(attempt.first_started_at),
    }
    return document if attempt.extra_json is None else _with_extra(document, attempt.extra_json)


def decode_attempt(document: Document) -> Attempt:
    """Read what `encode_attempt` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_attempt(
        token=take("token"),
        worker_id=take("worker_id"),
        open=take("open"),
        started_at=from_millis(take("started_at")),
        first_started_at=from_millis(take("first_started_at")),
        extra_json=_extra_json(rest),
    )


_COUNTS = ("submit_attempts", "query_count", "consecutive_errors", "missing_results", "lost_leases")


def encode_progress(progress: Progress) -> Document:
    """Leave out what is zero or None."""
    document: Document = {name: count for name in _COUNTS if (count := getattr(progress, name))}
    if progress.fraction is not None:
        document["fraction"] = progress.fraction
    if progress.provider_status is not None:
        document["provider_status"] = progress.provider_status
    if progress.accepted_at is not None:
        document["accepted_at"] = as_millis(progress.accepted_at)
    if progress.queried_at is not None:
        document["queried_at"] = as_millis(progress.queried_at)
    return document if progress.extra_json is None else _with_extra(document, progress.extra_json)


def decode_progress(document: Document) -> Progress:
    """Read what `encode_progress` wrote."""
    rest = document.copy()
    take = rest.pop
    return _new_progress(
        submit_attempts=take("submit_attempts", 0),
        query_count=take("query_count", 0),
        consecutive_errors=take("consecutive_errors", 0),
        missing_results=take("missing_results", 0),
        lost_leases=take("lost_leases", 0),
        fraction=take("fraction", None),
        provider_status=take("provider_status", None),
        accepted_at=_time(take("accepted_at", None)),
        queried_at=_time(take("queried_at", None)),
        extra_json=_extra_json(rest),
    )


def encode_outcome(outcome: Outcome) -> Document:
    """Leave out what is None."""
    document: Document = {}
    if outcome.result is not None:
        document["result"] = outcome.result
    if outcome.error is not None:
        document["error"] = _encode_error(outcome.error)
    if outcome.finished_at is not None:
        document["finished_at"] = as_millis(outcome.finished_at)
    if outcome.remote_cancel is not None:
        document["remote_cancel"] = outcome.remote_cancel.value
    return document if outcome.extra_json is None else _with_extra(document, outcome.extra_json)


def decode_outcome(document: Document) -> Outcome:
    """Read what `encode_outcome` wrote."""
    rest = document.copy()
    take = rest.pop
    error, remote_cancel = take("error", None), take("remote_cancel", None)
    return _new_outcome(
        result=take("result", None),
        error=None if error is None else _decode_error(error),
        finished_at=_time(take("finished_at", None)),
        remote_cancel=None if remote_cancel is None else CancelOutcome(remote_cancel),
        extra_json=_extra_json(rest),
    )


def _encode_error(error: TaskError) -> Document:
    document: Document = {"code": str(error.code), "message": error.message}
    if error.provider_code is not None:
        document["provider_code"] = error.provider_code
    return document if error.extra_json is None else _with_extra(document, error.extra_json)


def _decode_error(document: Document) -> TaskError:
    rest = document.copy()
    take = rest.pop
    return TaskError(
        code=take("code"),
        message=take("message"),
        provider_code=take("provider_code", None),
        extra_json=_extra_json(rest),
    )


def encode_query_params(params: QueryParams) -> Document:
    """Leave out provider params of which there are none."""
    document: Document = {"external_task_id": params.external_task_id}
    if params.provider_params:
        document["provider_params"] = params.provider_params
    return document if params.extra_json is None else _with_extra(document, params.extra_json)


def decode_query_params(document: Document) -> QueryParams:
    """Read what `encode_query_params` wrote."""
    rest = document.copy()
    take = rest.pop
    return QueryParams(
        external_task_id=take("external_task_id"),
        provider_params=take("provider_params", None) or {},
        extra_json=_extra_json(rest),
    )


def encode_transition(entry: Transition) -> Document:
    """Leave out what is at its default."""
    document: Document = {"at": as_millis(entry.at), "target": entry.target._value_, "token": entry.token}
    if entry.source is not None:
        document["source"] = entry.source._value_
    if entry.worker_id is not None:
        document["worker_id"] = entry.worker_id
    if entry.note:
        document["note"] = entry.note
    if entry.count > 1:
        document["count"] = entry.count
    return document if entry.extra_json is None else _with_extra(document, entry.extra_json)


def decode_transition(document: Document) -> Transition:
    """Read what `encode_transition` wrote."""
    rest = document.copy()
    take = rest.pop
    source = take("source", None)
    return _new_transition(
        at=from_millis(take("at")),
        source=None if source is None else status_of(source),
        target=status_of(take("target")),
        token=take("token"),
        worker_id=take("worker_id", None),
        note=take("note", ""),
        count=take("count", 1),
        extra_json=_extra_json(rest),
    )
