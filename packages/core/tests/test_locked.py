"""What is special to locked stores; what every store must do is in the conformance kit."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coatcheck.clock import ManualClock
from coatcheck.codec import digest
from coatcheck.errors import (
    DuplicateTask,
    InvalidTransition,
    NotPersistable,
    StoreUnavailable,
    UndecodableRow,
)
from coatcheck.events import Accepted, Finished, GaveBack, LeftUnknown, Rejected
from coatcheck.gates import Gate, Pause, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.locked import Key, ledger, nudges, walk
from coatcheck.locked.gatekeeper import WINDOW_ENTRIES, GateState, Moment
from coatcheck.locked.lanes import lane_name
from coatcheck.locked.ordered import above, pack, unpack
from coatcheck.locked.snapshots import MAX_DEPTH
from coatcheck.memory import MemoryStore
from coatcheck.store import STALE_GRACE, Filter
from coatcheck.task import (
    ErrorCode,
    Identity,
    QueryParams,
    Rank,
    Route,
    Status,
    Task,
    TaskDraft,
    TaskError,
    as_millis,
    from_millis,
    new_task_id,
)

HANDLER = "ocr:test"
SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=1)
MILLISECOND = timedelta(milliseconds=1)
START = datetime(2030, 1, 1, tzinfo=UTC)
ERROR = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="the answer was lost")


def draft(**changes: Any) -> TaskDraft:
    """Return a draft; `handler`, `gates`, `query_gate` and `priority` are told shortly."""
    task_id = new_task_id()
    priority = changes.pop("priority", 0)
    route = Route(
        handler_key=(key := changes.pop("handler", HANDLER)),
        provider_key=key,
        gates=tuple(sorted(changes.pop("gates", ()))),
        query_gate=changes.pop("query_gate", None),
    )
    values: dict[str, Any] = {
        "id": task_id,
        "route": route,
        "params": {"page": 1},
        "identity": Identity(params_digest=digest({"page": 1}), idempotency_key=task_id),
        "tracking_timeout": timedelta(hours=1),
        "priority": priority,
        "rank": Rank(band=-priority),
    }
    return TaskDraft(**(values | changes))


async def claim(store: MemoryStore, limit: int = 100, handler: str = HANDLER) -> list[Task]:
    """Claim once for submission."""
    return list((await store.claim_submissions("w", [handler], limit, LEASE)).tasks)


async def accept(store: MemoryStore, tasks: Sequence[Task], *, delay: timedelta = SECOND) -> None:
    """Start the claims and settle them as accepted, each under its own id."""
    await store.start(tasks, LEASE)
    await store.settle(
        [
            Settlement(
                task=task, event=Accepted(query_params=QueryParams(external_task_id=task.id), delay=delay)
            )
            for task in tasks
        ]
    )


# ------------------------------------------------------------------ keys

PARTS = st.text(max_size=3) | st.sampled_from(["\0", "\0\xff", "a\0", "a\0b", "\uffff", "\U0001f600"])
NUMBERS = st.integers(-(2**90), 2**90)
INSTANTS = st.integers(0, 2**45).map(from_millis)
KEYS = st.tuples(PARTS, NUMBERS, PARTS, INSTANTS)


@given(KEYS)
def test_a_key_survives_packing(key: Key) -> None:
    """What `pack` makes, `unpack` reads back equal."""
    assert unpack(pack(key)) == key


@given(KEYS, KEYS)
def test_packed_keys_sort_as_keys_do(one: Key, other: Key) -> None:
    """A store that orders bytes has the same order as one that orders tuples, also between prefixes."""
    assert (one < other) == (pack(one) < pack(other))
    assert (one[:2] < other) == (pack(one[:2]) < pack(other))


@given(KEYS, st.integers(1, 4), KEYS)
def test_above_ends_a_prefix(key: Key, length: int, other: Key) -> None:
    """`above` stands after every key of the prefix, and before every other that stands after them."""
    prefix = key[:length]
    assert prefix <= key < above(prefix)
    if other[:length] > prefix:
        assert other >= above(prefix)


def test_lanes_with_odd_names_are_told_apart() -> None:
    """A lane's name is one of its handler and its gates, whatever characters they hold."""
    odd = [("a", ("b",)), ("a,b", ()), ('a","b', ()), ("a", ("b", "")), ("a\0b", ()), ("", ("a", "b"))]
    assert len({lane_name(handler, gates) for handler, gates in odd}) == len(odd)


# ------------------------------------------------------------------ gates


def test_stamps_are_rounded_up_and_comparisons_down() -> None:
    """A grant within a millisecond counts from the end of it, and a window is over only when it really is."""
    moment = Moment.of(START + timedelta(microseconds=1500))
    assert moment.now == START + MILLISECOND
    assert moment.stamp == as_millis(START) + 2
    assert Moment.of(START).stamp == as_millis(START)


async def test_a_rate_is_a_sliding_window() -> None:
    """2 per second: A and B at 1000 ms, C is refused at 1999 ms and granted at 2000 ms."""
    clock = ManualClock(START + SECOND)
    async with MemoryStore(clock) as store:
        await store.set_gate("g", rate=Rate(2))
        await store.add([draft(gates=["g"]) for _ in range(3)])
        assert len(await claim(store)) == 2
        for step in (500, 499):
            clock.advance(step * MILLISECOND)
            assert await claim(store) == []
        clock.advance(MILLISECOND)
        (granted,) = await claim(store)
        assert granted.lease is not None
        assert granted.lease.granted_at == START + 2 * SECOND


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), max_size=400), st.integers(1, 200))
def test_a_merged_log_never_grants_more_than_an_exact_one(steps: list[tuple[int, int]], limit: int) -> None:
    """Entries are merged towards the later time: at no instant is there more room than there really is."""
    gate = Gate(name="g", rate=Rate(limit, SECOND))
    exact: list[tuple[int, int]] = []
    entries: list[list[int]] = []
    now = as_millis(START)
    for pause, wanted in steps:
        now += pause
        entries = [entry for entry in entries if entry[0] > now - 1000]
        granted = sum(count for _, count in entries)
        state = GateState("g", gate, 0, Moment(from_millis(now), now), entries=entries, granted=granted)
        taken = min(wanted, state.room(slots=True))
        if taken:
            state.take(taken, now, slots=True)
            exact.append((now, taken))
        entries = state.entries
        assert len(entries) <= 2 * WINDOW_ENTRIES
        assert sum(count for at, count in exact if at > now - 1000) <= limit


def test_a_merged_log_is_late_by_one_sixty_fourth_at_most() -> None:
    """Under a steady load a rate is kept to within 2 %."""
    gate = Gate(name="g", rate=Rate(1000, SECOND))
    entries: list[list[int]] = []
    total = 0
    for now in range(20_000):
        entries = [entry for entry in entries if entry[0] > now - 1000]
        granted = sum(count for _, count in entries)
        state = GateState("g", gate, 0, Moment(from_millis(now), now), entries=entries, granted=granted)
        if taken := min(1 + now % 3, state.room(slots=True)):
            state.take(taken, now, slots=True)
        total, entries = total + taken, state.entries
    assert total >= 20 * 1000 * 0.98


async def test_a_grant_goes_back_only_to_the_gate_that_gave_it() -> None:
    """A rate that was set after a claim keeps its own grants when that claim is given back."""
    clock = ManualClock(START)
    async with MemoryStore(clock) as store:
        await store.set_gate("old", rate=Rate(5, LEASE))
        await store.add([draft(gates=["old", "new"])])
        (early,) = await claim(store)
        clock.advance(SECOND)
        await store.set_gate("new", rate=Rate(1, LEASE))
        await store.add([draft(gates=["new"]) for _ in range(2)])
        assert len(await claim(store)) == 1
        await store.settle([Settlement(task=early, event=GaveBack(delay=LEASE))])
        assert [usage.granted for usage in await store.gates(["new", "old"])] == [1, 0]
        assert await claim(store) == []


async def test_a_gate_that_was_only_paused_counts_as_new() -> None:
    """The pause that a 429 brought does not keep a policy's limits from being applied, nor do they end it."""
    async with MemoryStore(ManualClock()) as store:
        await store.pause_gate("g", reason="slow down")
        await store.set_gate("g", concurrency=2, only_if_new=True)
        await store.set_gate("g", concurrency=9, only_if_new=True)
        (usage,) = await store.gates(["g"])
        assert usage.gate.concurrency == 2
        assert isinstance(usage.gate.pause, Pause)


async def test_a_clock_that_goes_back_lets_nothing_through() -> None:
    """The store stays at its latest time until the clock has come back to it."""
    clock = ManualClock(START)
    async with MemoryStore(clock) as store:
        await store.set_gate("g", rate=Rate(1, LEASE))
        await store.add([draft(gates=["g"]) for _ in range(2)])
        assert len(await claim(store)) == 1
        clock.set(START - timedelta(days=1))
        assert await store.now() == START
        assert await claim(store) == []
        clock.set(START + LEASE)
        assert len(await claim(store)) == 1


# ------------------------------------------------------------------ lanes


class Compared:
    """A store beside a model that finds what a claim is to give the slow way: all in rank order, past the gates."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.waiting: list[TaskDraft] = []
        self.held: list[Task] = []
        self.used: dict[str, int] = defaultdict(int)
        self.limits: dict[str, int] = {}
        self.paused: set[str] = set()

    def has_room(self, gate: str) -> bool:
        """Whether the gate lets one more through."""
        return gate not in self.paused and self.used[gate] < self.limits.get(gate, 10**9)

    def expected(self, limit: int) -> list[str]:
        """Return the ids that a claim is to give, in order."""
        granted: list[TaskDraft] = []
        for each in sorted(self.waiting, key=lambda each: (each.rank.band, each.id)):
            gates = each.route.gates
            if len(granted) < limit and all(self.has_room(gate) for gate in gates):
                granted.append(each)
                for gate in gates:
                    self.used[gate] += 1
        self.waiting = [each for each in self.waiting if each not in granted]
        return [each.id for each in granted]

    async def add(self, wanted: list[tuple[set[str], int]]) -> None:
        """Add tasks of these gates and priorities."""
        drafts = [draft(gates=gates, priority=priority) for gates, priority in wanted]
        await self.store.add(drafts)
        self.waiting += drafts

    async def claim(self, limit: int) -> None:
        """Claim, and compare."""
        tasks = await claim(self.store, limit)
        assert [task.id for task in tasks] == self.expected(limit)
        self.held.extend(tasks)

    async def release(self, place: int) -> None:
        """Let one of the claimed tasks end."""
        if place < len(self.held):
            task = self.held.pop(place)
            await self.store.settle([Settlement(task=task, event=Rejected(error=ERROR))])
            for gate in task.route.gates:
                self.used[gate] -= 1

    async def cancel(self, place: int) -> None:
        """Cancel one of the waiting tasks."""
        if place < len(self.waiting):
            assert await self.store.request_cancellation(self.waiting.pop(place).id)

    async def limit(self, wanted: tuple[str, int]) -> None:
        """Limit a gate."""
        await self.store.set_gate(wanted[0], concurrency=wanted[1])
        self.limits[wanted[0]] = wanted[1]

    async def open(self, gate: str) -> None:
        """Forget a gate's limits and pause."""
        await self.store.delete_gate(gate)
        self.limits.pop(gate, None)
        self.paused.discard(gate)

    async def pause(self, gate: str) -> None:
        """Pause a gate."""
        await self.store.pause_gate(gate, reason="test")
        self.paused.add(gate)

    async def resume(self, gate: str) -> None:
        """Resume a gate."""
        await self.store.resume_gate(gate)
        self.paused.discard(gate)


GATES = ("a", "b", "c")
ADDED = st.lists(st.tuples(st.sets(st.sampled_from(GATES)), st.integers(0, 3)), max_size=8)
STEPS = st.one_of(
    st.tuples(st.just("add"), ADDED),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("release"), st.integers(0, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("limit"), st.tuples(st.sampled_from(GATES), st.integers(1, 4))),
    st.tuples(st.sampled_from(["open", "pause", "resume"]), st.sampled_from(GATES)),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=40))
async def test_claims_are_those_of_a_walk_over_everything(steps: list[tuple[str, Any]]) -> None:
    """Lanes and parking change what a claim costs, never what it gives; and everything behind gates drains."""
    async with MemoryStore(ManualClock()) as store:
        compared = Compared(store)
        for step, value in steps:
            await getattr(compared, step)(value)
        for gate in GATES:
            await compared.resume(gate)
        while compared.waiting or compared.held:
            await compared.claim(3)
            await compared.release(0)
        assert not any(usage.used for usage in await store.gates())


async def _reads_of_a_claim(count_reads: Callable[[MemoryStore], list[int]], backlog: int) -> int:
    """Return how often a claim of 5 reads, with that many tasks in many lanes of higher rank behind a gate."""
    async with MemoryStore(ManualClock()) as store:
        await store.pause_gate("closed", reason="test")
        await store.add(
            [draft(gates=["closed", f"tenant/{n % 500}"], priority=9) for n in range(backlog)]
            + [draft(gates=["open"]) for _ in range(40)]
        )
        while (await store.claim_submissions("w", [HANDLER], 5, LEASE)).again:
            pass
        reads = count_reads(store)
        assert len(await claim(store, 5)) == 5
        return reads[0]


@pytest.fixture
def count_reads() -> Callable[[MemoryStore], list[int]]:
    """A way to count the reads of a store from now on."""

    def start(store: MemoryStore) -> list[int]:
        reads = [0]
        records: Any = store._records
        for name in ("get", "scan"):
            original = getattr(records, name)

            def counted(*arguments: Any, original: Any = original) -> Any:
                reads[0] += 1
                return original(*arguments)

            setattr(records, name, counted)
        return reads

    return start


async def test_a_claim_costs_the_same_whatever_waits_behind_a_gate(
    count_reads: Callable[[MemoryStore], list[int]],
) -> None:
    """A backlog behind a closed gate, in however many lanes, is not looked at by later claims."""
    assert await _reads_of_a_claim(count_reads, 3000) == await _reads_of_a_claim(count_reads, 30)


async def test_a_claim_with_too_much_to_look_at_says_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim never holds the section for long: it gives up early and says so, and what is open is found."""
    monkeypatch.setattr(walk, "EFFORT", 10)
    async with MemoryStore(ManualClock()) as store:
        await store.pause_gate("closed", reason="test")
        await store.add([draft(gates=["closed", f"{n}"], priority=1) for n in range(100)])
        (added,) = await store.add([draft(gates=["closed-not"])])
        claims = [await store.claim_submissions("w", [HANDLER], 1, LEASE) for _ in range(20)]
        assert [task.id for each in claims for task in each.tasks] == [added.task.id]
        assert claims[0].again
        assert not claims[-1].again


async def test_lanes_blocked_twice_keep_back_no_other() -> None:
    """When a gate opens, what it parked gets past lanes of higher rank that another gate blocks as well."""
    async with MemoryStore(ManualClock()) as store:
        await store.pause_gate("a", reason="test")
        await store.set_gate("b", concurrency=1)
        await store.add([draft(gates=["b"], priority=9)])
        await store.add([draft(gates=["a", "b", f"{n}"], priority=5) for n in range(50)])
        (behind, last) = await store.add([draft(gates=["a"], priority=1), draft()])
        assert [task.schedule.priority for task in await claim(store, 2)] == [9, 0]
        await store.add([draft()])
        await store.set_gate("a", concurrency=1)
        await store.resume_gate("a")
        assert [task.id for task in await claim(store, 1)] == [behind.task.id]
        assert last.created


async def test_a_handler_without_workers_keeps_no_gate_from_others() -> None:
    """Lanes of a handler that nobody claims for do not use up the room of a gate that they share."""
    async with MemoryStore(ManualClock()) as store:
        await store.set_gate("g", concurrency=1)
        await store.add([draft(gates=["g"]), draft(gates=["g", "x"], handler="absent", priority=9)])
        (first,) = await claim(store)
        assert await claim(store, handler="absent") == []
        await store.add([draft(gates=["g", "y"])])
        assert await claim(store) == []
        await store.settle([Settlement(task=first, event=Rejected(error=ERROR))])
        assert len(await claim(store)) == 1


async def test_query_gates_count_no_slots() -> None:
    """A query gate's concurrency is not looked at; its rate is, and blocks nobody else."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await store.set_gate("q", concurrency=1, rate=Rate(3))
        await store.add([draft(query_gate="q") for _ in range(5)] + [draft()])
        await accept(store, await claim(store), delay=timedelta())
        claims = await store.claim_queries("w", [HANDLER], 10, LEASE)
        assert sorted(task.route.query_gate or "" for task in claims.tasks) == ["", "q", "q", "q"]
        assert {task.lease and task.lease.granted_at for task in claims.tasks} == {None, clock.now()}
        clock.advance(SECOND)
        assert len((await store.claim_queries("w", [HANDLER], 10, LEASE)).tasks) == 2


# ------------------------------------------------------------------ leases and decisions


async def test_thousands_of_orphans_are_all_dealt_with() -> None:
    """What a worker cannot rescue yet does not stand in the way of what it can; the never started go back."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        foreign = [draft(handler="absent") for _ in range(500)]
        await store.add([*foreign, *(draft() for _ in range(300))])
        started = await claim(store, 500, "absent")
        await store.start(started, LEASE)
        mine = await claim(store, 300)
        await store.start(mine[:100], LEASE)
        clock.advance(LEASE)

        rescued: list[Task] = []
        while (claims := await store.claim_stale("w", [HANDLER], 20, 9 * LEASE)).tasks or claims.again:
            rescued += claims.tasks
        assert {task.id for task in rescued} == {task.id for task in mine[:100]}
        assert len(await claim(store, 300)) == 200

        clock.advance(STALE_GRACE)
        rescued = []
        while (claims := await store.claim_stale("w", [HANDLER], 20, 9 * LEASE)).tasks or claims.again:
            rescued += claims.tasks
        assert {task.id for task in rescued} == {task.id for task in started}


async def test_more_ended_leases_than_one_claim_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that finds nothing because it swept only a part says again, so nothing is slept over."""
    monkeypatch.setattr(ledger, "SWEEP", 10)
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await store.add([draft() for _ in range(100)])
        for _ in range(10):
            await claim(store, 10)
        clock.advance(LEASE)
        claims = [await store.claim_stale("w", [HANDLER], 100, LEASE) for _ in range(15)]
        assert not any(each.tasks for each in claims)
        assert claims[0].again
        assert not claims[-1].again
        assert len(await claim(store)) == 100


async def test_a_renewed_lease_is_met_at_its_new_end() -> None:
    """Renewing moves nothing at once; the old end passes unnoticed, the new one does not."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await store.add([draft(), draft()])
        renewed, left = await store.start(await claim(store), LEASE)
        clock.advance(LEASE / 2)
        await store.start([renewed.task], LEASE)
        clock.advance(LEASE / 2)
        assert [task.id for task in (await store.claim_stale("w", [HANDLER], 9, LEASE)).tasks] == [
            left.task.id
        ]
        clock.advance(LEASE / 2)
        stale = await store.claim_stale("w", [HANDLER], 9, LEASE)
        assert [task.id for task in stale.tasks] == [renewed.task.id]


async def test_a_leased_row_that_is_released_is_met_when_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that was set aside while a worker held it is rescued like any other, once it can be read again."""
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        await store.add([draft()])
        tasks = await claim(store)
        await store.start(tasks, 2 * LEASE)
        records: Any = store._records
        read = records.get

        def unreadable(key: Key) -> Any:
            if key == ("task", tasks[0].id):
                raise UndecodableRow("made by a later version")
            return read(key)

        with monkeypatch.context() as patch:
            patch.setattr(records, "get", unreadable)
            clock.advance(LEASE)
            assert not (await store.claim_stale("w", [HANDLER], 9, LEASE)).tasks
            assert [row.task_id for row in await store.set_aside()] == [tasks[0].id]
            assert await store.release_set_aside() == 0
        assert await store.release_set_aside() == 1
        clock.advance(LEASE)
        (rescued,) = (await store.claim_stale("w", [HANDLER], 9, LEASE)).tasks
        assert rescued.id == tasks[0].id


async def test_an_impossible_outcome_is_refused_as_a_value() -> None:
    """An event that does not fit the task, or cannot be stored, hurts no other settlement of its batch."""
    async with MemoryStore(ManualClock()) as store:
        await store.add([draft() for _ in range(4)])
        tasks = await claim(store)
        answers = await store.settle(
            [
                Settlement(task=tasks[0], event=LeftUnknown(error=ERROR)),
                Settlement(task=tasks[1], event=Finished(status=Status.SUCCEEDED, result=float("nan"))),
                Settlement(task=tasks[2], event=Rejected(error=TaskError(code="x", message="\ud800"))),
                Settlement(task=tasks[3], event=Finished(status=Status.SUCCEEDED, result=("a", 1))),
            ]
        )
        assert isinstance(answers[0], InvalidTransition)
        assert isinstance(answers[1], NotPersistable)
        assert answers[1].path == "result"
        assert isinstance(answers[2], NotPersistable)
        assert answers[2].path == "error.message"
        assert isinstance(answers[3], Task)
        assert answers[3].result == ["a", 1]
        assert answers[3] == await store.get(tasks[3].id)


@pytest.mark.parametrize("depth", [400, 700, 5000])
async def test_deeply_nested_values_are_stored_or_refused(depth: int) -> None:
    """A value comes back equal, or is refused before anything is written, and hurts no other of its batch."""
    deep: Any = "x"
    for level in range(depth):
        deep = {"in": deep} if level % 2 else [deep, level]
    async with MemoryStore(ManualClock()) as store:
        await store.add([draft(), draft()])
        one, other = await claim(store)
        events = [Finished(status=Status.SUCCEEDED, result=result) for result in (deep, "fine")]
        answers = await store.settle(
            [Settlement(task=task, event=event) for task, event in zip((one, other), events, strict=True)]
        )
        assert isinstance(answers[1], Task)
        now = await store.get(one.id)
        assert now is not None
        if depth < MAX_DEPTH:
            assert now.result == deep
        else:
            assert isinstance(answers[0], NotPersistable)
            assert now.status is Status.SUBMITTING


async def test_nothing_of_the_callers_is_kept() -> None:
    """What a caller does to its own objects, or to a snapshot, shows in no later snapshot, empty ones included."""
    async with MemoryStore(ManualClock()) as store:
        metadata: dict[str, Any] = {}
        params: dict[str, Any] = {"pages": []}
        (added,) = await store.add([draft(metadata=metadata, params=params)])
        metadata["x"] = params["pages"] = 1
        (task,) = await claim(store)
        assert (task.metadata, task.params) == ({}, {"pages": []})
        provider_params: dict[str, Any] = {}
        query_params = QueryParams(external_task_id="e", provider_params=provider_params)
        (settled,) = await store.settle(
            [Settlement(task=task, event=Accepted(query_params=query_params, delay=SECOND))]
        )
        provider_params["x"] = 1
        for snapshot in (added.task, task, settled):
            assert isinstance(snapshot, Task)
            snapshot.metadata["x"] = 1  # type: ignore[index]  # what nobody should do
        now = await store.get(task.id)
        assert now is not None
        assert now.query_params is not None
        assert (now.metadata, now.query_params.provider_params) == ({}, {})


# ------------------------------------------------------------------ callbacks, searches, batches


async def test_early_callbacks_are_remembered_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first, and what is applied or too old is forgotten."""
    monkeypatch.setattr(nudges, "MAX_NUDGES", 3)
    clock = ManualClock()
    async with MemoryStore(clock) as store:
        for n in range(5):
            await store.nudge(HANDLER, f"job-{n}")
            clock.advance(MILLISECOND)
        await store.add([draft() for _ in range(5)])
        tasks = await claim(store)
        await store.start(tasks, LEASE)
        params = [QueryParams(external_task_id=f"job-{n}") for n in range(5)]
        answers = await store.settle(
            [
                Settlement(task=task, event=Accepted(query_params=each, delay=LEASE))
                for task, each in zip(tasks, params, strict=True)
            ]
        )
        due = [isinstance(each, Task) and each.schedule.due_at <= clock.now() for each in answers]
        assert due == [False, False, True, True, True]


async def test_a_batch_that_is_refused_leaves_nothing() -> None:
    """All or none: not a task, not an entry, not the count of one."""
    async with MemoryStore(ManualClock()) as store:
        (added,) = await store.add([draft()])
        before = await store.stats()
        twin = draft(id=added.task.id, identity=Identity(params_digest="other", idempotency_key="k"))
        with pytest.raises(DuplicateTask):
            await store.add([draft(), draft(gates=["g"]), twin])
        assert await store.stats() == before
        assert [task.id for task in await claim(store)] == [added.task.id]


async def test_a_search_over_many_pages_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few tasks one section looks at, `find` gives the first that match, by id, each once."""
    monkeypatch.setattr("coatcheck.locked.reading.PAGE", 7)
    async with MemoryStore(ManualClock()) as store:
        drafts = [draft(handler=f"h{n % 3}") for n in range(60)]
        random.Random(5).shuffle(drafts)
        await store.add(drafts)
        for each in drafts[:25]:
            await store.request_cancellation(each.id)
        canceled = sorted(each.id for each in drafts[:25])
        wanted = sorted(each.id for each in drafts if each.route.handler_key == "h1")
        assert [task.id for task in await store.find(Filter(handler_keys=["h1"]))] == wanted
        assert [task.id for task in await store.find(Filter(statuses=[Status.CANCELED]))] == canceled
        assert [
            task.id
            for task in await store.find(Filter(statuses=[Status.CANCELED]), limit=3, after=canceled[4])
        ] == canceled[5:8]


async def test_a_closed_store_says_how_to_open_it() -> None:
    """A method of a store that is not open is refused with the way out."""
    with pytest.raises(StoreUnavailable, match="async with"):
        await MemoryStore().now()
