"""S7: flags that came while a task was leased."""

from __future__ import annotations

from coatcheck.events import CancelSeen, GaveBack
from coatcheck.task import CancelOutcome, ErrorCode, Status
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store import outcomes
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Merging"]


class Merging(Suite):
    """S7: flags are merged, never overwritten."""

    @store_rule("STORE-MERGE-1")
    async def test_a_flagged_submission_ends_in_nothing_but_cancelled(self, trial: Trial) -> None:
        """Of a task flagged since its claim, what would become terminal or PENDING_SUBMIT becomes CANCELED."""
        for event in (
            outcomes.succeeded(),
            outcomes.failed(),
            outcomes.rejected(),
            outcomes.unknown(),
            outcomes.deferred(),
        ):
            (task,) = await trial.started()
            assert await trial.store.request_cancellation(task.id)
            after = await trial.settle(task, event)
            assert after.status is Status.CANCELED, type(event).__name__
            assert after.error is not None
            assert after.error.code == ErrorCode.CANCELED
            assert after == await trial.get(task)

    @store_rule("STORE-MERGE-2")
    async def test_a_flagged_query_ends_in_nothing_but_cancelled(self, trial: Trial) -> None:
        """Of a task flagged for cancellation since its claim, what would become terminal becomes CANCELED."""
        for event in (
            outcomes.succeeded(),
            outcomes.failed(),
            outcomes.gave_up(),
            outcomes.cancel_done(CancelOutcome.REFUSED),
        ):
            (task,) = await trial.querying()
            assert await trial.store.request_cancellation(task.id)
            assert (await trial.settle(task, event)).status is Status.CANCELED, type(event).__name__

    @store_rule("STORE-MERGE-3")
    async def test_a_flagged_claim_that_was_not_started_ends_cancelled(self, trial: Trial) -> None:
        """What would become PENDING_SUBMIT becomes CANCELED: what is given back does not return to the queue."""
        for event in (GaveBack(), CancelSeen()):
            (task,) = await trial.claimed(make_draft())
            assert await trial.store.request_cancellation(task.id)
            assert (await trial.settle(task, event)).status is Status.CANCELED
        assert await trial.claim() == []

    @store_rule("STORE-MERGE-4")
    async def test_what_is_known_is_kept(self, trial: Trial) -> None:
        """Its error and discarded result keep what is known, such as "submit outcome unknown"."""
        done, lost, broken = await trial.started(*make_drafts(3))
        for task in (done, lost, broken):
            assert await trial.store.request_cancellation(task.id)
        after = await trial.settle(done, outcomes.succeeded({"pages": 3}))
        assert after.result == {"pages": 3}
        after = await trial.settle(lost, outcomes.unknown())
        assert after.error is not None
        assert "submit outcome unknown" in after.error.message
        after = await trial.settle(broken, outcomes.failed("page 7 is blank"))
        assert after.error is not None
        assert "page 7 is blank" in after.error.message

    @store_rule("STORE-MERGE-5")
    async def test_what_stays_queryable_is_due_at_once(self, trial: Trial) -> None:
        """What would stay queryable is due at once, and needs a decision."""
        (submitting,) = await trial.started()
        (querying,) = await trial.querying()
        for task, event in ((submitting, outcomes.accepted(delay=LONG)), (querying, outcomes.going(LONG))):
            assert await trial.store.request_cancellation(task.id)
            after = await trial.settle(task, event)
            assert after.status.queryable
            assert after.external_task_id is not None
            assert after.schedule.due_at <= await trial.time.now()
        assert {task.id for task in await trial.claim_stale()} == {submitting.id, querying.id}

    @store_rule("STORE-MERGE-6")
    async def test_the_flag_survives_the_settle(self, trial: Trial) -> None:
        """Flags are merged, never overwritten: a stale snapshot without the flag does not take it off."""
        (task,) = await trial.started()
        assert await trial.store.request_cancellation(task.id)
        flagged = await trial.get(task)
        await trial.time.pass_(SHORT / 8)
        after = await trial.settle(task, outcomes.accepted())
        assert after.cancellation_requested_at == flagged.cancellation_requested_at is not None

    @store_rule("STORE-MERGE-7")
    async def test_a_nudge_during_the_lease_survives_the_settle(self, trial: Trial) -> None:
        """Flags are merged, never overwritten: a callback that came during a query makes the next one due at once."""
        (task,) = await trial.querying()
        assert task.external_task_id is not None
        assert await trial.store.nudge(task.route.handler_key, task.external_task_id) == 1
        after = await trial.settle(task, outcomes.going(LONG))
        assert after.schedule.due_at <= await trial.time.now()
        (again,) = await trial.claim_queries()
        assert (await trial.settle(again, outcomes.going(LONG))).schedule.due_at > await trial.time.now()
