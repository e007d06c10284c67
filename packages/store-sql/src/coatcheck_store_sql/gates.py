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
from coatcheck_store_sql.words import name_of

if TYPE_CHECKING:
    from coatcheck_store_sql.step import Step

__all__ = [
    "GateState",
    "gate_usages",
    "lock_gates",
    "lock_gates_now",
    "open_gates",
    "released",
    "return_grants",
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
    since: int = 0
    """When its rate was set, of which no grant was counted before."""
    limited: bool = False
    """Whether limits were set, be they none; not only a pause."""
    _room: int | None = None
    """How many more may pass in this step; None until it is asked for."""

    def reached(self, now: int) -> int:
        """Return `now`, but never before the last grant: a clock that was set back must not open the window anew."""
        return max(now, self.grants[-1][0]) if self.grants else now

    def granted(self, now: int) -> int:
        """Return the grants in the window that ends at `now`."""
        rate, now = self.gate.rate, self.reached(now)
        return sum(count for at, count in self.grants if at > now - millis(rate.per)) if rate else 0

    def is_open(self, kind: str, now: int) -> bool:
        """Whether it lets one more task pass at `now`, the time of the step; slots concern submissions only."""
        return self.room(kind, now) > 0

    def room(self, kind: str, now: int) -> int:
        """Return how many more tasks it lets pass at `now`; zero or less: none."""
        if self._room is None:
            self._room = self._count_room(kind, now)
        return self._room

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
        now = self.reached(now)
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

    def put_back(self, at: int, now: int) -> bool:
        """Take back a grant that was given at `at`, if the window that ends at `now` still holds it."""
        if self.gate.rate is None or at < self.since:
            return False
        if at <= self.reached(now) - millis(self.gate.rate.per):
            return False  # its entry is gone, and the first that is left is another's
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
        per, now = millis(rate.per), self.reached(now)
        kept = [entry for entry in self.grants if entry[0] > now - per]
        if len(kept) > MAX_GRANTS:
            merged: dict[int, list[int]] = {}
            for at, count in kept:
                bucket = merged.setdefault(at * MAX_GRANTS // per, [at, 0])
                bucket[0] = at
                bucket[1] += count
            kept = list(merged.values())
        return json.dumps(kept, separators=(",", ":"))


def lock_gates(step: Step, names: Iterable[str]) -> dict[str, GateState]:
    """Return the gates of these names, locked until the step is committed; those that are not defined are open.

    The locks are taken by name, in one order everywhere. A step that needs several takes them in one go.
    """
    wanted = sorted(set(names))
    return _states(step, wanted, step.rows_among(step.sql.gates_by_name, "names", wanted))


def lock_gates_now(step: Step, names: Iterable[str]) -> dict[str, GateState]:
    """The same; and if there are any, the step's time is the one at which all of them are locked.

    So what a rate has granted is counted up to then, not to before others let go of the gate; and it is never
    before the last grant.
    """
    wanted = sorted(set(names))
    states = _states(step, wanted, step.dialect.lock_gates(step, wanted))
    if any(state.grants for state in states.values()):
        step.not_before(max(state.grants[-1][0] for state in states.values() if state.grants))
    return states


def open_gates(names: Iterable[str]) -> dict[str, GateState]:
    """Return the gates of these names, none of which is defined."""
    return {name: GateState(Gate(name=name), defined=False) for name in names}


def _states(step: Step, names: Iterable[str], rows: Iterable[Sequence[Any]]) -> dict[str, GateState]:
    states = open_gates(names)
    for row in rows:
        state = _state(step, row)
        states[state.gate.name] = state
    return states


def _state(step: Step, row: Sequence[Any]) -> GateState:
    columns = dict(zip((column.name for column in step.sql.schema.gate.c), row, strict=True))
    pause = None
    if columns["pause_since"] is not None:
        pause = Pause(
            reason=name_of(columns["pause_reason"]),
            who=None if columns["pause_who"] is None else name_of(columns["pause_who"]),
            since=from_millis(columns["pause_since"]),
            until=None if columns["pause_until"] is None else from_millis(columns["pause_until"]),
        )
    rate = None
    if columns["rate_count"] is not None:
        rate = Rate(columns["rate_count"], timedelta(milliseconds=columns["rate_per"]))
    gate = Gate(name=columns["name"], concurrency=columns["concurrency"], rate=rate, pause=pause)
    return GateState(
        gate,
        columns["used"],
        json.loads(columns["grants"] or "[]"),
        since=columns["rate_since"] or 0,
        limited=bool(columns["limited"]),
    )


# ------------------------------------------------------------------ what steps do to gates


def released(step: Step, names: Iterable[str]) -> None:
    """Say that these gates may have room now: what is parked under them is to be looked at."""
    rows = [{"_gate": name, "now": step.now_ms} for name in sorted(names)]
    step.news = step.news or bool(rows)
    step.many(step.sql.wake_parking, rows)


def return_grants(
    step: Step, states: Mapping[str, GateState], grants: Iterable[tuple[str, datetime]]
) -> None:
    """Give rate grants back that were taken at these times and not used."""
    changed: dict[str, GateState] = {}
    for name, at in grants:
        if states[name].put_back(as_millis(at), step.now_ms):
            changed[name] = states[name]
    write_grants(step, changed)
    released(step, changed)


def write_grants(step: Step, states: Mapping[str, GateState]) -> None:
    """Write the windows of these gates."""
    step.many(
        step.sql.set_grants,
        [{"_name": name, "grants": states[name].grants_text(step.now_ms)} for name in sorted(states)],
    )


def gate_usages(step: Step, names: Collection[str] | None) -> list[GateUsage]:
    """Return how the defined gates stand, or those of `names`, by name."""
    states = [_state(step, row) for row in step.rows(step.sql.all_gates)]
    usages = []
    for state in sorted(states, key=lambda state: state.gate.name):
        name = name_of(state.gate.name)
        if names is None or name in names:
            over = state.gate.pause is not None and not state.gate.paused_at(step.now)
            gate = evolve(state.gate, name=name, pause=None if over else state.gate.pause)
            usages.append(GateUsage(gate=gate, used=state.used, granted=state.granted(step.now_ms)))
    return usages
