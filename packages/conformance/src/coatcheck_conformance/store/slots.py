"""S11: gates that limit how many tasks are under way."""

from __future__ import annotations

from coatcheck.events import Event, GaveBack, Overdue
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.task import Status
from coatcheck_conformance.drafts import OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import (
    accepted,
    cancel_done,
    deferred,
    failed,
    gave_up,
    going,
    rejected,
    succeeded,
    unknown,
)
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Concurrency"]


class Concurrency(Suite):
    """S11: at no instant are more than `concurrency` slots held, and none leaks."""

    @store_rule("STORE-SLOT-1")
    async def test_no_more_than_the_limit_hold_a_slot(self, trial: Trial) -> None:
        """At no instant are more than `concurrency` slots held by claims."""
        await trial.store.set_gate("g", concurrency=2)
        await trial.add(*make_drafts(5, gates=["g"]))
        tasks = await trial.claim()
        assert len(tasks) == 2
        seen = {task.id for task in tasks}
        for _ in range(3):
            (task,) = await trial.start(tasks.pop(0))
            await trial.settle(task, succeeded())
            assert await trial.used("g") == 1
            tasks += await trial.claim()
            assert (len(tasks), await trial.used("g")) == (2, 2)
            seen.add(tasks[-1].id)
        assert len(seen) == 5

    @store_rule("STORE-SLOT-2")
    async def test_a_slot_is_held_while_the_provider_works(self, trial: Trial) -> None:
        """A task holds its slots while it is SUBMITTING, SUBMITTED or RUNNING."""
        await trial.store.set_gate("g", concurrency=1)
        (task,) = await trial.started(make_draft(gates=["g"]))
        await trial.add(make_draft(gates=["g"]))
        await trial.settle(task, accepted())
        for status in (Status.SUBMITTED, Status.RUNNING):
            (task,) = await trial.claim_queries()
            after = await trial.settle(task, going(status=status))
            assert after.holds_slots
            assert await trial.used("g") == 1
            assert await trial.claim() == []

    @store_rule("STORE-SLOT-3")
    async def test_every_way_out_of_a_submission_releases(self, trial: Trial) -> None:
        """The slots that are recorded on the task are released if it left {SUBMITTING, SUBMITTED, RUNNING}."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.store.set_gate("h", concurrency=3)
        outcomes: tuple[Event, ...] = (
            succeeded(), failed(), rejected(), unknown(), deferred(LONG), Overdue(), GaveBack(delay=LONG),
        )  # fmt: skip
        for event in outcomes:
            (task,) = await trial.claimed(make_draft(gates=["g", "h"]))
            if not isinstance(event, (Overdue, GaveBack)):
                (task,) = await trial.start(task)
            assert (await trial.used("g"), await trial.used("h")) == (1, 1)
            after = await trial.settle(task, event)
            name = type(event).__name__
            assert not after.holds_slots, name
            assert (await trial.used("g"), await trial.used("h")) == (0, 0), name

    @store_rule("STORE-SLOT-4")
    async def test_every_way_out_of_a_query_releases(self, trial: Trial) -> None:
        """The slots are released when a tracked task comes to an end, whichever."""
        await trial.store.set_gate("g", concurrency=1)
        for event in (succeeded(), failed(), gave_up(), Overdue(), cancel_done()):
            (task,) = await trial.querying(make_draft(gates=["g"]))
            if event == cancel_done():
                await trial.store.request_cancellation(task.id)
            assert await trial.used("g") == 1
            await trial.settle(task, event)
            assert await trial.used("g") == 0, type(event).__name__

    @store_rule("STORE-SLOT-5")
    async def test_a_flag_releases_nothing_before_the_end(self, trial: Trial) -> None:
        """A slot is held by what the provider may be working on: a cancellation releases it when it is settled."""
        await trial.store.set_gate("g", concurrency=1)
        (task,) = await trial.started(make_draft(gates=["g"]))
        (waiting,) = await trial.add(make_draft(gates=["g"]))
        await trial.store.request_cancellation(task.id)
        assert await trial.claim() == []
        await trial.settle(task, succeeded())
        assert [each.id for each in await trial.claim()] == [waiting.id]

    @store_rule("STORE-SLOT-6")
    async def test_a_repeated_settle_releases_once(self, trial: Trial) -> None:
        """A settle that is repeated, or refused, releases nothing."""
        await trial.store.set_gate("g", concurrency=1)
        (first,) = await trial.started(make_draft(gates=["g"]))
        await trial.settle(first, succeeded())
        (second,) = await trial.started(make_draft(gates=["g"]))
        for _ in range(3):
            await trial.settle(first, succeeded())
        await trial.store.settle([Settlement(task=first, event=failed())] * 3)
        assert await trial.used("g") == 1
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []
        await trial.settle(second, succeeded())
        assert await trial.used("g") == 0

    @store_rule("STORE-SLOT-7")
    async def test_all_gates_or_none(self, trial: Trial) -> None:
        """A task takes its gates' slots all in one step: one closed gate, and none is taken of the others."""
        await trial.store.set_gate("narrow", concurrency=1)
        await trial.store.set_gate("wide", concurrency=10)
        await trial.store.set_gate("rate", rate=Rate(2, LONG))
        await trial.add(*make_drafts(4, gates=["narrow", "rate", "wide"], priority=1))
        assert len(await trial.claim()) == 1
        assert await trial.used("wide") == 1
        assert (await trial.usage("rate")).granted == 1
        (free,) = await trial.add(make_draft(gates=["rate", "wide"]))
        assert [task.id for task in await trial.claim()] == [free.id]

    @store_rule("STORE-SLOT-8")
    async def test_handlers_share_a_gate(self, trial: Trial) -> None:
        """A gate limits all tasks that name it, whatever their handler."""
        await trial.store.set_gate("tenant", concurrency=1)
        await trial.claimed(make_draft(gates=["tenant"]))
        await trial.add(make_draft(gates=["tenant"], handler=OTHER))
        assert await trial.claim(handlers=[OTHER]) == []

    @store_rule("STORE-SLOT-9")
    async def test_a_dead_worker_leaks_no_slot(self, trial: Trial) -> None:
        """A dead worker leaks no slot."""
        await trial.store.set_gate("g", concurrency=2)
        (unstarted, doubtful) = await trial.claimed(*make_drafts(2, gates=["g"]), lease=SHORT)
        (doubtful,) = await trial.start(doubtful, lease=SHORT)
        await trial.time.reach(max(lease_of(unstarted).until, lease_of(doubtful).until))
        (stale,) = await trial.claim_stale(worker="worker-2")
        assert await trial.used("g") == 1
        await trial.settle(stale, unknown())
        assert await trial.used("g") == 0
        assert [task.id for task in await trial.claim(worker="worker-2")] == [unstarted.id]
