"""Mutants of S20: rows that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from coatcheck.errors import UndecodableRow
from coatcheck.locked import claims, reading, steps
from coatcheck.locked.claims import Claimant
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.task import Task, as_millis
from mutants.stores import Base, breaks_store


@breaks_store("STORE-ASIDE-1", Base.FILE)
def set_aside_without_reason(patch: pytest.MonkeyPatch) -> None:
    """Does not say why a row was set aside."""
    good = Ledger.load

    def load(self: Ledger, task_id: str):
        task = good(self, task_id)
        if task is None and self.records.get(("aside", task_id)) is not None:
            self.records.put(("aside", task_id), ["", as_millis(self.now)])
        return task

    patch.setattr(Ledger, "load", load)


def _raise_for_broken_rows(patch: pytest.MonkeyPatch, module: object, name: str) -> None:
    """Let one step raise for a row that it cannot read, instead of setting it aside."""
    good: Callable[..., Any] = getattr(module, name)

    def step(ledger: Ledger, *args: object):
        def load(task_id: str):
            return ledger.records.get(("task", task_id))

        patched = pytest.MonkeyPatch()
        patched.setattr(ledger, "load", load)
        return good(ledger, *args)

    patch.setattr(module, name, step)


@breaks_store("STORE-ASIDE-2", Base.FILE)
def broken_rows_fail_queries(patch: pytest.MonkeyPatch) -> None:
    """Decodes what it has claimed for querying in one go, and fails if one of the rows cannot be read."""
    good = claims.claim_queries

    def claim_queries(ledger: Ledger, claimant: Claimant):
        before = len(ledger.records.under(("aside",)))
        got = good(ledger, claimant)
        if got.tasks and len(ledger.records.under(("aside",))) > before:
            message = "a row of the batch cannot be read"
            raise UndecodableRow(message)
        return got

    patch.setattr(claims, "claim_queries", claim_queries)


@breaks_store("STORE-ASIDE-3", Base.FILE)
def broken_rows_fail_decisions(patch: pytest.MonkeyPatch) -> None:
    """Raises in a claim of stale tasks that meets a row which it cannot read."""
    _raise_for_broken_rows(patch, claims, "claim_stale")


@breaks_store("STORE-ASIDE-4", Base.FILE)
def broken_rows_fail_readers(patch: pytest.MonkeyPatch) -> None:
    """Raises in `get_many` if one of the rows cannot be read."""
    _raise_for_broken_rows(patch, reading, "snapshots_of")


@breaks_store("STORE-ASIDE-4", Base.FILE)
def broken_rows_fail_searches(patch: pytest.MonkeyPatch) -> None:
    """Raises in a search that meets a row which it cannot read."""
    _raise_for_broken_rows(patch, reading, "find_page")


@breaks_store("STORE-ASIDE-5", Base.FILE)
def release_ignores_ids(patch: pytest.MonkeyPatch) -> None:
    """Releases all rows, whichever are named."""
    good = steps.release

    def release(ledger: Ledger, task_ids: Collection[str] | None):
        return good(ledger, None)

    patch.setattr(steps, "release", release)


@breaks_store("STORE-ASIDE-6")
def release_counts_what_was_named(patch: pytest.MonkeyPatch) -> None:
    """Says of every row that was named that it was released."""
    good = MemoryStore.release_set_aside

    async def release(self: MemoryStore, task_ids: Collection[str] | None = None):
        released = await good(self, task_ids)
        return released if task_ids is None else len(task_ids)

    patch.setattr(MemoryStore, "release_set_aside", release)


@breaks_store("STORE-ASIDE-7", Base.FILE)
def released_early_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Takes rows off the list that still cannot be read, and puts them nowhere."""
    good = steps.release

    def release(ledger: Ledger, task_ids: Collection[str] | None):
        released = good(ledger, task_ids)
        for key in ledger.records.under(("aside",)):
            if task_ids is None or key[1] in task_ids:
                ledger.records.delete(key)
        return released

    patch.setattr(steps, "release", release)


@breaks_store("STORE-ASIDE-8", Base.FILE)
def released_only_into_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Puts released rows back among those that wait to be submitted, and nowhere else."""
    good = Ledger.place

    def place(self: Ledger, task: Task):
        if not task.status.active:
            good(self, task)

    patch.setattr(Ledger, "place", place)
