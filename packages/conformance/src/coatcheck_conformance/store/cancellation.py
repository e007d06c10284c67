"""S9: cancelling."""

from __future__ import annotations

import asyncio
from random import Random

from attrs import evolve

from coatcheck.lifecycle import Settlement
from coatcheck.task import Status, Task, new_task_id
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.outcomes import accepted, cancel_done, going, succeeded, unknown
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Cancellation"]


class Cancellation(Suite):
    """S9: `request_cancellation` is monotonic, and what it accepted never ends in anything but CANCELED."""

    @store_rule("STORE-CANCEL-1")
    async def test_a_pending_task_is_cancelled_at_once(self, trial: Trial) -> None:
        """PENDING_SUBMIT becomes CANCELED in the same step (version + 1)."""
        for draft in (make_draft(), make_draft(delay=LONG), make_draft(gates=["g"])):
            (task,) = await trial.add(draft)
            assert await trial.store.request_cancellation(task.id) is True
            after = await trial.get(task)
            assert (after.status, after.version, after.token) == (
                Status.CANCELED,
                task.version + 1,
                task.token,
            )
            assert after.outcome.finished_at is not None

    @store_rule("STORE-CANCEL-2")
    async def test_only_the_first_request_is_true(self, trial: Trial) -> None:
        """True only the first time."""
        pending, leased, tracked = (
            *await trial.add(make_draft(delay=LONG)),
            *await trial.started(),
            *await trial.tracked(),
        )
        for task in (pending, leased, tracked):
            assert [await trial.store.request_cancellation(task.id) for _ in range(3)] == [True, False, False]

    @store_rule("STORE-CANCEL-3")
    async def test_ends_and_unknown_ids_are_not_cancelled(self, trial: Trial) -> None:
        """True only if not terminal; False also if there is no such task."""
        assert await trial.store.request_cancellation(new_task_id()) is False
        for status in (Status.SUCCEEDED, Status.FAILED, Status.SUBMIT_UNKNOWN):
            task = await trial.ended(status)
            assert await trial.store.request_cancellation(task.id) is False
            assert await trial.get(task) == task
        task = await trial.timed_out(make_draft(timeout=SHORT))
        assert await trial.store.request_cancellation(task.id) is False
        assert await trial.get(task) == task

    @store_rule("STORE-CANCEL-4")
    async def test_a_leased_task_is_flagged(self, trial: Trial) -> None:
        """Otherwise the task is flagged: version, token and, while a lease is live, `due_at` stay as they are."""
        (claimed,) = await trial.claimed(make_draft())
        (querying,) = await trial.querying()
        await trial.time.pass_(SHORT / 8)  # what is made due by it would be due later than it was
        for task in (claimed, querying):
            assert await trial.store.request_cancellation(task.id)
            after = await trial.get(task)
            assert after.cancellation_requested_at is not None
            assert after == evolve(task, cancellation_requested_at=after.cancellation_requested_at)

    @store_rule("STORE-CANCEL-5")
    async def test_a_tracked_task_is_flagged_and_decided_by_a_worker(self, trial: Trial) -> None:
        """SUBMITTED and RUNNING are flagged; the worker that claims it calls the provider and records the outcome."""
        (task,) = await trial.tracked(delay=LONG)
        assert await trial.store.request_cancellation(task.id)
        after = await trial.get(task)
        assert (after.status, after.version, after.token) == (task.status, task.version, task.token)
        (stale,) = await trial.claim_stale()
        assert stale.id == task.id
        assert (await trial.settle(stale, cancel_done())).status is Status.CANCELED

    @store_rule("STORE-CANCEL-6")
    async def test_the_flag_outlives_the_worker(self, trial: Trial) -> None:
        """A task whose cancel() returned True never ends in anything but CANCELED, whoever ends it."""
        (task,) = await trial.started(lease=SHORT)
        assert await trial.store.request_cancellation(task.id)
        await trial.time.reach(lease_of(task).until)
        (stale,) = await trial.claim_stale(worker="worker-2")
        after = await trial.settle(stale, unknown())
        assert after.status is Status.CANCELED
        assert after.error is not None
        assert "submit outcome unknown" in after.error.message

    @store_rule("STORE-CANCEL-7")
    async def test_the_flag_outlives_many_turns(self, trial: Trial) -> None:
        """A task whose cancel() returned True never ends in anything but CANCELED, however long it goes on."""
        (task,) = await trial.started()
        assert await trial.store.request_cancellation(task.id)
        await trial.settle(task, accepted())
        for _ in range(3):
            (task,) = await trial.claim_stale()
            assert (await trial.settle(task, going(LONG))).status is Status.RUNNING
        (task,) = await trial.claim_stale()
        assert (await trial.settle(task, succeeded())).status is Status.CANCELED

    @store_rule("STORE-CANCEL-8")
    async def test_cancelling_frees_the_dedup_key_when_it_has_come_to_an_end(self, trial: Trial) -> None:
        """CANCELED frees the key; a task that is only flagged holds it."""
        (task,) = await trial.started(make_draft(dedup_key="k"))
        await trial.store.request_cancellation(task.id)
        (held,) = await trial.store.add([make_draft(dedup_key="k")])
        assert held.created is False
        await trial.settle(task, succeeded())
        (free,) = await trial.store.add([make_draft(dedup_key="k")])
        assert free.created

    @store_rule("STORE-CANCEL-9")
    async def test_cancelling_a_task_that_is_being_timed_out_takes_it_from_its_holder(
        self, trial: Trial
    ) -> None:
        """PENDING_SUBMIT becomes CANCELED in the same step, whoever holds it; nothing was sent."""
        (task,) = await trial.add(make_draft(timeout=SHORT))
        await trial.time.reach(task.schedule.deadline_at)
        (stale,) = await trial.claim_stale()
        assert await trial.store.request_cancellation(task.id)
        after = await trial.get(task)
        assert (after.status, after.lease) == (Status.CANCELED, None)
        assert not isinstance(await trial.try_settle(stale, succeeded()), Task)
        assert await trial.get(task) == after

    @store_rule("STORE-CANCEL-10", kind=Kind.STOCHASTIC)
    async def test_concurrent_requests_are_accepted_once(self, trial: Trial) -> None:
        """True only the first time, also under concurrency."""
        pending = await trial.add(*make_drafts(5))
        (leased,) = await trial.started(make_draft(priority=1))
        for task in (*pending, leased):
            answers = await asyncio.gather(*(trial.store.request_cancellation(task.id) for _ in range(6)))
            assert sorted(answers) == [False] * 5 + [True]

    @store_rule("STORE-CANCEL-11", kind=Kind.STOCHASTIC)
    async def test_a_race_between_settle_and_cancel_has_one_winner(self, trial: Trial) -> None:
        """A task whose cancel() returned True ends in nothing but CANCELED; a late cancel() changes nothing."""
        chance = Random(self.seed)  # noqa: S311 - the same each time
        tasks = await trial.started(*make_drafts(40))
        flagged: set[str] = set()

        async def cancel(task: Task) -> None:
            if await trial.store.request_cancellation(task.id):
                flagged.add(task.id)

        async def settle(task: Task) -> None:
            await trial.store.settle([Settlement(task=task, event=succeeded())])

        steps = [step(task) for task in tasks for step in chance.sample([cancel, settle], 2)]
        await asyncio.gather(*steps)
        for task in tasks:
            status = (await trial.get(task)).status
            assert status is (Status.CANCELED if task.id in flagged else Status.SUCCEEDED)
