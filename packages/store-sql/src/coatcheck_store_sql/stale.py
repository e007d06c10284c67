"""Claims of tasks that need a decision rather than a turn (S6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta

from coatcheck.lifecycle import claimed_stale, lease_ended
from coatcheck.store import STALE_GRACE, Claims
from coatcheck.task import Status, Task, millis
from coatcheck_store_sql.claims import attend, claim
from coatcheck_store_sql.places import ANYONE
from coatcheck_store_sql.records import Changes, hand_out, records_by_seq
from coatcheck_store_sql.rows import Record
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import named

__all__ = ["claim_stale"]

_PAGE = 1_000
"""How many submissions that were never started one claim takes back."""


def claim_stale(
    step: Step, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
) -> Claims:
    """Claim up to `limit` tasks that need a decision, and take back submissions that were never started."""
    mine = frozenset(map(named, handler_keys))
    returned = _take_back(step)
    changes = Changes(step)
    tasks: list[Task] = []
    for record in records_by_seq(step, _stale_rows(step, mine, limit)) if limit > 0 else ():
        task = claim(step, record.task, claimed_stale, worker_id, lease)
        tasks.append(changes.put(record, task).task)
    changes.write()
    attend(step, mine)
    return Claims(tuple(hand_out(task) for task in tasks), again=returned >= _PAGE)


def _take_back(step: Step) -> int:
    """Put submissions whose worker is gone, and which were never started, back into the queue."""
    changes = Changes(step)
    rows = step.rows(step.sql.stale, stale_for=ANYONE, now=step.now_ms, limit=_PAGE)
    for record in records_by_seq(step, [seq for (seq,) in rows]):
        if record.task.status is not Status.SUBMITTING or record.task.submission_started:
            continue
        _give_back_grants(changes, record)
        changes.put(record, lease_ended(record.task, step.now))
    changes.write()
    return len(rows)


def _give_back_grants(changes: Changes, record: Record) -> None:
    lease = record.task.lease
    if lease is not None and lease.granted_at is not None:
        changes.give_back(map(named, record.task.route.gates), lease.granted_at)


def _stale_rows(step: Step, mine: frozenset[str], limit: int) -> list[int]:
    """Return rows that need a decision which this worker may make: own handlers first, then anybody's."""
    found: dict[int, None] = {}
    for seq in _candidates(step, mine, limit):
        found[seq] = None
        if len(found) >= limit:
            break
    return list(found)


def _candidates(step: Step, mine: frozenset[str], limit: int) -> Iterator[int]:
    now = step.now_ms
    for handler in sorted(mine):
        for (seq,) in step.rows(step.sql.stale, stale_for=handler, now=now, limit=limit):
            yield seq
    for (seq,) in step.rows(step.sql.expired, now=now, limit=limit):
        yield seq
    lapsed = now - millis(STALE_GRACE)
    for (handler,) in step.rows(step.sql.handlers):
        if handler not in mine:
            for (seq,) in step.rows(step.sql.stale, stale_for=handler, now=lapsed, limit=limit):
                yield seq
