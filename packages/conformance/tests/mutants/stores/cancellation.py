"""Mutants of S9: cancelling."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from attrs import evolve

from coatcheck import lifecycle
from coatcheck.errors import TaskNotFound
from coatcheck.lifecycle.moving import due
from coatcheck.locked import entries, steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.task import Lease, Status, Task
from mutants.stores import breaks_store


@breaks_store("STORE-CANCEL-1")
def delayed_task_is_only_flagged(patch: pytest.MonkeyPatch) -> None:
    """Leaves it to a worker to cancel what waits for its time."""
    good = lifecycle.cancellation_requested

    def cancellation_requested(task: Task, now: datetime) -> Task | None:
        after = good(task, now)
        delayed = task.status is Status.PENDING_SUBMIT and task.lease is None and task.schedule.due_at > now
        return evolve(task, cancellation_requested_at=now) if after and delayed else after

    patch.setattr(lifecycle, "cancellation_requested", cancellation_requested)


@breaks_store("STORE-CANCEL-2")
def each_request_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """Says yes to every request as long as the task has not come to its end."""
    good = steps.cancel

    def cancel(ledger: Ledger, task_id: str) -> bool:
        task = ledger.load(task_id)
        flagged = task is not None and not task.status.terminal and task.cancellation_requested_at is not None
        return good(ledger, task_id) or flagged

    patch.setattr(steps, "cancel", cancel)


@breaks_store("STORE-CANCEL-3")
def doubt_takes_a_flag(patch: pytest.MonkeyPatch) -> None:
    """Does not count a doubt among the ends, and says yes."""
    good = lifecycle.cancellation_requested

    def cancellation_requested(task: Task, now: datetime) -> Task | None:
        if task.status is Status.SUBMIT_UNKNOWN and task.cancellation_requested_at is None:
            return evolve(task, cancellation_requested_at=now)
        return good(task, now)

    patch.setattr(lifecycle, "cancellation_requested", cancellation_requested)


@breaks_store("STORE-CANCEL-3")
def cancelling_nobody_raises(patch: pytest.MonkeyPatch) -> None:
    """Complains that there is no such task."""
    good = steps.cancel

    def cancel(ledger: Ledger, task_id: str) -> bool:
        if ledger.load(task_id) is None:
            raise TaskNotFound(task_id)
        return good(ledger, task_id)

    patch.setattr(steps, "cancel", cancel)


@breaks_store("STORE-CANCEL-4")
def flag_makes_a_leased_task_due(patch: pytest.MonkeyPatch) -> None:
    """Makes a task due at once while a worker has it."""
    good = lifecycle.cancellation_requested

    def cancellation_requested(task: Task, now: datetime) -> Task | None:
        after = good(task, now)
        return evolve(after, schedule=due(after, now)) if after and after.lease else after

    patch.setattr(lifecycle, "cancellation_requested", cancellation_requested)


@breaks_store("STORE-CANCEL-5")
def flag_moves_the_version(patch: pytest.MonkeyPatch) -> None:
    """Counts a flag on a tracked task that nobody has as a new version of it."""
    good = lifecycle.cancellation_requested

    def cancellation_requested(task: Task, now: datetime) -> Task | None:
        after = good(task, now)
        free = task.status.queryable and task.lease is None
        return evolve(after, version=task.version + 1) if after and free else after

    patch.setattr(lifecycle, "cancellation_requested", cancellation_requested)


def _claim_forgets_flag(patch: pytest.MonkeyPatch, status: Status) -> None:
    good = lifecycle.claimed_stale

    def claimed_stale(task: Task, lease: Lease, now: datetime) -> Task:
        after = good(task, lease, now)
        return evolve(after, cancellation_requested_at=None) if task.status is status else after

    patch.setattr(lifecycle, "claimed_stale", claimed_stale)


@breaks_store("STORE-CANCEL-6")
def rescue_forgets_the_flag(patch: pytest.MonkeyPatch) -> None:
    """Begins anew with a submission whose worker died, without what had been asked for."""
    _claim_forgets_flag(patch, Status.SUBMITTING)


@breaks_store("STORE-CANCEL-7")
def second_turn_forgets_the_flag(patch: pytest.MonkeyPatch) -> None:
    """Takes the flag off when the provider has said that it goes on."""
    _claim_forgets_flag(patch, Status.RUNNING)


@breaks_store("STORE-CANCEL-8")
def flag_frees_the_key(patch: pytest.MonkeyPatch) -> None:
    """Frees the dedup key as soon as a cancellation was accepted."""
    good = steps.cancel

    def cancel(ledger: Ledger, task_id: str) -> bool:
        accepted = good(ledger, task_id)
        task = ledger.load(task_id)
        if accepted and task is not None and task.identity.dedup_key is not None:
            ledger.records.delete(entries.dedup_key(task))
        return accepted

    patch.setattr(steps, "cancel", cancel)


@breaks_store("STORE-CANCEL-9")
def leased_pending_task_is_flagged(patch: pytest.MonkeyPatch) -> None:
    """Flags whatever somebody holds, also if nothing of it was sent."""
    good = lifecycle.cancellation_requested

    def cancellation_requested(task: Task, now: datetime) -> Task | None:
        after = good(task, now)
        held = task.status is Status.PENDING_SUBMIT and task.lease is not None
        return evolve(task, cancellation_requested_at=now) if after and held else after

    patch.setattr(lifecycle, "cancellation_requested", cancellation_requested)


@breaks_store("STORE-CANCEL-10")
def cancel_looks_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """Looks in one step whether the request is the first, and flags in another."""
    good = MemoryStore.request_cancellation

    async def request_cancellation(self, task_id):
        task = await self.get(task_id)
        if task is None or task.status.terminal or task.cancellation_requested_at is not None:
            return False
        await asyncio.sleep(0)
        await good(self, task_id)
        return True

    patch.setattr(MemoryStore, "request_cancellation", request_cancellation)


@breaks_store("STORE-CANCEL-11")
def settle_writes_what_it_read_before(patch: pytest.MonkeyPatch) -> None:
    """Writes rows back as they were read in an earlier step, if the version is still the same."""
    good = MemoryStore.settle
    good_load = Ledger.load

    async def settle(self, settlements):
        before = await self.get_many([each.task.id for each in settlements])
        await asyncio.sleep(0)

        def load(ledger: Ledger, task_id: str) -> Task | None:
            now, then = good_load(ledger, task_id), before.get(task_id)
            return then if now and then and now.version == then.version else now

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Ledger, "load", load)
            return await good(self, settlements)

    patch.setattr(MemoryStore, "settle", settle)
