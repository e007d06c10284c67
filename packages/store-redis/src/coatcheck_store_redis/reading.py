"""Reads: searches and statistics (S3, S13)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from coatcheck.errors import UndecodableRow
from coatcheck.store import Filter, HandlerStats, PriorityStats, Stats
from coatcheck.task import Status, Task, as_millis, from_millis
from coatcheck_store_redis.calls import Calls
from coatcheck_store_redis.records import decode
from coatcheck_store_redis.rows import Rows
from coatcheck_store_redis.words import written

__all__ = ["find", "stats"]

_PAGE = 250
_FEW = 1000
_ATTENDED_MILLISECONDS = 60_000
"""A handler for which nobody has claimed for longer counts as unattended."""
_STATUSES = list(Status)
_CODES = {status: str(number) for number, status in enumerate(_STATUSES)}
_INDEXES = {
    Status.SUBMITTING: "submitting",
    **{status: f"fin:{_CODES[status]}" for status in Status if status.terminal},
}
"""Where all tasks of a status are, for statuses that have such a place."""


async def find(calls: Calls, rows: Rows, query: Filter, limit: int, after: str | None) -> list[Task]:
    """Return the first `limit` tasks above `after` that match, by id; those that cannot be read are left out."""
    candidates = await _candidates(calls, rows, query)
    if candidates is not None:
        found = sorted(
            (task for task in candidates if (after is None or task.id > after) and _matches(task, query)),
            key=lambda task: task.id,
        )
        return found[:limit]
    return await _walk(calls, query, limit, after)


async def _candidates(calls: Calls, rows: Rows, query: Filter) -> list[Task] | None:
    """Return a few tasks among which are all that match; None if no index says which."""
    if query.external_task_id is not None:
        _, *told = await calls.step("named", (written(query.external_task_id), "", 0, 0))
        return list(_decoded(told))
    if query.statuses and all(status in _INDEXES for status in query.statuses):
        ids = await calls.look("ended", (_FEW, *sorted({_INDEXES[status] for status in query.statuses})))
        if ids != [-1]:
            read = await rows.read([task_id.decode() for task_id in ids])
            return [known.task for known in read.found.values()]
    return None


async def _walk(calls: Calls, query: Filter, limit: int, after: str | None) -> list[Task]:
    """Look at all tasks, a page at a time."""
    statuses = f",{','.join(sorted(_CODES[status] for status in query.statuses))}," if query.statuses else ""
    early, late = "", ""
    if query.created_before is not None:
        # stamps are whole milliseconds, so that a fraction in the bound is after the stamp that it cuts to
        early = str(as_millis(query.created_before) + (1 if query.created_before.microsecond % 1000 else 0))
    if query.created_after is not None:
        late = str(as_millis(query.created_after))
    found: list[Task] = []
    on: str | bytes = after or ""
    while len(found) < limit:
        on, *told = await calls.look("page", (on, _PAGE, statuses, early, late))
        found += (task for task in _decoded(told) if _matches(task, query))
        if not on:
            break
        await asyncio.sleep(0)
    return found[:limit]


def _decoded(told: list[bytes]) -> Iterator[Task]:
    pairs = iter(told)
    for name, *stored in zip(pairs, pairs, pairs, strict=True):
        try:
            yield decode(name.decode(), *stored)[1]
        except UndecodableRow:
            continue


def _matches(task: Task, query: Filter) -> bool:
    route, created_at = task.route, task.schedule.created_at
    return (
        (not query.statuses or task.status in query.statuses)
        and (not query.handler_keys or route.handler_key in query.handler_keys)
        and query.tenant_id in (None, route.tenant_id)
        and query.account_id in (None, route.account_id)
        and query.dedup_key in (None, task.identity.dedup_key)
        and query.external_task_id in (None, task.external_task_id)
        and (query.created_before is None or created_at < query.created_before)
        and (query.created_after is None or created_at > query.created_after)
    )


# ------------------------------------------------------------------ statistics


async def stats(calls: Calls) -> Stats:
    """Return how the store stands; tasks whose time has come are made ready first."""
    while True:
        now, counts, queued, ready, firsts, seen, oldest, aside, behind = await calls.step("stats", ())
        if not behind:
            break
        await asyncio.sleep(0)
    handlers: dict[str, dict[Status, int]] = defaultdict(dict)
    for name, count in _pairs(counts, int):
        handler, _, code = name.rpartition("\0")
        handlers[handler][_STATUSES[int(code)]] = count
    due, late = await _due_queries(calls)
    waiting = dict(_pairs(ready, int))
    attended = {name for name, at in _pairs(seen, int) if now - at < _ATTENDED_MILLISECONDS}
    first_due = dict(_pairs(firsts, int))
    unattended = {
        name: waiting.get(name, 0) + due.get(name, 0) for name in sorted(handlers) if name not in attended
    }
    return Stats(
        now=from_millis(now),
        handlers=[HandlerStats(handler_key=name, by_status=handlers[name]) for name in sorted(handlers)],
        queue=[
            PriorityStats(
                priority=int(priority),
                waiting=count,
                longest_wait=timedelta(milliseconds=max(now - first_due[priority], 0)),
            )
            for priority, count in sorted(_pairs(queued, int), key=lambda each: -int(each[0]))
        ],
        oldest_submitting=timedelta(milliseconds=max(now - int(oldest), 0)) if oldest else None,
        query_lateness=timedelta(milliseconds=now - late) if late is not None and late <= now else None,
        unattended={name: count for name, count in unattended.items() if count},
        set_aside=aside,
    )


async def _due_queries(calls: Calls) -> tuple[dict[str, int], int | None]:
    """Return how many queries are due for each handler, and when the first of all is."""
    due: dict[str, int] = defaultdict(int)
    first: int | None = None
    cursor: bytes | str = "0"
    while True:
        cursor, *told = await calls.look("due", (cursor,))
        lanes = iter(told)
        for handler, count, at in zip(lanes, lanes, lanes, strict=True):
            due[handler.decode()] += count
            if at and (first is None or int(at) < first):
                first = int(at)
        if cursor == b"0":
            return due, first


def _pairs(flat: list[Any], read: Callable[[Any], int]) -> Iterator[tuple[str, int]]:
    items = iter(flat)
    for name, value in zip(items, items, strict=True):
        yield name.decode(), read(value)
