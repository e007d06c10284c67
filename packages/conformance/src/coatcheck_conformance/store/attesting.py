"""S18: late proof of what a started submission came to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coatcheck.errors import TaskNotFound
from coatcheck.events import Abandon, Proof, Resent, Resubmit
from coatcheck.task import CancelOutcome, ErrorCode, Status, Task, TaskError, new_task_id
from coatcheck_conformance.drafts import make_draft
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, failed, succeeded, unknown
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import WORKER, Trial, lease_of, store_rule

__all__ = ["Attesting"]


def _proof(external_id: str = "remote-1") -> Proof:
    return Proof(event=accepted(external_id), worker_id=WORKER)


class Attesting(Suite):
    """S18: `attest` takes in late proof. A paid job's id is never thrown away."""

    @store_rule("STORE-ATTEST-1")
    async def test_proof_of_a_lost_submission_is_taken_in(self, trial: Trial) -> None:
        """Accepted while the task is SUBMITTING from that attempt (then SUBMITTED)."""
        (task,) = await trial.started(lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        after = await trial.store.attest(task.id, task.token, _proof())
        assert (after.status, after.external_task_id, after.lease) == (Status.SUBMITTED, "remote-1", None)
        assert (after.version, after.token) == (task.version + 1, task.token + 1)
        assert after == await trial.get(task)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-ATTEST-2")
    async def test_a_rescuer_is_fenced(self, trial: Trial) -> None:
        """Accepted while the task is SUBMITTING, and any rescuer is fenced."""
        (task,) = await trial.started(lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        (rescued,) = await trial.claim_stale(worker="worker-2")
        after = await trial.store.attest(task.id, task.token, _proof())
        assert after.status is Status.SUBMITTED
        assert not isinstance(await trial.try_settle(rescued, unknown()), Task)
        assert not await trial.renew(rescued)
        assert await trial.get(task) == after

    @store_rule("STORE-ATTEST-3")
    async def test_proof_ends_a_doubt(self, trial: Trial) -> None:
        """Accepted while the task is SUBMIT_UNKNOWN from that attempt (then SUBMITTED)."""
        await trial.store.set_gate("g", concurrency=1)
        task = await trial.ended(Status.SUBMIT_UNKNOWN, make_draft(gates=["g"]))
        after = await trial.store.attest(task.id, task.token, _proof())
        assert (after.status, after.outcome.finished_at, after.error) == (Status.SUBMITTED, None, None)
        assert await trial.used("g") == (1 if after.holds_slots else 0)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-ATTEST-4")
    async def test_proof_may_be_a_result(self, trial: Trial) -> None:
        """`attest(id, token, query params or result)`."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        after = await trial.store.attest(doubtful.id, doubtful.token, Proof(event=succeeded([1, 2])))
        assert (after.status, after.result) == (Status.SUCCEEDED, [1, 2])
        await trial.store.set_gate("g", concurrency=1)
        (task,) = await trial.started(make_draft(gates=["g"]))
        after = await trial.store.attest(task.id, task.token, Proof(event=failed()))
        assert after.status is Status.FAILED
        assert await trial.used("g") == 0

    @store_rule("STORE-ATTEST-5")
    async def test_a_cancelled_task_keeps_the_id(self, trial: Trial) -> None:
        """On CANCELED it is kept for the remote cancel, and so is a result."""
        (task,) = await trial.started()
        await trial.store.request_cancellation(task.id)
        await trial.settle(task, unknown())
        after = await trial.store.attest(task.id, task.token, _proof())
        assert (after.status, after.external_task_id) == (Status.CANCELED, "remote-1")
        told = Proof(event=accepted("remote-1"), remote_cancel=CancelOutcome.CONFIRMED)
        after = await trial.store.attest(task.id, task.token, told)
        assert after.outcome.remote_cancel is CancelOutcome.CONFIRMED
        assert after == await trial.get(task)
        (task,) = await trial.started()
        await trial.store.request_cancellation(task.id)
        await trial.settle(task, unknown())
        after = await trial.store.attest(task.id, task.token, Proof(event=succeeded([1, 2])))
        assert (after.status, after.result) == (Status.CANCELED, [1, 2])

    @store_rule("STORE-ATTEST-6")
    async def test_after_a_resubmission_it_is_noted(self, trial: Trial) -> None:
        """After a resubmission it is noted in the history."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        await trial.store.resolve(doubtful.id, doubtful.version, Resubmit(tracking_timeout=LONG))
        (second,) = await trial.start(*await trial.claim())
        after = await trial.store.attest(doubtful.id, doubtful.token, _proof("remote-of-the-first"))
        assert (after.status, after.external_task_id) == (Status.SUBMITTING, None)
        assert any("remote-of-the-first" in entry.note for entry in after.history)
        late = await trial.settle(await trial.get(second), accepted("remote-of-the-second"))
        assert late.external_task_id == "remote-of-the-second"

    @store_rule("STORE-ATTEST-7")
    async def test_proof_may_be_repeated(self, trial: Trial) -> None:
        """Proof whose arrival was not acknowledged is handed in again; that changes nothing."""
        for status in (Status.SUBMIT_UNKNOWN, Status.FAILED):
            task = await trial.ended(status)
            first = await trial.store.attest(task.id, task.token, _proof())
            assert await trial.store.attest(task.id, task.token, _proof()) == first
            assert await trial.get(task) == first

    @store_rule("STORE-ATTEST-8")
    async def test_proof_of_another_attempt_decides_nothing(self, trial: Trial) -> None:
        """Accepted while the task is SUBMITTING or SUBMIT_UNKNOWN from that attempt, and from no other."""
        (task,) = await trial.started()
        for token in (task.token - 1, task.token + 1):
            after = await trial.store.attest(task.id, token, _proof())
            assert after.status is Status.SUBMITTING
        assert any("remote-1" in entry.note for entry in (await trial.get(task)).history)

    @store_rule("STORE-ATTEST-9")
    async def test_a_flag_is_merged(self, trial: Trial) -> None:
        """A task whose cancel() returned True never ends in anything but CANCELED: also by late proof."""
        tracked, done = [(await trial.started())[0] for _ in range(2)]
        await trial.store.request_cancellation(tracked.id)
        after = await trial.store.attest(tracked.id, tracked.token, Proof(event=accepted(delay=LONG)))
        assert after.status is Status.SUBMITTED
        assert [task.id for task in await trial.claim_stale()] == [tracked.id]
        await trial.store.request_cancellation(done.id)
        after = await trial.store.attest(done.id, done.token, Proof(event=succeeded("late")))
        assert (after.status, after.result) == (Status.CANCELED, "late")

    @store_rule("STORE-ATTEST-10")
    async def test_an_abandoned_task_stays_abandoned(self, trial: Trial) -> None:
        """Anything else is noted in the history: a person's decision is not undone."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        await trial.store.resolve(doubtful.id, doubtful.version, Abandon())
        after = await trial.store.attest(doubtful.id, doubtful.token, _proof())
        assert after.status is Status.FAILED
        assert any("remote-1" in entry.note for entry in after.history)

    @store_rule("STORE-ATTEST-11")
    async def test_there_must_be_a_task(self, trial: Trial) -> None:
        """Raises `TaskNotFound` if there is no such task."""
        with pytest.raises(TaskNotFound):
            await trial.store.attest(new_task_id(), 1, _proof())

    @store_rule("STORE-ATTEST-12")
    async def test_what_is_proven_is_not_sent_again(self, trial: Trial) -> None:
        """Accepted also while the same key waits to be sent again: a paid job's id is never thrown away."""
        (task,) = await trial.started()
        error = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="the answer was lost")
        again = await trial.settle(task, Resent(delay=timedelta(), error=error))
        assert again.status is Status.PENDING_SUBMIT
        after = await trial.store.attest(task.id, task.token, _proof())
        assert (after.status, after.external_task_id) == (Status.SUBMITTED, "remote-1")
        assert await trial.claim() == []
        assert [each.id for each in await trial.claim_queries()] == [task.id]
