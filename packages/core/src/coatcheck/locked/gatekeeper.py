"""Gates inside one exclusive section: how much room they have, what they grant, when they open.

A gate's slots are counted under its name whether it is defined or not, so that limits set later see them.
A rate keeps a log of when it granted how many; at `t` it may grant while the entries in ``(t - per, t]`` sum
up to less than the limit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeAlias, cast

from attrs import define, field, frozen

from coatcheck.evolving import evolve
from coatcheck.gates import Gate, GateUsage
from coatcheck.locked.ordered import Records
from coatcheck.task import as_millis, from_millis, millis

__all__ = ["UNLIMITED", "GateState", "Gatekeeper", "Moment"]

UNLIMITED = sys.maxsize
"""The room of a gate that nothing limits."""
WINDOW_ENTRIES = 64
"""About how many entries a rate's log keeps; closer ones are merged towards the later time."""

_Entry: TypeAlias = "list[int]"


@frozen
class Moment:
    """The time of one section, by the store's clock."""

    now: datetime
    """Cut to the millisecond: what is compared."""
    stamp: int
    """Milliseconds since 1970, rounded up: what a rate is stamped with, so that no window is too short."""

    @classmethod
    def of(cls, clock: datetime) -> Moment:
        """Return the moment at which a clock shows this."""
        cut = clock.microsecond % 1000
        now = clock.replace(microsecond=clock.microsecond - cut) if cut else clock
        return cls(now, as_millis(now) + (1 if cut else 0))


@define
class GateState:
    """One gate, as it stands in this section."""

    name: str
    gate: Gate | None
    """None if it is not defined: then nothing limits it."""
    used: int
    """Slots held."""
    moment: Moment
    entries: list[_Entry] = field(factory=list)
    """The rate's log: [stamp, grants], ascending, those in the window that ends now. Never changed in place."""
    since: int = 0
    """When the log was begun."""
    granted: int = 0
    """The sum of the log."""
    counted_anew: bool = False
    """Whether `used` is to be written."""
    logged_anew: bool = False
    """Whether the log is to be written."""

    def room(self, *, slots: bool) -> int:
        """Return how many turns it grants now; `slots` says whether they take slots, as submissions do."""
        gate = self.gate
        if gate is None:
            return UNLIMITED
        if gate.pause is not None and gate.paused_at(self.moment.now):
            return 0
        room = UNLIMITED
        if slots and gate.concurrency is not None:
            room = gate.concurrency - self.used
        if gate.rate is not None:
            room = min(room, gate.rate.count - self.granted)
        return max(room, 0)

    def opens_at(self, *, slots: bool) -> datetime | None:
        """Return when it is worth looking again; None if only a release or an operator opens it."""
        gate, now = self.gate, self.moment.now
        if self.room(slots=slots):
            return now
        assert gate is not None  # noqa: S101 - what is not defined has room
        if gate.pause is not None and gate.paused_at(now):
            return gate.pause.until
        if (slots and gate.concurrency is not None and self.used >= gate.concurrency) or gate.rate is None:
            return None
        left = self.granted
        for stamp, count in self.entries:
            left -= count
            if left < gate.rate.count:
                return from_millis(stamp + millis(gate.rate.per))
        return None

    @property
    def rated(self) -> bool:
        """Whether a rate limits it."""
        return self.gate is not None and self.gate.rate is not None

    def take(self, count: int, stamp: int, *, slots: bool) -> None:
        """Grant `count` turns at `stamp`."""
        if slots:
            self.used += count
            self.counted_anew = True
        if self.gate is not None and self.gate.rate is not None:
            self.entries = _logged(self.entries, stamp, count, millis(self.gate.rate.per))
            self.granted += count
            self.logged_anew = True

    def release(self) -> None:
        """Take back a slot."""
        self.used -= 1
        self.counted_anew = True

    def take_back(self, stamp: int) -> bool:
        """Take back one grant that was given at `stamp`, and return whether the log had it.

        One from before the window that ends now has left the log, and what stands there first is another's.
        """
        if self.gate is None or self.gate.rate is None or stamp < self.since:
            return False
        if stamp <= as_millis(self.moment.now) - millis(self.gate.rate.per):
            return False
        for place, (at, count) in enumerate(self.entries):
            if at >= stamp:
                rest = [[at, count - 1]] if count > 1 else []
                self.entries = [*self.entries[:place], *rest, *self.entries[place + 1 :]]
                self.granted -= 1
                self.logged_anew = True
                return True
        return False

    def usage(self) -> GateUsage:
        """Return how it stands; a pause that is over is not shown."""
        gate = self.gate or Gate(name=self.name)
        if gate.pause is not None and not gate.paused_at(self.moment.now):
            gate = evolve(gate, pause=None)
        return GateUsage(gate=gate, used=self.used, granted=self.granted if self.rated else 0)


def _logged(entries: Sequence[_Entry], stamp: int, count: int, per: int) -> list[_Entry]:
    """Return the log with `count` grants at `stamp` more."""
    if entries and entries[-1][0] == stamp:
        return [*entries[:-1], [stamp, entries[-1][1] + count]]
    logged = [*entries, [stamp, count]]
    if len(logged) <= 2 * WINDOW_ENTRIES:
        return logged
    merged: list[_Entry] = []
    for at, granted in logged:
        if merged and merged[-1][0] * WINDOW_ENTRIES // per == at * WINDOW_ENTRIES // per:
            merged[-1] = [at, merged[-1][1] + granted]
        else:
            merged.append([at, granted])
    return merged


class Gatekeeper:
    """The gates of a store, inside one section: read once, written once."""

    def __init__(self, records: Records, moment: Moment) -> None:
        self._records = records
        self._moment = moment
        self._states: dict[str, GateState] = {}
        self.eased: set[str] = set()
        """Gates that may have more room than before, because of something other than time."""

    def state(self, name: str) -> GateState:
        """Return how the gate stands in this section."""
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = self._read(name)
        return state

    def take(self, states: Iterable[GateState], count: int, *, slots: bool) -> datetime | None:
        """Grant `count` turns at each of these gates, which have room; return when, if a rate is involved."""
        rated = [state.entries[-1][0] if state.entries else 0 for state in states if state.rated]
        stamp = max(self._moment.stamp, *rated, 0)
        for state in states:
            state.take(count, stamp, slots=slots)
        return from_millis(stamp) if rated else None

    def release(self, names: Iterable[str]) -> None:
        """Take back a slot of each."""
        for name in names:
            self.state(name).release()
            self.eased.add(name)

    def take_back(self, names: Iterable[str], granted_at: datetime) -> None:
        """Take back from each the rate grant that was given at `granted_at`."""
        stamp = as_millis(granted_at)
        for name in names:
            if self.state(name).take_back(stamp):
                self.eased.add(name)

    def define(self, gate: Gate) -> None:
        """Set the limits and the pause of a gate."""
        state = self.state(gate.name)
        if gate.rate is not None and not state.rated:
            entries = self._log(gate.name)[1]
            state.since, state.entries, state.logged_anew = as_millis(self._moment.now), entries, True
        state.gate = gate
        self._prune(state)
        self._records.put(("gate", gate.name), gate)
        self.eased.add(gate.name)

    def forget(self, name: str) -> None:
        """Let nothing limit the gate any more. Its rate's log stays, for a rate that is set soon."""
        state = self.state(name)
        state.gate = None
        self._records.delete(("gate", name))
        self.eased.add(name)

    def names(self) -> list[str]:
        """Return the names of the gates that have limits or a pause, sorted."""
        return [str(key[1]) for key in self._records.under(("gate",))]

    def flush(self) -> None:
        """Write what has changed."""
        for state in self._states.values():
            if state.counted_anew:
                key = ("used", state.name)
                if state.used:
                    self._records.put(key, state.used)
                else:
                    self._records.delete(key)
            if state.logged_anew:
                self._records.put(("window", state.name), [state.since, state.entries])

    def _read(self, name: str) -> GateState:
        gate = cast("Gate | None", self._records.get(("gate", name)))
        used = cast("int | None", self._records.get(("used", name)))
        state = GateState(name, gate, used or 0, self._moment)
        if state.rated:
            state.since, state.entries = self._log(name)
            self._prune(state)
        return state

    def _log(self, name: str) -> tuple[int, list[_Entry]]:
        record = cast("tuple[int, list[_Entry]] | None", self._records.get(("window", name)))
        return (record[0], record[1]) if record is not None else (0, [])

    def _prune(self, state: GateState) -> None:
        """Leave in the log what is in the window that ends now."""
        if state.gate is None or state.gate.rate is None:
            return
        begin = as_millis(self._moment.now) - millis(state.gate.rate.per)
        entries = state.entries
        if entries and entries[0][0] <= begin:
            state.entries = [entry for entry in entries if entry[0] > begin]
        state.granted = sum(count for _, count in state.entries)
