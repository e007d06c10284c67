"""S11, S15: several processes on one store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import cast

from coatcheck.gates import Rate
from coatcheck.store import Capability, Filter
from coatcheck.task import Status
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.outcomes import succeeded, unknown
from coatcheck_conformance.store.processes import (
    Turn,
    add_same_keys,
    crew,
    hold_two,
    sleep_until_woken,
    take_turns,
)
from coatcheck_conformance.store.rates import require_rate
from coatcheck_conformance.store.time import soon
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Sharing"]

_SIZE = 3
_AT_ONCE_SECONDS = 3.0
"""What a busy machine may make of "at once": less than stores poll after that don't notify."""


def _turns(results: Iterable[object]) -> list[Turn]:
    return [turn for result in results for turn in cast("list[Turn]", result)]


def _most_at_once(turns: Iterable[Turn]) -> int:
    """Return how many turns overlapped at the worst instant."""
    edges = sorted([edge for turn in turns for edge in ((turn.begin, 1), (turn.end, -1))])
    worst = held = 0
    for _, step in edges:
        held += step
        worst = max(worst, held)
    return worst


class Sharing(Suite):
    """What is exact is exact across processes, where a store declares that it can be shared."""

    @store_rule("STORE-SHARE-1", kind=Kind.STOCHASTIC, requires=(Capability.SHARED,))
    async def test_claims_of_processes_never_overlap(self, trial: Trial) -> None:
        """`shared`: several processes can use it at once, and no two get the same task."""
        tasks = await trial.add(*make_drafts(40), *make_drafts(40, gates=["g"]))
        async with crew(trial.spec, take_turns, _SIZE) as processes:
            processes.go()
            turns = _turns(await processes.results())
        assert sorted(turn.task_id for turn in turns) == sorted(task.id for task in tasks)

    @store_rule("STORE-SHARE-2", kind=Kind.STOCHASTIC, requires=(Capability.SHARED,))
    async def test_slots_are_exact_across_processes(self, trial: Trial) -> None:
        """Exact across all workers: at no instant are more than `concurrency` slots held by claims."""
        await trial.store.set_gate("g", concurrency=2)
        await trial.add(*make_drafts(45, gates=["g"]))
        async with crew(trial.spec, take_turns, _SIZE) as processes:
            processes.go()
            results = asyncio.ensure_future(processes.results())
            while not results.done():
                assert await trial.used("g") <= 2
                await asyncio.sleep(0.002)
            turns = _turns(await results)
        assert len(turns) == 45
        assert _most_at_once(turns) <= 2
        assert await trial.used("g") == 0

    @store_rule("STORE-SHARE-3", kind=Kind.STOCHASTIC, requires=(Capability.SHARED,))
    async def test_rates_are_exact_across_processes(self, trial: Trial) -> None:
        """Exact across all workers: in no window `(t - per, t]` more than `rate` grants."""
        rate = Rate(10, timedelta(milliseconds=150))
        await trial.store.set_gate("g", rate=rate)
        await trial.add(*make_drafts(60, gates=["g"]))
        async with crew(trial.spec, take_turns, _SIZE) as processes:
            processes.go()
            turns = _turns(await processes.results())
        stamps = sorted(turn.granted_at for turn in turns if turn.granted_at is not None)
        assert len(stamps) == 60
        require_rate(stamps, rate)

    @store_rule("STORE-SHARE-4", kind=Kind.STOCHASTIC, requires=(Capability.SHARED,))
    async def test_dedup_keys_are_exact_across_processes(self, trial: Trial) -> None:
        """A taken `dedup_key` returns the existing task, also under concurrency of processes."""
        async with crew(trial.spec, add_same_keys, _SIZE) as processes:
            processes.go()
            results = cast("list[list[tuple[str, bool]]]", await processes.results())
        for answers in zip(*results, strict=True):
            assert len({task_id for task_id, _ in answers}) == 1
            assert sum(created for _, created in answers) == 1

    @store_rule("STORE-SHARE-5", requires=(Capability.SHARED,))
    async def test_a_killed_process_leaks_no_slot(self, trial: Trial) -> None:
        """A dead worker leaks no slot, and takes no task with it."""
        await trial.store.set_gate("g", concurrency=2)
        await trial.add(*make_drafts(4, gates=["g"]))
        async with crew(trial.spec, hold_two, 1) as processes:
            processes.go()
            held = await soon(self._held(trial, 2))
            processes.kill()
        assert await trial.claim() == []
        assert await trial.used("g") == 2
        for task_id in held:
            await trial.time.reach(lease_of(await trial.get(task_id)).until)
        (doubtful,) = await trial.claim_stale()
        assert doubtful.submission_started
        await trial.settle(doubtful, unknown())
        assert await trial.used("g") == 0
        claimed = await trial.claim()
        assert len(claimed) == 2
        assert set(held) - {doubtful.id} <= {task.id for task in claimed}

    @staticmethod
    async def _held(trial: Trial, count: int) -> list[str]:
        """Return the ids of the tasks that are claimed, once there are `count`, one of them started."""
        while True:
            tasks = await trial.store.find(Filter(statuses=[Status.SUBMITTING]))
            if len(tasks) == count and any(task.submission_started for task in tasks):
                return [task.id for task in tasks]
            await asyncio.sleep(0.01)

    @store_rule("STORE-SHARE-6", requires=(Capability.SHARED, Capability.NOTIFIES))
    async def test_work_made_elsewhere_wakes(self, trial: Trial) -> None:
        """`notifies`: `wait` returns at once when another process makes work, without polling."""
        async with crew(trial.spec, sleep_until_woken, 1) as processes:
            processes.go()
            await asyncio.sleep(0.2)
            await trial.add(make_draft())
            async with asyncio.timeout(_AT_ONCE_SECONDS):
                assert await processes.results() == [True]

    @store_rule("STORE-SHARE-7", requires=(Capability.SHARED,))
    async def test_two_open_stores_are_one(self, trial: Trial) -> None:
        """`shared`: several can use it at once, and each sees at once what another has done."""
        other = Trial(trial.spec, await trial.another(), trial.time, trial.stack)
        await trial.store.set_gate("g", concurrency=1)
        await trial.add(*make_drafts(3, gates=["g"]))
        (task,) = await other.claim()
        assert await trial.claim() == []
        (task,) = await trial.start(task)
        await trial.settle(task, succeeded())
        await other.store.pause_gate("g", reason="maintenance")
        assert await trial.claim() == []
        await trial.store.resume_gate("g")
        assert len(await other.claim()) == 1
