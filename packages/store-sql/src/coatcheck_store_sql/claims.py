"""Claims by turn: submissions in rank order and queries in order of time, behind exact gates.

Lanes wait with a turn before which none stands in them, their head. A claim merges the lanes with the first
heads, and takes tasks in the order of their turns while their gates are open. A lane that meets a closed gate
is parked under it, and costs nothing until the gate may be open again; so what a claim costs follows from the
lanes and gates that it meets, not from how many tasks wait.

Where several steps write at once, a claim locks in this order: the gates of the lanes it looks at, by name, and
waits for them; then tasks and lanes, of which it leaves to others what they have locked. See docs/decisions/0027.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta

from attrs import define, field

from coatcheck.lifecycle import claimed_for_query, claimed_for_submission
from coatcheck.store import Claims
from coatcheck.task import Lease, Task, from_millis, millis
from coatcheck_store_sql.gates import lock_gates, write_grants
from coatcheck_store_sql.lanes import Lane, lanes_of, lower_heads
from coatcheck_store_sql.places import SUBMIT, time_turn
from coatcheck_store_sql.records import Changes, hand_out, records_by_seq
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import named

__all__ = ["attend", "claim", "claim_turns", "make_lease"]

_LANES = 64
"""How many lanes a round reads at least; more if it may take more tasks."""
_AWAKE_GATES = 100
"""How many gates that may have opened one round looks at."""
_WAKE_LIMIT = 10_000
"""How many tasks that became due one claim puts into their lanes."""
_ATTENDANCE_MILLISECONDS = 10_000
"""How exactly it is known when a worker last claimed for a handler."""
_SEVERAL = 2
"""How many lanes are worth asking at once."""
_ALL_TURNS = "~"
"""After every turn."""


def claim_turns(
    step: Step, kind: str, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
) -> Claims:
    """Claim up to `limit` tasks whose turn it is, in lanes of `kind` (S4, S5)."""
    handlers = sorted(set(map(named, handler_keys)))
    if not handlers or limit < 1:
        return Claims()
    if kind == SUBMIT:
        _wake(step, handlers)
    found = _Round(step, kind, handlers, limit)
    seqs = found.grant()
    records = records_by_seq(step, seqs)
    if len(records) < len(seqs):
        found.forgo({record.seq for record in records})
    found.write()
    changes = Changes(step, found.gates)
    claimed = claimed_for_submission if kind == SUBMIT else claimed_for_query
    tasks = [
        changes.put(
            record, claim(step, record.task, claimed, worker_id, lease, rated=record.seq in found.rated)
        ).task
        for record in records
    ]
    changes.write()
    found.leave_lanes()
    attend(step, handlers)
    return Claims(tuple(hand_out(task) for task in tasks), again=found.more and len(tasks) < limit)


def claim(
    step: Step,
    task: Task,
    claimed: Callable[..., Task],
    worker_id: str,
    lease: timedelta,
    *,
    rated: bool = False,
) -> Task:
    """Return `task` with a new lease for `worker_id`."""
    return claimed(task, make_lease(step, task, worker_id, lease, rated=rated), step.now)


def make_lease(step: Step, task: Task, worker_id: str, lease: timedelta, *, rated: bool = False) -> Lease:
    """Return a lease on `task` from now on; `rated` says that a rate granted this turn."""
    return Lease(
        worker_id=worker_id,
        token=task.token + 1,
        nonce=secrets.token_hex(8),
        until=from_millis(step.now_ms + millis(lease)),
        granted_at=from_millis(step.stamp) if rated else None,
    )


def attend(step: Step, handlers: Collection[str]) -> None:
    """Note that somebody claims for these handlers, now and then; last, since others want to note it, too."""
    attended = step.memory.attended
    late = [key for key in handlers if step.now_ms - attended.get(key, -(10**15)) >= _ATTENDANCE_MILLISECONDS]
    step.many(step.sql.attend, [{"handler_key": key, "at": step.now_ms} for key in sorted(late)])
    attended.update(dict.fromkeys(late, step.now_ms))


def _wake(step: Step, handlers: Collection[str]) -> None:
    """Put tasks that have become due into their lanes."""
    heads: dict[int, str] = {}
    for handler in handlers:
        woken = step.rows(step.sql.asleep, handler_key=handler, now=step.now_ms, limit=_WAKE_LIMIT)
        for _, lane, rank in woken:
            heads[lane] = min(rank, heads.get(lane, rank))
        step.many(step.sql.wake, [{"_seq": seq} for seq, _, _ in woken])
    lower_heads(step, heads)


@define
class _Queue:
    """One lane as a round walks along it."""

    lane_id: int
    lane: Lane
    head: str
    """As stored; at or before its first turn."""
    parked_by: str | None
    """As stored."""
    buffer: list[tuple[int, str, int]] = field(factory=list)
    """(seq, turn, deadline) still to come, last one first."""
    next_turn: str | None = None
    """Where it goes on; None: it is empty. Meaningful once `walked`."""
    walked: bool = False
    blocked_by: str | None = None
    """The gate that was closed when its next task came."""
    taken: str | None = None
    """The last turn that was taken."""


class _Round:
    """Merges lanes and grants turns."""

    def __init__(self, step: Step, kind: str, handlers: Collection[str], limit: int) -> None:
        self.kind = kind
        self.more = False
        """Whether there is more to look at than this round looked at."""
        self.rated: set[int] = set()
        """Rows whose turn a rate granted."""
        self._step = step
        self._limit = limit
        self._bound = self._first_later_turn()
        self._horizon = self._bound
        self._overdue: list[int] = []
        self._granted: dict[int, tuple[str, ...]] = {}
        self._woken: dict[tuple[str, str], tuple[bool, int]] = {}
        """(gate, handler) that may have opened: whether all that is parked there was read, and what the row said."""
        self._queues = list(self._read_queues(handlers))
        names = {gate for queue in self._queues for gate in queue.lane.gates} | {g for g, _ in self._woken}
        self.gates = lock_gates(step, names)
        if any(state.defined for state in self.gates.values()):
            # what a rate has granted is counted up to now, not to before others let go of the gate
            step.look_at_clock()
            step.not_before(
                max((state.grants[-1][0] for state in self.gates.values() if state.grants), default=0)
            )
            self._bound = self._first_later_turn()
        self._chunk = max(4, limit // max(1, len(self._queues)) + 2)

    def _first_later_turn(self) -> str:
        """Return the turn before which all stand that may be claimed now."""
        return _ALL_TURNS if self.kind == SUBMIT else time_turn(self._step.now_ms + 1)

    # -------------------------------------------------------------- reading lanes

    def _read_queues(self, handlers: Collection[str]) -> Iterator[_Queue]:
        heads: dict[int, tuple[str, str | None]] = {}
        for handler in handlers:
            heads |= {lane: (head, None) for lane, head in self._heads(handler, None)}
            for gate, wake_at in self._step.rows(
                self._step.sql.awake,
                kind=self.kind,
                handler_key=handler,
                now=self._step.now_ms,
                limit=_AWAKE_GATES,
            ):
                lanes = self._heads(handler, gate)
                heads |= {lane: (head, gate) for lane, head in lanes}
                self._woken[gate, handler] = len(lanes) < self._most_lanes, wake_at
        for lane_id, lane in lanes_of(self._step, heads).items():
            yield _Queue(lane_id, lane, *heads[lane_id])

    @property
    def _most_lanes(self) -> int:
        return max(_LANES, self._limit + 1)

    def _heads(self, handler: str, gate: str | None) -> list[tuple[int, str]]:
        sql = self._step.sql
        given = {"kind": self.kind, "handler_key": handler, "bound": self._bound, "limit": self._most_lanes}
        rows = (
            self._step.rows(sql.open_lanes, **given)
            if gate is None
            else self._step.rows(sql.parked_lanes, gate=gate, **given)
        )
        if len(rows) >= self._most_lanes:
            # lanes beyond the last one read may hold turns from its head on
            self._horizon = min(self._horizon, rows[-1][1])
            self.more = True
        return [(lane_id, head) for lane_id, head in rows]

    # -------------------------------------------------------------- granting

    def grant(self) -> list[int]:
        """Return the rows whose turn it is, in order; their gates have room for them."""
        self._fill_all()
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
        return list(self._granted)

    def _peek(self, queue: _Queue) -> str | None:
        """Return the next turn of a queue, if its time has come; note what blocks it, and what is overdue."""
        closed = (g for g in queue.lane.gates if not self.gates[g].is_open(self.kind, self._step.now_ms))
        queue.blocked_by = next(closed, None)
        if queue.blocked_by is not None:
            # what it has to offer does not matter now, so it is not read
            queue.next_turn = queue.next_turn if queue.walked else queue.head
            queue.walked = True
            return queue.next_turn
        while True:
            if not queue.buffer and not self._fill(queue):
                queue.next_turn = None
                return None
            seq, turn, deadline = queue.buffer[-1]
            queue.next_turn = turn
            if turn >= self._bound:
                return None
            if deadline > self._step.now_ms:
                break
            self._overdue.append(seq)
            queue.buffer.pop()
        return turn

    def _fill_all(self) -> None:
        """Read where several lanes begin in one go, if the database can do that."""
        now = self._step.now_ms
        wanted = {
            queue.lane_id: queue
            for queue in self._queues
            if all(self.gates[gate].is_open(self.kind, now) for gate in queue.lane.gates)
        }
        if len(wanted) < _SEVERAL:
            return
        heads = {lane_id: queue.head for lane_id, queue in wanted.items()}
        rows = self._step.dialect.first_turns(self._step, heads, self._chunk)
        if rows is None:
            return
        found: dict[int, list[tuple[int, str, int]]] = {lane_id: [] for lane_id in wanted}
        for lane_id, *turn in rows:
            found[lane_id].append((turn[0], turn[1], turn[2]))
        for lane_id, queue in wanted.items():
            turns = sorted(found[lane_id], key=lambda turn: turn[1], reverse=True)
            queue.walked, queue.buffer = True, turns
            queue.next_turn = turns[-1][1] if turns else None

    def _fill(self, queue: _Queue) -> bool:
        # the last turn that was read is read again, and dropped: turns are unique
        after = queue.next_turn if queue.walked else None
        if queue.walked and after is None:
            return False
        rows = self._step.rows(
            self._step.sql.turns, lane=queue.lane_id, turn=after or queue.head, limit=self._chunk
        )
        if after is not None and rows and rows[0][1] == after:
            del rows[0]
        queue.walked = True
        queue.buffer = rows[::-1]
        return bool(rows)

    def _take(self, queue: _Queue) -> None:
        seq, queue.taken, _ = queue.buffer.pop()
        self._granted[seq] = queue.lane.gates
        for gate in queue.lane.gates:
            if self.gates[gate].take(self.kind, self._step.stamp):
                self.rated.add(seq)

    def forgo(self, kept: Collection[int]) -> None:
        """Return what the gates gave for rows that turned out unreadable."""
        for seq in self._granted.keys() - set(kept):
            for gate in self._granted.pop(seq):
                state = self.gates[gate]
                state.put_back(self._step.stamp, self._step.now_ms)
                state.used -= 1
        self.more = True

    # -------------------------------------------------------------- writing

    def write(self) -> None:
        """Write the windows of rates, and take what is overdue out of its lane."""
        step = self._step
        step.many(step.sql.leave_lane, [{"_seq": seq} for seq in sorted(self._overdue)])
        used = {gate for gates in self._granted.values() for gate in gates}
        write_grants(step, {g: s for g, s in self.gates.items() if g in used and s.gate.rate is not None})

    def leave_lanes(self) -> None:
        """Write where lanes begin now, and what waits for gates; after the tasks."""
        step = self._step
        walked = {queue.lane_id: queue for queue in self._queues if queue.walked}
        locked = step.take_lanes([i for i, queue in walked.items() if self._moves(queue)])
        parked = [
            {"_id": lane_id, "parked_by": walked[lane_id].blocked_by}
            for lane_id in locked
            if walked[lane_id].blocked_by != walked[lane_id].parked_by
        ]
        step.many(step.sql.park_lane, parked)
        raised = [walked[lane_id] for lane_id, alone in locked.items() if alone]
        followed = [
            {"_id": q.lane_id, "_after": q.head, "turn": q.taken}
            for q in raised
            if q.taken is not None and q.head < q.taken
        ]
        step.many(step.sql.follow_lane, followed)
        emptied = [
            {"_id": q.lane_id, "_after": q.head}
            for q in raised
            if q.taken is None and q.blocked_by is None and q.next_turn != q.head
        ]
        step.many(step.sql.raise_head, emptied)
        self._write_parking({i for i, q in walked.items() if i in locked or q.blocked_by == q.parked_by})
        if step.dialect.concurrent and not self._granted and not self.more:
            self.more = self._others_are_at_it(walked.values())

    @staticmethod
    def _moves(queue: _Queue) -> bool:
        begins_later = queue.blocked_by is None and queue.next_turn != queue.head
        return queue.taken is not None or begins_later or queue.blocked_by != queue.parked_by

    def _others_are_at_it(self, queues: Iterable[_Queue]) -> bool:
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
        for (gate, handler), (complete, wake_at) in sorted(self._woken.items()):
            if (gate, handler) in blocked:
                continue
            if complete and (gate, handler) not in untouched:
                cleared.append(
                    {"_gate": gate, "_kind": self.kind, "_handler_key": handler, "_wake_at": wake_at}
                )
            else:
                rows.append({"gate": gate, "kind": self.kind, "handler_key": handler, "wake_at": now})
        step.many(step.sql.put_parking, rows)
        step.many(step.sql.clear_parking, cleared)
