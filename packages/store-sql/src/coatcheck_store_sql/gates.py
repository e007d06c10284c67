"""Gates: exact limits. Whether one is open, what it has granted, and what waits for it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from coatcheck.gates import Gate, GateUsage, Pause, Rate
from coatcheck.task import as_millis, from_millis, millis
from coatcheck_store_sql.places import SUBMIT

if TYPE_CHECKING:
    from coatcheck_store_sql.step import Step

__all__ = [
    "GateState",
    "delete_gate",
    "gate_usages",
    "pause_gate",
    "read_gates",
    "released",
    "resume_gate",
    "return_grants",
    "set_gate",
]

MAX_GRANTS = 64
"""How many entries the window of a rate keeps, about. Entries are merged towards the later time, so that the
limit is never exceeded, and at most one part in this many of it is granted late."""
_UNLIMITED = 2**62


@define
class GateState:
    """One gate as a step sees it."""

    gate: Gate
    used: int = 0
    """Slots held."""
    grants: list[list[int]] = field(factory=list)
    """Entries (time, count) of the rate's window, oldest first, milliseconds."""
    defined: bool = True
    """Whether there is a row for it."""
    limited: bool = False
    """Whether limits were set, be they none; not only a pause."""
    _room: int | None = None
    """How many more may pass in this step; None until it is asked for."""

    def granted(self, now: int) -> int:
        """Return the grants in the window that ends at `now`."""
        rate = self.gate.rate
        return sum(count for at, count in self.grants if at > now - millis(rate.per)) if rate else 0

    def is_open(self, kind: str, now: int) -> bool:
        """Whether it lets one more task pass at `now`, the time of the step; slots concern submissions only."""
        if self._room is None:
            self._room = self._count_room(kind, now)
        return self._room > 0

    def _count_room(self, kind: str, now: int) -> int:
        gate, room = self.gate, _UNLIMITED
        if gate.paused_at(from_millis(now)):
            return 0
        if kind == SUBMIT and gate.concurrency is not None:
            room = gate.concurrency - self.used
        return min(room, gate.rate.count - self.granted(now)) if gate.rate else room

    def opens_at(self, kind: str, now: int) -> int | None:
        """Return when to look again at a gate that is closed at `now`; None: when something happens to it."""
        gate = self.gate
        if gate.pause is not None and gate.paused_at(from_millis(now)):
            return as_millis(gate.pause.until) if gate.pause.until else None
        if kind == SUBMIT and gate.concurrency is not None and self.used >= gate.concurrency:
            return None
        if gate.rate is None:
            return now
        per, left = millis(gate.rate.per), self.granted(now)
        for at, count in self.grants:
            if at > now - per:
                left -= count
                if left < gate.rate.count:
                    return at + per
        return now

    def take(self, kind: str, stamp: int) -> bool:
        """Let one task pass; return whether a rate was involved, which counts it at `stamp`."""
        if self._room is not None:
            self._room -= 1
        if kind == SUBMIT:
            self.used += 1
        if self.gate.rate is None:
            return False
        if self.grants and self.grants[-1][0] >= stamp:
            self.grants[-1][1] += 1
        else:
            self.grants.append([stamp, 1])
        return True

    def put_back(self, at: int) -> bool:
        """Take back a grant that was given at `at`, if the window still holds it."""
        for entry in self.grants:
            if entry[0] >= at:
                entry[1] -= 1
                if not entry[1]:
                    self.grants.remove(entry)
                return True
        return False

    def grants_text(self, now: int) -> str | None:
        """Return the window as it is stored: without what has left it, and not too fine."""
        rate = self.gate.rate
        if rate is None:
            return None
        per = millis(rate.per)
        kept = [entry for entry in self.grants if entry[0] > now - per]
        if len(kept) > MAX_GRANTS:
            merged: dict[int, list[int]] = {}
            for at, count in kept:
                bucket = merged.setdefault(at * MAX_GRANTS // per, [at, 0])
                bucket[0] = at
                bucket[1] += count
            kept = list(merged.values())
        return json.dumps(kept, separators=(",", ":"))


def read_gates(step: Step, names: Iterable[str]) -> dict[str, GateState]:
    """Return the gates of these names; those that are not defined are open."""
    wanted = dict.fromkeys(names)
    states = {name: GateState(Gate(name=name), defined=False) for name in wanted}
    for row in step.rows_among(step.sql.gates_by_name, "names", wanted):
        state = _state(step, row)
        states[state.gate.name] = state
    return states


def _state(step: Step, row: Sequence[Any]) -> GateState:
    columns = dict(zip((column.name for column in step.sql.schema.gate.c), row, strict=True))
    pause = None
    if columns["pause_since"] is not None:
        pause = Pause(
            reason=columns["pause_reason"],
            who=columns["pause_who"],
            since=from_millis(columns["pause_since"]),
            until=None if columns["pause_until"] is None else from_millis(columns["pause_until"]),
        )
    rate = None
    if columns["rate_count"] is not None:
        rate = Rate(columns["rate_count"], timedelta(milliseconds=columns["rate_per"]))
    gate = Gate(name=columns["name"], concurrency=columns["concurrency"], rate=rate, pause=pause)
    return GateState(
        gate, columns["used"], json.loads(columns["grants"] or "[]"), limited=bool(columns["limited"])
    )


# ------------------------------------------------------------------ what steps do to gates


def released(step: Step, names: Iterable[str]) -> None:
    """Say that these gates may have room now: what is parked under them is to be looked at."""
    step.many(step.sql.wake_parking, [{"_gate": name, "now": step.now_ms} for name in names])


def return_grants(step: Step, grants: Collection[tuple[str, datetime]]) -> None:
    """Give rate grants back that were taken at these times and not used."""
    if not grants:
        return
    states = read_gates(step, [name for name, _ in grants])
    changed: dict[str, GateState] = {}
    for name, at in grants:
        if states[name].gate.rate is not None and states[name].put_back(as_millis(at)):
            changed[name] = states[name]
    write_grants(step, changed)
    released(step, changed)


def write_grants(step: Step, states: Mapping[str, GateState]) -> None:
    """Write the windows of these gates."""
    step.many(
        step.sql.set_grants,
        [{"_name": name, "grants": state.grants_text(step.now_ms)} for name, state in states.items()],
    )


# ------------------------------------------------------------------ what people do to gates


def set_gate(step: Step, wanted: Gate, *, only_if_new: bool) -> None:
    """Set the limits of a gate and leave its pause."""
    state = read_gates(step, [wanted.name])[wanted.name]
    if only_if_new and state.limited:
        return
    _put(step, evolve(state, gate=evolve(wanted, pause=state.gate.pause), limited=True))


def pause_gate(step: Step, name: str, reason: str, who: str | None, duration: timedelta | None) -> None:
    """Let a gate grant nothing, for `duration` or until it is resumed, unless a longer pause is in force."""
    until = None if duration is None else from_millis(step.now_ms + millis(duration))
    state = read_gates(step, [name])[name]
    if state.gate.paused_at(step.now) and state.gate.pause and _outlasts(state.gate.pause.until, until):
        return
    pause = Pause(reason=reason, who=who, since=step.now, until=until)
    _put(step, evolve(state, gate=evolve(state.gate, pause=pause)))


def _outlasts(until: datetime | None, other: datetime | None) -> bool:
    return other is not None and (until is None or until > other)


def resume_gate(step: Step, name: str) -> None:
    """Undo a pause."""
    state = read_gates(step, [name])[name]
    if state.gate.pause is not None:
        _put(step, evolve(state, gate=evolve(state.gate, pause=None)))


def delete_gate(step: Step, name: str) -> None:
    """Forget a gate; it is open then."""
    step.run(step.sql.drop_gate, _name=name)
    released(step, [name])


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
        pause_reason=gate.pause.reason if gate.pause else None,
        pause_who=gate.pause.who if gate.pause else None,
        pause_since=as_millis(gate.pause.since) if gate.pause else None,
        pause_until=as_millis(gate.pause.until) if gate.pause and gate.pause.until else None,
        used=state.used,
        grants=state.grants_text(step.now_ms),
    )
    released(step, [gate.name])


def gate_usages(step: Step, names: Collection[str] | None) -> list[GateUsage]:
    """Return how the defined gates stand, or those of `names`, by name."""
    states = [_state(step, row) for row in step.rows(step.sql.all_gates)]
    usages = []
    for state in sorted(states, key=lambda state: state.gate.name):
        if names is None or state.gate.name in names:
            over = state.gate.pause is not None and not state.gate.paused_at(step.now)
            gate = evolve(state.gate, pause=None) if over else state.gate
            usages.append(GateUsage(gate=gate, used=state.used, granted=state.granted(step.now_ms)))
    return usages
