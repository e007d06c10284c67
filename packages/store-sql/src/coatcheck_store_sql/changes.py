"""What people and policies do to gates, and what is remembered of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from attrs import evolve

from coatcheck.codec import decode_gate_records, dumps, encode_gate_records, loads
from coatcheck.gates import Gate, GateAction, GateRecord, Pause, recorded
from coatcheck.task import JSON, as_millis, from_millis, millis
from coatcheck_store_sql.dialects import Guard
from coatcheck_store_sql.gates import GateState, lock_gates, released
from coatcheck_store_sql.words import name_of, named, written

if TYPE_CHECKING:
    from coatcheck_store_sql.step import Step

__all__ = ["delete_gate", "history", "pause_gate", "resume_gate", "set_gate"]


def set_gate(step: Step, wanted: Gate, who: str | None, reason: str | None, *, only_if_new: bool) -> None:
    """Set the limits of a gate and leave its pause."""
    state = _lock_to_define(step, named(wanted.name))
    if only_if_new and state.limited:
        return
    gate = evolve(wanted, name=state.gate.name, pause=state.gate.pause)
    since = state.since if state.gate.rate is not None else step.stamp
    _put(step, evolve(state, gate=gate, limited=True, since=since))
    if gate != state.gate or not state.limited:
        _record(step, gate, GateAction.LIMITED, who, reason)


def pause_gate(step: Step, name: str, who: str | None, reason: str, duration: timedelta | None) -> None:
    """Let a gate grant nothing, for `duration` or until it is resumed, unless a longer pause is in force."""
    state = _lock_to_define(step, named(name))
    until = None if duration is None else from_millis(step.now_ms + millis(duration))
    if state.gate.paused_at(step.now) and state.gate.pause and _outlasts(state.gate.pause.until, until):
        return
    gate = evolve(state.gate, pause=Pause(reason=reason, who=who, since=step.now, until=until))
    _put(step, evolve(state, gate=gate))
    _record(step, gate, GateAction.PAUSED, who, reason)


def _outlasts(until: datetime | None, other: datetime | None) -> bool:
    return other is not None and (until is None or until > other)


def resume_gate(step: Step, name: str, who: str | None, reason: str | None) -> None:
    """Undo a pause."""
    name = named(name)
    state = lock_gates(step, [name])[name]
    if state.gate.pause is not None:
        gate = evolve(state.gate, pause=None)
        _put(step, evolve(state, gate=gate))
        if state.gate.paused_at(step.now):
            _record(step, gate, GateAction.RESUMED, who, reason)


def delete_gate(step: Step, name: str, who: str | None, reason: str | None) -> None:
    """Forget a gate; it is open then."""
    name = named(name)
    state = lock_gates(step, [name])[name]
    if state.defined:
        step.run(step.sql.drop_gate, _name=name)
        _record(step, Gate(name=name), GateAction.DELETED, who, reason)
    released(step, [name])


def _lock_to_define(step: Step, name: str) -> GateState:
    """Return a gate that is about to be defined; if it is not yet, with no step on its way that takes its slots."""
    state = lock_gates(step, [name])[name]
    if not state.defined:
        step.alone(Guard.COUNTING)
        state = lock_gates(step, [name])[name]
    return state


def _put(step: Step, state: GateState) -> None:
    gate = state.gate
    if not state.defined:
        ((state.used,),) = step.rows(step.sql.slots_of_gate, gate=gate.name)
    step.run(
        step.sql.put_gate,
        name=gate.name,
        limited=int(state.limited),
        concurrency=gate.concurrency,
        rate_count=gate.rate.count if gate.rate else None,
        rate_per=millis(gate.rate.per) if gate.rate else None,
        rate_since=state.since if gate.rate else None,
        pause_reason=written(gate.pause.reason) if gate.pause else None,
        pause_who=written(gate.pause.who) if gate.pause and gate.pause.who is not None else None,
        pause_since=as_millis(gate.pause.since) if gate.pause else None,
        pause_until=as_millis(gate.pause.until) if gate.pause and gate.pause.until else None,
        used=state.used,
        grants=state.grants_text(step.now_ms),
    )
    released(step, [gate.name])


# ------------------------------------------------------------------ what is remembered


def history(step: Step, name: str) -> tuple[GateRecord, ...]:
    """Return what was done to a gate, the oldest first."""
    return _history(step, named(name))


def _history(step: Step, name: str) -> tuple[GateRecord, ...]:
    rows = step.rows(step.sql.gate_history, name=name)
    return decode_gate_records(cast("list[JSON]", loads(rows[0][0]))) if rows else ()


def _record(step: Step, gate: Gate, action: GateAction, who: str | None, reason: str | None) -> None:
    """Remember a change of a gate; the step has its row locked, or is alone in defining gates."""
    name = gate.name
    gate = evolve(gate, name=name_of(name))
    change = GateRecord(action=action, at=step.now, who=who, reason=reason, gate=gate)
    entries = encode_gate_records(recorded(_history(step, name), change))
    step.run(step.sql.put_gate_history, name=name, entries=dumps(entries, path="history"))
