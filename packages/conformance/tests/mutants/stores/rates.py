"""Mutants of S11: rates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.events import Deferred, Event, Finished
from coatcheck.evolving import evolve
from coatcheck.gates import Gate, Rate
from coatcheck.locked import gatekeeper, reading
from coatcheck.locked.gatekeeper import Gatekeeper, GateState
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.store import LockedStore
from coatcheck.task import Task, as_millis, from_millis, millis
from mutants.stores import breaks_store

__all__ = ["cut_windows"]

_MS = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


def cut_windows(patch: pytest.MonkeyPatch, *, slots: bool) -> None:
    """Measure windows in whole seconds: those of submissions, which take slots, or those of queries."""
    good_room, good_opens_at = GateState.room, GateState.opens_at

    def seen(state: GateState) -> GateState:
        """Return the gate as it looks with a window that is too short."""
        gate = state.gate
        if gate is None or gate.rate is None:
            return state
        per = max(gate.rate.per // _SECOND * _SECOND, _MS)
        begin = as_millis(state.moment.now) - millis(per)
        entries = [entry for entry in state.entries if entry[0] > begin]
        gate = evolve(gate, rate=Rate(gate.rate.count, per))
        return evolve(state, gate=gate, entries=entries, granted=sum(count for _, count in entries))

    def room(self: GateState, *, slots: bool):
        return good_room(seen(self) if slots is wanted else self, slots=slots)

    def opens_at(self: GateState, *, slots: bool):
        return good_opens_at(seen(self) if slots is wanted else self, slots=slots)

    wanted = slots
    patch.setattr(GateState, "room", room)
    patch.setattr(GateState, "opens_at", opens_at)


def _prune_by(patch: pytest.MonkeyPatch, begin: Callable[[int, int], int]) -> None:
    """Prune the logs of rates at what `begin` says of the time and the length of the window."""

    def prune(self: Gatekeeper, state: GateState):
        if state.gate is None or state.gate.rate is None:
            return
        first = begin(as_millis(self._moment.now), millis(state.gate.rate.per))
        state.entries = [entry for entry in state.entries if entry[0] > first]
        state.granted = sum(count for _, count in state.entries)

    patch.setattr(Gatekeeper, "_prune", prune)


@breaks_store("STORE-RATE-1")
def window_opens_a_millisecond_early(patch: pytest.MonkeyPatch) -> None:
    """Counts a grant for a millisecond less than the window is long."""
    good = GateState.opens_at

    def opens_at(self: GateState, *, slots: bool):
        at = good(self, slots=slots)
        return at - _MS if at is not None and self.rated and at > self.moment.now else at

    _prune_by(patch, lambda now, per: now - per + 1)
    patch.setattr(GateState, "opens_at", opens_at)


@breaks_store("STORE-RATE-2")
def submit_windows_in_whole_seconds(patch: pytest.MonkeyPatch) -> None:
    """Cuts the length of a window to whole seconds."""
    cut_windows(patch, slots=True)


@breaks_store("STORE-RATE-3")
def windows_are_reset(patch: pytest.MonkeyPatch) -> None:
    """Begins a window with a grant, and a new one when it is over, instead of looking back from each instant."""

    def prune(self: Gatekeeper, state: GateState):
        if state.gate is None or state.gate.rate is None:
            return
        per, begun, granted = millis(state.gate.rate.per), 0, 0
        for at, count in state.entries:
            if at >= begun + per:
                begun, granted = at, 0
            granted += count
        state.granted = 0 if as_millis(self._moment.now) >= begun + per else granted

    def usage(self: GateState):
        if self.gate is None or self.gate.rate is None:
            return good(self)
        begin = as_millis(self.moment.now) - millis(self.gate.rate.per)
        granted = sum(count for at, count in self.entries if at > begin)
        return good(evolve(self, granted=granted))

    good = GateState.usage
    patch.setattr(Gatekeeper, "_prune", prune)
    patch.setattr(GateState, "usage", usage)


@breaks_store("STORE-RATE-4")
def windows_are_merged_coarsely(patch: pytest.MonkeyPatch) -> None:
    """Remembers of a window's grants too little to tell when they leave it, and lets them count for longer."""
    patch.setattr(gatekeeper, "WINDOW_ENTRIES", 4)


@breaks_store("STORE-RATE-5")
def a_batch_needs_one_grant_left(patch: pytest.MonkeyPatch) -> None:
    """Lets a whole batch through a long window that has something left."""
    good = GateState.room

    def room(self: GateState, *, slots: bool):
        found, gate = good(self, slots=slots), self.gate
        if found and gate is not None and gate.rate is not None and gate.rate.per >= _MINUTE and self.granted:
            return gate.rate.count
        return found

    patch.setattr(GateState, "room", room)


@breaks_store("STORE-RATE-6")
def returned_with_its_whole_batch(patch: pytest.MonkeyPatch) -> None:
    """Gives back all that was granted at an instant when one of the grants is given back."""
    good = GateState.take_back

    def take_back(self: GateState, stamp: int):
        while any(at == stamp and count > 1 for at, count in self.entries):
            good(self, stamp)
        return good(self, stamp)

    patch.setattr(GateState, "take_back", take_back)


def _gives_back(patch: pytest.MonkeyPatch, kind: type) -> None:
    good = lifecycle.returned_grant

    def returned_grant(task: Task, event: Event):
        if isinstance(event, kind) and task.lease is not None:
            return task.lease.granted_at
        return good(task, event)

    patch.setattr(lifecycle, "returned_grant", returned_grant)


@breaks_store("STORE-RATE-7")
def deferral_gives_its_grant_back(patch: pytest.MonkeyPatch) -> None:
    """Takes a call that certainly created nothing for one that was not made."""
    _gives_back(patch, Deferred)


@breaks_store("STORE-RATE-8")
def an_end_gives_its_grant_back(patch: pytest.MonkeyPatch) -> None:
    """Takes a rate for a concurrency: who is done makes room for the next."""
    _gives_back(patch, Finished)


@breaks_store("STORE-RATE-9")
def usage_as_of_the_last_grant(patch: pytest.MonkeyPatch) -> None:
    """Shows how many grants the window had when it was last written."""
    good = reading.gate_usages

    def gate_usages(ledger: Ledger, names: Collection[str] | None):
        return [
            evolve(usage, granted=sum(count for _, count in ledger.gates._log(usage.gate.name)[1]))
            if usage.gate.rate is not None
            else usage
            for usage in good(ledger, names)
        ]

    patch.setattr(reading, "gate_usages", gate_usages)


@breaks_store("STORE-RATE-10")
def a_clock_may_go_back(patch: pytest.MonkeyPatch) -> None:
    """Believes the clock, also when it shows less than before."""

    def step(self: LockedStore, work: Callable[[Ledger], object]):
        self._latest = None
        return good(self, work)

    def take(self: Gatekeeper, states: Iterable[GateState], count: int, *, slots: bool):
        rated = any(state.rated for state in states)
        for state in states:
            state.take(count, self._moment.stamp, slots=slots)
        return from_millis(self._moment.stamp) if rated else None

    good = LockedStore._step
    patch.setattr(LockedStore, "_step", step)
    patch.setattr(Gatekeeper, "take", take)


@breaks_store("STORE-RATE-13")
def a_late_grant_makes_room(patch: pytest.MonkeyPatch) -> None:
    """Takes a grant that comes back out of the window as it is now, whenever it was given."""
    good = GateState.take_back

    def take_back(self: GateState, stamp: int):
        begin = as_millis(self.moment.now) - (
            millis(self.gate.rate.per) if self.gate and self.gate.rate else 0
        )
        return good(self, max(stamp, begin + 1) if stamp >= self.since else stamp)

    patch.setattr(GateState, "take_back", take_back)


@breaks_store("STORE-RATE-14")
def a_grant_of_no_rate_makes_room(patch: pytest.MonkeyPatch) -> None:
    """Takes back what was granted before there was a rate to count it."""
    good = GateState.take_back

    def take_back(self: GateState, stamp: int):
        return good(self, max(stamp, self.since))

    patch.setattr(GateState, "take_back", take_back)


@breaks_store("STORE-RATE-12")
def a_changed_rate_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """Forgets what was granted when the limit is changed."""
    good = Gatekeeper.define

    def define(self: Gatekeeper, gate: Gate):
        state = self.state(gate.name)
        known = state.gate.rate if state.gate is not None else None
        if known is not None and gate.rate is not None and known != gate.rate:
            state.entries, state.logged_anew = [], True
        good(self, gate)

    patch.setattr(Gatekeeper, "define", define)
