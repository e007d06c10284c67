"""What a `LockedStore` does to gates, and what it remembers of it, inside one exclusive section."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

from coatcheck.codec import decode_gate_records, encode_gate_records
from coatcheck.evolving import evolve
from coatcheck.gates import Gate, GateAction, GateRecord, Pause, recorded
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import MILLISECOND
from coatcheck.task import JSON, millis

__all__ = ["delete_gate", "history", "pause_gate", "resume_gate", "set_gate"]


def set_gate(ledger: Ledger, wanted: Gate, who: str | None, reason: str | None, *, only_if_new: bool) -> None:
    """Set a gate's limits, leaving its pause; one that was only ever paused counts as new (S11)."""
    limited = ("limited", wanted.name)
    is_limited = ledger.records.get(limited) is not None
    if only_if_new and is_limited:
        return
    known = ledger.gates.state(wanted.name).gate
    gate = evolve(wanted, pause=known.pause if known else None)
    ledger.records.mark(limited)
    ledger.gates.define(gate)
    if gate != known or not is_limited:
        _record(ledger, gate, GateAction.LIMITED, who, reason)


def pause_gate(ledger: Ledger, name: str, who: str | None, reason: str, duration: timedelta | None) -> None:
    """Pause a gate, unless a pause that lasts longer is in force (S11)."""
    now = ledger.now
    gate = ledger.gates.state(name).gate or Gate(name=name)
    until = None if duration is None else now + millis(duration) * MILLISECOND
    if gate.pause is not None and gate.paused_at(now) and _outlasts(gate.pause.until, until):
        return
    gate = evolve(gate, pause=Pause(reason=reason, who=who, since=now, until=until))
    ledger.gates.define(gate)
    _record(ledger, gate, GateAction.PAUSED, who, reason)


def _outlasts(pause: datetime | None, other: datetime | None) -> bool:
    return other is not None and (pause is None or pause > other)


def resume_gate(ledger: Ledger, name: str, who: str | None, reason: str | None) -> None:
    """Undo a pause (S11)."""
    gate = ledger.gates.state(name).gate
    if gate is not None and gate.pause is not None:
        paused = gate.paused_at(ledger.now)
        gate = evolve(gate, pause=None)
        ledger.gates.define(gate)
        if paused:
            _record(ledger, gate, GateAction.RESUMED, who, reason)


def delete_gate(ledger: Ledger, name: str, who: str | None, reason: str | None) -> None:
    """Forget a gate's limits and pause (S11)."""
    known = ledger.gates.state(name).gate
    ledger.records.delete(("limited", name))
    ledger.gates.forget(name)
    if known is not None:
        _record(ledger, Gate(name=name), GateAction.DELETED, who, reason)


def history(ledger: Ledger, name: str) -> tuple[GateRecord, ...]:
    """Return what was done to a gate, the oldest first (S11)."""
    known = cast("list[JSON] | None", ledger.records.get(("history", name)))
    return decode_gate_records(known or [])


def _record(ledger: Ledger, gate: Gate, action: GateAction, who: str | None, reason: str | None) -> None:
    change = GateRecord(action=action, at=ledger.now, who=who, reason=reason, gate=gate)
    known = recorded(history(ledger, gate.name), change)
    ledger.records.put(("history", gate.name), encode_gate_records(known))
