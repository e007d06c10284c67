"""S1, S15, S16: the clock, what is declared, opening and closing, and what outlives them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest

from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Capability, Filter
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, succeeded
from coatcheck_conformance.store.processes import CRASHED, crash, crew
from coatcheck_conformance.store.skew import client_clock_off
from coatcheck_conformance.store.spec import Hook, StoreSpec
from coatcheck_conformance.store.time import LONG
from coatcheck_conformance.store.trial import Trial, lease_of, opening_rule, store_rule

__all__ = ["Clocks", "Opening"]

_OFF = timedelta(minutes=10)
_SPAN = timedelta(minutes=5)
"""Longer than a rule takes, shorter than a clock is off."""


class Clocks(Suite):
    """S1: the store's clock is the only one."""

    @store_rule("STORE-CLOCK-1")
    async def test_time_is_aware_and_in_whole_milliseconds(self, trial: Trial) -> None:
        """`now()`: the store's clock. Times are aware UTC `datetime`; stores persist whole milliseconds."""
        now = await trial.store.now()
        assert now.utcoffset() == timedelta()
        assert now.microsecond % 1000 == 0

    @store_rule("STORE-CLOCK-2")
    async def test_time_goes_on(self, trial: Trial) -> None:
        """`now()`: the store's clock goes forward."""
        times = [await trial.store.now()]
        for _ in range(3):
            await trial.time.pass_(timedelta(milliseconds=3))
            times.append(await trial.store.now())
        assert times == sorted(times)
        assert times[0] < times[-1]

    @store_rule("STORE-CLOCK-3")
    async def test_every_time_in_a_task_is_the_stores(self, trial: Trial) -> None:
        """All time stamps are of the store's clock, never the caller's: aware, and in whole milliseconds."""
        before = await trial.time.now()
        (task,) = await trial.start(*await trial.querying())
        assert await trial.store.request_cancellation(task.id)
        ended = await trial.settle(task, succeeded())
        after = await trial.time.now()
        stamps = [
            *_stamps(ended), *_stamps(task),
            ended.progress.queried_at, ended.outcome.finished_at, ended.cancellation_requested_at,
        ]  # fmt: skip
        for stamp in stamps:
            assert stamp is not None
            assert stamp.utcoffset() == timedelta()
            assert stamp.microsecond % 1000 == 0
            assert before <= stamp <= after

    @store_rule("STORE-CLOCK-4", requires=(Hook.OWN_CLOCK,))
    async def test_a_client_clock_that_is_off_changes_nothing(self, trial: Trial) -> None:
        """All time comparisons use the store's clock, never the caller's: one ten minutes off changes nothing."""
        await trial.store.set_gate("rated", rate=Rate(1, _SPAN))
        await trial.store.pause_gate("paused", reason="429", duration=_SPAN)
        (held,) = await trial.started(lease=_SPAN)
        await trial.claimed(make_draft(gates=["rated"]))
        await trial.tracked(delay=_SPAN)
        await trial.add(
            make_draft(delay=_SPAN), make_draft(timeout=2 * _SPAN, delay=_SPAN),
            make_draft(gates=["rated"]), make_draft(gates=["paused"]),
        )  # fmt: skip
        begun = await trial.time.now()
        for off in (_OFF, -_OFF):
            with client_clock_off(off):
                assert begun <= await trial.time.now() < begun + _SPAN
                assert [await trial.claim(), await trial.claim_queries(), await trial.claim_stale()] == [
                    []
                ] * 3
                (task,) = await trial.started(lease=_SPAN)
                (held,) = await trial.start(held, lease=_SPAN)
                after = await trial.settle(task, succeeded())
                assert await trial.store.purge(begun) == 0
            assert all(begun <= stamp < begun + _SPAN for stamp in (*_stamps(task), *_stamps(after)))
            assert lease_of(held).until < begun + 2 * _SPAN


def _stamps(task: Task) -> list[datetime]:
    """Return when what has been done to a task was done."""
    found = [
        task.schedule.created_at, task.schedule.scheduled_at, task.progress.accepted_at,
        *(entry.at for entry in task.history),
    ]  # fmt: skip
    if task.attempt is not None:
        found += [task.attempt.started_at, task.attempt.first_started_at]
    if task.lease is not None:
        found += [task.lease.started_at]
    return [stamp for stamp in found if stamp is not None]


class Opening(Suite):
    """S15, S16: what a store declares, and its life as an async context manager."""

    @opening_rule("STORE-OPEN-1")
    def test_capabilities_are_known_without_opening(self, store_spec: StoreSpec) -> None:
        """`capabilities`: what a store cannot promise it says here. Known without I/O."""
        store = store_spec.create()
        assert isinstance(store.capabilities, frozenset)
        assert all(isinstance(each, Capability) for each in store.capabilities)

    @opening_rule("STORE-OPEN-2")
    def test_the_url_is_free_of_secrets(self, store_spec: StoreSpec) -> None:
        """`url`: where it is, for people: free of secrets."""
        store = store_spec.create()
        password = urlsplit(store_spec.url or "").password
        assert store.url
        if password:
            assert password not in store.url
            assert password not in repr(store)

    @store_rule("STORE-OPEN-3")
    async def test_opening_an_open_store_is_an_error(self, trial: Trial) -> None:
        """Opening an open store is an error, and does it no harm."""
        (task,) = await trial.add()
        with pytest.raises(Exception, match=r"."):
            await trial.store.open()
        assert await trial.get(task) == task

    @opening_rule("STORE-OPEN-4")
    def test_closing_twice_is_fine_and_a_closed_store_opens_again(self, store_spec: StoreSpec) -> None:
        """Closing twice is fine; the same object can be opened again, also by another event loop."""
        store = store_spec.create()

        async def open_and_close() -> None:
            await store.setup()
            async with store:
                assert (await store.add([make_draft()]))[0].created
            await store.close()

        for _ in range(2):
            asyncio.run(open_and_close())

    @store_rule("STORE-OPEN-5")
    async def test_setup_may_be_repeated(self, trial: Trial) -> None:
        """`setup()` creates or migrates the schema; does nothing if it is there."""
        (task,) = await trial.add()
        await trial.store.setup()
        assert await trial.get(task) == task

    @store_rule("STORE-DURABLE-1", requires=(Capability.DURABLE,))
    async def test_everything_is_there_after_reopening(self, trial: Trial) -> None:
        """`durable`: an acknowledged step survives: tasks, leases, gates and what they count, keys, flags."""
        await trial.store.set_gate("g", concurrency=2, rate=Rate(2, LONG))
        await trial.store.pause_gate("p", reason="maintenance", who="ada")
        (leased,) = await trial.started(make_draft(gates=["g"], dedup_key="k"))
        (early,) = await trial.started()
        (pending,) = await trial.add(make_draft(gates=["p"]))
        ended = await trial.ended(Status.SUCCEEDED, make_draft(gates=["g"]))
        await trial.store.request_cancellation(leased.id)
        leased = await trial.get(leased)
        await trial.store.nudge(leased.route.handler_key, "remote-1")
        gates = await trial.store.gates()
        await trial.store.close()

        store = await trial.another()
        assert await store.get_many([leased.id, pending.id, ended.id]) == {
            task.id: task for task in (leased, pending, ended)
        }
        assert await store.gates() == gates
        (again,) = await store.add([make_draft(dedup_key="k")])
        assert again.task == leased
        assert not (await store.claim_submissions("w", ["kit:one"], 10, LONG)).tasks
        (after,) = await store.settle([Settlement(task=early, event=accepted("remote-1", delay=LONG))])
        assert isinstance(after, Task)
        assert after.schedule.due_at <= await store.now()

    @store_rule("STORE-DURABLE-2", requires=(Capability.DURABLE,))
    async def test_the_work_goes_on_after_reopening(self, trial: Trial) -> None:
        """`durable`: whoever held a lease may settle it, and nobody else, as if nothing had happened."""
        await trial.store.set_gate("g", concurrency=1)
        (task,) = await trial.started(make_draft(gates=["g"]))
        await trial.add(*make_drafts(2, gates=["g"]))
        assert await trial.claim() == []
        await trial.store.close()
        reopened = Trial(trial.spec, await trial.another(), trial.time, trial.stack)
        assert await reopened.claim() == []
        await reopened.settle(task, succeeded())
        assert len(await reopened.claim()) == 1

    @store_rule("STORE-DURABLE-3", requires=(Capability.DURABLE,))
    async def test_what_was_acknowledged_survives_a_crash(self, trial: Trial) -> None:
        """`durable`: an acknowledged step survives a crash of every process that uses the store."""
        await trial.store.close()
        async with crew(trial.spec.portable(), crash, 1) as processes:
            processes.go()
            assert await processes.exit_codes() == [CRASHED]
        store = await trial.another()
        tasks = await store.find(Filter())
        statuses = [task.status for task in tasks]
        assert sorted(statuses) == sorted(
            [Status.PENDING_SUBMIT, Status.PENDING_SUBMIT, Status.SUBMITTING, Status.SUCCEEDED]
        )
        assert {task.identity.dedup_key for task in tasks} == {f"key-{n}" for n in range(4)}
        assert [usage.gate.concurrency for usage in await store.gates()] == [3]
