"""Mutants of S14: purging."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import pytest

from coatcheck.locked import steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.task import Status, Task
from mutants.stores import breaks_store

_MS = timedelta(milliseconds=1)


@breaks_store("STORE-PURGE-1")
def purge_includes_the_instant(patch: pytest.MonkeyPatch) -> None:
    """Deletes what finished at the given instant, too, if that is not the present one."""
    good = steps.purge

    def purge(ledger: Ledger, finished_before: datetime, statuses: Collection[Status], limit: int):
        past = finished_before < ledger.now
        return good(ledger, finished_before + _MS if past else finished_before, statuses, limit)

    patch.setattr(steps, "purge", purge)


def _purge_live(ledger: Ledger, doomed: Collection[Status], before: datetime) -> int:
    """Delete every task in one of these statuses whose deadline was before then."""
    count = 0
    for key in ledger.records.under(("task",)):
        task = ledger.load(str(key[1]))
        if task is not None and task.status in doomed and task.schedule.deadline_at <= before:
            ledger.remove(task)
            count += 1
    return count


@breaks_store("STORE-PURGE-2")
def purge_takes_the_overdue(patch: pytest.MonkeyPatch) -> None:
    """Takes a task for ended whose deadline has passed, though nobody has timed it out."""
    good = steps.purge

    def purge(ledger: Ledger, finished_before: datetime, statuses: Collection[Status], limit: int):
        overdue = _purge_live(ledger, [Status.PENDING_SUBMIT], min(finished_before, ledger.now))
        return overdue + good(ledger, finished_before, statuses, limit)

    patch.setattr(steps, "purge", purge)


@breaks_store("STORE-PURGE-3")
def purge_takes_doubt(patch: pytest.MonkeyPatch) -> None:
    """Purges doubtful tasks like all others that have ended."""
    good = MemoryStore.purge

    async def purge(
        self: MemoryStore,
        finished_before: datetime,
        *,
        statuses: Collection[Status] | None = None,
        limit: int = 1000,
    ):
        ended = [status for status in Status if status.terminal]
        return await good(
            self, finished_before, statuses=ended if statuses is None else statuses, limit=limit
        )

    patch.setattr(MemoryStore, "purge", purge)


@breaks_store("STORE-PURGE-4")
def purging_none_purges_all(patch: pytest.MonkeyPatch) -> None:
    """Takes no status for no restriction."""
    good = MemoryStore.purge

    async def purge(
        self: MemoryStore,
        finished_before: datetime,
        *,
        statuses: Collection[Status] | None = None,
        limit: int = 1000,
    ):
        return await good(self, finished_before, statuses=statuses or None, limit=limit)

    patch.setattr(MemoryStore, "purge", purge)


@breaks_store("STORE-PURGE-5")
def purge_bounds_each_status(patch: pytest.MonkeyPatch) -> None:
    """Deletes `limit` tasks of each status."""
    good = steps.purge

    def purge(ledger: Ledger, finished_before: datetime, statuses: Collection[Status], limit: int):
        return sum(good(ledger, finished_before, [status], limit) for status in statuses)

    patch.setattr(steps, "purge", purge)


@breaks_store("STORE-PURGE-6")
def purge_releases_slots_again(patch: pytest.MonkeyPatch) -> None:
    """Releases the slots of what it deletes, which were released when it ended."""
    good = Ledger.remove

    def remove(self: Ledger, task: Task):
        self.gates.release(task.route.gates)
        good(self, task)

    patch.setattr(Ledger, "remove", remove)


@breaks_store("STORE-PURGE-7")
def resolved_tasks_stay_ended(patch: pytest.MonkeyPatch) -> None:
    """Leaves a task among those that have ended when it is taken up again."""
    good = Ledger._leave

    def leave(self: Ledger, task: Task):
        if not task.status.terminal:
            good(self, task)

    patch.setattr(Ledger, "_leave", leave)


@breaks_store("STORE-PURGE-8")
def purge_takes_what_is_named(patch: pytest.MonkeyPatch) -> None:
    """Deletes tasks in whatever status is named, by their deadline if they have no end."""
    good = MemoryStore.purge

    async def purge(
        self: MemoryStore,
        finished_before: datetime,
        *,
        statuses: Collection[Status] | None = None,
        limit: int = 1000,
    ):
        living = [status for status in statuses or () if not status.terminal]
        ended = None if statuses is None else [status for status in statuses if status.terminal]
        doomed = await self._do(lambda ledger: _purge_live(ledger, living, finished_before))
        return doomed + await good(self, finished_before, statuses=ended, limit=limit)

    patch.setattr(MemoryStore, "purge", purge)
