"""What a `LockedStore` answers without changing anything: searches and statistics, inside one section."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import cast

from attrs import frozen

from coatcheck.gates import GateUsage
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import Key, above
from coatcheck.locked.snapshots import snapshot
from coatcheck.store import Filter, HandlerStats, PriorityStats, SetAside, Stats
from coatcheck.task import Status, Task, from_millis

__all__ = ["Page", "find_page", "gate_usages", "set_aside_rows", "snapshots_of", "statistics"]

PAGE = 1000
"""How many tasks one section looks at in a search."""
ATTENDED = timedelta(minutes=1)
"""A handler for which nobody has claimed for longer counts as unattended."""


def snapshots_of(ledger: Ledger, task_ids: Collection[str]) -> dict[str, Task]:
    """Return those tasks that exist and can be decoded, by id (S3)."""
    found = {task_id: ledger.load(task_id) for task_id in task_ids}
    return {task_id: snapshot(task) for task_id, task in found.items() if task is not None}


def gate_usages(ledger: Ledger, names: Collection[str] | None) -> list[GateUsage]:
    """Return the defined gates, or those of `names`, by name (S11)."""
    states = (
        ledger.gates.state(name) for name in (ledger.gates.names() if names is None else sorted({*names}))
    )
    return [state.usage() for state in states if state.gate is not None]


@frozen
class Page:
    """What one section of a search found."""

    tasks: Sequence[Task]
    after: str | None
    """Where to go on; None if there is nothing more."""


def find_page(ledger: Ledger, query: Filter, limit: int, after: str | None) -> Page:
    """Return matching tasks with ids above `after`, ascending, as far as one section looks."""
    ids = _candidates(ledger, query, after or "")
    found: list[Task] = []
    last = None
    for looked_at, task_id in enumerate(ids, 1):
        last = task_id
        task = ledger.load(task_id)
        if task is not None and _matches(task, query):
            found.append(snapshot(task))
        if len(found) >= limit or looked_at >= PAGE:
            return Page(found, last)
    return Page(found, None)


def _candidates(ledger: Ledger, query: Filter, after: str) -> Iterable[str]:
    """Return ids above `after`, ascending, among which are those of all tasks that match."""
    if query.external_task_id is not None:
        keys = ledger.records.under(("external", query.external_task_id))
        return sorted(str(key[3]) for key in keys if str(key[3]) > after)
    if query.statuses and all(status.terminal for status in query.statuses):
        wanted = sum(_count_of(ledger, status) for status in query.statuses)
        if wanted <= PAGE:
            indexes = (ledger.records.under(("finished", status.value)) for status in query.statuses)
            return sorted(str(key[3]) for keys in indexes for key in keys if str(key[3]) > after)
    return _ids_above(ledger, after)


def _ids_above(ledger: Ledger, after: str) -> Iterator[str]:
    first, last = above(("task", after)) if after else ("task",), above(("task",))
    while keys := ledger.records.scan(first, last, PAGE):
        yield from (str(key[1]) for key in keys)
        first = above(keys[-1])


def _count_of(ledger: Ledger, status: Status) -> int:
    return sum(count for key, count in _counters(ledger, "count") if key[2] == status.value)


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


def _counters(ledger: Ledger, index: str) -> Iterator[tuple[Key, int]]:
    for key in ledger.records.under((index,)):
        yield key, cast("int", ledger.records.get(key))


# ------------------------------------------------------------------ statistics


def statistics(ledger: Ledger) -> Stats:
    """Return how the store stands (S13); tasks whose time has come count as delayed until they are promoted."""
    handlers: dict[str, dict[Status, int]] = defaultdict(dict)
    for key, count in _counters(ledger, "count"):
        handlers[str(key[1])][Status(str(key[2]))] = count
    return Stats(
        now=ledger.now,
        handlers=[
            HandlerStats(handler_key=key, by_status=counts) for key, counts in sorted(handlers.items())
        ],
        queue=_queue(ledger),
        oldest_submitting=_oldest_submitting(ledger),
        query_lateness=_query_lateness(ledger, handlers),
        unattended={key: due for key in sorted(handlers) if (due := _unattended(ledger, key))},
        set_aside=len(ledger.records.under(("aside",))),
    )


def _queue(ledger: Ledger) -> list[PriorityStats]:
    lengths: dict[int, int] = defaultdict(int)
    for key, count in _counters(ledger, "queued"):
        lengths[cast("int", key[2])] += count
    queue = []
    for negated, waiting in sorted(lengths.items()):
        first = ledger.records.first(("waiting", negated))
        wait = ledger.now - first[2] if first else timedelta()  # type: ignore[operator]  # an instant
        queue.append(PriorityStats(priority=-negated, waiting=waiting, longest_wait=cast("timedelta", wait)))
    return queue


def _oldest_submitting(ledger: Ledger) -> timedelta | None:
    for key in ledger.records.under(("submitting",)):
        task = ledger.load(str(key[2]))
        if task is not None and task.status is Status.SUBMITTING:
            return ledger.now - key[1]  # type: ignore[operator]  # an instant
    return None


def _query_lateness(ledger: Ledger, handlers: Iterable[str]) -> timedelta | None:
    """Return how late the most overdue query is: the first of each lane, whether its gate is open or not."""
    due = [cast("datetime", head[0]) for key in handlers for head in ledger.queries.heads(key)]
    first = min(due, default=ledger.now)
    return ledger.now - first if first <= ledger.now and due else None


def _unattended(ledger: Ledger, handler_key: str) -> int:
    """Return how many tasks of a handler are due, if nobody has claimed for it lately."""
    seen = cast("int | None", ledger.records.get(("seen", handler_key)))
    if seen is not None and ledger.now - from_millis(seen) < ATTENDED:
        return 0
    ready = sum(cast("int", ledger.records.get(key)) for key in ledger.records.under(("queued", handler_key)))
    return ready + ledger.queries.count_until(handler_key, ledger.now)


def set_aside_rows(ledger: Ledger, limit: int) -> list[SetAside]:
    """Return the rows that could not be decoded, by id (S20)."""
    rows = []
    for key in ledger.records.under(("aside",), limit):
        reason, since = cast("tuple[str, int]", ledger.records.get(key))
        rows.append(SetAside(task_id=str(key[1]), reason=reason, since=from_millis(since)))
    return rows
