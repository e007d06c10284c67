"""Adding tasks (S2): all or none, in one step; what is there already is judged here, and the step repeated."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from attrs import define, frozen

from coatcheck.codec import isolated
from coatcheck.errors import (
    ConfigurationError,
    DedupConflict,
    DuplicateTask,
    StoreUnavailable,
    UndecodableRow,
)
from coatcheck.evolving import changer, constructor
from coatcheck.lifecycle import created
from coatcheck.locked.snapshots import proven
from coatcheck.store import Added
from coatcheck.task import Task, TaskDraft, as_millis, from_millis, millis
from coatcheck_store_redis.calls import Calls, Doubt
from coatcheck_store_redis.records import decode, document_of_draft, nonce_of
from coatcheck_store_redis.words import dedup_field

__all__ = ["add"]

_ROUNDS = 20
_EPOCH = from_millis(0)
_LOW = 1 << 32
_added = constructor(Added)
_with_bodies = changer(TaskDraft, "params", "metadata")


@frozen
class _Lane:
    name: str
    kind: str
    handler_key: str
    gates: str


@lru_cache(maxsize=1 << 14)
def _lane(kind: str, handler_key: str, gates: tuple[str, ...]) -> _Lane:
    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    return _Lane(text([kind, handler_key, *gates]), kind, handler_key, text(gates))


@define
class _Adding:
    """One draft on its way."""

    draft: TaskDraft
    """With params and metadata of its own."""
    dedup: str
    words: list[Any]
    """What the script wants to know of it."""
    twin: int | None = None
    """The place of an earlier draft of the same call that it turns out to be."""
    existing: Task | None = None
    """What is there already in its place."""
    expected: str = ""
    ours: bool = False
    """Whether what is there was added by an earlier try of the same call, whose answer was lost."""


async def add(calls: Calls, drafts: Sequence[TaskDraft]) -> list[Added]:
    """Add tasks, all or none."""
    if not drafts:
        return []
    adding = _prepared(drafts)
    mode = _mode_of(drafts)
    mark, doubt = secrets.token_hex(4), Doubt()
    for _ in range(_ROUNDS):
        sent = [place for place, each in enumerate(adding) if each.twin is None]
        answer = await calls.step("add", _words(adding, sent, mode, mark), doubt=doubt)
        if answer[0] == 0:
            now = from_millis(answer[1])
            return [_outcome(adding, each, now) for each in adding]
        if answer[0] == 1:
            raise _other_mode(answer[1].decode(), mode)
        told = iter(answer[2:])
        for place, kind, task_id, *stored in zip(told, told, told, told, told, strict=True):
            _judge(adding[sent[place]], kind, task_id.decode(), stored, mark if doubt.possible else None)
    message = (
        f"the tasks that hold the ids or dedup keys of {len(drafts)} drafts change all the time; try again"
    )
    raise StoreUnavailable(message)


def _mode_of(drafts: Sequence[TaskDraft]) -> str:
    modes = {draft.rank.mode for draft in drafts}
    if len(modes) > 1:
        first, second, *_ = sorted(modes)
        raise _other_mode(first, second)
    return modes.pop()


def _other_mode(known: str, mode: str) -> ConfigurationError:
    return ConfigurationError(
        f"this store ranks its tasks by {known!r}, and a draft is ranked by {mode!r}; give every app that uses the "
        "store the same priority_ageing"
    )


# ------------------------------------------------------------------ before


def _prepared(drafts: Sequence[TaskDraft]) -> list[_Adding]:
    """Prove that the drafts can be stored, and find those that name the same task.

    Raises:
        NotPersistable: something in a draft cannot be stored.
        DuplicateTask: two drafts have one id, and other params.
        DedupConflict: two drafts have one dedup key, and other params.
    """
    adding: list[_Adding] = []
    by_id: dict[str, int] = {}
    by_key: dict[str, int] = {}
    for place, draft in enumerate(drafts):
        each = _prepare(draft)
        twin = by_id.get(draft.id)
        if twin is not None:
            if adding[twin].draft.identity.params_digest != draft.identity.params_digest:
                raise _duplicate(draft.id)
        elif each.dedup:
            twin = by_key.get(each.dedup)
            if twin is not None and (
                adding[twin].draft.identity.params_digest != draft.identity.params_digest
            ):
                raise _conflict(draft, adding[twin].draft.id)
        each.twin = twin
        if twin is None:
            by_id[draft.id] = place
            if each.dedup:
                by_key[each.dedup] = place
        adding.append(each)
    return adding


def _prepare(draft: TaskDraft) -> _Adding:
    fresh = proven(created(draft, _EPOCH))
    own = _with_bodies(draft, params=fresh.params, metadata=fresh.metadata)
    rank = draft.rank
    high, low = divmod(millis(rank.credit) if rank.credit else 0, _LOW)
    dedup = dedup_field(draft.route.tenant_id, draft.identity.dedup_key)
    words: list[Any] = [
        f"{rank.band + (1 << 31):09x}",
        high,
        low,
        draft.priority,
        millis(draft.delay) if draft.delay else 0,
        "" if draft.not_before is None else -(-_micros(draft) // 1000),
        millis(draft.tracking_timeout),
        dedup,
        document_of_draft(fresh),
    ]
    return _Adding(own, dedup, words)


def _micros(draft: TaskDraft) -> int:
    at = draft.not_before
    return 0 if at is None else as_millis(at) * 1000 + at.microsecond % 1000


def _words(adding: list[_Adding], sent: list[int], mode: str, mark: str) -> list[Any]:
    lanes: dict[_Lane, int] = {}
    words: list[Any] = []
    for place in sent:
        each = adding[place]
        route = each.draft.route
        submit = _lane("s", route.handler_key, tuple(route.gates))
        query = _lane("d", route.handler_key, (route.query_gate,) if route.query_gate else ())
        places = [lanes.setdefault(lane, len(lanes)) for lane in (submit, query)]
        words += (each.draft.id, *places, each.expected, *each.words)
    named = [word for lane in lanes for word in (lane.name, lane.kind, lane.handler_key, lane.gates)]
    return [mode, mark, len(lanes), len(sent), *named, *words]


# ------------------------------------------------------------------ what is there already


def _judge(each: _Adding, kind: bytes, task_id: str, stored: list[bytes], mark: str | None) -> None:
    """Take in what is there in place of a draft, or that it is gone.

    Raises:
        DuplicateTask: it has the id, and other params.
        DedupConflict: it holds the dedup key, and has other params.
        UndecodableRow: it cannot be read.
    """
    if not stored[0]:
        each.existing, each.expected = None, ""
        return
    try:
        _, task = decode(task_id, *stored)
    except UndecodableRow as error:
        message = f"task {task_id} exists, but cannot be read by this version; see set_aside()"
        raise UndecodableRow(message) from error
    if task.identity.params_digest != each.draft.identity.params_digest:
        raise _duplicate(task_id) if kind == b"i" else _conflict(each.draft, task_id)
    each.existing, each.expected = task, "i" if kind == b"i" else f"d{task_id}"
    each.ours = kind == b"i" and mark is not None and nonce_of(stored[0]) == mark


def _duplicate(task_id: str) -> DuplicateTask:
    return DuplicateTask(f"task {task_id} exists, with other params; give each submission an id of its own")


def _conflict(draft: TaskDraft, holder: str) -> DedupConflict:
    message = (
        f"the dedup key {draft.identity.dedup_key!r} is held by task {holder} with other params; "
        "use another key, or wait until that task is purged"
    )
    return DedupConflict(message, holder)


def _outcome(adding: list[_Adding], each: _Adding, now: datetime) -> Added:
    """Return what came of a draft, the same one as of its twin."""
    first = each if each.twin is None else adding[each.twin]
    if first.existing is not None:
        return _added(isolated(first.existing), created=first.ours and each.twin is None)
    task = created(first.draft, now)
    return _added(task if each.twin is None else isolated(task), created=each.twin is None)
