"""S2: adding tasks, once each."""

from __future__ import annotations

import asyncio
from datetime import timedelta, timezone

import pytest

from coatcheck.errors import ConfigurationError, DedupConflict, DuplicateTask, Unsupported
from coatcheck.events import Abandon
from coatcheck.store import Capability
from coatcheck.task import Rank, Status, millis
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.spec import Hook
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Adding"]

_MILLISECOND = timedelta(milliseconds=1)


class Adding(Suite):
    """S2: `add` creates tasks in order, all or none, and never a second one for an id or a dedup key."""

    @store_rule("STORE-ADD-1")
    async def test_add_answers_in_the_order_of_the_drafts(self, trial: Trial) -> None:
        """`add(drafts) -> list[Added(task, created)]`, in order; version 0, PENDING_SUBMIT."""
        drafts = make_drafts(5)[::-1]
        added = await trial.store.add(drafts)
        assert [each.task.id for each in added] == [draft.id for draft in drafts]
        assert all(each.created for each in added)
        assert {(each.task.status, each.task.version, each.task.token) for each in added} == {
            (Status.PENDING_SUBMIT, 0, 0)
        }
        assert await trial.store.add([]) == []

    @store_rule("STORE-ADD-2")
    async def test_add_stamps_times_by_the_stores_clock(self, trial: Trial) -> None:
        """Drafts carry durations; the store stamps created, scheduled and deadline by its clock in the same step."""
        before = await trial.time.now()
        (task,) = await trial.add(make_draft(delay=timedelta(minutes=2), timeout=timedelta(minutes=7)))
        after = await trial.time.now()
        schedule = task.schedule
        assert before <= schedule.created_at <= after
        assert schedule.scheduled_at == schedule.due_at == schedule.created_at + timedelta(minutes=2)
        assert schedule.deadline_at == schedule.created_at + timedelta(minutes=7)

    @store_rule("STORE-ADD-3")
    async def test_durations_are_rounded_up_to_whole_milliseconds(self, trial: Trial) -> None:
        """Stores persist whole milliseconds, rounded up where a limit depends on it."""
        odd = timedelta(seconds=3, microseconds=1)
        rounded = timedelta(milliseconds=millis(odd))
        instant = await trial.time.now() + LONG
        delayed, brief, timed = await trial.add(
            make_draft(delay=odd),
            make_draft(timeout=odd),
            make_draft(not_before=instant - _MILLISECOND + timedelta(microseconds=1)),
        )
        assert delayed.schedule.scheduled_at - delayed.schedule.created_at == rounded
        assert brief.schedule.deadline_at - brief.schedule.created_at == rounded
        assert timed.schedule.scheduled_at == instant
        for task in (delayed, brief, timed):
            assert (await trial.get(task)).schedule == task.schedule

    @store_rule("STORE-ADD-4")
    async def test_not_before_is_an_instant_of_the_stores_clock(self, trial: Trial) -> None:
        """Drafts may carry an instant (`not_before`), in any time zone; the later of it and the delay counts."""
        now = await trial.time.now()
        instant = (now + timedelta(minutes=30)).astimezone(timezone(timedelta(hours=5, minutes=30)))
        at, early, late = await trial.add(
            make_draft(not_before=instant),
            make_draft(not_before=instant, delay=timedelta(minutes=45)),
            make_draft(not_before=now - timedelta(days=1)),
        )
        assert at.schedule.scheduled_at == instant
        assert early.schedule.scheduled_at == early.schedule.created_at + timedelta(minutes=45)
        assert late.schedule.scheduled_at == late.schedule.created_at

    @store_rule("STORE-ADD-5")
    async def test_due_is_never_after_the_deadline(self, trial: Trial) -> None:
        """`due_at` is never after `deadline_at`."""
        (task,) = await trial.add(make_draft(delay=timedelta(hours=2), timeout=timedelta(hours=1)))
        assert task.schedule.due_at == task.schedule.deadline_at

    @store_rule("STORE-ADD-6")
    async def test_repeating_an_add_returns_the_task_as_it_is_now(self, trial: Trial) -> None:
        """An id that exists with the same params digest is returned as not created, so that an add can be repeated."""
        draft = make_draft()
        (claimed,) = await trial.claimed(draft)
        (again, other) = await trial.store.add([draft, make_draft()])
        assert (again.created, other.created) == (False, True)
        assert again.task == claimed

    @store_rule("STORE-ADD-7")
    async def test_an_id_twice_in_one_batch_is_one_task(self, trial: Trial) -> None:
        """An id that exists with the same params digest is returned as not created, also within one batch."""
        draft = make_draft()
        first, second = await trial.store.add([draft, draft])
        assert (first.created, second.created) == (True, False)
        assert first.task == second.task
        assert len(await trial.claim()) == 1

    @store_rule("STORE-ADD-8")
    async def test_an_id_with_other_params_is_refused(self, trial: Trial) -> None:
        """With another digest it is `DuplicateTask`; all or nothing."""
        (task,) = await trial.add(make_draft(params={"page": 1}))
        new = make_draft()
        with pytest.raises(DuplicateTask):
            await trial.store.add([new, make_draft(id=task.id, params={"page": 2})])
        assert await trial.store.get(new.id) is None
        assert await trial.get(task) == task

    @store_rule("STORE-ADD-9")
    async def test_a_taken_dedup_key_returns_its_holder(self, trial: Trial) -> None:
        """A `dedup_key` that is taken within the same tenant (None is one) returns the existing task, not created."""
        for tenant in (None, "acme"):
            (holder,) = await trial.add(make_draft(dedup_key="invoice-7", tenant=tenant))
            (again,) = await trial.store.add([make_draft(dedup_key="invoice-7", tenant=tenant)])
            assert again.created is False
            assert again.task == holder

    @store_rule("STORE-ADD-10")
    async def test_tenants_do_not_share_dedup_keys(self, trial: Trial) -> None:
        """A `dedup_key` is taken within the same tenant (None is a tenant)."""
        added = await trial.store.add(
            [make_draft(dedup_key="k", tenant=tenant) for tenant in (None, "a", "A", "b", "None", "")]
        )
        assert all(each.created for each in added)

    @store_rule("STORE-ADD-11")
    async def test_a_dedup_key_twice_in_one_batch_is_one_task(self, trial: Trial) -> None:
        """A `dedup_key` that is taken returns the existing task, also within one batch."""
        first, second = await trial.store.add([make_draft(dedup_key="k"), make_draft(dedup_key="k")])
        assert (first.created, second.created) == (True, False)
        assert second.task == first.task

    @store_rule("STORE-ADD-12")
    async def test_a_dedup_key_with_other_params_is_refused(self, trial: Trial) -> None:
        """Taken by other params it is `DedupConflict`; all or nothing."""
        (holder,) = await trial.add(make_draft(dedup_key="k", params={"page": 1}))
        new = make_draft()
        with pytest.raises(DedupConflict) as caught:
            await trial.store.add([new, make_draft(dedup_key="k", params={"page": 2})])
        assert caught.value.holder == holder.id
        assert await trial.store.get(new.id) is None

    @store_rule("STORE-ADD-13")
    async def test_failed_and_cancelled_tasks_free_their_key(self, trial: Trial) -> None:
        """FAILED and CANCELED free the key."""
        for status in (Status.FAILED, Status.CANCELED):
            await trial.ended(status, make_draft(dedup_key=status))
            (again,) = await trial.store.add([make_draft(dedup_key=status, params={"other": True})])
            assert again.created, status
            (held,) = await trial.store.add([make_draft(dedup_key=status, params={"other": True})])
            assert held.task.id == again.task.id, "the key was not taken by its new holder"
            await trial.store.request_cancellation(again.task.id)

    @store_rule("STORE-ADD-14")
    async def test_every_other_status_holds_the_key(self, trial: Trial) -> None:
        """Every other status holds it."""

        async def check(status: Status) -> None:
            (again,) = await trial.store.add([make_draft(dedup_key=status)])
            assert again.created is False, f"a {status} task has lost its dedup key"

        await trial.claimed(make_draft(dedup_key=Status.SUBMITTING))
        await check(Status.SUBMITTING)
        await trial.tracked(make_draft(dedup_key=Status.SUBMITTED))
        await check(Status.SUBMITTED)
        for status in (Status.SUCCEEDED, Status.SUBMIT_UNKNOWN):
            await trial.ended(status, make_draft(dedup_key=status))
            await check(status)
        await trial.timed_out(make_draft(dedup_key=Status.TRACKING_TIMED_OUT, timeout=SHORT))
        await check(Status.TRACKING_TIMED_OUT)

    @store_rule("STORE-ADD-15")
    async def test_purging_the_holder_frees_the_key(self, trial: Trial) -> None:
        """Every other status holds it until purge."""
        await trial.ended(Status.SUCCEEDED, make_draft(dedup_key="k"))
        await trial.store.purge(await trial.time.now() + timedelta(seconds=1))
        (again,) = await trial.store.add([make_draft(dedup_key="k", params={"other": True})])
        assert again.created

    @store_rule("STORE-ADD-16")
    async def test_abandoning_the_holder_frees_the_key(self, trial: Trial) -> None:
        """FAILED frees the key, also by a person's decision."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN, make_draft(dedup_key="k"))
        await trial.store.resolve(doubtful.id, doubtful.version, Abandon())
        (again,) = await trial.store.add([make_draft(dedup_key="k")])
        assert again.created

    @store_rule("STORE-ADD-17")
    async def test_dedup_keys_compare_by_exact_bytes(self, trial: Trial) -> None:
        """Keys compare by exact bytes."""
        keys = (
            "key",
            "Key",
            "KEY",
            "key ",
            " key",
            "k\u00e9y",
            "ke\u0301y",
            "key\u0000",
            "stra\u00dfe",
            "strasse",
        )
        added = await trial.store.add([make_draft(dedup_key=key) for key in keys])
        assert [each.created for each in added] == [True] * len(keys)
        again = await trial.store.add([make_draft(dedup_key=key) for key in keys])
        assert [each.task.id for each in again] == [each.task.id for each in added]

    @store_rule("STORE-ADD-18", kind=Kind.STOCHASTIC)
    async def test_concurrent_adds_of_one_key_make_one_task(self, trial: Trial) -> None:
        """A taken `dedup_key` returns the existing task, also under concurrency."""
        for key in ("a", "b", "c", "d", "e"):
            answers = await asyncio.gather(
                *(trial.store.add([make_draft(), make_draft(dedup_key=key)]) for _ in range(8))
            )
            assert sum(each.created for _, each in answers) == 1
            assert len({each.task.id for _, each in answers}) == 1
            assert all(beside.created for beside, _ in answers)

    @store_rule("STORE-ADD-19")
    async def test_a_second_rank_mode_is_refused(self, trial: Trial) -> None:
        """The store remembers the ranking mode and refuses a different one."""
        await trial.add(make_draft())
        same, different = make_draft(), make_draft(rank=Rank(mode="ageing"))
        with pytest.raises(ConfigurationError):
            await trial.store.add([same, different])
        assert not await trial.store.get_many([same.id, different.id])

    @store_rule("STORE-ADD-20")
    async def test_thousands_are_added_in_one_step(self, trial: Trial) -> None:
        """Every method that changes anything is one atomic step, batched: callers pass sequences of thousands."""
        drafts = [*make_drafts(2999), make_draft(dedup_key="k")]
        added = await trial.add(*drafts)
        assert [each.id for each in added] == [draft.id for draft in drafts]
        with pytest.raises(DedupConflict):
            await trial.store.add([*make_drafts(999), make_draft(dedup_key="k", params={"other": True})])
        assert len(await trial.claim()) == len(drafts)

    @store_rule("STORE-ADD-21")
    async def test_joining_a_transaction_is_unsupported_unless_declared(self, trial: Trial) -> None:
        """What a store cannot promise it says: without `transactional_add`, `add(transaction=)` is `Unsupported`."""
        if Capability.TRANSACTIONAL_ADD in trial.store.capabilities:
            return
        draft = make_draft()
        with pytest.raises(Unsupported):
            await trial.store.add([draft], transaction=object())
        assert await trial.store.get(draft.id) is None

    @store_rule("STORE-ADD-22", requires=(Capability.TRANSACTIONAL_ADD, Hook.TRANSACTION))
    async def test_a_joined_add_commits_and_rolls_back_with_its_transaction(self, trial: Trial) -> None:
        """`transactional_add`: `add` can join a transaction of the caller's, and is there if that commits."""
        assert trial.spec.transaction is not None
        kept, dropped = make_draft(), make_draft()
        async with trial.spec.transaction(trial.store) as transaction:
            (added,) = await trial.store.add([kept], transaction=transaction)
            assert added.created
        assert await trial.get(kept.id) == added.task
        with pytest.raises(LookupError):
            await self._fail_in_a_transaction(trial, dropped.id)
        assert await trial.store.get(dropped.id) is None
        assert [task.id for task in await trial.claim()] == [kept.id]

    @staticmethod
    async def _fail_in_a_transaction(trial: Trial, task_id: str) -> None:
        assert trial.spec.transaction is not None
        async with trial.spec.transaction(trial.store) as transaction:
            await trial.store.add([make_draft(id=task_id)], transaction=transaction)
            raise LookupError

    @store_rule("STORE-ADD-23", requires=(Capability.TRANSACTIONAL_ADD, Hook.TRANSACTION))
    async def test_a_refused_joined_add_leaves_the_transaction_usable(self, trial: Trial) -> None:
        """A joined add never aborts the caller's transaction."""
        assert trial.spec.transaction is not None
        (holder,) = await trial.add(make_draft(dedup_key="k"))
        later = make_draft()
        async with trial.spec.transaction(trial.store) as transaction:
            with pytest.raises(DedupConflict):
                await trial.store.add(
                    [make_draft(dedup_key="k", params={"other": 1})], transaction=transaction
                )
            (again,) = await trial.store.add([make_draft(dedup_key="k")], transaction=transaction)
            await trial.store.add([later], transaction=transaction)
        assert again.task.id == holder.id
        assert await trial.store.get(later.id) is not None
