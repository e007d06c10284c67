"""Mutants of S4: tasks behind closed gates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from coatcheck.gates import Gate
from coatcheck.locked import changes, claims
from coatcheck.locked.claims import Claimant
from coatcheck.locked.gatekeeper import Gatekeeper, GateState
from coatcheck.locked.lanes import lane_parts
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import Key
from coatcheck.locked.walk import Walk
from coatcheck.store import Claims
from coatcheck.task import Status, Task
from mutants.stores import breaks_store

_CANDIDATES = 1000
"""How many tasks a claim looks at that reads the first of them and leaves out what is behind closed gates."""


def _sees_only_candidates(patch: pytest.MonkeyPatch, closed: Callable[[GateState], bool]) -> None:
    """End a claim behind a lane with so many tasks behind such a gate that they are all that it looks at."""
    good = Walk._park

    def park(self: Walk, lane, head) -> None:
        good(self, lane, head)
        if not self._lanes.slots or not any(map(closed, lane.gates)):
            return
        if len(self._lanes.records.under((self._lanes.kind, lane.name))) > _CANDIDATES:
            self._limit = len(self.granted)

    patch.setattr(Walk, "_park", park)


@breaks_store("STORE-BLOCK-1")
def paused_tasks_fill_the_candidates(patch: pytest.MonkeyPatch) -> None:
    """Reads the first thousand tasks, and then leaves out those behind a paused gate."""
    _sees_only_candidates(patch, lambda gate: gate.gate is not None and gate.gate.pause is not None)


@breaks_store("STORE-BLOCK-2")
def tasks_without_slots_fill_the_candidates(patch: pytest.MonkeyPatch) -> None:
    """Reads the first thousand tasks, and then leaves out those behind a gate that is full."""
    _sees_only_candidates(patch, lambda gate: gate.gate is not None and gate.gate.concurrency == gate.used)


@breaks_store("STORE-BLOCK-3")
def tasks_without_grants_fill_the_candidates(patch: pytest.MonkeyPatch) -> None:
    """Reads the first thousand tasks, and then leaves out those behind a rate that is used up."""
    _sees_only_candidates(
        patch,
        lambda gate: gate.gate is not None and gate.gate.rate is not None and not gate.room(slots=False),
    )


@breaks_store("STORE-BLOCK-4")
def claim_looks_at_few_lanes(patch: pytest.MonkeyPatch) -> None:
    """Gives up when a hundred lanes in a row were closed, and does not say that there are more."""
    good = Walk._park

    def park(self: Walk, lane, head) -> None:
        good(self, lane, head)
        self.parked = getattr(self, "parked", 0) + 1  # type: ignore[attr-defined]  # the mutant's own
        if self.parked >= 100:  # type: ignore[attr-defined]
            self._limit = len(self.granted)

    patch.setattr(Walk, "_park", park)


@breaks_store("STORE-BLOCK-5")
def limited_gates_serve_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """Hands out the slots of a gate to who came first, whatever the priority."""
    good = Ledger.submission_at

    def submission_at(self: Ledger, key: Key) -> Task | None:
        names = lane_parts(str(key[1]))[1:]
        gates = [self.gates.state(name).gate for name in names]
        if any(gate is not None and gate.concurrency is not None for gate in gates):
            waiting = self.records.under(key[:2])
            return good(self, min(waiting, key=lambda each: str(each[-1]))) if waiting else None
        return good(self, key)

    patch.setattr(Ledger, "submission_at", submission_at)


@breaks_store("STORE-BLOCK-6")
def release_opens_the_first_gate_only(patch: pytest.MonkeyPatch) -> None:
    """Looks after what waits for the first gate of a task that has ended, and forgets the others."""

    def release(self: Gatekeeper, names: Iterable[str]) -> None:
        for place, name in enumerate(names):
            self.state(name).release()
            if place == 0:
                self.eased.add(name)

    patch.setattr(Gatekeeper, "release", release)


@breaks_store("STORE-BLOCK-7")
def deleted_gate_keeps_its_rate(patch: pytest.MonkeyPatch) -> None:
    """Forgets the concurrency and the pause of a gate, and not its rate."""
    good = changes.delete_gate

    def delete_gate(ledger: Ledger, name: str, *why: str | None) -> None:
        known = ledger.gates.state(name).gate
        good(ledger, name, *why)
        if known is not None and known.rate is not None:
            ledger.gates.define(Gate(name=name, rate=known.rate))

    patch.setattr(changes, "delete_gate", delete_gate)


@breaks_store("STORE-BLOCK-8")
def delayed_tasks_fill_the_candidates(patch: pytest.MonkeyPatch) -> None:
    """Reads the first hundreds of tasks by rank, and then leaves out those whose time has not come."""
    good = claims.claim_submissions

    def claim_submissions(ledger: Ledger, claimant: Claimant) -> Claims:
        for handler_key in claimant.handler_keys:
            ledger.promote(handler_key)
            if len(ledger.records.under(("delayed", handler_key))) >= 500:
                return Claims()
        return good(ledger, claimant)

    patch.setattr(claims, "claim_submissions", claim_submissions)


@breaks_store("STORE-BLOCK-9")
def overdue_tasks_take_slots(patch: pytest.MonkeyPatch) -> None:
    """Looks at the deadline when the slots have been taken already, and leaves them taken."""
    good = Ledger.submission_at
    good_claimed = claims._claimed

    def submission_at(self: Ledger, key: Key) -> Task | None:
        task = self.load(str(key[-1]))
        if task is None or task.status is not Status.PENDING_SUBMIT or task.schedule.deadline_at > self.now:
            return good(self, key)
        good(self, key)  # takes it out of its lane
        return task

    def claimed(ledger: Ledger, claimant: Claimant, walk: Walk) -> Claims:
        walk.granted = [turn for turn in walk.granted if turn.task.schedule.deadline_at > ledger.now]
        return good_claimed(ledger, claimant, walk)

    patch.setattr(Ledger, "submission_at", submission_at)
    patch.setattr(claims, "_claimed", claimed)
