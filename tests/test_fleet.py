"""Gates are exact across a fleet of processes that are killed: never over, no slot lost, and a rate is used."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define, field

from coatcheck import create_store
from coatcheck.gates import Rate
from coatcheck.store import Filter, Store
from coatcheck.task import Status, Task, TaskDraft
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_store_sql.statement import Statement
from coatcheck_store_sql.step import Step
from fleet import Fact, Fleet, Orders
from waits import until

pytestmark = [pytest.mark.crowd, pytest.mark.slow, pytest.mark.timeout(180)]

FIGURES = logging.getLogger(__name__)
"""Seen with ``--log-cli-level=INFO``."""
SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=5)
CONCURRENCY = {"all": 7, "account": 3, "tenant": 2}
RATE = 60
PROCESSES = 8
KILLS_FOR_SECONDS = 8.0
SEED = 20260101
STEADY_SECONDS = 4
LIVE = [Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING]


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """The test's own view of the store."""
    async with create_store(url) as store:
        yield store


@define
class Watch:
    """How often somebody has looked, and the most that was ever seen of each gate."""

    looks: int = 0
    most_used: Counter[str] = field(factory=Counter)
    """What the gates said."""
    most_held: Counter[str] = field(factory=Counter)
    """How many tasks held a slot of a gate at one moment."""

    async def look(self, store: Store) -> None:
        """Look once."""
        self.most_used |= Counter({usage.gate.name: usage.used for usage in await store.gates(CONCURRENCY)})
        # a store may find tasks page by page; those that are found twice have held their slots in between, too
        before, after = await holding(store), await holding(store)
        held = [task for turn, task in after.items() if turn in before]
        self.most_held |= Counter(gate for task in held for gate in task.route.gates)
        self.looks += 1


async def holding(store: Store) -> dict[tuple[str, int], Task]:
    """Return the tasks that hold slots, by id and the token of the claim that took these."""
    live = await store.find(Filter(statuses=LIVE), limit=10_000)
    return {
        (task.id, max((e.token for e in task.history if e.target is Status.SUBMITTING), default=0)): task
        for task in live
        if task.holds_slots
    }


@asynccontextmanager
async def watched(store: Store) -> AsyncIterator[Watch]:
    """Look again and again."""
    watch = Watch()

    async def go_on() -> None:
        while True:
            await watch.look(store)
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(go_on())
    try:
        yield watch
        assert not watching.done()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def most_in_a_second(stamps: Iterable[int]) -> int:
    """Return the most of these times, in milliseconds, in any window of one second without its beginning."""
    ordered = sorted(stamps)
    most = begin = 0
    for end, at in enumerate(ordered):
        while ordered[begin] <= at - 1000:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def grants_of(fleet: Fleet) -> list[int]:
    """Return when a rate granted something that was not given back.

    Of one that a killed process claimed last nobody knows whether it was given back, unless it was sent.
    """
    returned = {(fact["id"], fact["token"]) for fact in fleet.facts("returned")}
    sent = {(fact["id"], fact["token"]) for fact in fleet.facts("sent")}
    return [
        fact["granted_at"]
        for fact in fleet.facts("claimed")
        if fact["granted_at"] is not None
        and (fact["id"], fact["token"]) not in returned
        and (fact["by"] not in fleet.killed or (fact["id"], fact["token"]) in sent)
    ]


def mishaps(fleet: Fleet) -> list[str]:
    """Return what went wrong in any process; that a test's server may lose the last second is no news."""
    return [line for line in fleet.log.splitlines() if "docs/redis-durability.md" not in line]


def count_by_id(facts: Sequence[Fact]) -> Counter[str]:
    """Count the facts of each task."""
    return Counter(fact["id"] for fact in facts)


async def holders_of_slots(store: Store) -> set[int]:
    """Return the processes that are submitting a task which holds a slot."""
    submitting = await store.find(Filter(statuses=[Status.SUBMITTING]), limit=1_000)
    return {
        int(task.lease.worker_id.rpartition("-")[2])
        for task in submitting
        if task.lease is not None and "all" in task.route.gates
    }


async def all_ended(store: Store) -> bool:
    """Whether every task has ended."""
    (stats,) = (await store.stats()).handlers
    return not any(stats.by_status.get(status, 0) for status in Status if not status.terminal)


def drafts_behind_gates() -> list[TaskDraft]:
    """Return 1,500 tasks, behind four gates in all."""
    behind = [("all", "account"), ("all", "tenant"), ("all",), ("rated",), ("rated",)]
    return [make_draft(gates=behind[number % len(behind)]) for number in range(1_500)]


async def test_a_killed_fleet_exceeds_no_gate_and_leaks_no_slot(
    url: str, store: Store, tmp_path: Path
) -> None:
    """Eight processes, four gates, random kills: never over, all ends once, nothing is sent twice."""
    chance = random.Random(SEED)
    for name, concurrency in CONCURRENCY.items():
        await store.set_gate(name, concurrency=concurrency)
    await store.set_gate("rated", rate=Rate(RATE, SECOND))
    drafts = drafts_behind_gates()
    await store.add(drafts)
    loop = asyncio.get_running_loop()
    with Fleet(Orders(url=url, folder=str(tmp_path)), PROCESSES) as fleet:
        async with watched(store) as watch:
            await until(lambda: fleet.works, "the work of all")
            kills_end = loop.time() + KILLS_FOR_SECONDS
            while loop.time() < kills_end:
                await asyncio.sleep(0.3 + 0.8 * chance.random())
                holders = await holders_of_slots(store)
                victims = [pid for pid in fleet.pids if pid in holders] or fleet.pids
                await asyncio.to_thread(fleet.replace, chance.choice(victims))
        for name, concurrency in CONCURRENCY.items():
            # not for ever through the eye of a needle
            await store.set_gate(name, concurrency=20 * concurrency)
        async with watched(store) as later:
            await until(lambda: all_ended(store), "the end of all tasks")
        tasks = await store.find(Filter(), limit=10_000)
        usages = await store.gates()
    assert mishaps(fleet) == []
    assert {task.id for task in tasks} == {draft.id for draft in drafts}
    _check_ends(tasks, fleet)
    assert {usage.gate.name: usage.used for usage in usages} == dict.fromkeys([*CONCURRENCY, "rated"], 0)
    for seen, times in ((watch, 1), (later, 20)):
        assert seen.looks > 3
        for name, limit in CONCURRENCY.items():
            assert 0 < seen.most_used[name] <= times * limit
            assert 0 < seen.most_held[name] <= times * limit
    assert watch.most_used["all"] == CONCURRENCY["all"]
    doubtful = [task for task in tasks if task.status is Status.SUBMIT_UNKNOWN]
    assert any("all" in task.route.gates for task in doubtful)  # or no kill has hit who held a slot
    most = most_in_a_second(grants_of(fleet))
    FIGURES.info("kills: %s", len(fleet.killed))
    FIGURES.info("looks: %s", watch.looks + later.looks)
    FIGURES.info("most slots: %s", dict(watch.most_used))
    FIGURES.info("most grants in a second: %s", most)
    FIGURES.info("in doubt: %s", len(doubtful))
    FIGURES.info("given back: %s", len(fleet.facts("returned")))
    assert most <= RATE


def _check_ends(tasks: Sequence[Task], fleet: Fleet) -> None:
    """Check that each task has ended once, was sent at most once, and is only in doubt if it may have been sent."""
    sent, starts = count_by_id(fleet.facts("sent")), count_by_id(fleet.facts("starts"))
    assert max(sent.values()) == 1
    for task in tasks:
        assert task.status in {Status.SUCCEEDED, Status.SUBMIT_UNKNOWN}
        assert sum(entry.target.terminal for entry in task.history) == 1
        assert task.id in (sent if task.status is Status.SUCCEEDED else starts)
    ended = [fact for fact in fleet.facts("settled") if Status(fact["status"]).terminal]
    assert max(count_by_id(ended).values()) == 1


async def test_24_a_rate_is_never_exceeded_and_nearly_used_up(url: str, store: Store, tmp_path: Path) -> None:
    """Scenario 24: four processes; in no second more than the rate, and at most 5 % fewer while there is work."""
    await store.set_gate("rated", rate=Rate(RATE, SECOND))
    await store.add(make_drafts(RATE * (STEADY_SECONDS + 4), gates=["rated"]))
    orders = Orders(url=url, folder=str(tmp_path), batch=20, call_seconds=0.005)
    with Fleet(orders, 4) as fleet:
        await until(lambda: len(grants_of(fleet)) > RATE * (STEADY_SECONDS + 1.5), "the steady part")
    grants = grants_of(fleet)
    assert mishaps(fleet) == []
    assert most_in_a_second(grants) <= RATE
    steady = [at for at in grants if 1000 < at - min(grants) <= 1000 * (STEADY_SECONDS + 1)]
    FIGURES.info("most grants in a second: %s", most_in_a_second(grants))
    FIGURES.info("grants per second of steady work: %s", len(steady) / STEADY_SECONDS)
    FIGURES.info("given back: %s", len(fleet.facts("returned")))
    assert len(steady) >= 0.95 * RATE * STEADY_SECONDS
    assert len({fact["by"] for fact in fleet.facts("claimed")}) > 1


# ------------------------------------------------------------------ closed gates


@define
class Effort:
    """What a claim asked of the database."""

    statements: int = 0
    rows: int = 0
    """How many rows it was given, and gave."""


@pytest.fixture
def effort(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Effort]:
    """Return what tells, and forgets, what was asked of the database since."""
    counted = Effort()
    ask, tell = Step.rows, Step.many

    def rows(step: Step, statement: Statement, **given: object) -> list[tuple[object, ...]]:
        found = ask(step, statement, **given)
        counted.statements += 1
        counted.rows += len(found)
        return found

    def many(step: Step, statement: Statement, given: Sequence[dict[str, object]]) -> None:
        counted.statements += bool(given)
        counted.rows += len(given)
        tell(step, statement, given)

    monkeypatch.setattr(Step, "rows", rows)
    monkeypatch.setattr(Step, "many", many)

    def read() -> Effort:
        seen = Effort(counted.statements, counted.rows)
        counted.statements = counted.rows = 0
        return seen

    return read


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_tasks_behind_closed_gates_do_not_cost_a_claim_more(
    store: Store, effort: Callable[[], Effort]
) -> None:
    """Twenty thousand of higher rank, behind a paused gate and a full one: as many statements and rows as before."""
    await store.set_gate("full", concurrency=1)
    await store.pause_gate("paused", reason="test")
    await store.add([make_draft(gates=["full"], priority=9), *make_drafts(400, gates=["open"])])

    async def claim(limit: int) -> Effort:
        effort()
        claims = await store.claim_submissions("w", [HANDLER], limit, LEASE)
        assert len(claims.tasks) == limit
        assert claims.tasks[0].route.gates == ("open",)
        return effort()

    (first,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    assert first.route.gates == ("full",)
    await claim(20)
    before = await claim(20)
    for _ in range(5):
        closed = [
            make_draft(gates=[("full", "paused")[n % 2], f"tenant-{n % 20}"], priority=9) for n in range(4000)
        ]
        await store.add(closed)
    met = await claim(20)  # meets the lanes, and parks them
    after = await claim(20)
    assert met.rows < before.rows + 20 * 10
    assert after.statements <= before.statements
    assert after.rows <= before.rows
    assert (await store.stats()).handlers[0].by_status[Status.PENDING_SUBMIT] > 20_000
