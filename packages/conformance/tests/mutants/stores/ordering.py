"""Mutants of S4: who goes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from coatcheck import lifecycle
from coatcheck.events import Deferred, Event, GaveBack
from coatcheck.evolving import evolve
from coatcheck.locked import entries, walk
from coatcheck.locked.ledger import Ledger
from coatcheck.task import LONGEST, Schedule, Status, Task, as_millis, millis
from mutants.stores import breaks_store

_MINUTE = timedelta(minutes=1)


def _ranked(patch: pytest.MonkeyPatch, change: Callable[[Task, Any], Any]) -> None:
    """Let tasks be ranked by what `change` makes of (band, since, created_at, id)."""
    good = entries.submit_turn

    def submit_turn(task):
        name, rank = good(task)
        return name, change(task, rank)

    patch.setattr(entries, "submit_turn", submit_turn)


def _credited(patch: pytest.MonkeyPatch, change: Callable[[timedelta], timedelta]) -> None:
    """Let tasks be ranked by what `change` makes of their credit."""

    def ranked(task, rank):
        since = as_millis(task.schedule.scheduled_at) - millis(change(task.schedule.rank.credit))
        return (rank[0], since, *rank[2:])

    _ranked(patch, ranked)


def _rescheduled(
    patch: pytest.MonkeyPatch, event: type[Event], change: Callable[[Schedule, datetime], datetime]
) -> None:
    """Let what such an event puts back into the queue be scheduled anew."""
    good = lifecycle.settled

    def settled(task, settlement, now):
        after = good(task, settlement, now)
        if not isinstance(after, Task) or not isinstance(settlement.event, event):
            return after
        if after.status is not Status.PENDING_SUBMIT or after is task:
            return after
        scheduled = change(after.schedule, now)
        return evolve(after, schedule=evolve(after.schedule, scheduled_at=scheduled))

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-ORDER-1")
def lowest_priority_overflows(patch: pytest.MonkeyPatch) -> None:
    """Negates the lowest priority in 32 bits, where it becomes the highest."""
    _ranked(patch, lambda _, rank: (rank[0] - 2**32 if rank[0] >= 2**31 else rank[0], *rank[1:]))


@breaks_store("STORE-ORDER-2")
def ranked_by_creation(patch: pytest.MonkeyPatch) -> None:
    """Lets who was created earlier go first, whenever it was scheduled."""

    def ranked(task, rank):
        waited = millis(task.schedule.scheduled_at - task.schedule.created_at)
        return (rank[0], rank[1] - waited, *rank[2:])

    _ranked(patch, ranked)


@breaks_store("STORE-ORDER-3")
def ties_ignore_creation(patch: pytest.MonkeyPatch) -> None:
    """Lets the smaller id go first among those that were scheduled for one time."""
    _ranked(patch, lambda task, rank: (*rank[:2], task.schedule.scheduled_at, task.id))


@breaks_store("STORE-ORDER-4")
def ties_go_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """Lets who was added first go first, as a row number would."""
    good = Ledger.add
    numbers: dict[str, int] = {}

    def add(self, task):
        numbers[task.id] = len(numbers)
        return good(self, task)

    def ranked(task, rank):
        number = timedelta(microseconds=numbers[task.id])
        return (*rank[:2], task.schedule.created_at + number, task.id)

    patch.setattr(Ledger, "add", add)
    _ranked(patch, ranked)


@breaks_store("STORE-ORDER-5")
def urgent_tasks_skip_their_delay(patch: pytest.MonkeyPatch) -> None:
    """Lets a task of very high priority go at once."""
    good = lifecycle.created

    def created(draft, now):
        return good(evolve(draft, delay=timedelta()) if draft.priority > 1000 else draft, now)

    patch.setattr(lifecycle, "created", created)


@breaks_store("STORE-ORDER-6")
def credit_in_whole_minutes(patch: pytest.MonkeyPatch) -> None:
    """Rounds credits up to minutes."""
    _credited(patch, lambda credit: -(-credit // _MINUTE) * _MINUTE)


@breaks_store("STORE-ORDER-7")
def credit_is_clamped(patch: pytest.MonkeyPatch) -> None:
    """Cuts credits to a century, so that the highest priorities are one, and the lowest, too."""
    _credited(patch, lambda credit: min(max(credit, -LONGEST), LONGEST))


@breaks_store("STORE-ORDER-8")
def batch_skips_the_head(patch: pytest.MonkeyPatch) -> None:
    """Leaves the first task of a lane for later when a small batch can be had behind it."""
    good = walk.Walk.__init__

    def init(self, lanes, handler_keys, limit, accept, *, horizon=None):
        seen: set[str] = set()

        def accept_but_first(key):
            lane = str(key[1])
            first = lane not in seen
            seen.add(lane)
            more = len(lanes.records.under((lanes.kind, lane), limit + 2)) > limit + 1
            return None if first and more and 1 < limit <= 10 and lanes.slots else accept(key)

        good(self, lanes, handler_keys, limit, accept_but_first, horizon=horizon)

    patch.setattr(walk.Walk, "__init__", init)


@breaks_store("STORE-ORDER-9")
def handlers_take_turns(patch: pytest.MonkeyPatch) -> None:
    """Submits for one handler after the other, whoever is at the heads of their lanes."""
    good = walk.Walk._merge
    heap = SimpleNamespace(merge=chain, heappush=heapq.heappush, heappop=heapq.heappop)

    def merge(self):
        with pytest.MonkeyPatch.context() as inner:
            if self._lanes.slots:
                inner.setattr(walk, "heapq", heap)
            good(self)

    patch.setattr(walk.Walk, "_merge", merge)


@breaks_store("STORE-ORDER-10")
def deferred_goes_to_the_back(patch: pytest.MonkeyPatch) -> None:
    """Lets a task that was deferred begin to wait when it is due again."""
    _rescheduled(patch, Deferred, lambda schedule, _: schedule.due_at)


@breaks_store("STORE-ORDER-11")
def given_back_goes_to_the_back(patch: pytest.MonkeyPatch) -> None:
    """Lets a task that was given back begin to wait now."""
    _rescheduled(patch, GaveBack, lambda _, now: now)


@breaks_store("STORE-ORDER-12")
def band_is_worth_a_day(patch: pytest.MonkeyPatch) -> None:
    """Adds band and time up to one number."""
    day = millis(timedelta(days=1))
    _ranked(patch, lambda _, rank: (0, rank[1] + rank[0] * day, *rank[2:]))
