"""S4: what is behind a closed gate delays nobody, and drains."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.events import GaveBack
from coatcheck.gates import Rate
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Blocking"]

_MANY = 2000


class Blocking(Suite):
    """S4: a task behind a closed gate never delays one behind an open gate, and everything behind gates drains."""

    @store_rule("STORE-BLOCK-1")
    async def test_a_paused_gate_delays_no_other(self, trial: Trial) -> None:
        """A task behind a closed gate never delays one behind an open gate, however many and however high they are."""
        await trial.store.pause_gate("closed", reason="maintenance")
        await trial.store.set_gate("open", concurrency=5)
        await trial.add(*make_drafts(_MANY, gates=["closed"], priority=9))
        (free,) = await trial.add(make_draft(gates=["open"]))
        assert [task.id for task in await trial.claim(1)] == [free.id]

    @store_rule("STORE-BLOCK-2")
    async def test_a_full_gate_delays_no_other(self, trial: Trial) -> None:
        """A task behind a closed gate never delays one behind an open gate: a gate without a free slot is closed."""
        await trial.store.set_gate("full", concurrency=1)
        await trial.claimed(make_draft(gates=["full"]))
        await trial.add(*make_drafts(_MANY, gates=["full", "open"], priority=9))
        (free,) = await trial.add(make_draft(gates=["open"]))
        assert [task.id for task in await trial.claim(1)] == [free.id]

    @store_rule("STORE-BLOCK-3")
    async def test_an_exhausted_rate_delays_no_other(self, trial: Trial) -> None:
        """A task behind a closed gate never delays one behind an open gate: a rate that is used up is closed."""
        await trial.store.set_gate("slow", rate=Rate(1, LONG))
        await trial.claimed(make_draft(gates=["slow"]))
        await trial.add(*make_drafts(_MANY, gates=["slow"], priority=9))
        (free,) = await trial.add(make_draft())
        assert [task.id for task in await trial.claim(1)] == [free.id]

    @store_rule("STORE-BLOCK-4")
    async def test_many_closed_lanes_delay_no_other(self, trial: Trial) -> None:
        """However many there are: hundreds of tenants, each behind a closed gate of its own."""
        names = [f"tenant/{n:03}" for n in range(200)]
        for name in names:
            await trial.store.pause_gate(name, reason="unpaid")
        await trial.add(*(make_draft(gates=["shared", name], priority=9) for name in names for _ in range(2)))
        frees = await trial.add(*make_drafts(3, gates=["shared", "tenant/paid"]))
        assert {task.id for task in await trial.claim(3)} == {task.id for task in frees}

    @store_rule("STORE-BLOCK-5")
    async def test_a_batch_goes_past_what_is_closed(self, trial: Trial) -> None:
        """A gate that closes in the middle of a batch stops its own tasks only."""
        await trial.store.set_gate("a", concurrency=2)
        await trial.store.set_gate("b", concurrency=3)
        priorities = [1 + n * 7 % 20 for n in range(20)]
        drafts = [make_draft(gates=["a" if n % 2 else "b"], priority=n) for n in priorities]
        await trial.add(*drafts, *make_drafts(4))
        claimed = await trial.claim()
        assert [task.schedule.priority for task in claimed if task.route.gates == ("a",)] == [19, 17]
        assert [task.schedule.priority for task in claimed if task.route.gates == ("b",)] == [20, 18, 16]
        assert len([task for task in claimed if not task.route.gates]) == 4

    @store_rule("STORE-BLOCK-6")
    async def test_everything_behind_gates_drains(self, trial: Trial) -> None:
        """Everything behind gates drains."""
        sets: list[list[str]] = [["a"], ["a", "b"], ["b", "c"], ["a", "b", "c"], ["c"], ["d"], []]
        for name, limit in (("a", 1), ("b", 2), ("c", 1)):
            await trial.store.set_gate(name, concurrency=limit)
        await trial.add(*(make_draft(gates=sets[n % 7], priority=n * 5 % 84) for n in range(84)))
        done = 0
        for _ in range(84):
            tasks = await trial.claim(5)
            assert tasks, f"{84 - done} tasks are left behind open gates"
            for task in tasks:
                await trial.settle((await trial.start(task))[0], succeeded())
            done += len(tasks)
            if done == 84:
                break
        assert done == 84

    @store_rule("STORE-BLOCK-7")
    async def test_every_way_a_gate_opens_is_noticed(self, trial: Trial) -> None:
        """Everything behind gates drains: whatever opens a gate, the tasks behind it are claimed next."""
        await trial.store.set_gate("g", concurrency=1)
        (holder,) = await trial.started(make_draft(gates=["g"]))
        waiting = [task.id for task in await trial.add(*make_drafts(6, gates=["g"]))]

        async def next_one() -> None:
            assert [task.id for task in await trial.claim(1)] == [waiting.pop(0)]
            assert await trial.claim(1) == []

        assert await trial.claim() == []
        await trial.settle(holder, succeeded())
        await next_one()
        await trial.store.set_gate("g", concurrency=2)
        await next_one()
        await trial.store.pause_gate("g", reason="maintenance")
        await trial.store.set_gate("g", concurrency=3)
        assert await trial.claim() == []
        await trial.store.resume_gate("g")
        assert [task.id for task in await trial.claim()] == [waiting.pop(0)]
        await trial.store.set_gate("g", rate=Rate(1, LONG))
        await trial.store.delete_gate("g")
        assert [task.id for task in await trial.claim()] == waiting

    @store_rule("STORE-BLOCK-8")
    async def test_what_waits_for_its_time_blocks_nobody(self, trial: Trial) -> None:
        """Tasks that are not due hold neither a place nor a slot."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.add(*(make_draft(gates=["g"], priority=9, delay=LONG / 2) for _ in range(500)))
        (task,) = await trial.claimed_again(await trial.add(make_draft(gates=["g"])))
        assert await trial.used("g") == 1
        await trial.settle(task, GaveBack())
        assert [each.id for each in await trial.claim()] == [task.id]

    @store_rule("STORE-BLOCK-9")
    async def test_cancelled_and_overdue_tasks_block_nobody(self, trial: Trial) -> None:
        """Cancelled or overdue tasks consume nothing."""
        await trial.store.set_gate("g", concurrency=1)
        canceled = await trial.add(*make_drafts(5, gates=["g"], priority=9))
        overdue = await trial.add(*(make_draft(gates=["g"], priority=8, timeout=SHORT) for _ in range(5)))
        (free,) = await trial.add(make_draft(gates=["g"]))
        for task in canceled:
            await trial.store.request_cancellation(task.id)
        await trial.time.reach(overdue[-1].schedule.deadline_at + timedelta(milliseconds=1))
        assert [task.id for task in await trial.claim()] == [free.id]
