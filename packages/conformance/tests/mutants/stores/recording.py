"""Mutants of S11: who changed a gate, when, how and why."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck import gates
from coatcheck.codec import encode_gate_records
from coatcheck.evolving import evolve
from coatcheck.gates import GateAction
from coatcheck.locked import changes
from coatcheck.memory import MemoryStore
from mutants.stores import breaks_store


@breaks_store("STORE-RECORD-1")
def deleting_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Records nothing of a gate that it forgets."""
    good = changes._record

    def record(ledger, gate, action, who, reason):
        if action is not GateAction.DELETED:
            good(ledger, gate, action, who, reason)

    patch.setattr(changes, "_record", record)


@breaks_store("STORE-RECORD-1")
def record_names_the_pauser(patch: pytest.MonkeyPatch) -> None:
    """Takes who has paused a gate for who changes it."""
    good = changes._record

    def record(ledger, gate, action, who, reason):
        who = (
            known[-1].who
            if action is GateAction.RESUMED and (known := changes.history(ledger, gate.name))
            else who
        )
        good(ledger, gate, action, who, reason)

    patch.setattr(changes, "_record", record)


@breaks_store("STORE-RECORD-2")
def same_limits_are_recorded(patch: pytest.MonkeyPatch) -> None:
    """Records limits that the gate has already."""
    good = changes.set_gate

    def set_gate(ledger, wanted, who, reason, *, only_if_new):
        before = changes.history(ledger, wanted.name)
        good(ledger, wanted, who, reason, only_if_new=only_if_new)
        if not only_if_new and changes.history(ledger, wanted.name) == before:
            changes._record(ledger, wanted, GateAction.LIMITED, who, reason)

    patch.setattr(changes, "set_gate", set_gate)


@breaks_store("STORE-RECORD-2")
def outlasted_pauses_are_recorded(patch: pytest.MonkeyPatch) -> None:
    """Records a pause that does not take the place of the one in force."""
    good = changes.pause_gate

    def pause_gate(ledger, name, who, reason, duration):
        before = changes.history(ledger, name)
        good(ledger, name, who, reason, duration)
        state = ledger.gates.state(name).gate
        if changes.history(ledger, name) == before and state is not None:
            changes._record(ledger, state, GateAction.PAUSED, who, reason)

    patch.setattr(changes, "pause_gate", pause_gate)


@breaks_store("STORE-RECORD-3")
def repeated_changes_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """Leaves the first of several equal steps, and forgets what the gate has become."""

    def recorded(history, change):
        last = history[-1] if history else None
        if last and (last.action, last.who, last.reason) == (change.action, change.who, change.reason):
            return tuple(history)
        return gates.recorded(history, change)

    patch.setattr(changes, "recorded", recorded)


@breaks_store("STORE-RECORD-3")
def others_changes_are_folded(patch: pytest.MonkeyPatch) -> None:
    """Takes the same for the same whoever does it."""

    def recorded(history, change):
        same = history and (history[-1].action, history[-1].reason) == (change.action, change.reason)
        if same and change.reason:
            return (*history[:-1], evolve(change, times=history[-1].times + 1))
        return gates.recorded(history, change)

    patch.setattr(changes, "recorded", recorded)


@breaks_store("STORE-RECORD-4")
def history_stops_when_full(patch: pytest.MonkeyPatch) -> None:
    """Keeps the first changes, and not the latest."""

    def recorded(history, change):
        return gates.recorded(history, change) if len(history) < gates.MAX_GATE_RECORDS else tuple(history)

    patch.setattr(changes, "recorded", recorded)


@breaks_store("STORE-RECORD-4")
def history_grows_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Never drops a change."""

    def recorded(history, change):
        done = gates.recorded(history, change)
        return done if len(history) < gates.MAX_GATE_RECORDS else (*history, change)

    patch.setattr(changes, "recorded", recorded)


@breaks_store("STORE-RECORD-5")
def histories_ignore_case(patch: pytest.MonkeyPatch) -> None:
    """Files histories under names as a case-insensitive collation compares them."""
    good = changes.history

    def history(ledger, name):
        return good(ledger, name.casefold().rstrip())

    def record(ledger, gate, action, who, reason):
        change = gates.GateRecord(action=action, at=ledger.now, who=who, reason=reason, gate=gate)
        known = gates.recorded(history(ledger, gate.name), change)
        ledger.records.put(("history", gate.name.casefold().rstrip()), encode_gate_records(known))

    patch.setattr(changes, "history", history)
    patch.setattr(changes, "_record", record)


@breaks_store("STORE-RECORD-6")
def history_is_written_afterwards(patch: pytest.MonkeyPatch) -> None:
    """Reads the history in one step and writes it in the next, whatever has come between."""
    good = MemoryStore.set_gate

    async def set_gate(self: MemoryStore, name: str, **limits: object):
        before = await self.gate_history(name)
        await asyncio.sleep(0)
        await good(self, name, **limits)  # type: ignore[arg-type]
        own = (await self.gate_history(name))[len(before) :][-1:]
        if own:
            history = [*before, *own][-gates.MAX_GATE_RECORDS :]
            await self._do(lambda ledger: ledger.records.put(("history", name), encode_gate_records(history)))

    patch.setattr(MemoryStore, "set_gate", set_gate)
