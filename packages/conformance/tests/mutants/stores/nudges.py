"""Mutants of S10: callbacks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.evolving import evolve
from coatcheck.locked import nudges, steps
from coatcheck.locked.ledger import Ledger
from mutants.stores import breaks_store


@breaks_store("STORE-NUDGE-1")
def nudge_raises_version(patch: pytest.MonkeyPatch) -> None:
    """Counts a nudge of a task that nobody holds as a version."""
    good = lifecycle.nudged

    def nudged(task, now):
        after = good(task, now)
        return after if after is None or after.nudged else evolve(after, version=task.version + 1)

    patch.setattr(lifecycle, "nudged", nudged)


@breaks_store("STORE-NUDGE-2")
def nudge_moves_due_of_leased(patch: pytest.MonkeyPatch) -> None:
    """Makes a leased task due now, besides flagging it."""
    good = lifecycle.nudged

    def nudged(task, now):
        after = good(task, now)
        return evolve(after, schedule=evolve(after.schedule, due_at=now)) if after is not None else None

    patch.setattr(lifecycle, "nudged", nudged)


@breaks_store("STORE-NUDGE-3")
def early_nudge_misses_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Applies an early nudge to the row that is settled, and not to the place at which it waits for its turn."""
    good = Ledger.write

    def write(self, old, new, *, taken=False):
        written = good(self, old, new, taken=taken)
        if new.settled_by != old.settled_by and written.schedule != new.schedule:
            self._leave(written)
            self._enter(new)
        return written

    patch.setattr(Ledger, "write", write)


@breaks_store("STORE-NUDGE-4")
def nudge_ignores_handler(patch: pytest.MonkeyPatch) -> None:
    """Looks for the external id at every handler."""
    good = steps.nudge

    def nudge(ledger, handler_key, external_task_id):
        known = {str(key[2]) for key in ledger.records.under(("external", external_task_id))}
        return sum(good(ledger, each, external_task_id) for each in known or {handler_key})

    patch.setattr(steps, "nudge", nudge)


@breaks_store("STORE-NUDGE-5")
def nudge_stops_at_the_first(patch: pytest.MonkeyPatch) -> None:
    """Makes one task of the external id due, and counts all."""
    good = steps.nudge

    def nudge(ledger, handler_key, external_task_id):
        keys = ledger.records.under(("external", external_task_id, handler_key))
        if len(keys) <= 1:
            return good(ledger, handler_key, external_task_id)
        task = ledger.load(str(keys[0][3]))
        assert task is not None
        ledger.write(task, lifecycle.nudged(task, ledger.now) or task)
        return len(keys)

    patch.setattr(steps, "nudge", nudge)


@breaks_store("STORE-NUDGE-6")
def early_nudge_kept_for_days(patch: pytest.MonkeyPatch) -> None:
    """Remembers unknown ids for ever, or nearly."""
    patch.setattr(nudges, "NUDGE_MEMORY", timedelta(days=9))


@breaks_store("STORE-NUDGE-7")
def early_nudge_flags_too(patch: pytest.MonkeyPatch) -> None:
    """Applies an early nudge by making the task due and by flagging it, so that it is applied twice."""
    good = Ledger._save_external

    def save_external(self, old, new):
        after = good(self, old, new)
        return after if after is new else evolve(after, nudged=True)

    patch.setattr(Ledger, "_save_external", save_external)


@breaks_store("STORE-NUDGE-8")
def late_proof_misses_early_nudge(patch: pytest.MonkeyPatch) -> None:
    """Asks for early nudges when it settles, and not when late proof gives the id."""
    good = steps.attest

    def attest(ledger, task_id, token, proof):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ledger.nudges, "forget", lambda handler_key, external_task_id: False)
            return good(ledger, task_id, token, proof)

    patch.setattr(steps, "attest", attest)


@breaks_store("STORE-NUDGE-9")
def nudge_counts_the_ended(patch: pytest.MonkeyPatch) -> None:
    """Counts tasks that have ended as nudged."""
    good = steps.nudge

    def nudge(ledger, handler_key, external_task_id):
        good(ledger, handler_key, external_task_id)
        return len(ledger.records.under(("external", external_task_id, handler_key)))

    patch.setattr(steps, "nudge", nudge)


@breaks_store("STORE-NUDGE-10")
def replaced_id_stays_known(patch: pytest.MonkeyPatch) -> None:
    """Finds a task under its new external id, and under the old one, too."""
    good = Ledger._save_external

    def save_external(self, old, new):
        return good(self, evolve(old, query_params=None), new)

    patch.setattr(Ledger, "_save_external", save_external)


@breaks_store("STORE-NUDGE-11")
def early_nudges_have_no_bound(patch: pytest.MonkeyPatch) -> None:
    """Remembers as many unknown ids as anybody sends."""
    patch.setattr(nudges, "MAX_NUDGES", 10**9)
