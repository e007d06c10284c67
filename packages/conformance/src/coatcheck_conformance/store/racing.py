"""Many at once: what the contract promises under concurrency, with many tasks of one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

from coatcheck.events import Proof
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Store
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.outcomes import accepted, succeeded, unknown
from coatcheck_conformance.store.rates import grants_of, require_rate
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Racing"]

_WORKERS = 8
_Turn = Callable[[Task], Awaitable[None]]


async def _dawdle(chance: Random) -> None:
    """Let the others go first, once or a few times."""
    for _ in range(chance.randint(1, 3)):
        await asyncio.sleep(0)


async def _work(store: Store, name: str, left: Counter[str], turn: _Turn) -> None:
    """Claim a few at a time and take a turn with each, until nothing is left for anybody."""
    chance = Random(name)  # noqa: S311 - no secrets here
    while left.total() > 0:
        batch = await store.claim_submissions(name, [HANDLER], chance.randint(1, 4), LONG)
        for task in batch.tasks:
            left.subtract([task.id])
            assert left[task.id] == 0, f"task {task.id} was claimed twice"
            await turn(task)
        await _dawdle(chance)


async def _all_at_once(
    trial: Trial, seed: int, tasks: list[Task], turn: _Turn, *others: Awaitable[None]
) -> None:
    """Let several workers take turns until all the tasks have had theirs; `others` run beside them."""
    left = Counter(task.id for task in tasks)
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(_awaited(other)) for other in others]
        workers = [
            group.create_task(_work(trial.store, f"worker-{seed}-{n}", left, turn)) for n in range(_WORKERS)
        ]
        await asyncio.gather(*workers)
        for each in beside:
            each.cancel()


async def _awaited(other: Awaitable[None]) -> None:
    await other


class Racing(Suite):
    """Exactness while many claim, settle, cancel and change gates at once."""

    @store_rule("STORE-RACE-1", kind=Kind.STOCHASTIC)
    async def test_claims_never_overlap(self, trial: Trial) -> None:
        """Claims are one atomic step: concurrent ones may interleave, and no two give the same task."""
        tasks = await trial.add(*make_drafts(100), *make_drafts(100, gates=["g"]))

        async def turn(task: Task) -> None:
            assert lease_of(task).token == task.token == 1

        await _all_at_once(trial, self.seed, tasks, turn)

    @store_rule("STORE-RACE-2", kind=Kind.STOCHASTIC)
    async def test_slots_are_never_exceeded_at_any_instant(self, trial: Trial) -> None:
        """At no instant are more than `concurrency` slots held by claims."""
        limits = {"a": 3, "b": 2, "c": 4}
        for name, limit in limits.items():
            await trial.store.set_gate(name, concurrency=limit)
        sets = [["a"], ["a", "b"], ["b", "c"], ["a", "b", "c"], ["c"]]
        tasks = await trial.add(*(make_draft(gates=sets[n % 5]) for n in range(150)))
        held: Counter[str] = Counter()

        async def turn(task: Task) -> None:
            held.update(task.route.gates)
            for name, limit in limits.items():
                assert held[name] <= limit, f"{held[name]} slots of {name} are held; it has {limit}"
            await asyncio.sleep(0)
            # Counted out before the settle is sent: what is counted is certainly held.
            held.subtract(task.route.gates)
            await trial.settle(task, succeeded())

        async def watch() -> None:
            while True:
                for usage in await trial.store.gates():
                    assert usage.used <= limits[usage.gate.name]
                await asyncio.sleep(0.001)

        await _all_at_once(trial, self.seed, tasks, turn, watch())
        assert [usage.used for usage in await trial.store.gates()] == [0, 0, 0]

    @store_rule("STORE-RACE-3", kind=Kind.STOCHASTIC)
    async def test_a_rate_is_never_exceeded_in_any_window(self, trial: Trial) -> None:
        """In no window `(t - per, t]` more than `rate` grants, however many claim."""
        rates = {"a": Rate(20, SHORT), "b": Rate(11, SHORT / 2)}
        for name, rate in rates.items():
            await trial.store.set_gate(name, rate=rate)
        tasks = await trial.add(*(make_draft(gates=[["a"], ["b"], ["a", "b"]][n % 3]) for n in range(75)))
        claimed: list[Task] = []

        async def turn(task: Task) -> None:
            claimed.append(task)

        async def go_on() -> None:
            while True:
                await trial.time.pass_(timedelta(milliseconds=7))
                await asyncio.sleep(0)

        await _all_at_once(trial, self.seed, tasks, turn, go_on())
        for name, rate in rates.items():
            require_rate(grants_of([task for task in claimed if name in task.route.gates]), rate)

    @store_rule("STORE-RACE-4", kind=Kind.STOCHASTIC)
    async def test_everything_drains_while_gates_change(self, trial: Trial) -> None:
        """Everything behind gates drains, while gates are limited, paused, resumed and deleted."""
        await trial.store.set_gate("a", concurrency=2)
        await trial.store.set_gate("b", concurrency=1)
        sets = [["a"], ["a", "b"], ["b"], []]
        tasks = await trial.add(*(make_draft(gates=sets[n % 4], priority=n % 3) for n in range(120)))

        chance = Random(self.seed)  # noqa: S311 - no secrets here

        async def turn(task: Task) -> None:
            (started,) = await trial.start(task)
            await _dawdle(chance)
            await trial.settle(started, succeeded())

        async def change() -> None:
            for n in range(1_000_000):
                await trial.store.pause_gate("ab"[n % 2], reason="maintenance")
                await trial.store.set_gate("a", concurrency=1 + n % 4)
                await asyncio.sleep(0)
                await trial.store.resume_gate("ab"[n % 2])
                await trial.store.delete_gate("b")
                await trial.store.set_gate("b", concurrency=1 + n % 3)
                await asyncio.sleep(0)

        await _all_at_once(trial, self.seed, tasks, turn, change())
        await trial.store.set_gate("b", concurrency=1)
        assert (await trial.used("a"), await trial.used("b")) == (0, 0)
        done = await trial.store.get_many([task.id for task in tasks])
        assert {task.status for task in done.values()} == {Status.SUCCEEDED}
        assert {task.version for task in done.values()} == {2}

    @store_rule("STORE-RACE-5", kind=Kind.STOCHASTIC)
    async def test_what_is_added_meanwhile_is_claimed(self, trial: Trial) -> None:
        """A lost task: never. What is added while others claim is claimed, once."""
        drafts = make_drafts(160)
        seen: Counter[str] = Counter()

        async def add(part: int) -> None:
            chance = Random(f"{self.seed}-{part}")  # noqa: S311 - no secrets here
            for draft in drafts[part::4]:
                await trial.store.add([draft])
                await _dawdle(chance)

        async def claim(number: int) -> None:
            name = f"worker-{self.seed}-{number}"
            chance = Random(name)  # noqa: S311 - no secrets here
            while seen.total() < len(drafts):
                batch = await trial.store.claim_submissions(name, [HANDLER], chance.randint(1, 5), LONG)
                seen.update(task.id for task in batch.tasks)
                await _dawdle(chance)

        async with asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(add(n))
                group.create_task(claim(n))
        assert seen == Counter(draft.id for draft in drafts)

    @store_rule("STORE-RACE-6", kind=Kind.STOCHASTIC)
    async def test_late_proof_wins_over_doubt_whoever_comes_first(self, trial: Trial) -> None:
        """A paid job's id is never thrown away: proof and a rescuer's doubt at once leave the job tracked."""
        tasks = await trial.started(*make_drafts(30), lease=SHORT)
        await trial.time.reach(max(lease_of(task).until for task in tasks))
        rescued = await trial.claim_stale(worker="worker-2")
        assert len(rescued) == len(tasks)
        attempts = {task.id: task.token for task in tasks}
        steps: list[Awaitable[object]] = []
        for n, task in enumerate(rescued):
            doubt = trial.store.settle([Settlement(task=task, event=unknown())])
            proof = trial.store.attest(task.id, attempts[task.id], Proof(event=accepted(f"remote-{n}")))
            steps += (doubt, proof) if n % 2 else (proof, doubt)
        await asyncio.gather(*steps)
        for n, task in enumerate(rescued):
            after = await trial.get(task)
            assert (after.status, after.external_task_id) == (Status.SUBMITTED, f"remote-{n}")

    @store_rule("STORE-RACE-7", kind=Kind.STOCHASTIC)
    async def test_queries_and_decisions_never_overlap(self, trial: Trial) -> None:
        """Every claim is one atomic step: no two give the same task, be it for a query or for a decision."""
        tasks = await trial.tracked(*make_drafts(80))
        for task in tasks[::2]:
            assert await trial.store.request_cancellation(task.id)
        seen: Counter[str] = Counter()

        async def claim(number: int) -> None:
            name = f"worker-{self.seed}-{number}"
            chance = Random(name)  # noqa: S311 - no secrets here
            while seen.total() < len(tasks):
                step = chance.choice([trial.store.claim_queries, trial.store.claim_stale])
                batch = await step(name, [HANDLER], chance.randint(1, 4), LONG)
                seen.update(task.id for task in batch.tasks)
                await _dawdle(chance)

        await asyncio.gather(*(claim(n) for n in range(_WORKERS)))
        assert seen == Counter(task.id for task in tasks)
