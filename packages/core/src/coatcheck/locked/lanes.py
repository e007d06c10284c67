"""Lanes: how tasks wait for their turns, so that a claim finds them in order, past closed gates, at a flat cost.

A lane is a handler and an exact set of gates; its tasks wait in rank order. Each lane that is not empty is
listed once, under its head: the lowest rank in it. It is listed *open*, or *parked* under a gate that kept it
from being served. A claim merges the open lanes by their heads, parks those that it finds blocked, and never
looks at parked ones, however many there are.

What brings a parked lane back is a *wake* entry: a gate, a handler, and the time from which on the gate can
have room. After every section, each gate that parks lanes has one for each handler of theirs, unless it is
closed and only a release or an operator opens it, who then makes the entries.

==========  ===========================  ==================================================================
index       the rest of the key          what it says
==========  ===========================  ==================================================================
ready, due  lane, rank                   a task waits for its turn to be submitted, or queried
lane        kind, lane                   where the lane is listed: the key of one of the next two
open        kind, handler, head, lane    it may be served
park        kind, gate, handler, head,   the gate blocks it
            lane
wake        kind, handler, time, gate    from then on, what the gate parks for the handler may be served
==========  ===========================  ==================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import TypeAlias, cast

from coatcheck.locked.gatekeeper import Gatekeeper
from coatcheck.locked.ordered import Key, Records, above

__all__ = ["Lanes", "Rank", "lane_name", "lane_parts"]

Rank: TypeAlias = Key


@lru_cache(maxsize=1 << 16)
def lane_name(handler_key: str, gates: tuple[str, ...]) -> str:
    """Return the name of a lane; equal names mean equal lanes."""
    return json.dumps([handler_key, *gates], ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1 << 16)
def lane_parts(name: str) -> tuple[str, ...]:
    """Return the handler and the gates of the lane that is called so."""
    return tuple(json.loads(name))


class Lanes:
    """The lanes of one kind of turn, inside one section."""

    def __init__(self, kind: str, records: Records, gates: Gatekeeper, now: datetime, *, slots: bool) -> None:
        """Take part in a section.

        Args:
            kind: "ready" for submissions, "due" for queries.
            records: the section's.
            gates: the section's.
            now: the section's time.
            slots: whether a turn takes slots; else only rates and pauses count.
        """
        self.kind = kind
        self.records = records
        self.gates = gates
        self.now = now
        self.slots = slots
        self.news: set[str] = set()
        """Handlers for which there may be work that was not there before."""

    def enter(self, handler_key: str, name: str, rank: Rank) -> None:
        """Let a task wait in a lane; entering twice is entering once."""
        records, kind = self.records, self.kind
        records.mark((kind, name, *rank))
        listed = cast("Key | None", records.get(("lane", kind, name)))
        if listed is None:
            listed = ("open", kind, handler_key, *rank, name)
            self.relist(name, None, listed)
        elif rank < head_of(listed):
            before, listed = listed, _under(listed, rank)
            self.relist(name, before, listed)
        if listed[0] == "open":
            self.news.add(handler_key)

    def leave(self, name: str, rank: Rank) -> bool:
        """Take a task out of its lane, and return whether it was there."""
        records, kind = self.records, self.kind
        if not records.delete((kind, name, *rank)):
            return False
        listed = cast("Key | None", records.get(("lane", kind, name)))
        if listed is not None and rank == head_of(listed):
            first = records.first((kind, name))
            self.relist(name, listed, None if first is None else _under(listed, first[2:]))
        return True

    def relist(self, name: str, listed: Key | None, place: Key | None) -> None:
        """Move a lane from where it is listed to `place`; None is nowhere."""
        if listed is not None:
            self.records.delete(listed)
        if place is None:
            self.records.delete(("lane", self.kind, name))
        else:
            self.records.mark(place)
            self.records.put(("lane", self.kind, name), place)

    def open_lanes(self, handler_key: str) -> Iterator[tuple[Rank, Key]]:
        """Yield head and listing of a handler's open lanes, in the order of their heads, reading ahead a little."""
        first: Key = ("open", self.kind, handler_key)
        last, size = above(first), 4
        while found := self.records.scan(first, last, size):
            for key in found:
                yield key[3:-1], key
            if len(found) < size:
                return
            first, size = above(found[-1]), min(4 * size, 256)

    def look_over(self, gate: str) -> None:
        """See to it that what the gate parks is looked at when the gate can have room."""
        records, kind = self.records, self.kind
        prefix: Key = ("park", kind, gate)
        first, last = prefix, above(prefix)
        while parked := records.scan(first, last, 1):
            at = self.gates.state(gate).opens_at(slots=self.slots)
            if at is None:
                return
            handler_key = str(parked[0][3])
            records.mark(("wake", kind, handler_key, at, gate))
            self.news.add(handler_key)
            first = above((*prefix, handler_key))

    def wake(self, handler_key: str, most: int, budget: int) -> bool:
        """Open lanes of a handler under gates that may have got room: for each gate the first ones.

        Args:
            handler_key: whose.
            most: for each gate, open no more lanes than that, nor more than it has room for.
            budget: how many gates to look at and lanes to open, about.

        Returns:
            Whether there were more; they are left for the next claim.
        """
        records, kind, done = self.records, self.kind, 0
        due = records.scan(("wake", kind, handler_key), above(("wake", kind, handler_key, self.now)), budget)
        for wake in due:
            if done >= budget:
                return True
            gate = str(wake[4])
            records.delete(wake)
            room = min(self.gates.state(gate).room(slots=self.slots), most)
            parked = records.under(("park", kind, gate, handler_key), room) if room else ()
            for listed in parked:
                self.relist(str(listed[-1]), listed, ("open", kind, *listed[3:]))
            self.look_over(gate)
            done += 1 + len(parked)
        return len(due) == budget

    # -------------------------------------------------------------- looking

    def first_open(self, handler_key: str) -> Rank | None:
        """Return the head of the first open lane of a handler, or None."""
        key = self.records.first(("open", self.kind, handler_key))
        return None if key is None else head_of(key)

    def next_wake(self, handler_key: str) -> datetime | None:
        """Return from when on a gate may let through what it parks for this handler; None if none is known."""
        key = self.records.first(("wake", self.kind, handler_key))
        return None if key is None else cast("datetime", key[3])

    def heads(self, handler_key: str) -> list[Rank]:
        """Return the lowest rank of each of a handler's lanes, open or parked."""
        firsts = (self.records.first((self.kind, name)) for name in self._names(handler_key))
        return [first[2:] for first in firsts if first is not None]

    def count_until(self, handler_key: str, at: datetime) -> int:
        """Return how many of a handler's tasks have their turn at `at` or before, by ranks that are instants."""
        bounds = (((self.kind, name), (self.kind, name, at)) for name in self._names(handler_key))
        return sum(len(self.records.scan(first, above(last))) for first, last in bounds)

    def _names(self, handler_key: str) -> list[str]:
        names = (str(key[2]) for key in self.records.under(("lane", self.kind)))
        return [name for name in names if lane_parts(name)[0] == handler_key]


def head_of(listed: Key) -> Rank:
    """Return the head under which a lane is listed."""
    return listed[3 if listed[0] == "open" else 4 : -1]


def _under(listed: Key, head: Rank) -> Key:
    """Return the same listing under another head."""
    return (*listed[: 3 if listed[0] == "open" else 4], *head, listed[-1])
