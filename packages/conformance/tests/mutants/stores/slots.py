"""Mutants of S11: slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coatcheck.evolving import evolve
from coatcheck.locked import claims, steps
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.walk import Walk
from coatcheck.task import Status, Task
from mutants.stores import breaks_store

__all__ = ["leak"]


def leak(patch: pytest.MonkeyPatch, when: Callable[[Task, Task], bool]) -> None:
    """Forget to release the slots of a task that goes from its first argument to its second."""
    good = Ledger.write

    def write(self, old, new, *, taken=False):
        after = good(self, old, new, taken=taken)
        if old.holds_slots and not new.holds_slots and when(old, new):
            for name in old.route.gates:
                state = self.gates.state(name)
                state.used += 1
        return after

    patch.setattr(Ledger, "write", write)


@breaks_store("STORE-SLOT-1")
def a_released_slot_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """Subtracts what was released since the last claim from a count that it is gone from already."""
    good_settle, good_claim = steps.settle, claims.claim_submissions

    def settle(ledger, settlement):
        before = ledger.load(settlement.task.id)
        answer = good_settle(ledger, settlement)
        if isinstance(answer, Task) and before.holds_slots and not answer.holds_slots:
            for name in before.route.gates:
                ledger.records.mark(("released", name))
        return answer

    def claim_submissions(ledger, claimant):
        released = ledger.records.under(("released",))
        held = [state for key in released if (state := ledger.gates.state(key[1])).used]
        for key in released:
            ledger.records.delete(key)
        for state in held:
            state.used -= 1
        got = good_claim(ledger, claimant)
        for state in held:
            state.used += 1
        return got

    patch.setattr(steps, "settle", settle)
    patch.setattr(claims, "claim_submissions", claim_submissions)


@breaks_store("STORE-SLOT-2")
def queued_job_holds_no_slot(patch: pytest.MonkeyPatch) -> None:
    """Releases the slot when the provider says that it has not begun yet."""
    good = steps.settle

    def settle(ledger, settlement):
        answer = good(ledger, settlement)
        if isinstance(answer, Task) and answer.status is Status.SUBMITTED and answer.progress.query_count:
            if answer.holds_slots:
                ledger.gates.release(answer.route.gates)
            answer = ledger.keep(evolve(answer, holds_slots=False))
        return answer

    patch.setattr(steps, "settle", settle)


@breaks_store("STORE-SLOT-3")
def overdue_claim_leaks_slots(patch: pytest.MonkeyPatch) -> None:
    """Releases no slot of a claim that turned out to be past its deadline."""
    leak(
        patch,
        lambda old, new: old.status is Status.SUBMITTING and new.status is Status.TRACKING_TIMED_OUT,
    )


@breaks_store("STORE-SLOT-4")
def failed_query_leaks_slots(patch: pytest.MonkeyPatch) -> None:
    """Releases no slot of a tracked task that the provider failed."""
    leak(patch, lambda old, new: old.status.queryable and new.status is Status.FAILED)


@breaks_store("STORE-SLOT-5")
def flag_releases_slots(patch: pytest.MonkeyPatch) -> None:
    """Releases the slots of a submission as soon as its cancellation is requested."""
    good = steps.cancel

    def cancel(ledger, task_id):
        accepted = good(ledger, task_id)
        task = ledger.load(task_id)
        if accepted and task.status is Status.SUBMITTING and task.submission_started:
            ledger.gates.release(task.route.gates)
            ledger.keep(evolve(task, holds_slots=False))
        return accepted

    patch.setattr(steps, "cancel", cancel)


@breaks_store("STORE-SLOT-6")
def repeated_settle_releases_again(patch: pytest.MonkeyPatch) -> None:
    """Releases the slots once more for an outcome that it has written already."""
    good = steps.settle

    def settle(ledger, settlement):
        before = ledger.load(settlement.task.id)
        answer = good(ledger, settlement)
        if isinstance(answer, Task) and before.version == answer.version and settlement.task.holds_slots:
            ledger.gates.release(before.route.gates)
        return answer

    patch.setattr(steps, "settle", settle)


@breaks_store("STORE-SLOT-7")
def closed_gate_spends_grants(patch: pytest.MonkeyPatch) -> None:
    """Takes the grant of an open gate before it finds the next one closed."""
    good = Walk._park

    def park(self, lane, head):
        for state in lane.gates:
            if state.rated and state.room(slots=False):
                state.take(1, state.moment.stamp, slots=False)
        good(self, lane, head)

    patch.setattr(Walk, "_park", park)


@breaks_store("STORE-SLOT-8")
def slots_are_counted_by_handler(patch: pytest.MonkeyPatch) -> None:
    """Counts only slots that are held by tasks of the handlers for which it claims."""
    good = claims.claim_submissions

    def claim_submissions(ledger, claimant):
        foreign: dict[str, int] = {}
        for key in ledger.records.under(("task",), 100):
            task = ledger.load(key[1])
            if task is not None and task.holds_slots and task.route.handler_key not in claimant.handler_keys:
                foreign |= {name: foreign.get(name, 0) + 1 for name in task.route.gates}
        for name, count in foreign.items():
            ledger.gates.state(name).used -= count
        got = good(ledger, claimant)
        for name, count in foreign.items():
            ledger.gates.state(name).used += count
        return got

    patch.setattr(claims, "claim_submissions", claim_submissions)


@breaks_store("STORE-SLOT-9")
def rescued_doubt_leaks_slots(patch: pytest.MonkeyPatch) -> None:
    """Releases no slot when it is not the one who claimed the task that leaves it in doubt."""
    leak(patch, lambda old, new: new.status is Status.SUBMIT_UNKNOWN and old.progress.lost_leases > 0)
