"""Tasks as rows: which columns a change touches, and how a row is read back.

The parts of a task stand in columns of their own, as `coatcheck.codec` writes them. A step changes few of
them, and what it does not change is the same object before and after: comparing by identity tells what to
write. A few values stand in columns once more, for the indexes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from attrs import define

from coatcheck.codec import FIELDS, decode_task, dumps, encode_fields, loads
from coatcheck.errors import NotPersistable, UndecodableRow
from coatcheck.task import Status, Task, as_millis
from coatcheck_store_sql.places import Place, turn_of
from coatcheck_store_sql.schema import PARTS
from coatcheck_store_sql.words import named, written

__all__ = [
    "Record",
    "changed_columns",
    "dedup_digest",
    "external_key",
    "new_columns",
    "nudge_key",
    "read_row",
]

Columns = dict[str, Any]

_PARTS = frozenset(PARTS)
_values_of = attrgetter(*FIELDS)
_FREES_DEDUP_KEY = frozenset({Status.FAILED, Status.CANCELED})


@define
class Record:
    """A task, and what the store has to know about its row."""

    task: Task
    """Holds no container that a caller could reach."""
    seq: int
    """The row."""
    rev: int
    """How often its snapshot was written; what was read at another rev is outdated."""
    submit_lane: int
    query_lane: int
    place: Place
    """As the row says."""
    spilled: frozenset[str] = frozenset()
    """The parts that stand in `body`."""


# ------------------------------------------------------------------ writing


def new_columns(task: Task) -> Columns:
    """Return the columns of a task that has just been created, but for its lanes and place.

    Raises:
        NotPersistable: something in it cannot be stored.
    """
    if not (task.id.isascii() and task.id.isprintable()):
        _check_id(task.id)
    columns = _columns(encode_fields(task, FIELDS))
    columns |= {
        "rev": 0,
        "handler_key": named(task.route.handler_key),
        "tenant_id": _written(task.route.tenant_id),
        "account_id": _written(task.route.account_id),
        "rank": turn_of(task.schedule, task.id),
        "priority": task.schedule.priority,
        "created_at": as_millis(task.schedule.created_at),
        "due_at": as_millis(task.schedule.due_at),
        "status_since": as_millis(task.schedule.created_at),
        "dedup_key": _written(task.identity.dedup_key),
        "dedup_holder": dedup_digest(task.route.tenant_id, task.identity.dedup_key),
    }
    return {name: value for name, value in columns.items() if value is not None or name in _ALWAYS}


def _written(text: str | None) -> str | None:
    return None if text is None else written(text)


_ALWAYS = frozenset({"dedup_key", "dedup_holder", "metadata", "tenant_id", "account_id"})
"""Columns that inserts name even if they are null, so that there are few kinds of inserts."""


def _check_id(task_id: str) -> None:
    dumps(task_id, path="id")  # raises if it is no text
    if any(ord(character) < _FIRST_PRINTABLE for character in task_id):
        path, message = "id", f"has a control character: {task_id!r}; make ids of printable characters"
        raise NotPersistable(path, message)


_FIRST_PRINTABLE = 32


def changed_columns(before: Task, after: Task) -> Columns:
    """Return the columns in which `after` differs from `before`, a snapshot that it was made from.

    Raises:
        NotPersistable: something new in it cannot be stored.
    """
    pairs = zip(FIELDS, _values_of(before), _values_of(after), strict=True)
    changed = [name for name, old, new in pairs if new is not old]
    columns = _columns(encode_fields(after, changed))
    if "schedule" in columns:
        columns["due_at"] = as_millis(after.schedule.due_at)
        if after.schedule.scheduled_at is not before.schedule.scheduled_at:
            columns["rank"] = turn_of(after.schedule, after.id)
    if "lease" in columns:
        columns["lease_until"] = as_millis(after.lease.until) if after.lease else None
    if "status" in columns:
        columns |= _status_columns(before, after)
    if "outcome" in columns:
        finished_at = after.outcome.finished_at
        columns["finished_at"] = as_millis(finished_at) if finished_at else None
    if "query_params" in columns and after.external_task_id != before.external_task_id:
        external_id = after.external_task_id
        columns["external_key"] = external_key(external_id) if external_id else None
    return columns


def _columns(fields: Mapping[str, Any]) -> Columns:
    """Return the columns of fields of a task's document: parts as JSON texts, the others as they are."""
    columns: Columns = {}
    for name, value in fields.items():
        if name in _PARTS:
            columns[name] = None if value is None else _text(name, value)
        else:
            columns[name] = int(value or 0) if name in _FLAGS else value
    return columns


def _text(name: str, value: Any) -> str:  # noqa: ANN401 - a part of a document
    """Return a part as JSON text; what comes from outside is looked at more closely."""
    if name in _FROM_OUTSIDE or (name == "outcome" and "result" in value):
        return dumps(value, path=name)
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError):
        return dumps(value, path=name)  # names what is wrong
    return text


def _refuse(value: object) -> object:
    message = f"{type(value).__name__} is no JSON"
    raise TypeError(message)


_LENIENCIES = (False, False, False)
"""Keys are not sorted, none is left out, and NaN is no JSON."""


def _make_encoder() -> Callable[[Any], str]:
    """Return what writes compact JSON; the encoder in C is made once, which the library does for each text."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    quote = json.encoder.encode_basestring
    pieces = make(None, _refuse, quote, None, ":", ",", *_LENIENCIES)
    return lambda value: "".join(pieces(value, 0))


_encode = _make_encoder()
_FROM_OUTSIDE = frozenset({"params", "query_params", "metadata"})
_FLAGS = frozenset({"holds_slots", "nudged"})


def _status_columns(before: Task, after: Task) -> Columns:
    columns: Columns = {
        "status_since": as_millis(after.history[-1].at if after.history else after.schedule.created_at)
    }
    frees = after.status in _FREES_DEDUP_KEY
    if frees != (before.status in _FREES_DEDUP_KEY):
        key = None if frees else after.identity.dedup_key
        columns["dedup_holder"] = dedup_digest(after.route.tenant_id, key)
    return columns


def dedup_digest(tenant_id: str | None, key: str | None) -> str | None:
    """Return what the holder of `key` has in `dedup_holder`: exact bytes, and None is a tenant."""
    return None if key is None else _digest(tenant_id, key)


@lru_cache(maxsize=1024)
def external_key(external_task_id: str) -> str:
    """Return what tasks with this external id have in `external_key`."""
    return _digest(external_task_id)


def nudge_key(handler_key: str, external_task_id: str) -> str:
    """Return under what a nudge for this external id is remembered."""
    return _digest(handler_key, external_task_id)


def _digest(*words: str | None) -> str:
    return hashlib.sha256(dumps(list(words), path="key").encode()).hexdigest()


# ------------------------------------------------------------------ reading


def read_row(row: Mapping[str, Any]) -> Task:
    """Return the task of a row, with the texts that had spilled in their columns.

    Raises:
        UndecodableRow: this version cannot read it.
    """
    for name in ("version", "token"):
        if type(row[name]) is not int:
            message = f"a stored task cannot be read by this version: {name} is {row[name]!r}, not a number"
            raise UndecodableRow(message)
    document: dict[str, Any] = {}
    if row["extra"] is not None:
        document |= _object(row["extra"], "extra")
    for name in FIELDS:
        value = row[name]
        if value is not None:
            document[name] = loads(value) if name in _PARTS else value
    document |= {name: bool(row[name]) for name in _FLAGS}
    return decode_task(document)


def _object(text: str, name: str) -> Columns:
    value = loads(text)
    if not isinstance(value, dict):
        message = f"a stored task cannot be read by this version: {name} is no JSON object"
        raise UndecodableRow(message)
    return value
