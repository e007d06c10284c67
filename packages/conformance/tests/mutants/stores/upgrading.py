"""Mutants of S16: rows that another version wrote."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck import codec
from coatcheck.evolving import evolve
from coatcheck.locked import steps
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import Key
from coatcheck.task import Task, Transition
from mutants.stores import Base, breaks_store


@breaks_store("STORE-UPGRADE-1", Base.FILE)
def earlier_rows_gain_a_history(patch: pytest.MonkeyPatch) -> None:
    """Makes up what an earlier version has not written."""
    good = codec.decode_task

    def decode_task(document: Any):
        task = good(document)
        if task.history:
            return task
        added = Transition(at=task.schedule.created_at, source=None, target=task.status, token=task.token)
        return evolve(task, history=(added,))

    patch.setattr("coatcheck.locked.ordered.decode_task", decode_task)


@breaks_store("STORE-UPGRADE-2", Base.FILE)
def earlier_rows_are_not_submitted(patch: pytest.MonkeyPatch) -> None:
    """Passes over rows in a claim for submission that lack what this version writes."""
    good = Ledger.submission_at

    def submission_at(self: Ledger, key: Key):
        task = good(self, key)
        return task if task is not None and task.history else None

    patch.setattr(Ledger, "submission_at", submission_at)


@breaks_store("STORE-UPGRADE-3", Base.FILE)
def earlier_rows_are_not_queried(patch: pytest.MonkeyPatch) -> None:
    """Passes over rows in a claim for querying that lack what this version writes."""
    good = Ledger.query_at

    def query_at(self: Ledger, key: Key):
        task = good(self, key)
        return task if task is not None and task.history else None

    patch.setattr(Ledger, "query_at", query_at)


@breaks_store("STORE-UPGRADE-4", Base.FILE)
def unknown_fields_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """Writes only the fields that this version knows."""
    good = codec.encode_task

    def encode_task(task: Task):
        return good(evolve(task, extra={}))

    patch.setattr("coatcheck.locked.ordered.encode_task", encode_task)


@breaks_store("STORE-UPGRADE-4", Base.FILE)
def unknown_fields_of_parts_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """Writes only those fields of a task's parts that this version knows."""
    good = codec.encode_task

    def encode_task(task: Task):
        return good(evolve(task, route=evolve(task.route, extra_json=None)))

    patch.setattr("coatcheck.locked.ordered.encode_task", encode_task)


@breaks_store("STORE-UPGRADE-5", Base.FILE)
def earlier_rows_hear_no_callback(patch: pytest.MonkeyPatch) -> None:
    """Does not find rows by the provider's id that lack what this version writes."""
    good = steps.nudge

    def nudge(ledger: Ledger, handler_key: str, external_task_id: str):
        keys = ledger.records.under(("external", external_task_id, handler_key))
        tasks = [ledger.load(str(key[3])) for key in keys]
        found = good(ledger, handler_key, external_task_id)
        return found if all(task is None or task.history for task in tasks) else 0

    patch.setattr(steps, "nudge", nudge)
