"""One round of a claim: merges lanes, grants turns, and writes where the lanes begin then."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from coatcheck_store_sql.gates import lock_gates_now, open_gates, write_grants
from coatcheck_store_sql.lanes import lanes_of
from coatcheck_store_sql.looking import first_later_turn, look
from coatcheck_store_sql.queues import Queue
from coatcheck_store_sql.records import read_records, records_by_seq
from coatcheck_store_sql.rows import Record
from coatcheck_store_sql.sight import AWAKE_GATES, Ask, Sight, Turn
from coatcheck_store_sql.step import Step

__all__ = ["Round"]

_LANES = 64
"""How many lanes a round looks at, at least; more if it may take more tasks."""
_DEPTH = 4
"""How many turns a lane is asked for at first, at least."""
_LEAST = 2
"""How many turns it is asked for at least, once it is known what others gave: one to take, and the one that comes next,
without which each lane would be asked again by itself."""
_DEEPER = 8
"""How many times as many it is asked for when they are gone."""
_WIDER = 4
"""How many times as many lanes are asked each time that all that were asked are passed."""
_NEARLY = 1
"""How many turns a lane has left when it is asked again along with one that has none."""
_BEHIND = 1_000
"""How many tasks a process takes before it writes again where lanes begin: so many it reads in vain, at worst."""


class Round:
    """Merges lanes and grants turns."""

    def __init__(self, step: Step, kind: str, handlers: Collection[str], limit: int) -> None:
        self.kind = kind
        self.more = False
        """Whether there is more to look at than this round looked at."""
        self.rated: set[int] = set()
        """Rows whose turn a rate granted."""
        self._step = step
        self._limit = limit
        self._overdue: list[int] = []
        self._granted: dict[int, tuple[Turn, tuple[str, ...]]] = {}
        most = max(_LANES, limit + 1)
        sight = look(step, kind, handlers, limit, most)
        self._horizon = self._bound = first_later_turn(step, kind)
        self._narrow(sight, handlers, most)
        self._woken = sight.awake
        self._complete = len(sight.parked) < most
        """Whether all lanes are seen that are parked under gates that may have opened."""
        self._queues = self._queues_of(sight)
        names = {gate for queue in self._queues for gate in queue.lane.gates} | {
            gate for gate, _ in self._woken
        }
        if sight.depth:
            self.gates = open_gates(names)
            asks = [Ask(queue.lane_id, queue.head, sight.depth) for queue in self._queues]
            self._extend(asks, sight.turns)
        else:
            self.gates = lock_gates_now(step, names)
            self._bound = first_later_turn(step, kind)
        self._depth = max(_DEPTH, limit // max(1, len(self._queues)) + 2)
        self._asked = 0
        """How many lanes were asked."""
        self._budget = limit
        """How many turns may be asked for next."""

    # -------------------------------------------------------------- reading lanes

    def _narrow(self, sight: Sight, handlers: Collection[str], most: int) -> None:
        """Note what was not looked at: lanes beyond the last one seen may hold turns from its head on."""
        self._seen_all = True
        for heads in (list(sight.open_lanes.values()), [head for head, _ in sight.parked.values()]):
            if len(heads) >= most:
                self._horizon = min(self._horizon, heads[-1])
                self._seen_all = False
        for handler in handlers:
            if sum(handler == each for _, each in sight.awake) >= AWAKE_GATES:
                self._seen_all = False
        self.more = not self._seen_all

    def _queues_of(self, sight: Sight) -> list[Queue]:
        """Return the lanes in the order of their heads."""
        heads: dict[int, tuple[str, str | None]] = {
            lane: (head, None) for lane, head in sight.open_lanes.items()
        }
        heads.update(sight.parked)
        queues = [Queue(each, lane, *heads[each]) for each, lane in lanes_of(self._step, heads).items()]
        return sorted(queues, key=lambda queue: queue.head)

    # -------------------------------------------------------------- granting

    def grant(self) -> list[Record]:
        """Return the tasks whose turn it is, in order; their gates have room for them."""
        self._merge()
        marks = [turn.mark for turn, _ in self._granted.values() if turn.mark is not None]
        if len(marks) == len(self._granted):
            records = read_records(self._step, marks)
        else:
            records = records_by_seq(self._step, self._granted)
        if len(records) < len(self._granted):
            self._forgo({record.seq for record in records})
        return records

    def _merge(self) -> None:
        heap = [(queue.head, index) for index, queue in enumerate(self._queues)]
        heapq.heapify(heap)
        while heap and len(self._granted) < self._limit:
            at, index = heap[0]
            if at > self._horizon:
                break
            queue = self._queues[index]
            turn = self._peek(queue)
            if turn is None or queue.blocked_by is not None:
                heapq.heappop(heap)
            elif turn > at:
                heapq.heapreplace(heap, (turn, index))
            else:
                self._take(queue)
        if heap and len(self._granted) >= self._limit:
            self.more = True

    def _peek(self, queue: Queue) -> str | None:
        """Return the next turn of a queue, if its time has come; note what blocks it, and what is overdue."""
        now = self._step.now_ms
        closed = (gate for gate in queue.lane.gates if not self.gates[gate].is_open(self.kind, now))
        queue.blocked_by = next(closed, None)
        if queue.blocked_by is not None:
            # what it has to offer does not matter now, so it is not read
            queue.next_turn = queue.next_turn if queue.walked else queue.head
            queue.walked = True
            return queue.next_turn
        while True:
            if not queue.buffer and not queue.ends:
                self._ask(queue)
            if not queue.buffer:
                queue.next_turn = None
                return None
            turn = queue.buffer[-1]
            queue.next_turn = turn.turn
            if turn.turn >= self._bound:
                return None
            if turn.deadline > now:
                return turn.turn
            self._overdue.append(turn.seq)
            queue.buffer.pop()

    def _take(self, queue: Queue) -> None:
        turn = queue.buffer.pop()
        queue.taken = turn.turn
        self._granted[turn.seq] = turn, queue.lane.gates
        for gate in queue.lane.gates:
            if self.gates[gate].take(self.kind, self._step.stamp):
                self.rated.add(turn.seq)

    def _forgo(self, kept: Collection[int]) -> None:
        """Return what the gates gave for rows that turned out unreadable."""
        for seq in self._granted.keys() - set(kept):
            for gate in self._granted.pop(seq)[1]:
                state = self.gates[gate]
                state.put_back(self._step.stamp, self._step.now_ms)
                state.used -= 1
        self.more = True

    # -------------------------------------------------------------- asking lanes for turns

    def _ask(self, front: Queue) -> None:
        """Read on in a lane that has no more turns to offer, and in others for which that is soon to be expected."""
        asks = [
            # the last turn that was read is found again
            Ask(
                queue.lane_id,
                queue.read_to or queue.head,
                self._depth_of(queue) + (queue.read_to is not None),
            )
            for queue in self._soon_needed(front)
        ]
        self._extend(asks, self._step.dialect.next_turns(self._step, asks, self._bound))

    def _extend(self, asks: Iterable[Ask], turns: Iterable[Turn]) -> None:
        found: dict[int, list[Turn]] = {ask.lane: [] for ask in asks}
        for turn in turns:
            found[turn.lane].append(turn)
        by_id = {queue.lane_id: queue for queue in self._queues if queue.lane_id in found}
        for ask in asks:
            queue = by_id[ask.lane]
            queue.depth = ask.limit - (queue.read_to is not None)
            queue.extend(found[ask.lane], ask.limit)

    def _soon_needed(self, front: Queue) -> list[Queue]:
        """Return the lanes to ask along with `front`, which is the first."""
        if not self._step.dialect.concurrent:
            return [front]  # asking costs no round trip
        if front.depth:
            return [front, *(each for each in self._queues if each is not front and self._runs_dry(each))]
        return [*self._next_unasked(front), *(each for each in self._queues if self._runs_dry(each))]

    def _runs_dry(self, queue: Queue) -> bool:
        lasts = queue.ends or not queue.depth or queue.taken is None or len(queue.buffer) > _NEARLY
        return not lasts and self._room(queue) > len(queue.buffer)

    def _next_unasked(self, front: Queue) -> list[Queue]:
        """Return the lanes that come next in the order of their heads, as many as are likely to suffice."""
        if self._asked:
            self._depth = max(_LEAST, -(-len(self._granted) // self._asked) + 1)
        chosen, turns = [front], self._depth_of(front)
        for queue in self._queues:
            if turns >= self._budget:
                break
            if not queue.depth and queue is not front and self._room(queue) > 0:
                chosen.append(queue)
                turns += self._depth_of(queue)
        self._asked += len(chosen)
        self._budget *= _WIDER
        return chosen

    def _depth_of(self, queue: Queue) -> int:
        """Return how many turns to ask a lane for: no more than can pass."""
        most = max(1, min(self._limit - len(self._granted), self._room(queue)))
        wish = queue.depth * _DEEPER or self._depth
        return most if most <= 2 * wish else wish

    def _room(self, queue: Queue) -> int:
        """Return how many tasks of a lane its gates would let pass."""
        now = self._step.now_ms
        return min((self.gates[gate].room(self.kind, now) for gate in queue.lane.gates), default=self._limit)

    # -------------------------------------------------------------- writing

    def write(self) -> None:
        """Write the windows of rates, and take what is overdue out of its lane."""
        step = self._step
        step.many(step.sql.leave_lane, [{"_seq": seq} for seq in sorted(self._overdue)])
        used = {gate for _, gates in self._granted.values() for gate in gates}
        write_grants(step, {g: s for g, s in self.gates.items() if g in used and s.gate.rate is not None})

    def leave_lanes(self) -> None:
        """Write where lanes begin now, and what waits for gates; after the tasks."""
        step = self._step
        walked = {queue.lane_id: queue for queue in self._queues if queue.walked}
        parting = {i for i, queue in walked.items() if queue.blocked_by != queue.parked_by}
        later = self._to_raise(walked.values())
        locked = step.take_lanes(sorted(parting | later)) if parting or later else {}
        step.many(
            step.sql.park_lane,
            [{"_id": i, "parked_by": walked[i].blocked_by} for i in locked if i in parting],
        )
        raised = [walked[i] for i, alone in locked.items() if alone and i in later]
        step.many(
            step.sql.follow_lane,
            [
                {"_id": q.lane_id, "_after": q.head, "turn": q.taken}
                for q in raised
                if q.taken is not None and q.head < q.taken
            ],
        )
        step.many(
            step.sql.raise_head,
            [{"_id": q.lane_id, "_after": q.head} for q in raised if q.taken is None],
        )
        self._write_parking({i for i in walked if i in locked or i not in parting})
        if step.dialect.concurrent and not self._granted and not self.more:
            self.more = self._others_are_at_it(walked.values())

    def _to_raise(self, walked: Iterable[Queue]) -> set[int]:
        """Return the lanes whose heads to raise: now and then all that begin later, else those that are empty.

        A head that is too low costs a look, and a claim that sees all lanes looks at all of them anyway.
        """
        memory = self._step.memory
        memory.behind += len(self._granted)
        if self._granted and self._seen_all and memory.behind <= _BEHIND:
            return {queue.lane_id for queue in walked if queue.is_empty}
        memory.behind = 0
        return {queue.lane_id for queue in walked if queue.begins_later}

    def _others_are_at_it(self, queues: Iterable[Queue]) -> bool:
        """Whether there are turns in open lanes that others have locked."""
        step = self._step
        lanes = [queue.lane_id for queue in queues if queue.blocked_by is None]
        return any(True for _ in step.rows_among(step.sql.any_turn, "lanes", lanes, bound=self._bound))

    def _write_parking(self, settled: Collection[int]) -> None:
        step, now = self._step, self._step.now_ms
        blocked = {(q.blocked_by, q.lane.handler_key) for q in self._queues if q.blocked_by is not None}
        untouched = {(q.parked_by, q.lane.handler_key) for q in self._queues if q.lane_id not in settled}
        rows = []
        for gate, handler in sorted(blocked):
            wake_at = self.gates[gate].opens_at(self.kind, now)
            rows.append({"gate": gate, "kind": self.kind, "handler_key": handler, "wake_at": wake_at})
        cleared = []
        for (gate, handler), wake_at in sorted(self._woken.items()):
            if (gate, handler) in blocked:
                continue
            if self._complete and (gate, handler) not in untouched:
                cleared.append(
                    {"_gate": gate, "_kind": self.kind, "_handler_key": handler, "_wake_at": wake_at}
                )
            else:
                rows.append({"gate": gate, "kind": self.kind, "handler_key": handler, "wake_at": now})
        step.many(step.sql.put_parking, rows)
        step.many(step.sql.clear_parking, cleared)
