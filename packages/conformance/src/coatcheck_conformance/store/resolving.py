"""S19: a person decides."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.errors import InvalidTransition, TaskNotFound, VersionConflict
from coatcheck.events import Abandon, Adopt, Extend, Overdue, Resent, Resolution, Resubmit
from coatcheck.task import ErrorCode, Status, Task, TaskError, new_task_id
from coatcheck_conformance.drafts import make_draft
from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.outcomes import params_of, unknown
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, brief, lease_of, store_rule

__all__ = ["Resolving"]


class Resolving(Suite):
    """S19: `resolve` carries out a person's decision on a task that ended in doubt, as one step."""

    @store_rule("STORE-RESOLVE-1")
    async def test_adopting(self, trial: Trial) -> None:
        """Adopt: SUBMITTED; version + 1, token + 1, with who and why; adopted tasks take no slot."""
        await trial.store.set_gate("g", concurrency=1)
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN, make_draft(gates=["g"]))
        await trial.claimed(make_draft(gates=["g"]))
        decision = Adopt(query_params=params_of("remote-1"), who="ada", note="found it in the console")
        after = await trial.store.resolve(doubtful.id, doubtful.version, decision)
        assert (after.status, after.external_task_id) == (Status.SUBMITTED, "remote-1")
        assert (after.version, after.token) == (doubtful.version + 1, doubtful.token + 1)
        assert (after.holds_slots, after.outcome.finished_at, after.params) == (False, None, None)
        note = after.history[-1].note
        assert "ada" in note
        assert "found it in the console" in note
        assert after == await trial.get(doubtful)
        assert await trial.used("g") == 1
        assert [task.id for task in await trial.claim_queries()] == [doubtful.id]

    @store_rule("STORE-RESOLVE-2")
    async def test_resubmitting(self, trial: Trial) -> None:
        """Resubmit: PENDING_SUBMIT; it needs a new tracking timeout and keeps the idempotency key."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN, make_draft(idempotency_key="order-7"))
        before = await trial.time.now()
        after = await trial.store.resolve(
            doubtful.id, doubtful.version, Resubmit(tracking_timeout=2 * LONG, who="ada", note="not there")
        )
        assert (after.status, after.version, after.token) == (
            Status.PENDING_SUBMIT,
            doubtful.version + 1,
            doubtful.token + 1,
        )
        assert after.schedule.deadline_at >= before + 2 * LONG
        assert (after.identity, after.params) == (doubtful.identity, doubtful.params)
        (again,) = await trial.claim()
        assert (again.id, again.identity.idempotency_key) == (doubtful.id, "order-7")
        assert again.params is not None

    @store_rule("STORE-RESOLVE-3")
    async def test_abandoning(self, trial: Trial) -> None:
        """Abandon: FAILED, with who and why."""
        lost = await trial.ended(Status.SUBMIT_UNKNOWN)
        late = await trial.timed_out(brief())
        for task in (lost, late):
            after = await trial.store.resolve(task.id, task.version, Abandon(who="ada", note="too old"))
            assert (after.status, after.token) == (Status.FAILED, task.token + 1)
            assert after.error is not None
            assert after.error.code == ErrorCode.ABANDONED
            assert "ada" in after.history[-1].note

    @store_rule("STORE-RESOLVE-4")
    async def test_extending_a_tracked_task(self, trial: Trial) -> None:
        """Extend (with query params): SUBMITTED, with a new deadline; extended tasks take no slot."""
        await trial.store.set_gate("g", concurrency=1)
        late = await trial.timed_out(brief(gates=["g"]), tracked=True)
        await trial.claimed(make_draft(gates=["g"]))
        before = await trial.time.now()
        after = await trial.store.resolve(late.id, late.version, Extend(tracking_timeout=LONG))
        assert (after.status, after.external_task_id) == (Status.SUBMITTED, late.external_task_id)
        assert after.schedule.deadline_at >= before + LONG
        assert (await trial.used("g"), after.holds_slots) == (1, False)
        assert [task.id for task in await trial.claim_queries()] == [late.id]

    @store_rule("STORE-RESOLVE-5")
    async def test_extending_a_task_that_never_started(self, trial: Trial) -> None:
        """Extend (never started): PENDING_SUBMIT, with a new deadline."""
        late = await trial.timed_out(brief())
        after = await trial.store.resolve(late.id, late.version, Extend(tracking_timeout=LONG))
        assert (after.status, after.outcome.finished_at) == (Status.PENDING_SUBMIT, None)
        assert [task.id for task in await trial.claim()] == [late.id]
        assert await trial.claim_stale() == []

    @store_rule("STORE-RESOLVE-6")
    async def test_adopting_what_timed_out(self, trial: Trial) -> None:
        """TRACKING_TIMED_OUT, resolved: adopt: SUBMITTED, and not overdue at once."""
        late = await trial.timed_out(brief())
        after = await trial.store.resolve(late.id, late.version, Adopt(query_params=params_of("remote-1")))
        assert after.status is Status.SUBMITTED
        assert after.schedule.deadline_at > await trial.time.now()

    @store_rule("STORE-RESOLVE-7")
    async def test_what_has_moved_on_is_not_resolved(self, trial: Trial) -> None:
        """Raises `VersionConflict` if it has moved on since, `TaskNotFound` if there is no such task."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        for version in (doubtful.version - 1, doubtful.version + 1):
            with pytest.raises(VersionConflict):
                await trial.store.resolve(doubtful.id, version, Abandon())
        assert await trial.get(doubtful) == doubtful
        with pytest.raises(TaskNotFound):
            await trial.store.resolve(new_task_id(), 0, Abandon())

    @store_rule("STORE-RESOLVE-8")
    async def test_decisions_must_fit_the_status(self, trial: Trial) -> None:
        """Raises `InvalidTransition` if the decision does not fit the task's status; nothing changes."""
        adopt, resubmit = Adopt(query_params=params_of()), Resubmit(tracking_timeout=LONG)
        extend, abandon = Extend(tracking_timeout=LONG), Abandon()
        (pending,) = await trial.add(make_draft(delay=LONG / 2))
        (tracked,) = await trial.tracked(delay=LONG / 2)
        wrong: list[tuple[Task, list[Resolution]]] = [
            (await trial.ended(Status.SUBMIT_UNKNOWN), [extend]),
            (await trial.timed_out(brief()), [resubmit]),
            (await trial.ended(Status.SUCCEEDED), [adopt, resubmit, extend, abandon]),
            (await trial.ended(Status.FAILED), [adopt, resubmit, extend, abandon]),
            (await trial.ended(Status.CANCELED), [adopt, resubmit, extend, abandon]),
            (pending, [adopt, resubmit, extend, abandon]),
            (tracked, [adopt, resubmit, extend, abandon]),
        ]
        for task, decisions in wrong:
            for decision in decisions:
                with pytest.raises(InvalidTransition):
                    await trial.store.resolve(task.id, task.version, decision)
            assert await trial.get(task) == task

    @store_rule("STORE-RESOLVE-9")
    async def test_who_held_it_before_is_fenced(self, trial: Trial) -> None:
        """Token + 1: whoever held the task before the decision can't write any more."""
        (task,) = await trial.started(lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        (rescued,) = await trial.claim_stale(worker="worker-2")
        doubtful = await trial.settle(rescued, unknown())
        after = await trial.store.resolve(doubtful.id, doubtful.version, Resubmit(tracking_timeout=LONG))
        assert not isinstance(await trial.try_settle(task, unknown()), Task)
        assert not await trial.renew(task)
        assert not await trial.renew(rescued)
        assert await trial.get(task) == after

    @store_rule("STORE-RESOLVE-11")
    async def test_what_may_have_been_sent_is_not_sent_again_by_extending(self, trial: Trial) -> None:
        """Extend (with query params, or never started): more time sends nothing whose outcome is unknown again."""
        (task,) = await trial.started(brief())
        error = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="the answer was lost")
        await trial.settle(task, Resent(delay=LONG, error=error))
        await trial.time.reach(task.schedule.deadline_at)
        (stale,) = await trial.claim_stale()
        late = await trial.settle(stale, Overdue())
        assert late.status is Status.TRACKING_TIMED_OUT
        with pytest.raises(InvalidTransition):
            await trial.store.resolve(late.id, late.version, Extend(tracking_timeout=LONG))
        assert await trial.get(late) == late
        adopted = await trial.store.resolve(late.id, late.version, Adopt(query_params=params_of("remote-1")))
        assert adopted.status is Status.SUBMITTED

    @store_rule("STORE-RESOLVE-10", kind=Kind.STOCHASTIC)
    async def test_of_two_decisions_one_is_carried_out(self, trial: Trial) -> None:
        """As one step: of several people who decide at once, one does."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        decisions: list[Resolution] = [
            Abandon(),
            Resubmit(tracking_timeout=LONG),
            Adopt(query_params=params_of()),
        ]
        answers = await asyncio.gather(
            *(trial.store.resolve(doubtful.id, doubtful.version, each) for each in decisions),
            return_exceptions=True,
        )
        (winner,) = [answer for answer in answers if isinstance(answer, Task)]
        assert sum(isinstance(answer, VersionConflict) for answer in answers) == len(decisions) - 1
        assert await trial.get(doubtful) == winner
