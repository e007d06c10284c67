"""Records: what is stored of a task, and the task that it stands for.

A record holds the fields that the scripts look at; the task's document, which they don't look into, is apart. Claims,
starts and renewals change only the record; what they make of the task is derived, when it is read, by the same pure
functions of `coatcheck.lifecycle` that other stores call when they write. The fields, in their order:

=========  ==================================================================================================
base       D: the document is a draft's, and the task is what `lifecycle.created` made of it; T: it is a task's
st         status (its place in `Status`)
rev        counts the writes
ver, tok   version and token
sl, ql     the numbers of the lanes in which it waits to be submitted, and queried
prio       priority
created,   times, in milliseconds; 0 is none. `sched` is when it may first be submitted, `due` its next turn, `dead` its
sched,     deadline, `fin` its end, `flag` when cancellation was requested, `til` the end of its lease, `granted` when a
due, dead, rate granted that, `started` when the call was declared
fin, flag,
til,
granted,
started
slots      1: it holds a slot of each gate
rank       what it is ordered by among tasks to be submitted: 37 hexadecimal digits, which sort as they should
nonce      of its lease; without one, it may name the call that added the task
dk, ext    the field of its dedup key, and the provider's id
log        the claims since the document was written, each "kind nonce token time grant worker", joined by a byte 30
more       what a newer version adds; kept
=========  ==================================================================================================
"""

from __future__ import annotations

import json
import struct
from datetime import datetime
from typing import Any, cast

from attrs import frozen

from coatcheck.codec import decode_task, encode_task, loads
from coatcheck.errors import UndecodableRow
from coatcheck.evolving import changer, constructor, evolve
from coatcheck.lifecycle import claimed_for_query, claimed_for_submission, started
from coatcheck.task import Lease, Status, Task, as_millis, from_millis
from coatcheck_store_redis.words import plain, written

__all__ = [
    "Change",
    "arguments_of",
    "claimed_since",
    "decode",
    "document_of_draft",
    "nonce_of",
    "revision_of",
]

_FIXED = struct.Struct(">cB5Ii9QB37s")
_LENGTH = struct.Struct(">I")
_NEXT = b"\x1e"
_as_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""What is written was proven to be storable, so nothing is checked once more."""
_CODES = {status: str(number) for number, status in enumerate(Status)}
_new_lease = constructor(Lease)
_with_lease, _with_until = changer(Task, "lease"), changer(Lease, "until")


@frozen
class _Fields:
    """What is read of a record."""

    created: int
    sched: int
    due: int
    dead: int
    until: int
    started: int


def _texts(record: bytes) -> list[bytes]:
    """Return the texts of a record: nonce, dedup field, external id, log, and the rest."""
    texts, at = [], _FIXED.size
    for _ in range(5):
        (size,) = _LENGTH.unpack_from(record, at)
        at += 4 + size
        texts.append(record[at - size : at])
    return texts


def decode(task_id: str, record: bytes, document: bytes) -> tuple[int, Task]:
    """Return the revision of a record, and the task for which it and its document stand.

    Raises:
        UndecodableRow: this version cannot read it.
    """
    try:
        base, _, rev, ver, tok, _, _, _, created, sched, due, dead, _, _, until, _, began, _, _ = (
            _FIXED.unpack_from(record)
        )
        written_down = cast("dict[str, Any]", loads(document.decode()))
        fields = _Fields(created, sched, due, dead, until, began)
        _complete(written_down, task_id, fields, draft=base == b"D")
        task = decode_task(written_down)
        if until:
            log = _texts(record)[3] if ver != task.version or tok != task.token else b""
            task = _as_claimed(task, fields, log)
    except UndecodableRow:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UndecodableRow(f"a stored task cannot be read by this version: {kind}: {error}") from error
    else:
        return rev, task


def claimed_since(task: Task, revision: int, record: bytes) -> Task | None:
    """Return what a claim has made of a task as it was settled at `revision`, or None if more has happened since."""
    if task.lease is not None or revision_of(record) != revision + 1:
        return None
    _, _, _, _, _, _, _, _, created, sched, due, dead, _, _, until, _, began, _, _ = _FIXED.unpack_from(
        record
    )
    return _as_claimed(task, _Fields(created, sched, due, dead, until, began), _texts(record)[3])


def revision_of(record: bytes) -> int:
    """Return how often a record has been written."""
    revision: int = _FIXED.unpack_from(record)[2]
    return revision


def nonce_of(record: bytes) -> str:
    """Return the nonce of a record's lease, or the mark of the call that added it."""
    return _texts(record)[0].decode()


_TIMES = ("created_at", "scheduled_at", "due_at", "deadline_at")


def document_of_draft(fresh: Task) -> str:
    """Return the document of a task that is about to be added, without what the server stamps."""
    document = encode_task(fresh)
    for name in ("status", "version", "token", "history"):
        del document[name]
    return _written(document)


def document_of_task(task: Task) -> str:
    """Return the document of a task, without what its record says as well."""
    return _written(encode_task(task))


def _written(document: dict[str, Any]) -> str:
    task_id, route, identity, schedule = (document[name] for name in ("id", "route", "identity", "schedule"))
    del document["id"]
    if identity["idempotency_key"] == task_id:
        del identity["idempotency_key"]
    if route["provider_key"] == route["handler_key"]:
        del route["provider_key"]
    for name in _TIMES:
        del schedule[name]
    return _as_text(document)


def _complete(document: dict[str, Any], task_id: str, fields: _Fields, *, draft: bool) -> None:
    """Put into a document what its record says."""
    document.setdefault("id", task_id)
    document["identity"].setdefault("idempotency_key", task_id)
    route, schedule = document["route"], document["schedule"]
    route.setdefault("provider_key", route["handler_key"])
    for name, value in zip(_TIMES, (fields.created, fields.sched, fields.due, fields.dead), strict=True):
        schedule.setdefault(name, value)
    if draft:
        document |= {"status": "PENDING_SUBMIT", "version": 0, "token": 0}
        document.setdefault("history", [{"at": fields.created, "target": "PENDING_SUBMIT", "token": 0}])


def _as_claimed(task: Task, fields: _Fields, log: bytes) -> Task:
    """Return what the claims, the start and the renewals since the document was written have made of a task."""
    ends = from_millis(fields.until)
    if log:
        for entry in log.split(_NEXT):
            kind, nonce, token, at, granted, worker = entry.split(b" ", 5)
            lease = _new_lease(
                worker_id=plain(worker),
                token=int(token),
                nonce=nonce.decode(),
                until=ends,
                granted_at=from_millis(int(granted)) if granted else None,
            )
            claimed = claimed_for_submission if kind == b"s" else claimed_for_query
            task = claimed(task, lease, from_millis(int(at)))
    lease_now = task.lease
    if lease_now is not None and fields.started and lease_now.started_at is None:
        return started(task, from_millis(fields.started), ends)
    if lease_now is not None and lease_now.until != ends:
        return _with_lease(task, lease=_with_until(lease_now, until=ends))
    return task


# ------------------------------------------------------------------ writing


@frozen
class Change:
    """What one task is to become, if it is still as it was read."""

    revision: int
    before: Task
    after: Task
    """Proven to be storable."""
    nonce: str = ""
    """The lease under which it is changed, and which must be live then; empty: nobody's."""
    returned_grant: datetime | None = None
    """The rate grant that is given back."""
    nudged: bool = False
    """Whether a nudge that was remembered for its external id is applied already."""

    def as_nudged(self, after: Task) -> Change:
        """Return the same change with the nudge applied."""
        return evolve(self, after=after, nudged=True)


def _time(at: datetime | None) -> int | str:
    return "" if at is None else as_millis(at)


def arguments_of(change: Change) -> list[Any]:
    """Return what `write.lua` wants to know of a change."""
    task, before = change.after, change.before
    schedule, lease, external_id = task.schedule, task.lease, task.external_task_id
    return [
        task.id,
        change.revision,
        change.nonce,
        _CODES[task.status],
        task.version,
        task.token,
        as_millis(schedule.due_at),
        as_millis(schedule.deadline_at),
        _time(task.outcome.finished_at) if task.status.terminal else "",
        _time(task.cancellation_requested_at),
        "1" if task.holds_slots else "",
        "" if lease is None else as_millis(lease.until),
        "" if lease is None else lease.nonce,
        "" if lease is None else _time(lease.granted_at),
        "" if lease is None else _time(lease.started_at),
        "" if external_id is None else written(external_id),
        _time(change.returned_grant),
        "d" if before.status.queryable else "s",
        "1" if change.nudged else "",
        document_of_task(task),
    ]
