"""Tasks as JSON, exactly: what goes in comes out equal, and what cannot is refused before it is written.

Documents leave out what is at its default, hold times as whole milliseconds since 1970, and keep top-level
fields that this version does not know. No class name is ever stored, and none is imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from coatcheck.errors import NotPersistable, UndecodableRow
from coatcheck.evolving import evolve
from coatcheck.task import (
    JSON,
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
    Task,
    TaskError,
    Transition,
    as_millis,
    from_millis,
    millis,
)

__all__ = [
    "FIELDS",
    "copy_json",
    "decode_task",
    "digest",
    "dumps",
    "encode_fields",
    "encode_task",
    "isolated",
    "loads",
]

Document = dict[str, Any]


def dumps(value: JSON, *, path: str = "value") -> str:
    """Return `value` as compact JSON text that any store can hold and `loads` reads back equal.

    Raises:
        NotPersistable: it holds NaN or an infinity, a lone surrogate, a key that is no string, or no JSON
            value; `path` is where it starts.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")
        _check_keys(value)
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise NotPersistable(
            path, f"holds the lone surrogate {broken!r}, which is no text; remove or replace it"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPersistable(path, f"is not JSON: {error}") from error
    return text


def _check_keys(value: object) -> None:
    """Refuse keys that are no strings: `json` writes them as strings, so they would come back changed."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                message = f"an object's keys are strings, and one is {key!r}"
                raise TypeError(message)
            if isinstance(each, (dict, list, tuple)):
                _check_keys(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            if isinstance(each, (dict, list, tuple)):
                _check_keys(each)


def loads(text: str | bytes) -> JSON:
    """Return the value of a JSON text; raise `UndecodableRow` if it is none."""
    try:
        return cast("JSON", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UndecodableRow(f"not JSON: {error}") from error


def digest(value: JSON) -> str:
    """Return the SHA-256 of `value` as canonical JSON, in hex."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPersistable("params", f"is not JSON: {error}") from error


def copy_json(value: JSON) -> JSON:
    """Return a copy of `value` that shares no container with it; tuples become lists, mappings dicts."""
    if isinstance(value, Mapping):
        return {key: copy_json(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [copy_json(each) for each in value]
    return value


def _is_container(value: JSON) -> bool:
    return isinstance(value, (Mapping, Sequence)) and not isinstance(value, str)


def isolated(task: Task) -> Task:
    """Return `task` with JSON containers of its own, so that nobody can change a stored one through it."""
    changes: Document = {}
    if _is_container(task.params):
        changes["params"] = copy_json(task.params)
    changes["metadata"] = copy_json(task.metadata)
    if task.query_params is not None:
        changes["query_params"] = QueryParams(
            external_task_id=task.query_params.external_task_id,
            provider_params=cast("Mapping[str, JSON]", copy_json(task.query_params.provider_params)),
        )
    if _is_container(task.outcome.result):
        changes["outcome"] = evolve(task.outcome, result=copy_json(task.outcome.result))
    return evolve(task, **changes)


# ------------------------------------------------------------------ tasks


def _put(document: Document, **fields: object) -> Document:
    """Add the fields that are not None, and times as milliseconds."""
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, datetime):
            document[name] = as_millis(value)
        elif isinstance(value, timedelta):
            document[name] = millis(value)
        else:
            document[name] = value
    return document


def encode_task(task: Task) -> Document:
    """Return `task` as a JSON object; `decode_task` reads it back equal."""
    fields = encode_fields(task, FIELDS)
    return dict(task.extra) | {name: value for name, value in fields.items() if value is not None}


def encode_fields(task: Task, names: Iterable[str]) -> Document:
    """Return these of the fields that `encode_task` writes; None stands for those that it leaves out.

    For stores that keep the parts of a task apart, and write only those that have changed.
    """
    return {name: _ENCODERS[name](task) for name in names}


_ENCODERS: Mapping[str, Callable[[Task], Any]] = {
    "id": lambda task: task.id,
    "status": lambda task: task.status.value,
    "version": lambda task: task.version,
    "token": lambda task: task.token,
    "route": lambda task: _encode_route(task.route),
    "schedule": lambda task: _encode_schedule(task.schedule),
    "identity": lambda task: _encode_identity(task.identity),
    "lease": lambda task: _encode_lease(task.lease) if task.lease else None,
    "attempt": lambda task: _encode_attempt(task.attempt) if task.attempt else None,
    "progress": lambda task: _encode_progress(task.progress) or None,
    "outcome": lambda task: _encode_outcome(task.outcome) or None,
    "params": lambda task: task.params,
    "query_params": lambda task: _encode_query_params(task.query_params) if task.query_params else None,
    "metadata": lambda task: task.metadata or None,
    "cancellation_requested_at": lambda task: (
        as_millis(task.cancellation_requested_at) if task.cancellation_requested_at else None
    ),
    "holds_slots": lambda task: task.holds_slots or None,
    "nudged": lambda task: task.nudged or None,
    "settled_by": lambda task: task.settled_by,
    "history": lambda task: [_encode_transition(entry) for entry in task.history],
}

FIELDS = tuple(_ENCODERS)
"""The fields of a task's document. Others are a newer version's, and kept in `Task.extra`."""

_FIELDS = frozenset(FIELDS)


def decode_task(document: Mapping[str, Any]) -> Task:
    """Return the task of a JSON object.

    Raises:
        UndecodableRow: something is missing or of another kind than this version knows.
    """
    try:
        get = document.get
        return Task(
            id=document["id"],
            status=Status(document["status"]),
            version=document["version"],
            token=document["token"],
            route=_decode_route(document["route"]),
            schedule=_decode_schedule(document["schedule"]),
            identity=Identity(**document["identity"]),
            lease=_decode_lease(document["lease"]) if "lease" in document else None,
            attempt=_decode_attempt(document["attempt"]) if "attempt" in document else None,
            progress=_decode_progress(get("progress") or {}),
            outcome=_decode_outcome(get("outcome") or {}),
            params=get("params"),
            query_params=QueryParams(**document["query_params"]) if "query_params" in document else None,
            metadata=get("metadata") or {},
            cancellation_requested_at=_time(get("cancellation_requested_at")),
            holds_slots=get("holds_slots", False),
            nudged=get("nudged", False),
            settled_by=get("settled_by"),
            history=tuple(_decode_transition(entry) for entry in get("history", ())),
            extra={name: value for name, value in document.items() if name not in _FIELDS},
        )
    except Exception as error:
        kind = type(error).__name__
        raise UndecodableRow(f"a stored task cannot be read by this version: {kind}: {error}") from error


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_millis(value)


def _encode_route(route: Route) -> Document:
    return _put(
        {"handler_key": route.handler_key, "provider_key": route.provider_key},
        account_id=route.account_id,
        tenant_id=route.tenant_id,
        gates=list(route.gates) or None,
        query_gate=route.query_gate,
    )


def _decode_route(document: Document) -> Route:
    return Route(**{**document, "gates": tuple(document.get("gates", ()))})


def _encode_schedule(schedule: Schedule) -> Document:
    rank = schedule.rank
    return _put(
        {"priority": schedule.priority},
        band=rank.band or None,
        credit=rank.credit or None,
        mode=rank.mode,
        created_at=schedule.created_at,
        scheduled_at=schedule.scheduled_at,
        due_at=schedule.due_at,
        deadline_at=schedule.deadline_at,
    )


def _decode_schedule(document: Document) -> Schedule:
    return Schedule(
        priority=document["priority"],
        rank=Rank(
            band=document.get("band", 0),
            credit=timedelta(milliseconds=document.get("credit", 0)),
            mode=document["mode"],
        ),
        created_at=from_millis(document["created_at"]),
        scheduled_at=from_millis(document["scheduled_at"]),
        due_at=from_millis(document["due_at"]),
        deadline_at=from_millis(document["deadline_at"]),
    )


def _encode_identity(identity: Identity) -> Document:
    return _put(
        {"params_digest": identity.params_digest, "idempotency_key": identity.idempotency_key},
        dedup_key=identity.dedup_key,
        params_version=identity.params_version,
        query_params_version=identity.query_params_version,
    )


def _encode_lease(lease: Lease) -> Document:
    return _put(
        {"worker_id": lease.worker_id, "token": lease.token, "nonce": lease.nonce},
        until=lease.until,
        granted_at=lease.granted_at,
        started_at=lease.started_at,
    )


def _decode_lease(document: Document) -> Lease:
    return Lease(
        worker_id=document["worker_id"],
        token=document["token"],
        nonce=document["nonce"],
        until=from_millis(document["until"]),
        granted_at=_time(document.get("granted_at")),
        started_at=_time(document.get("started_at")),
    )


def _encode_attempt(attempt: Attempt) -> Document:
    return _put(
        {"token": attempt.token, "worker_id": attempt.worker_id, "open": attempt.open},
        started_at=attempt.started_at,
        first_started_at=attempt.first_started_at,
    )


def _decode_attempt(document: Document) -> Attempt:
    return Attempt(
        token=document["token"],
        worker_id=document["worker_id"],
        open=document["open"],
        started_at=from_millis(document["started_at"]),
        first_started_at=from_millis(document["first_started_at"]),
    )


def _encode_progress(progress: Progress) -> Document:
    document: Document = {}
    return _put(
        document,
        submit_attempts=progress.submit_attempts or None,
        query_count=progress.query_count or None,
        consecutive_errors=progress.consecutive_errors or None,
        missing_results=progress.missing_results or None,
        lost_leases=progress.lost_leases or None,
        fraction=progress.fraction,
        provider_status=progress.provider_status,
        accepted_at=progress.accepted_at,
        queried_at=progress.queried_at,
    )


def _decode_progress(document: Document) -> Progress:
    if not document:
        return Progress()
    times: Document = {
        name: from_millis(document[name]) for name in ("accepted_at", "queried_at") if name in document
    }
    return Progress(**{**document, **times})


def _encode_outcome(outcome: Outcome) -> Document:
    error = outcome.error
    document: Document = {}
    return _put(
        document,
        result=outcome.result,
        error=_put({"code": str(error.code), "message": error.message}, provider_code=error.provider_code)
        if error
        else None,
        finished_at=outcome.finished_at,
        remote_cancel=outcome.remote_cancel.value if outcome.remote_cancel else None,
    )


def _decode_outcome(document: Document) -> Outcome:
    if not document:
        return Outcome()
    return Outcome(
        result=document.get("result"),
        error=TaskError(**document["error"]) if "error" in document else None,
        finished_at=_time(document.get("finished_at")),
        remote_cancel=CancelOutcome(document["remote_cancel"]) if "remote_cancel" in document else None,
    )


def _encode_query_params(params: QueryParams) -> Document:
    return _put({"external_task_id": params.external_task_id}, provider_params=params.provider_params or None)


def _encode_transition(entry: Transition) -> Document:
    return _put(
        {"at": as_millis(entry.at), "target": entry.target.value, "token": entry.token},
        source=entry.source.value if entry.source else None,
        worker_id=entry.worker_id,
        note=entry.note or None,
        count=entry.count if entry.count > 1 else None,
    )


def _decode_transition(document: Document) -> Transition:
    return Transition(
        at=from_millis(document["at"]),
        source=Status(document["source"]) if "source" in document else None,
        target=Status(document["target"]),
        token=document["token"],
        worker_id=document.get("worker_id"),
        note=document.get("note", ""),
        count=document.get("count", 1),
    )
