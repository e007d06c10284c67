"""Mutants of S12: waiting."""

from __future__ import annotations

import pytest

from coatcheck.locked import steps
from coatcheck.locked.bell import Bell
from coatcheck.locked.lanes import Lanes
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.store import LockedStore
from coatcheck.memory import MemoryStore
from mutants.stores import breaks_store


def _silent(patch: pytest.MonkeyPatch, method: str) -> None:
    """Let a method of the store ring for nobody."""
    good = getattr(MemoryStore, method)

    async def step(self, *args, **kwargs):
        bell, self._bell = self._bell, Bell()  # a bell that nobody listens to
        try:
            return await good(self, *args, **kwargs)
        finally:
            self._bell = bell

    patch.setattr(MemoryStore, method, step)


@breaks_store("STORE-WAIT-1")
def waiting_always_says_yes(patch: pytest.MonkeyPatch) -> None:
    """Does not tell a timeout from work."""
    good = MemoryStore.wait

    async def wait(self, handler_keys, timeout):
        await good(self, handler_keys, timeout)
        return True

    patch.setattr(MemoryStore, "wait", wait)


@breaks_store("STORE-WAIT-2")
def new_tasks_ring_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Wakes nobody when tasks are added."""
    _silent(patch, "add")


@breaks_store("STORE-WAIT-3")
def wait_sleeps_before_it_looks(patch: pytest.MonkeyPatch) -> None:
    """Sleeps first, whatever has come between the claim and the wait."""
    good = MemoryStore.wait

    async def wait(self, handler_keys, timeout):
        with self._bell.listening(handler_keys) as listener:
            await listener.sleep(timeout.total_seconds())
            if listener.urgent:
                return True
        return await good(self, handler_keys, timeout)

    patch.setattr(MemoryStore, "wait", wait)


@breaks_store("STORE-WAIT-4")
def released_slots_ring_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Wakes nobody when a slot is released."""
    good = steps.settle

    def settle(ledger, settlement):
        ledger.settles = True
        return good(ledger, settlement)

    def news(ledger):
        settles = getattr(ledger, "settles", False)
        return ledger.queries.news | (set() if settles else ledger.submissions.news)

    patch.setattr(steps, "settle", settle)
    patch.setattr(Ledger, "news", property(news))


@breaks_store("STORE-WAIT-5")
def resuming_rings_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Wakes nobody when a gate is resumed."""
    _silent(patch, "resume_gate")


@breaks_store("STORE-WAIT-6")
def deleting_a_gate_rings_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Wakes nobody when a gate is deleted."""
    _silent(patch, "delete_gate")


@breaks_store("STORE-WAIT-7")
def delayed_tasks_are_slept_over(patch: pytest.MonkeyPatch) -> None:
    """Does not know, while it waits, when the next delayed task is due."""
    good = LockedStore.wait

    async def wait(self, handler_keys, timeout):
        first = self._records.first

        def blind(prefix):
            return None if prefix[0] == "delayed" else first(prefix)

        self._records.first = blind
        try:
            return await good(self, handler_keys, timeout)
        finally:
            self._records.first = first

    patch.setattr(MemoryStore, "wait", wait)


@breaks_store("STORE-WAIT-8")
def the_next_query_is_slept_over(patch: pytest.MonkeyPatch) -> None:
    """Sees, while it waits, only queries that were due when it began."""
    good = MemoryStore.wait
    first_open = Lanes.first_open

    async def wait(self, handler_keys, timeout):
        begun = await self.now()

        def blind(lanes, handler_key):
            head = first_open(lanes, handler_key)
            return None if lanes.kind == "due" and head is not None and head[0] > begun else head

        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Lanes, "first_open", blind)
            return await good(self, handler_keys, timeout)

    patch.setattr(MemoryStore, "wait", wait)


def _sleeps_over(patch: pytest.MonkeyPatch, *, paused: bool) -> None:
    """Don't know when a gate of this kind opens by itself."""
    good = Lanes.next_wake

    def next_wake(self, handler_key):
        key = self.records.first(("wake", self.kind, handler_key))
        gate = self.gates.state(key[4]).gate if key else None
        blind = gate is not None and (gate.pause is not None if paused else gate.rate is not None)
        return None if blind else good(self, handler_key)

    patch.setattr(Lanes, "next_wake", next_wake)


@breaks_store("STORE-WAIT-9")
def reopening_windows_are_slept_over(patch: pytest.MonkeyPatch) -> None:
    """Does not know when a rate's window reopens."""
    _sleeps_over(patch, paused=False)


@breaks_store("STORE-WAIT-10")
def ending_pauses_are_slept_over(patch: pytest.MonkeyPatch) -> None:
    """Does not know when a pause ends by itself."""
    _sleeps_over(patch, paused=True)


@breaks_store("STORE-WAIT-11")
def callbacks_ring_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Wakes nobody when a callback comes."""
    _silent(patch, "nudge")


@breaks_store("STORE-WAIT-12")
def ending_leases_are_slept_over(patch: pytest.MonkeyPatch) -> None:
    """Does not know when the next lease ends."""
    patch.setattr(Ledger, "next_lease_end", lambda _: None)


@breaks_store("STORE-WAIT-13")
def closing_leaves_them_asleep(patch: pytest.MonkeyPatch) -> None:
    """Closes, and wakes nobody who waits."""

    async def close(self):
        self._opened = False

    patch.setattr(LockedStore, "close", close)
