"""A task as one JSON object, or as some of its fields, for stores that keep them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coatcheck.codec.parts import (
    Document,
    decode_attempt,
    decode_identity,
    decode_lease,
    decode_outcome,
    decode_progress,
    decode_query_params,
    decode_route,
    decode_schedule,
    decode_transition,
    encode_attempt,
    encode_identity,
    encode_lease,
    encode_outcome,
    encode_progress,
    encode_query_params,
    encode_route,
    encode_schedule,
    encode_transition,
    status_of,
)
from coatcheck.errors import UndecodableRow
from coatcheck.evolving import constructor
from coatcheck.task import Outcome, Progress, Task, as_millis, from_millis

__all__ = ["FIELDS", "decode_task", "encode_fields", "encode_task"]

_new_task = constructor(Task)
_FRESH_PROGRESS, _FRESH_OUTCOME = Progress(), Outcome()


def encode_task(task: Task) -> Document:
    """Return `task` as a JSON object; `decode_task` reads it back equal."""
    document = dict(task.extra)
    for name, encode in _ENCODERS.items():
        value = encode(task)
        if value is not None:
            document[name] = value
    return document


def encode_fields(task: Task, names: Iterable[str]) -> Document:
    """Return these of the fields that `encode_task` writes; None stands for those that it leaves out.

    For stores that keep the parts of a task apart, and write only those that have changed.
    """
    return {name: _ENCODERS[name](task) for name in names}


_ENCODERS: Mapping[str, Callable[[Task], Any]] = {
    "id": lambda task: task.id,
    "status": lambda task: task.status._value_,  # what `value` returns, without its price
    "version": lambda task: task.version,
    "token": lambda task: task.token,
    "route": lambda task: encode_route(task.route),
    "schedule": lambda task: encode_schedule(task.schedule),
    "identity": lambda task: encode_identity(task.identity),
    "lease": lambda task: encode_lease(task.lease) if task.lease else None,
    "attempt": lambda task: encode_attempt(task.attempt) if task.attempt else None,
    "progress": lambda task: encode_progress(task.progress) or None,
    "outcome": lambda task: encode_outcome(task.outcome) or None,
    "params": lambda task: task.params,
    "query_params": lambda task: encode_query_params(task.query_params) if task.query_params else None,
    "metadata": lambda task: task.metadata or None,
    "cancellation_requested_at": lambda task: (
        as_millis(task.cancellation_requested_at) if task.cancellation_requested_at else None
    ),
    "holds_slots": lambda task: task.holds_slots or None,
    "nudged": lambda task: task.nudged or None,
    "settled_by": lambda task: task.settled_by,
    "history": lambda task: [encode_transition(entry) for entry in task.history],
}

FIELDS = tuple(_ENCODERS)
"""The fields of a task's document. Others are a newer version's, and kept in `Task.extra`."""


def decode_task(document: Mapping[str, Any]) -> Task:
    """Return the task of a JSON object.

    Raises:
        UndecodableRow: something is missing or of another kind than this version knows.
    """
    try:
        rest = dict(document)
        take = rest.pop
        query_params, flagged_at = take("query_params", None), take("cancellation_requested_at", None)
        lease, attempt = take("lease", None), take("attempt", None)
        progress, outcome = take("progress", None), take("outcome", None)
        return _new_task(
            id=take("id"),
            status=status_of(take("status")),
            version=take("version"),
            token=take("token"),
            route=decode_route(take("route")),
            schedule=decode_schedule(take("schedule")),
            identity=decode_identity(take("identity")),
            lease=None if lease is None else decode_lease(lease),
            attempt=None if attempt is None else decode_attempt(attempt),
            progress=decode_progress(progress) if progress else _FRESH_PROGRESS,
            outcome=decode_outcome(outcome) if outcome else _FRESH_OUTCOME,
            params=take("params", None),
            query_params=None if query_params is None else decode_query_params(query_params),
            metadata=take("metadata", None) or {},
            cancellation_requested_at=None if flagged_at is None else from_millis(flagged_at),
            holds_slots=take("holds_slots", None) or False,
            nudged=take("nudged", None) or False,
            settled_by=take("settled_by", None),
            history=tuple([decode_transition(entry) for entry in take("history", ())]),
            extra=rest,
        )
    except Exception as error:
        kind = type(error).__name__
        raise UndecodableRow(f"a stored task cannot be read by this version: {kind}: {error}") from error
