"""What happens to a claim: start, renew, settle (S7, S8, S17)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import define

from coatcheck.codec import isolated
from coatcheck.errors import InvalidTransition, LeaseLost, NotPersistable, UndecodableRow
from coatcheck.evolving import constructor
from coatcheck.lifecycle import Settlement, nudged, renewed, returned_grant, settled, started
from coatcheck.locked.snapshots import proven
from coatcheck.store import Hold, Refusal, Refused, Renewal, Settled, Started
from coatcheck.task import Task, from_millis, millis
from coatcheck_store_redis.calls import Calls
from coatcheck_store_redis.records import Change, decode
from coatcheck_store_redis.rows import Known, Read, Rows, busy

__all__ = ["renew", "settle", "start"]

_AT_ONCE = 250
_ROUNDS = 100
_REFUSALS = {
    b"canceled": Refusal.CANCELED,
    b"overdue": Refusal.OVERDUE,
    b"aged": Refusal.GRANT_AGED,
}
_started = constructor(Started)

# ------------------------------------------------------------------ start and renew


async def start(calls: Calls, rows: Rows, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
    """Say of each claim whether its call may be made now, and extend the leases of those that may."""
    answers: list[Started | Refused] = []
    for first in range(0, len(tasks), _AT_ONCE):
        some = tasks[first : first + _AT_ONCE]
        faults = calls.faults
        known = [rows.known(task.id) for task in some]
        told = await calls.step("start", _words_of_start(some, known, lease), start=True)
        if (
            calls.faults != faults
        ):  # another server may have answered, for which the revisions mean something else
            known = [None] * len(some)
            told = await calls.step("start", _words_of_start(some, known, lease), start=True)
        for place, (task, before) in enumerate(zip(some, known, strict=True)):
            answers.append(_answer(rows, task, before, told[1 + 6 * place : 7 + 6 * place]))
    return answers


def _words_of_start(
    tasks: Sequence[Task], known: Sequence[Known | None], lease: timedelta
) -> list[str | int]:
    words: list[str | int] = [millis(lease)]
    for task, before in zip(tasks, known, strict=True):
        held = task.lease
        words += (
            task.id,
            -1 if held is None else held.token,
            "-" if held is None else held.nonce,
            task.version,
            "" if before is None else before.revision,
        )
    return words


def _answer(rows: Rows, task: Task, known: Known | None, told: list[Any]) -> Started | Refused:
    word, revision, began, until, record, document = told
    if word == b"lost":
        return Refused(task, Refusal.LEASE_LOST)
    if record or known is None:
        try:
            revision, now = decode(task.id, record, document)
        except UndecodableRow:
            return Refused(task, Refusal.LEASE_LOST)
    else:
        now = known.task
        if word == b"ok":
            now = started(now, from_millis(int(began)), from_millis(int(until)))
    rows.remember(task.id, int(revision), now)
    return _started(isolated(now)) if word == b"ok" else Refused(isolated(now), _REFUSALS[word])


async def renew(calls: Calls, rows: Rows, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
    """Extend the leases that are still held."""
    answers: list[Renewal] = []
    for first in range(0, len(holds), _AT_ONCE):
        some = holds[first : first + _AT_ONCE]
        words: list[str | int] = [millis(lease)]
        for hold in some:
            words += (hold.task_id, hold.lease.token, hold.lease.nonce)
        told = await calls.step("renew", words)
        for place, hold in enumerate(some):
            until, flagged, revision = told[3 * place : 3 * place + 3]
            held = until != b""
            if held:
                _remember_renewed(rows, hold.task_id, int(revision), from_millis(int(until)))
            answers.append(
                Renewal(
                    hold.task_id,
                    held=held,
                    until=from_millis(int(until)) if held else None,
                    cancellation_requested=bool(flagged),
                )
            )
    return answers


def _remember_renewed(rows: Rows, task_id: str, revision: int, until: datetime) -> None:
    known = rows.known(task_id)
    if known is not None and known.revision == revision and known.task.lease is not None:
        rows.remember(task_id, revision + 1, renewed(known.task, until))


# ------------------------------------------------------------------ settle


@define
class _Settling:
    """One outcome that is to be written."""

    settlement: Settlement
    answer: Settled | None = None
    change: Change | None = None
    nudge: bool = False
    """Whether a nudge is remembered for the external id that it saves."""


async def settle(rows: Rows, settlements: Sequence[Settlement]) -> list[Settled]:
    """Write outcomes, each if its claim still holds; refusals are values, and hurt no other."""
    all_ = [_Settling(each) for each in settlements]
    open_ = all_
    for _ in range(_ROUNDS):
        if not open_:
            break
        # of one task the first comes first, and the next sees what it has become
        batch = list({each.settlement.task.id: each for each in reversed(open_)}.values())[::-1]
        await _round(rows, batch)
        open_ = [each for each in open_ if each.answer is None]
    answers: list[Settled] = []
    for each in all_:
        if each.answer is None:
            raise busy(each.settlement.task.id)
        answers.append(each.answer)
    return answers


async def _round(rows: Rows, batch: list[_Settling]) -> None:
    read = await rows.read([each.settlement.task.id for each in batch])
    await rows.set_aside(read.undecodable)
    for each in batch:
        _judge(each, read)
    writing = [each for each in batch if each.answer is None and each.change is not None]
    revisions = await rows.write([each.change for each in writing if each.change is not None])
    for each, revision in zip(writing, revisions, strict=True):
        rows.forget(each.settlement.task.id)
        if revision > 0 and each.change is not None:
            each.answer = after = each.change.after
            if after.status.queryable:  # whoever claims it next may well be this process
                each.answer = isolated(after)
                rows.remember(after.id, revision, after)
        elif revision < 0:
            each.nudge = True


def _judge(each: _Settling, read: Read) -> None:
    """Compute what the task becomes, or why it is refused."""
    task_id, lease = each.settlement.task.id, each.settlement.task.lease
    each.change = None
    known = read.found.get(task_id)
    if known is None:
        each.answer = LeaseLost(f"task {task_id} is not there, or cannot be read and was set aside")
        return
    try:
        after = settled(known.task, each.settlement, read.now)
        if not isinstance(after, Task):
            each.answer = after
            return
        if after is known.task:
            each.answer = isolated(after)
            return
        if each.nudge:
            after = nudged(after, read.now) or after
        each.change = Change(
            known.revision,
            known.task,
            proven(after, known.task),
            nonce="" if lease is None else lease.nonce,
            returned_grant=returned_grant(known.task, each.settlement.event),
            nudged=each.nudge,
        )
    except (NotPersistable, InvalidTransition) as refusal:
        each.answer = refusal
