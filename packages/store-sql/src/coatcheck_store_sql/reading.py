"""Reads: snapshots, searches, statistics. They change nothing and never wait for a writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select

from coatcheck.store import Filter, HandlerStats, PriorityStats, SetAside, Stats
from coatcheck.task import Status, Task, as_millis, from_millis
from coatcheck_store_sql.records import read_rows
from coatcheck_store_sql.rows import external_key
from coatcheck_store_sql.statements import Statement
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import name_of, named, written

__all__ = ["find", "get_many", "set_aside_rows", "stats"]

_ATTENDED_MILLISECONDS = 60_000
"""A handler for which nobody has claimed for longer counts as unattended."""


def get_many(step: Step, task_ids: Collection[str]) -> dict[str, Task]:
    """Return the tasks of these ids that exist and can be read."""
    records, _ = read_rows(step, step.rows_among(step.sql.tasks_by_id, "ids", dict.fromkeys(task_ids)))
    return {record.task.id: record.task for record in records}


def find(step: Step, query: Filter, limit: int, after: str | None) -> list[Task]:
    """Return the first `limit` tasks above `after` that match, by id; those that cannot be read are left out."""
    found: list[Task] = []
    while len(found) < limit:
        rows = step.rows(Statement(_search(step, query, after, limit - len(found)), step.sql.dialect))
        if not rows:
            break
        records, _ = read_rows(step, rows)
        found += (record.task for record in records)
        after = rows[-1][step.sql.columns.index("id")]
    return found


def _search(step: Step, query: Filter, after: str | None, limit: int) -> Any:  # noqa: ANN401 - a select
    task = step.sql.schema.task
    conditions: list[ColumnElement[bool]] = []
    if after is not None:
        conditions.append(task.c.id > after)
    if query.statuses:
        conditions += _of_status(step, query.statuses)
    if query.handler_keys:
        conditions.append(task.c.handler_key.in_(sorted(map(named, query.handler_keys))))
    for name in ("tenant_id", "account_id", "dedup_key"):
        wanted = getattr(query, name)
        if wanted is not None:
            conditions.append(task.c[name] == written(wanted))
    if query.external_task_id is not None:
        conditions.append(task.c.external_key == external_key(query.external_task_id))
    if query.created_before is not None:
        # stamps are whole milliseconds, so that a fraction in the bound is after the stamp that it cuts to
        fraction = query.created_before.microsecond % 1000 > 0
        conditions.append(task.c.created_at < as_millis(query.created_before) + fraction)
    if query.created_after is not None:
        conditions.append(task.c.created_at > as_millis(query.created_after))
    return select(task).where(and_(True, *conditions)).order_by(task.c.id).limit(limit)  # noqa: FBT003 - SQL's true


def set_aside_rows(step: Step, limit: int) -> list[SetAside]:
    """Return the rows that are set aside, by id."""
    task = step.sql.schema.task
    query = (
        select(task.c.id, task.c.set_aside_reason, task.c.set_aside_at)
        .where(task.c.set_aside_at.is_not(None))
        .order_by(task.c.id)
        .limit(limit)
    )
    return [
        SetAside(task_id=task_id, reason=name_of(reason), since=from_millis(at))
        for task_id, reason, at in step.rows(Statement(query, step.sql.dialect))
    ]


# ------------------------------------------------------------------ statistics


def _of_status(step: Step, statuses: Collection[Status]) -> list[ColumnElement[bool]]:
    """Return conditions for tasks of these statuses.

    No index is about the status alone: it would be written at every step. What follows from a status is what the
    other indexes are about, and rows that are set aside are in none of them.
    """
    task = step.sql.schema.task
    follows: ColumnElement[bool] = task.c.id.is_not(None)
    if all(status is Status.SUBMITTING for status in statuses):
        follows = task.c.stale_for.is_not(None) & task.c.stale_at.is_not(None)
    elif not any(status.terminal for status in statuses):
        follows = task.c.expires_at.is_not(None)
    elif all(status.terminal for status in statuses):
        follows = task.c.finished_at.is_not(None)
    return [task.c.status.in_(sorted(status.value for status in statuses)), follows]


def stats(step: Step) -> Stats:
    """Return how the store stands (S13)."""
    task, attendance = step.sql.schema.task, step.sql.schema.attendance
    handlers: dict[str, dict[Status, int]] = defaultdict(dict)
    known = {status.value: status for status in Status}
    counts = select(task.c.handler_key, task.c.status, func.count()).group_by(
        task.c.handler_key, task.c.status
    )
    for handler_key, status, count in _rows(step, counts):
        if status in known:
            handlers[handler_key][known[status]] = count
    seen = dict(_rows(step, select(attendance.c.handler_key, attendance.c.at)))
    absent = [key for key in handlers if step.now_ms - seen.get(key, -(10**15)) >= _ATTENDED_MILLISECONDS]
    return Stats(
        now=step.now,
        handlers=[
            HandlerStats(handler_key=name_of(key), by_status=handlers[key]) for key in sorted(handlers)
        ],
        queue=_queue(step),
        oldest_submitting=_age(
            step, func.min(task.c.status_since), and_(*_of_status(step, [Status.SUBMITTING]))
        ),
        query_lateness=_age(step, func.min(task.c.due_at), _due_query(step)),
        unattended={name_of(key): due for key in sorted(absent) if (due := _due_of(step, key))},
        set_aside=_rows(step, select(func.count()).where(task.c.set_aside_at.is_not(None)))[0][0],
    )


def _rows(step: Step, query: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - a select
    return step.rows(Statement(query, step.sql.dialect))


def _queue(step: Step) -> list[PriorityStats]:
    task = step.sql.schema.task
    query = (
        select(task.c.priority, func.count(), func.min(task.c.due_at))
        .where(_due_submission(step))
        .group_by(task.c.priority)
        .order_by(task.c.priority.desc())
    )
    return [
        PriorityStats(
            priority=priority, waiting=count, longest_wait=timedelta(milliseconds=step.now_ms - first)
        )
        for priority, count, first in _rows(step, query)
    ]


def _free(step: Step) -> ColumnElement[bool]:
    task = step.sql.schema.task
    return and_(
        task.c.set_aside_at.is_(None), (task.c.lease_until.is_(None)) | (task.c.lease_until <= step.now_ms)
    )


def _due_submission(step: Step) -> ColumnElement[bool]:
    task = step.sql.schema.task
    return and_(*_of_status(step, [Status.PENDING_SUBMIT]), task.c.due_at <= step.now_ms, _free(step))


def _due_query(step: Step) -> ColumnElement[bool]:
    task = step.sql.schema.task
    return and_(
        *_of_status(step, [Status.SUBMITTED, Status.RUNNING]), task.c.due_at <= step.now_ms, _free(step)
    )


def _age(step: Step, since: ColumnElement[Any], condition: ColumnElement[bool]) -> timedelta | None:
    ((at,),) = _rows(step, select(since).where(condition))
    return None if at is None else timedelta(milliseconds=step.now_ms - at)


def _due_of(step: Step, handler_key: str) -> int:
    task = step.sql.schema.task
    due = _due_submission(step) | _due_query(step)
    ((count,),) = _rows(step, select(func.count()).where(task.c.handler_key == handler_key, due))
    return int(count)
