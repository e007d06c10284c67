"""The walk of one claim over the open lanes: who gets the next turns, in rank order, behind which gates."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from attrs import define, field, frozen

from coatcheck.evolving import constructor
from coatcheck.locked.gatekeeper import UNLIMITED, GateState
from coatcheck.locked.lanes import Lanes, Rank, lane_parts
from coatcheck.locked.ordered import Key, above
from coatcheck.task import Task

__all__ = ["EFFORT", "Granted", "Walk"]

EFFORT = 1000
"""How many lanes and tasks that give nothing one claim looks at before it says "again"."""


@frozen
class Granted:
    """A task whose turn it is."""

    task: Task
    at: datetime | None
    """When a rate granted it; None if no rate was involved."""


_granted = constructor(Granted)


@define
class _Lane:
    """A lane at hand."""

    name: str
    handler_key: str
    listed: Key
    gates: Sequence[GateState]
    read_from: Key
    """Where to read on; empty once everything has been read."""
    waiting: deque[Rank] = field(factory=deque)
    """The next ranks, read ahead."""
    read_size: int = 4
    served: bool = False
    """Whether it has got a turn in this claim."""

    def room(self, *, slots: bool) -> int:
        """Return how many of its tasks all its gates let through now."""
        return min((gate.room(slots=slots) for gate in self.gates), default=UNLIMITED)


class Walk:
    """One claim's walk. Make it, `go`, and take what it has `granted`."""

    def __init__(
        self,
        lanes: Lanes,
        handler_keys: Collection[str],
        limit: int,
        accept: Callable[[Key], Task | None],
        *,
        horizon: Rank | None = None,
    ) -> None:
        """Prepare to grant turns to the first `limit` tasks that open gates let through.

        Args:
            lanes: of one kind of turn.
            handler_keys: whose.
            limit: how many turns at most.
            accept: takes the task that waits under a key out of its lane, and returns it, or None if it is
                not to have a turn.
            horizon: ranks from this one on are left alone.
        """
        self._lanes = lanes
        self._handler_keys = handler_keys
        self._limit = limit
        self._accept = accept
        self._horizon = horizon
        self._effort = EFFORT + limit
        self._at_hand: list[tuple[Rank, str, _Lane]] = []
        self._touched: set[str] = set()
        self._behind = False
        self.granted: list[Granted] = []

    @property
    def again(self) -> bool:
        """Whether it ended early, so that there may be work which it did not get to."""
        return self._behind or self._effort <= 0

    def go(self) -> None:
        """Grant, until the limit is reached, nothing is left, or too many lanes gave nothing."""
        for handler_key in self._handler_keys:
            self._behind |= self._lanes.wake(handler_key, self._limit, EFFORT)
        self._merge()
        for head, name, lane in self._at_hand:
            place = ("open", self._lanes.kind, lane.handler_key, *head, name)
            if place != lane.listed:
                self._lanes.relist(name, lane.listed, place)
        for gate in self._touched:
            self._lanes.look_over(gate)

    def _merge(self) -> None:
        """Serve the open lanes in the order of their heads."""
        listed = heapq.merge(*(self._lanes.open_lanes(key) for key in self._handler_keys))
        coming = next(listed, None)
        at_hand, horizon = self._at_hand, self._horizon
        while len(self.granted) < self._limit and self._effort > 0:
            if coming is not None and (not at_hand or coming[0] < at_hand[0][0]):
                if horizon is not None and coming[0] >= horizon:
                    return
                self._put_back(self._take_up(coming[1]))
                coming = next(listed, None)
            elif not at_hand or (horizon is not None and at_hand[0][0] >= horizon):
                return
            else:
                head, _, lane = heapq.heappop(at_hand)
                bounds = [each[0] for each in (*at_hand[:1], coming) if each is not None]
                bounds += [horizon] if horizon is not None else []
                self._serve(lane, head, min(bounds, default=None))

    def _serve(self, lane: _Lane, head: Rank, bound: Rank | None) -> None:
        """Grant turns to a lane's first tasks that rank before `bound`, or park it if its gates are closed."""
        room = min(lane.room(slots=self._lanes.slots), self._limit - len(self.granted))
        if room == 0:
            self._park(lane, head)
            self._replace(lane)
            return
        tasks: list[Task] = []
        next_head: Rank | None = head
        while len(tasks) < room and next_head is not None and (bound is None or next_head < bound):
            lane.waiting.popleft()
            task = self._accept((self._lanes.kind, lane.name, *next_head))
            if task is not None:
                tasks.append(task)
            else:
                self._effort -= 1
                if self._effort <= 0:
                    break
            next_head = self._head(lane)
        if tasks:
            lane.served = True
            at = self._lanes.gates.take(lane.gates, len(tasks), slots=self._lanes.slots)
            self.granted += [_granted(task, at) for task in tasks]
        else:
            self._replace(lane)
        self._put_back(lane)

    def _take_up(self, listed: Key) -> _Lane:
        name = str(listed[-1])
        handler_key, *names = lane_parts(name)
        self._touched.update(names)
        gates = [self._lanes.gates.state(gate) for gate in names]
        return _Lane(name, handler_key, listed, gates, read_from=(self._lanes.kind, name))

    def _put_back(self, lane: _Lane) -> None:
        """Keep a lane at hand under its head, or take it off the list if it has become empty."""
        head = self._head(lane)
        if head is not None:
            heapq.heappush(self._at_hand, (head, lane.name, lane))
        else:
            self._lanes.relist(lane.name, lane.listed, None)
            self._replace(lane)

    def _head(self, lane: _Lane) -> Rank | None:
        """Return the lane's lowest rank that this claim has not dealt with."""
        if not lane.waiting and lane.read_from:
            last = above((self._lanes.kind, lane.name))
            found = self._lanes.records.scan(lane.read_from, last, lane.read_size)
            lane.waiting.extend(key[2:] for key in found)
            lane.read_from = above(found[-1]) if len(found) == lane.read_size else ()
            lane.read_size = min(4 * lane.read_size, 256)
        return lane.waiting[0] if lane.waiting else None

    def _park(self, lane: _Lane, head: Rank) -> None:
        """List a lane under the gate that will block it longest, for all that is known."""

        def opens(state: GateState) -> tuple[bool, datetime]:
            at = state.opens_at(slots=self._lanes.slots)
            return at is None, at or self._lanes.now

        gate = max(lane.gates, key=opens).name
        place = ("park", self._lanes.kind, gate, lane.handler_key, *head, lane.name)
        self._lanes.relist(lane.name, lane.listed, place)

    def _replace(self, lane: _Lane) -> None:
        """Bring a parked lane into the claim for each gate whose room a lane was brought for and has not used.

        Without it, lanes that are blocked elsewhere, too, would keep back those that are parked behind them.
        """
        if lane.served:
            return
        lanes = self._lanes
        self._effort -= 1
        for gate in lane.gates:
            prefix = ("park", lanes.kind, gate.name, lane.handler_key)
            while gate.room(slots=lanes.slots) and (parked := lanes.records.first(prefix)) is not None:
                # off its list at once, so that it comes but once; the end of the walk lists it again
                lanes.records.delete(parked)
                other = self._take_up(parked)
                head = self._head(other)
                if head is not None:
                    heapq.heappush(self._at_hand, (head, other.name, other))
                    break
                lanes.relist(other.name, None, None)
