"""Mutants of S11: gates that are defined, changed, paused and deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from coatcheck.evolving import evolve
from coatcheck.gates import Gate, GateUsage
from coatcheck.locked import changes, steps
from coatcheck.locked.gatekeeper import Gatekeeper, GateState
from coatcheck.memory import MemoryStore
from coatcheck.store import Renewal
from coatcheck.task import Status, Task
from mutants.stores import breaks_store


@breaks_store("STORE-GATE-1")
def gates_listed_ignoring_case(patch: pytest.MonkeyPatch) -> None:
    """Sorts the list of gates as a case-insensitive collation does."""
    good = MemoryStore.gates

    async def gates(self, names=None):
        return sorted(await good(self, names), key=lambda usage: usage.gate.name.casefold())

    patch.setattr(MemoryStore, "gates", gates)


@breaks_store("STORE-GATE-2")
def claim_defines_gates(patch: pytest.MonkeyPatch) -> None:
    """Makes a row for every gate that counts something, and takes each row for a gate that was defined."""
    good = Gatekeeper.take

    def take(self, states, count, *, slots):
        states = list(states)
        for state in states:
            if state.gate is None:
                self._records.put(("gate", state.name), Gate(name=state.name))
        return good(self, states, count, slots=slots)

    patch.setattr(Gatekeeper, "take", take)


@breaks_store("STORE-GATE-3")
def set_gate_merges(patch: pytest.MonkeyPatch) -> None:
    """Leaves the limits that are not named as they were."""
    good = changes.set_gate

    def set_gate(ledger, wanted, *why, only_if_new):
        known = ledger.gates.state(wanted.name).gate
        if known is not None:
            limit, rate = wanted.concurrency or known.concurrency, wanted.rate or known.rate
            wanted = evolve(wanted, concurrency=limit, rate=rate)
        good(ledger, wanted, *why, only_if_new=only_if_new)

    patch.setattr(changes, "set_gate", set_gate)


@breaks_store("STORE-GATE-4")
def only_if_new_ignored(patch: pytest.MonkeyPatch) -> None:
    """Lets a starting worker overwrite limits."""
    good = changes.set_gate

    def set_gate(ledger, wanted, *why, only_if_new):
        good(ledger, wanted, *why, only_if_new=False)

    patch.setattr(changes, "set_gate", set_gate)


@breaks_store("STORE-GATE-4")
def paused_gate_gets_no_limits(patch: pytest.MonkeyPatch) -> None:
    """Takes a gate that is only paused for one that has its limits: a 429 keeps them away for ever."""
    good = changes.set_gate

    def set_gate(ledger, wanted, *why, only_if_new):
        if not only_if_new or ledger.gates.state(wanted.name).gate is None:
            good(ledger, wanted, *why, only_if_new=only_if_new)

    patch.setattr(changes, "set_gate", set_gate)


@breaks_store("STORE-GATE-5")
def new_gate_counts_submissions_only(patch: pytest.MonkeyPatch) -> None:
    """Counts what is SUBMITTING when a gate is defined, and forgets what the provider works on already."""
    good = Gatekeeper.define

    def define(self, gate):
        state = self.state(gate.name)
        if state.gate is None:
            tasks = [cast("Task", self._records.get(key)) for key in self._records.under(("task",))]
            holders = [task for task in tasks if task.holds_slots and gate.name in task.route.gates]
            state.used = sum(task.status is Status.SUBMITTING for task in holders)
            state.counted_anew = True
        good(self, gate)

    patch.setattr(Gatekeeper, "define", define)


@breaks_store("STORE-GATE-6")
def lowered_limit_wraps(patch: pytest.MonkeyPatch) -> None:
    """Subtracts in unsigned numbers: more slots in use than the limit has look like room."""
    good = GateState.room

    def room(self, *, slots):
        limit = self.gate.concurrency if self.gate is not None else None
        if slots and limit is not None and self.used > limit:
            return self.used - limit
        return good(self, slots=slots)

    patch.setattr(GateState, "room", room)


@breaks_store("STORE-GATE-7")
def raised_limit_lets_one_in(patch: pytest.MonkeyPatch) -> None:
    """Lets in one more when a limit is raised, however far."""
    good = changes.set_gate

    def set_gate(ledger, wanted, *why, only_if_new):
        known = ledger.gates.state(wanted.name).gate
        if known is not None and known.concurrency and wanted.concurrency and not only_if_new:
            wanted = evolve(wanted, concurrency=min(wanted.concurrency, known.concurrency + 1))
        good(ledger, wanted, *why, only_if_new=only_if_new)

    patch.setattr(changes, "set_gate", set_gate)


@breaks_store("STORE-GATE-8")
def deleted_gate_stays_paused(patch: pytest.MonkeyPatch) -> None:
    """Forgets the limits of a deleted gate, and not its pause."""
    good = changes.delete_gate

    def delete_gate(ledger, name, *why):
        gate = ledger.gates.state(name).gate
        good(ledger, name, *why)
        if gate is not None and gate.pause is not None:
            ledger.gates.define(Gate(name=name, pause=gate.pause))

    patch.setattr(changes, "delete_gate", delete_gate)


@breaks_store("STORE-GATE-9")
def gate_names_are_padded(patch: pytest.MonkeyPatch) -> None:
    """Takes names that differ in blanks at their end for one, as a PAD SPACE collation does."""
    good = Gatekeeper.state

    def state(self, name):
        return good(self, name.rstrip(" "))

    patch.setattr(Gatekeeper, "state", state)


# ------------------------------------------------------------------ pausing


@breaks_store("STORE-PAUSE-1")
def pause_stamped_by_host(patch: pytest.MonkeyPatch) -> None:
    """Says by the clock of the caller since when a gate is paused, if nobody said until when."""
    good = changes.pause_gate

    def pause_gate(ledger, name, who, reason, duration):
        good(ledger, name, who, reason, duration)
        gate = ledger.gates.state(name).gate
        if duration is None and gate is not None and gate.pause is not None:
            ledger.gates.define(evolve(gate, pause=evolve(gate.pause, since=datetime.now(UTC))))

    patch.setattr(changes, "pause_gate", pause_gate)


@breaks_store("STORE-PAUSE-2")
def ended_pause_is_shown(patch: pytest.MonkeyPatch) -> None:
    """Lists a gate as paused when it has opened by itself."""

    def usage(self):
        gate = self.gate or Gate(name=self.name)
        return GateUsage(gate=gate, used=self.used, granted=self.granted if self.rated else 0)

    patch.setattr(GateState, "usage", usage)


@breaks_store("STORE-PAUSE-3")
def pauses_are_counted(patch: pytest.MonkeyPatch) -> None:
    """Opens a gate when it was resumed as often as it was paused."""
    good_pause, good_resume = changes.pause_gate, changes.resume_gate

    def pause_gate(ledger, name, who, reason, duration):
        count = cast("int", ledger.records.get(("pauses", name)) or 0)
        ledger.records.put(("pauses", name), count + 1)
        good_pause(ledger, name, who, reason, duration)

    def resume_gate(ledger, name, *why):
        count = cast("int", ledger.records.get(("pauses", name)) or 0)
        ledger.records.put(("pauses", name), max(count - 1, 0))
        if count <= 1:
            good_resume(ledger, name, *why)

    patch.setattr(changes, "pause_gate", pause_gate)
    patch.setattr(changes, "resume_gate", resume_gate)


@breaks_store("STORE-PAUSE-4")
def shorter_pause_replaces(patch: pytest.MonkeyPatch) -> None:
    """Lets the latest pause stand, whatever was in force."""
    patch.setattr(changes, "_outlasts", lambda pause, other: False)


@breaks_store("STORE-PAUSE-5")
def first_pause_stands(patch: pytest.MonkeyPatch) -> None:
    """Lets the pause in force stand, whatever comes."""
    patch.setattr(changes, "_outlasts", lambda pause, other: True)


@breaks_store("STORE-PAUSE-6")
def pauses_compared_by_length(patch: pytest.MonkeyPatch) -> None:
    """Lets the pause stand that was longer from its beginning, though it is over."""
    good = changes.pause_gate

    def pause_gate(ledger, name, who, reason, duration):
        gate = ledger.gates.state(name).gate
        pause = gate.pause if gate is not None else None
        until = pause.until if pause is not None else None
        if pause is None or until is None or duration is None or until - pause.since <= duration:
            good(ledger, name, who, reason, duration)

    patch.setattr(changes, "pause_gate", pause_gate)


@breaks_store("STORE-PAUSE-7")
def pausing_drops_limits(patch: pytest.MonkeyPatch) -> None:
    """Writes a pause over the limits of its gate."""
    good = changes.pause_gate

    def pause_gate(ledger, name, who, reason, duration):
        good(ledger, name, who, reason, duration)
        gate = ledger.gates.state(name).gate
        assert gate is not None
        ledger.gates.define(Gate(name=name, pause=gate.pause))

    patch.setattr(changes, "pause_gate", pause_gate)


@breaks_store("STORE-PAUSE-8")
def resuming_defines_gates(patch: pytest.MonkeyPatch) -> None:
    """Makes a gate of every name that is resumed."""
    good = changes.resume_gate

    def resume_gate(ledger, name, *why):
        good(ledger, name, *why)
        if ledger.gates.state(name).gate is None:
            ledger.gates.define(Gate(name=name))

    patch.setattr(changes, "resume_gate", resume_gate)


@breaks_store("STORE-PAUSE-9")
def pause_ends_leases(patch: pytest.MonkeyPatch) -> None:
    """Renews no lease of a task behind a paused gate."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        gates = [ledger.gates.state(name).gate for name in task.route.gates] if task is not None else []
        if any(gate.paused_at(ledger.now) for gate in gates if gate is not None):
            return Renewal(hold.task_id, held=False)
        return good(ledger, hold, duration)

    patch.setattr(steps, "renew", renew)
