"""Mutants of S2: adding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from attrs import evolve

from coatcheck import lifecycle
from coatcheck.errors import DedupConflict
from coatcheck.locked import steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.store import Added
from coatcheck.task import Task, TaskDraft
from mutants.stores import Base, breaks_store

_MS = timedelta(milliseconds=1)


def _after_creation(patch: pytest.MonkeyPatch, change: Callable[[Task, TaskDraft], Task]) -> None:
    good = lifecycle.created
    patch.setattr(lifecycle, "created", lambda draft, now: change(good(draft, now), draft))


@breaks_store("STORE-ADD-1")
def add_answers_by_id(patch: pytest.MonkeyPatch) -> None:
    """Answers in the order of the ids, as a query for them returns the rows."""
    good = MemoryStore.add

    async def add(self, drafts, *, transaction=None):
        added = await good(self, drafts, transaction=transaction)
        return sorted(added, key=lambda each: each.task.id)

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-ADD-2")
def timeout_begins_when_due(patch: pytest.MonkeyPatch) -> None:
    """Counts the tracking timeout from when the task is due, if that is within it."""

    def created(task: Task, draft: TaskDraft) -> Task:
        if draft.delay >= draft.tracking_timeout:
            return task
        schedule = task.schedule
        waited = schedule.scheduled_at - schedule.created_at
        return evolve(task, schedule=evolve(schedule, deadline_at=schedule.deadline_at + waited))

    _after_creation(patch, created)


@breaks_store("STORE-ADD-3")
def delay_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Cuts a delay to whole milliseconds instead of rounding it up."""
    good = lifecycle.created
    patch.setattr(
        lifecycle, "created", lambda draft, now: good(evolve(draft, delay=draft.delay // _MS * _MS), now)
    )


@breaks_store("STORE-ADD-3")
def instant_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Cuts an instant to whole milliseconds, so that the task may go a little before it."""
    good = lifecycle.created

    def created(draft: TaskDraft, now: datetime) -> Task:
        at = draft.not_before
        cut = at and at.replace(microsecond=at.microsecond // 1000 * 1000)
        return good(evolve(draft, not_before=cut), now)

    patch.setattr(lifecycle, "created", created)


@breaks_store("STORE-ADD-4")
def instant_loses_its_zone(patch: pytest.MonkeyPatch) -> None:
    """Takes the wall time of an instant for UTC."""
    good = lifecycle.created

    def created(draft: TaskDraft, now: datetime) -> Task:
        at = draft.not_before
        return good(evolve(draft, not_before=at and at.replace(tzinfo=UTC)), now)

    patch.setattr(lifecycle, "created", created)


@breaks_store("STORE-ADD-5")
def due_after_the_deadline(patch: pytest.MonkeyPatch) -> None:
    """Leaves the first turn where the delay puts it, though it is past the deadline."""
    _after_creation(
        patch,
        lambda task, _: evolve(task, schedule=evolve(task.schedule, due_at=task.schedule.scheduled_at)),
    )


@breaks_store("STORE-ADD-6")
def repeated_add_returns_the_draft(patch: pytest.MonkeyPatch) -> None:
    """Answers a repeated add with the task as it was, not as it is."""
    good = steps.add

    def add(ledger: Ledger, draft: TaskDraft) -> Added:
        answer = good(ledger, draft)
        if answer.created or answer.task.id != draft.id:
            return answer
        return Added(lifecycle.created(draft, ledger.now), created=False)

    patch.setattr(steps, "add", add)


@breaks_store("STORE-ADD-7")
def ids_are_looked_up_before_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Tells what is new by a look at the table before the batch, so that an id can be new twice in it."""
    good = MemoryStore.add

    async def add(self, drafts, *, transaction=None):
        known = await self.get_many([draft.id for draft in drafts])
        added = await good(self, drafts, transaction=transaction)
        return [
            Added(each.task, created=each.task.id == draft.id and draft.id not in known)
            for draft, each in zip(drafts, added, strict=True)
        ]

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-ADD-8")
def id_wins_over_params(patch: pytest.MonkeyPatch) -> None:
    """Takes an id that exists for a repeated add, whatever its params are."""
    good = steps.add

    def add(ledger: Ledger, draft: TaskDraft) -> Added:
        known = ledger.load(draft.id)
        digest = (known or draft).identity.params_digest
        return good(ledger, evolve(draft, identity=evolve(draft.identity, params_digest=digest)))

    patch.setattr(steps, "add", add)


@breaks_store("STORE-ADD-19")
def any_rank_mode_will_do(patch: pytest.MonkeyPatch) -> None:
    """Sorts by whatever rank a draft brings."""
    patch.setattr(steps, "_check_mode", lambda ledger, mode: None)


@breaks_store("STORE-ADD-20")
def long_batches_are_added_in_parts(patch: pytest.MonkeyPatch) -> None:
    """Commits a long batch part by part, as limits on bound values suggest."""
    good = MemoryStore.add

    async def add(self, drafts, *, transaction=None):
        parts = [drafts[begin : begin + 500] for begin in range(0, max(len(drafts), 1), 500)]
        return [each for part in parts for each in await good(self, part, transaction=transaction)]

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-ADD-21")
def transactions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Adds at once, and says nothing of the transaction that it cannot join."""
    good = MemoryStore.add

    async def add(self, drafts, *, transaction=None):
        return await good(self, drafts)

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-ADD-22", base=Base.SQL)
def joined_add_commits_by_itself(patch: pytest.MonkeyPatch) -> None:
    """Adds in a transaction of its own, though the caller has one."""
    store = import_module("coatcheck_store_sql").SqlStore
    good = store.add

    async def add(self, drafts, *, transaction=None):
        return await good(self, drafts)

    patch.setattr(store, "add", add)


@breaks_store("STORE-ADD-23", base=Base.SQL)
def refused_join_rolls_back(patch: pytest.MonkeyPatch) -> None:
    """Rolls the caller's transaction back when it refuses a draft."""
    store = import_module("coatcheck_store_sql").SqlStore
    good = store.add

    async def add(self, drafts, *, transaction=None):
        try:
            return await good(self, drafts, transaction=transaction)
        except DedupConflict:
            if transaction is not None:
                await transaction.rollback()
            raise

    patch.setattr(store, "add", add)
