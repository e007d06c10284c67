"""S7: settling claims."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from coatcheck.errors import InvalidTransition, LeaseLost, NotPersistable, VersionConflict
from coatcheck.events import CancelSeen, Event, GaveBack, Overdue
from coatcheck.lifecycle import Settlement
from coatcheck.task import Status, Task, new_task_id
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import (
    accepted,
    deferred,
    failed,
    succeeded,
    unknown,
)
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Settling"]

_REFUSED = (VersionConflict, LeaseLost)


class Settling(Suite):
    """S7: `settle` writes an outcome and releases the lease in one step, if the claim still stands."""

    @store_rule("STORE-SETTLE-1")
    async def test_settling_writes_and_releases(self, trial: Trial) -> None:
        """Written, version + 1, lease gone."""
        (task,) = await trial.started(make_draft(params={"page": 1}))
        after = await trial.settle(task, accepted("remote-1", provider_status="queued"))
        assert (after.status, after.version, after.token) == (Status.SUBMITTED, task.version + 1, task.token)
        assert after.lease is None
        assert (after.external_task_id, after.progress.provider_status) == ("remote-1", "queued")
        assert (after.params, after.identity.params_digest) == (None, task.identity.params_digest)
        assert after == await trial.get(task)

    @store_rule("STORE-SETTLE-2")
    async def test_a_moved_version_is_refused(self, trial: Trial) -> None:
        """Refused if the version moved: `VersionConflict`, as a value."""
        (task,) = await trial.started()
        for version in (task.version - 1, task.version + 1):
            answer = await trial.try_settle(evolve(task, version=version), succeeded())
            assert isinstance(answer, VersionConflict)
        assert await trial.get(task) == task

    @store_rule("STORE-SETTLE-3")
    async def test_another_nonce_or_token_is_refused(self, trial: Trial) -> None:
        """Refused if the lease's token or nonce differs: `LeaseLost`, as a value."""
        (task,) = await trial.started()
        lease = lease_of(task)
        for stolen in (evolve(lease, nonce="guessed"), evolve(lease, token=lease.token - 1)):
            answer = await trial.try_settle(evolve(task, lease=stolen), succeeded())
            assert isinstance(answer, LeaseLost)
        assert await trial.get(task) == task

    @store_rule("STORE-SETTLE-4")
    async def test_an_expired_lease_is_refused_though_nobody_took_the_task(self, trial: Trial) -> None:
        """Refused if it has expired."""
        (task,) = await trial.started(lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        assert isinstance(await trial.try_settle(task, succeeded()), LeaseLost)
        assert await trial.get(task) == task

    @store_rule("STORE-SETTLE-5")
    async def test_a_zombie_cannot_write_over_its_rescuer(self, trial: Trial) -> None:
        """Never an overwritten newer state: once another worker has the task, the first one's outcome is refused."""
        (zombie,) = await trial.started(lease=SHORT)
        await trial.time.reach(lease_of(zombie).until)
        (rescued,) = await trial.claim_stale(worker="worker-2")
        assert isinstance(await trial.try_settle(zombie, succeeded("stale")), _REFUSED)
        after = await trial.settle(rescued, unknown())
        assert isinstance(await trial.try_settle(zombie, succeeded("stale")), _REFUSED)
        assert await trial.get(zombie) == after

    @store_rule("STORE-SETTLE-6")
    async def test_a_release_by_a_non_owner_is_refused(self, trial: Trial) -> None:
        """Only who shows the same token and nonce in time may write, also when the task is as it was before (ABA)."""
        (first,) = await trial.claimed(make_draft())
        await trial.settle(first, GaveBack())
        (second,) = await trial.claim(worker="worker-2")
        forged = evolve(first, version=second.version, token=second.token)
        assert isinstance(await trial.try_settle(forged, deferred(LONG)), (Task, LeaseLost))
        assert await trial.get(second) == second

    @store_rule("STORE-SETTLE-7")
    async def test_without_a_lease_nothing_is_settled(self, trial: Trial) -> None:
        """Refused if the lease's token or nonce differs: a task that was never claimed has none to show."""
        (task,) = await trial.add()
        for event in (CancelSeen(), Overdue()):
            assert isinstance(await trial.try_settle(task, event), LeaseLost)
        assert await trial.get(task) == task

    @store_rule("STORE-SETTLE-8")
    async def test_refusals_are_values_in_order_and_hurt_no_other(self, trial: Trial) -> None:
        """In order, refusals as values; one refused task never hurts the others."""
        good, moved, gone, other = await trial.started(*make_drafts(4))
        ghost = evolve(gone, id=new_task_id())
        answers = await trial.store.settle(
            [
                Settlement(task=evolve(moved, version=0), event=succeeded()),
                Settlement(task=good, event=succeeded(1)),
                Settlement(task=ghost, event=succeeded()),
                Settlement(task=evolve(gone, lease=evolve(lease_of(gone), nonce="x")), event=succeeded()),
                Settlement(task=other, event=accepted()),
            ]
        )
        assert isinstance(answers[0], VersionConflict)
        assert isinstance(answers[2], _REFUSED)
        assert isinstance(answers[3], LeaseLost)
        assert [isinstance(answer, Task) and answer.id for answer in (answers[1], answers[4])] == [
            good.id,
            other.id,
        ]
        assert (await trial.get(good)).status is Status.SUCCEEDED
        assert (await trial.get(other)).status is Status.SUBMITTED
        assert await trial.store.settle([]) == []

    @store_rule("STORE-SETTLE-9")
    async def test_an_unstorable_outcome_hurts_no_other(self, trial: Trial) -> None:
        """One unstorable task never hurts the others; its claim stands, and can be settled with what can be stored."""
        events: list[Event] = [
            succeeded({"score": float("nan")}),
            succeeded({"text": "\ud800"}),
            accepted(provider_params={"bad": float("inf")}),
            failed("half a character: \udfff"),
        ]
        tasks = await trial.started(*make_drafts(len(events)))
        (fine,) = await trial.started()
        answers = await trial.store.settle(
            [
                *(Settlement(task=task, event=event) for task, event in zip(tasks, events, strict=True)),
                Settlement(task=fine, event=succeeded()),
            ]
        )
        assert [type(answer) for answer in answers[:-1]] == [NotPersistable] * len(events)
        assert isinstance(answers[-1], Task)
        for task in tasks:
            assert await trial.get(task) == task
            await trial.settle(task, failed())

    @store_rule("STORE-SETTLE-10")
    async def test_an_impossible_event_hurts_no_other(self, trial: Trial) -> None:
        """One refused task never hurts the others: an event for which the lifecycle has no arrow is a value, too."""
        unstarted, started, fine = await trial.claimed(*make_drafts(3))
        started, fine = await trial.start(started, fine)
        answers = await trial.store.settle(
            [
                Settlement(task=unstarted, event=unknown()),
                Settlement(task=started, event=GaveBack()),
                Settlement(task=fine, event=succeeded()),
            ]
        )
        assert [type(answer) for answer in answers[:2]] == [InvalidTransition] * 2
        assert isinstance(answers[2], Task)
        assert [await trial.get(task) for task in (unstarted, started)] == [unstarted, started]

    @store_rule("STORE-SETTLE-11")
    async def test_repeating_a_settle_succeeds_and_changes_nothing(self, trial: Trial) -> None:
        """Repeating a settle that this very lease has already committed succeeds (unknown commit outcome)."""
        (task,) = await trial.started()
        after = await trial.settle(task, accepted())
        assert await trial.settle(task, accepted()) == after
        assert await trial.settle(task, succeeded("something else")) == after
        assert await trial.get(task) == after

    @store_rule("STORE-SETTLE-12")
    async def test_repeating_a_settle_succeeds_when_others_have_gone_on(self, trial: Trial) -> None:
        """Repeating a settle that this very lease has already committed succeeds, and leaves what came after it."""
        (task,) = await trial.claimed(make_draft())
        await trial.settle(task, deferred())
        (claimed,) = await trial.claim(worker="worker-2")
        await trial.settle(task, deferred(LONG))
        assert await trial.get(task) == claimed
        await trial.settle(claimed, GaveBack())

    @store_rule("STORE-SETTLE-13")
    async def test_a_settle_twice_in_one_batch_is_one(self, trial: Trial) -> None:
        """Repeating a settle that this very lease has already committed succeeds, also within one batch."""
        (task,) = await trial.started()
        first, second = await trial.store.settle(
            [Settlement(task=task, event=succeeded(1)), Settlement(task=task, event=succeeded(2))]
        )
        assert isinstance(first, Task)
        assert first == second == await trial.get(task)

    @store_rule("STORE-SETTLE-14")
    async def test_the_next_turn_is_never_after_the_deadline(self, trial: Trial) -> None:
        """`due_at` is never after `deadline_at`."""
        (submitted, deferring) = await trial.started(*make_drafts(2))
        for task, event in ((submitted, accepted(delay=10 * LONG)), (deferring, deferred(10 * LONG))):
            after = await trial.settle(task, event)
            assert after.schedule.due_at == task.schedule.deadline_at

    @store_rule("STORE-SETTLE-15")
    async def test_hundreds_are_settled_in_one_step(self, trial: Trial) -> None:
        """Every method that changes anything is one atomic step, batched."""
        tasks = await trial.started(*make_drafts(500))
        answers = await trial.store.settle(
            [Settlement(task=task, event=accepted(f"remote-{n}")) for n, task in enumerate(tasks)]
        )
        assert [isinstance(answer, Task) and answer.external_task_id for answer in answers] == [
            f"remote-{n}" for n in range(len(tasks))
        ]
        assert len(await trial.claim_queries()) == len(tasks)

    @store_rule("STORE-SETTLE-16")
    async def test_delays_run_from_the_stores_time(self, trial: Trial) -> None:
        """Events carry durations; the store applies them by its own clock."""
        (task,) = await trial.started()
        before = await trial.time.pass_(SHORT / 4)
        after = await trial.settle(task, accepted(delay=timedelta(minutes=5)))
        due = after.schedule.due_at - timedelta(minutes=5)
        assert before <= due <= await trial.time.now()
