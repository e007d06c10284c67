"""S12: waiting for work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.gates import Rate
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, going, succeeded
from coatcheck_conformance.store.time import LONG, SHORT, soon
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Waiting"]


@asynccontextmanager
async def _waiting(trial: Trial, timeout: timedelta = LONG) -> AsyncIterator[None]:
    """Wait while the body makes work, and check that the wait ends early because of it."""
    async with asyncio.TaskGroup() as group:
        wait = group.create_task(trial.store.wait([HANDLER], timeout))
        # A worker that is asleep already: the body comes only when the wait has begun.
        await asyncio.sleep(SHORT.total_seconds() / 20)
        yield
        assert await soon(wait) is True


class Waiting(Suite):
    """S12: `wait` returns early when there may be work."""

    @store_rule("STORE-WAIT-1")
    async def test_nothing_to_do_is_false_after_the_timeout(self, trial: Trial) -> None:
        """`wait` returns True early when there may be work for these handlers, False after `timeout`."""
        await trial.add(make_draft(delay=LONG / 2))
        begin = await trial.time.now()
        wait = asyncio.ensure_future(trial.store.wait([HANDLER], SHORT))
        if trial.time.manual is not None:
            await asyncio.sleep(0.02)
            assert not wait.done()
            await trial.time.pass_(SHORT)
        assert await soon(wait) is False
        assert await trial.time.now() - begin >= SHORT * 0.9

    @store_rule("STORE-WAIT-2")
    async def test_a_new_task_wakes(self, trial: Trial) -> None:
        """Returns early when there may be work: new tasks."""
        async with _waiting(trial):
            await trial.add()

    @store_rule("STORE-WAIT-3")
    async def test_work_that_is_there_already_is_not_slept_over(self, trial: Trial) -> None:
        """A lost notification costs at most one poll interval: what came between a claim and the wait is seen."""
        assert await trial.claim() == []
        await trial.add()
        assert await soon(trial.store.wait([HANDLER], LONG)) is True

    @store_rule("STORE-WAIT-4")
    async def test_a_released_slot_wakes(self, trial: Trial) -> None:
        """Returns early when there may be work: slots released."""
        await trial.store.set_gate("g", concurrency=1)
        (task,) = await trial.started(make_draft(gates=["g"]))
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []
        async with _waiting(trial):
            await trial.settle(task, succeeded())
        assert len(await trial.claim()) == 1

    @store_rule("STORE-WAIT-5")
    async def test_a_resumed_gate_wakes(self, trial: Trial) -> None:
        """Returns early when there may be work: resumes."""
        await trial.store.pause_gate("g", reason="maintenance")
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []
        async with _waiting(trial):
            await trial.store.resume_gate("g")
        assert len(await trial.claim()) == 1

    @store_rule("STORE-WAIT-6")
    async def test_a_raised_limit_and_a_deleted_gate_wake(self, trial: Trial) -> None:
        """Returns early when there may be work: a gate was opened by changing it."""
        await trial.store.set_gate("g", concurrency=1)
        await trial.add(*make_drafts(4, gates=["g"]))
        assert len(await trial.claim()) == 1
        async with _waiting(trial):
            await trial.store.set_gate("g", concurrency=2)
        assert len(await trial.claim()) == 1
        async with _waiting(trial):
            await trial.store.delete_gate("g")
        assert len(await trial.claim()) == 2

    @store_rule("STORE-WAIT-7")
    async def test_the_next_due_submission_wakes(self, trial: Trial) -> None:
        """Sleeps until the next known due time: a delayed task's."""
        (task,) = await trial.add(make_draft(delay=SHORT))
        assert await trial.claim() == []
        async with _waiting(trial):
            await trial.time.reach(task.schedule.due_at)
        assert len(await trial.claim()) == 1

    @store_rule("STORE-WAIT-8")
    async def test_the_next_due_query_wakes(self, trial: Trial) -> None:
        """Sleeps until the next known due time: a query's."""
        (task,) = await trial.tracked(delay=SHORT)
        async with _waiting(trial):
            await trial.time.reach(task.schedule.due_at)
        assert len(await trial.claim_queries()) == 1

    @store_rule("STORE-WAIT-9")
    async def test_a_rate_window_that_reopens_wakes(self, trial: Trial) -> None:
        """Returns early when there may be work: rate windows reopening."""
        await trial.store.set_gate("g", rate=Rate(1, SHORT))
        (first,) = await trial.claimed(make_draft(gates=["g"]))
        await trial.add(make_draft(gates=["g"]))
        assert await trial.claim() == []
        granted = lease_of(first).granted_at
        assert granted is not None
        async with _waiting(trial):
            await trial.time.reach(granted + SHORT)
        assert len(await trial.claim()) == 1

    @store_rule("STORE-WAIT-10")
    async def test_a_pause_that_ends_by_itself_wakes(self, trial: Trial) -> None:
        """Sleeps until the next known due time: the end of a pause."""
        await trial.add(make_draft(gates=["g"]))
        await trial.store.pause_gate("g", reason="429", duration=SHORT)
        assert await trial.claim() == []
        async with _waiting(trial):
            await trial.time.pass_(SHORT)
        assert len(await trial.claim()) == 1

    @store_rule("STORE-WAIT-11")
    async def test_a_nudge_a_flag_and_an_early_query_wake(self, trial: Trial) -> None:
        """Returns early when there may be work: a callback, a cancellation, an outcome that is due at once."""
        (task,) = await trial.started()
        await trial.settle(task, accepted("remote-1", delay=LONG))
        async with _waiting(trial):
            await trial.store.nudge(HANDLER, "remote-1")
        (task,) = await trial.claim_queries()
        async with _waiting(trial):
            await trial.settle(task, going())
        (task,) = await trial.claim_queries()
        await trial.settle(task, going(LONG))
        async with _waiting(trial):
            await trial.store.request_cancellation(task.id)
        assert [each.id for each in await trial.claim_stale()] == [task.id]

    @store_rule("STORE-WAIT-12")
    async def test_a_lease_that_ends_wakes(self, trial: Trial) -> None:
        """Sleeps until the next known due time: the end of a dead worker's lease."""
        (task,) = await trial.started(lease=SHORT)
        async with _waiting(trial):
            await trial.time.reach(lease_of(task).until)
        assert [each.id for each in await trial.claim_stale()] == [task.id]

    @store_rule("STORE-WAIT-13")
    async def test_closing_ends_a_wait(self, trial: Trial) -> None:
        """Waiting calls end with `StoreUnavailable` when the store is closed; closing twice is fine."""
        wait = asyncio.ensure_future(trial.store.wait([HANDLER], LONG))
        await asyncio.sleep(SHORT.total_seconds() / 20)
        await trial.store.close()
        with pytest.raises(StoreUnavailable):
            await soon(wait)
        await trial.store.close()
