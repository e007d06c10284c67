"""Mutants of S2: dedup keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from attrs import evolve

from coatcheck import lifecycle
from coatcheck.errors import DedupConflict
from coatcheck.locked import entries, steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.store import Added
from coatcheck.task import Status, Task, TaskDraft
from mutants.stores import breaks_store


@breaks_store("STORE-ADD-9")
def dedup_without_tenants_only(patch: pytest.MonkeyPatch) -> None:
    """Looks for the holder of a key among the tasks without a tenant only."""
    good = Ledger.holder_of
    patch.setattr(
        Ledger, "holder_of", lambda self, task: None if task.route.tenant_id is not None else good(self, task)
    )


@breaks_store("STORE-ADD-10")
def no_tenant_is_an_empty_one(patch: pytest.MonkeyPatch) -> None:
    """Stores None and an empty text alike, so that they share their keys."""
    patch.setattr(
        entries, "dedup_key", lambda task: ("dedup", 0, task.route.tenant_id or "", task.identity.dedup_key)
    )


@breaks_store("STORE-ADD-11")
def holders_are_looked_up_before_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Finds who holds a key before the batch, so that two of one batch both get it."""
    good = MemoryStore.add
    good_holder = Ledger.holder_of

    async def add(self, drafts, *, transaction=None):
        ids = {draft.id for draft in drafts}

        def holder_of(ledger: Ledger, task: Task) -> str | None:
            holder = good_holder(ledger, task)
            return None if holder in ids else holder

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Ledger, "holder_of", holder_of)
            return await good(self, drafts, transaction=transaction)

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-ADD-12")
def conflict_names_the_newcomer(patch: pytest.MonkeyPatch) -> None:
    """Names the task that was refused, instead of the one that holds the key."""
    good = steps.add

    def add(ledger: Ledger, draft: TaskDraft) -> Added:
        try:
            return good(ledger, draft)
        except DedupConflict as error:
            raise DedupConflict(str(error), draft.id) from error

    patch.setattr(steps, "add", add)


def _keeps_key(patch: pytest.MonkeyPatch, source: Status, target: Status) -> None:
    good = Ledger._change_status

    def change_status(self: Ledger, old: Task, new: Task) -> None:
        if (old.status, new.status) == (source, target):
            new = evolve(new, identity=evolve(new.identity, dedup_key=None))
        good(self, old, new)

    patch.setattr(Ledger, "_change_status", change_status)


@breaks_store("STORE-ADD-13")
def key_outlives_a_quick_cancel(patch: pytest.MonkeyPatch) -> None:
    """Forgets the dedup key of a task that is cancelled before it was claimed."""
    _keeps_key(patch, Status.PENDING_SUBMIT, Status.CANCELED)


@breaks_store("STORE-ADD-14")
def success_frees_the_key(patch: pytest.MonkeyPatch) -> None:
    """Lets every end free the dedup key."""
    freeing = frozenset(status for status in Status if status.terminal)
    patch.setattr("coatcheck.locked.ledger._FREES_KEY", freeing - {Status.TRACKING_TIMED_OUT})


@breaks_store("STORE-ADD-15")
def key_outlives_the_purge(patch: pytest.MonkeyPatch) -> None:
    """Leaves the key of a purged task with nobody."""
    good = Ledger.remove
    patch.setattr(
        Ledger,
        "remove",
        lambda self, task: good(self, evolve(task, identity=evolve(task.identity, dedup_key=None))),
    )


@breaks_store("STORE-ADD-16")
def key_outlives_a_decision(patch: pytest.MonkeyPatch) -> None:
    """Forgets the dedup key of a task that a person has given up."""
    _keeps_key(patch, Status.SUBMIT_UNKNOWN, Status.FAILED)


@breaks_store("STORE-ADD-17")
def keys_fold_case(patch: pytest.MonkeyPatch) -> None:
    """Compares keys as many a collation does."""
    good = entries.dedup_key

    def dedup_key(task: Task):
        key = task.identity.dedup_key or ""
        return good(evolve(task, identity=evolve(task.identity, dedup_key=key.casefold())))

    patch.setattr(entries, "dedup_key", dedup_key)


@breaks_store("STORE-ADD-17")
def keys_lose_trailing_blanks(patch: pytest.MonkeyPatch) -> None:
    """Compares keys as PAD SPACE does."""
    good = entries.dedup_key

    def dedup_key(task: Task):
        key = task.identity.dedup_key or ""
        return good(evolve(task, identity=evolve(task.identity, dedup_key=key.rstrip(" "))))

    patch.setattr(entries, "dedup_key", dedup_key)


@breaks_store("STORE-ADD-18")
def holders_are_looked_up_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """Looks for the holders of keys in one step, and adds in another."""
    good = MemoryStore.add
    good_holder = Ledger.holder_of

    async def add(self, drafts: Sequence[TaskDraft], *, transaction=None):
        def holders(ledger: Ledger):
            tasks = [lifecycle.created(draft, ledger.now) for draft in drafts]
            return {entries.dedup_key(task): good_holder(ledger, task) for task in tasks}

        if transaction is not None or not any(draft.identity.dedup_key for draft in drafts):
            return await good(self, drafts, transaction=transaction)
        seen = await self._do(holders)
        await asyncio.sleep(0)
        ids = {draft.id for draft in drafts}

        def holder_of(ledger: Ledger, task: Task) -> str | None:
            now = good_holder(ledger, task)
            return now if now in ids else seen.get(entries.dedup_key(task))

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Ledger, "holder_of", holder_of)
            return await good(self, drafts)

    patch.setattr(MemoryStore, "add", add)
