"""Mutants of S3: reading tasks."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from coatcheck import lifecycle
from coatcheck.codec import dumps
from coatcheck.events import StillGoing
from coatcheck.evolving import evolve
from coatcheck.lifecycle import moving, outcomes
from coatcheck.locked import reading, snapshots
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.snapshots import snapshot
from coatcheck.memory import MemoryStore
from coatcheck.task import Status, Transition
from mutants.stores import breaks_store


@breaks_store("STORE-READ-1")
def ids_must_be_uuids(patch: pytest.MonkeyPatch) -> None:
    """Reads by a column of type UUID, which takes nothing else."""
    good = MemoryStore.get_many

    async def get_many(self, task_ids):
        for task_id in task_ids:
            int(task_id.replace("-", ""), 16)
        return await good(self, task_ids)

    patch.setattr(MemoryStore, "get_many", get_many)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) and len(value) > 1 else value


@breaks_store("STORE-READ-2")
def keys_are_sorted(patch: pytest.MonkeyPatch) -> None:
    """Stores JSON in a form that keeps no order of keys."""
    good = lifecycle.created

    def created(draft, now):
        return evolve(good(draft, now), params=_sorted(draft.params))

    patch.setattr(lifecycle, "created", created)


@breaks_store("STORE-READ-3")
def accounts_are_normalized(patch: pytest.MonkeyPatch) -> None:
    """Stores names in a normal form of Unicode."""
    good = lifecycle.created

    def created(draft, now):
        task = good(draft, now)
        account_id = draft.route.account_id
        if account_id is not None:
            account_id = unicodedata.normalize("NFC", account_id)
        return evolve(task, route=evolve(task.route, account_id=account_id))

    patch.setattr(lifecycle, "created", created)


@breaks_store("STORE-READ-4")
def metadata_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Proves that params can be stored, and forgets the metadata."""

    def unless_metadata(value, *, path=""):
        return "" if path == "metadata" else dumps(value, path=path)

    patch.setattr(snapshots, "dumps", unless_metadata)


@breaks_store("STORE-READ-5")
def params_are_shared_with_readers(patch: pytest.MonkeyPatch) -> None:
    """Hands out the very params that it holds."""
    patch.setattr(reading, "snapshot", lambda task: evolve(snapshot(task), params=task.params))


@breaks_store("STORE-READ-6")
def results_are_shared_with_readers(patch: pytest.MonkeyPatch) -> None:
    """Hands out the very result that it holds."""
    patch.setattr(reading, "snapshot", lambda task: evolve(snapshot(task), outcome=task.outcome))


@breaks_store("STORE-READ-7")
def fraction_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """Has no column for how far the provider has got."""
    good = Ledger.write

    def write(self, old, new, *, taken=False):
        after = good(self, old, new, taken=taken)
        if after.status is Status.RUNNING and after.progress.fraction is not None:
            self.keep(evolve(after, progress=evolve(after.progress, fraction=None)))
        return after

    patch.setattr(Ledger, "write", write)


@breaks_store("STORE-READ-8")
def each_query_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Writes every query that says "still going" into the history."""
    good = outcomes.STEPS[StillGoing]

    def still_going(task, event, now):
        note = f"query {task.token}"
        entry = Transition(at=now, source=task.status, target=event.status, token=task.token, note=note)
        return evolve(good(task, event, now), history=(*task.history, entry))

    patch.setitem(outcomes.STEPS, StillGoing, still_going)


@breaks_store("STORE-READ-9")
def history_has_no_end(patch: pytest.MonkeyPatch) -> None:
    """Keeps every transition that is no repetition."""
    patch.setattr(moving, "HISTORY_LIMIT", 10**6)
