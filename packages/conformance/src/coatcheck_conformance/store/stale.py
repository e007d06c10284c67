"""S6: tasks that need a decision rather than a turn."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.events import Overdue
from coatcheck.gates import Rate
from coatcheck.store import STALE_GRACE
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import cancel_done, unknown
from coatcheck_conformance.store.spec import Hook
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import WORKER, Trial, lease_of, store_rule

__all__ = ["Stale"]

_SECOND = timedelta(seconds=1)


class Stale(Suite):
    """S6: `claim_stale` finds what is overdue, flagged or orphaned, whatever the gates, and never with a live lease."""

    @store_rule("STORE-STALE-1")
    async def test_overdue_tasks_are_for_any_worker(self, trial: Trial) -> None:
        """Any non-terminal status past its deadline (from any worker, whatever its handlers)."""
        (tracked,) = await trial.tracked(make_draft(timeout=SHORT))
        (pending,) = await trial.add(make_draft(timeout=SHORT))
        await trial.time.reach(pending.schedule.deadline_at)
        stale = await trial.claim_stale(handlers=[OTHER])
        assert {task.id for task in stale} == {tracked.id, pending.id}
        for task in stale:
            before = tracked if task.id == tracked.id else pending
            assert (task.status, task.version, task.token) == (
                before.status,
                before.version + 1,
                before.token + 1,
            )
            assert lease_of(task).token == task.token
            assert (await trial.settle(task, Overdue())).status is Status.TRACKING_TIMED_OUT
        assert await trial.claim_stale() == []

    @store_rule("STORE-STALE-2")
    async def test_even_a_worker_without_handlers_times_out(self, trial: Trial) -> None:
        """From any worker, whatever its handlers: none at all will do."""
        (task,) = await trial.add(make_draft(timeout=SHORT, delay=LONG))
        await trial.time.reach(task.schedule.deadline_at)
        assert [each.id for each in await trial.claim_stale(handlers=[])] == [task.id]

    @store_rule("STORE-STALE-3")
    async def test_gates_do_not_matter(self, trial: Trial) -> None:
        """Whatever the gates."""
        await trial.store.set_gate("g", concurrency=1, rate=Rate(1, LONG))
        (flagged,) = await trial.tracked(make_draft(gates=["g"], query_gate="q"))
        (overdue,) = await trial.add(make_draft(gates=["g"], query_gate="q", timeout=SHORT))
        await trial.store.set_gate("q", rate=Rate(1, LONG))
        for gate in ("g", "q"):
            await trial.store.pause_gate(gate, reason="maintenance")
        assert await trial.store.request_cancellation(flagged.id)
        await trial.time.reach(overdue.schedule.deadline_at)
        assert {task.id for task in await trial.claim_stale()} == {flagged.id, overdue.id}
        assert await trial.used("g") == 1

    @store_rule("STORE-STALE-4")
    async def test_a_live_lease_is_left_alone(self, trial: Trial) -> None:
        """Never with a live lease."""
        (overdue,) = await trial.started(make_draft(timeout=SHORT))
        (flagged,) = await trial.querying()
        assert await trial.store.request_cancellation(flagged.id)
        await trial.time.reach(overdue.schedule.deadline_at)
        assert await trial.claim_stale() == []

    @store_rule("STORE-STALE-5")
    async def test_flagged_tasks_go_to_workers_with_the_handler(self, trial: Trial) -> None:
        """SUBMITTED/RUNNING flagged for cancellation: workers that have the handler first."""
        (task,) = await trial.tracked(make_draft(handler=OTHER), delay=LONG)
        assert await trial.store.request_cancellation(task.id)
        assert await trial.claim_stale(handlers=[HANDLER]) == []
        assert [each.id for each in await trial.claim_stale(handlers=[HANDLER, OTHER])] == [task.id]

    @store_rule("STORE-STALE-6")
    async def test_orphaned_submissions_go_to_workers_with_the_handler(self, trial: Trial) -> None:
        """SUBMITTING whose lease ended: workers that have the handler first."""
        (task,) = await trial.started(make_draft(handler=OTHER), lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        assert await trial.claim_stale(handlers=[HANDLER]) == []
        (stale,) = await trial.claim_stale(handlers=[OTHER], worker="worker-2")
        assert (stale.status, stale.version, stale.token) == (
            Status.SUBMITTING,
            task.version + 1,
            task.token + 1,
        )
        assert (stale.progress.lost_leases, lease_of(stale).worker_id) == (1, "worker-2")
        assert stale.submission_started
        assert (await trial.settle(stale, unknown())).status is Status.SUBMIT_UNKNOWN

    @store_rule("STORE-STALE-7", requires=(Hook.CLOCK,))
    async def test_after_a_grace_period_any_worker_will_do(self, trial: Trial) -> None:
        """Any worker after a grace period, who then records the remote cancel as unsupported, or SUBMIT_UNKNOWN."""
        (flagged,) = await trial.tracked(make_draft(handler=OTHER))
        (orphan,) = await trial.started(make_draft(handler=OTHER), lease=SHORT)
        await trial.time.reach(lease_of(orphan).until)
        assert await trial.store.request_cancellation(flagged.id)
        await trial.time.pass_(STALE_GRACE - _SECOND)
        assert await trial.claim_stale() == []
        await trial.time.pass_(2 * _SECOND)
        stale = {task.id: task for task in await trial.claim_stale()}
        assert stale.keys() == {flagged.id, orphan.id}
        assert (await trial.settle(stale[flagged.id], cancel_done())).status is Status.CANCELED
        assert (await trial.settle(stale[orphan.id], unknown())).status is Status.SUBMIT_UNKNOWN

    @store_rule("STORE-STALE-8")
    async def test_a_claim_that_never_started_goes_back_by_itself(self, trial: Trial) -> None:
        """What expired and never started goes back by itself: slots and rate grants returned, attempts unchanged."""
        await trial.store.set_gate("g", concurrency=1, rate=Rate(1, LONG))
        (task,) = await trial.claimed(make_draft(gates=["g"]), lease=SHORT)
        assert await trial.claim() == []
        await trial.time.reach(lease_of(task).until)
        assert await trial.claim_stale(worker="worker-2") == []
        (again,) = await trial.claim(worker="worker-2")
        assert again.id == task.id
        assert (again.progress.submit_attempts, again.attempt) == (0, None)
        assert again.token > task.token
        assert await trial.used("g") == 1

    @store_rule("STORE-STALE-9")
    async def test_a_flagged_claim_that_never_started_is_cancelled_by_itself(self, trial: Trial) -> None:
        """A task flagged for cancellation that would become PENDING_SUBMIT becomes CANCELED."""
        (task,) = await trial.claimed(make_draft(gates=["g"]), lease=SHORT)
        await trial.store.set_gate("g", concurrency=5)
        assert await trial.store.request_cancellation(task.id)
        await trial.time.reach(lease_of(task).until)
        for each in await trial.claim_stale():
            await trial.settle(each, cancel_done())
        assert (await trial.get(task)).status is Status.CANCELED
        assert await trial.claim() == []
        assert await trial.used("g") == 0

    @store_rule("STORE-STALE-10")
    async def test_a_claim_that_never_started_can_be_timed_out(self, trial: Trial) -> None:
        """Any non-terminal status past its deadline: also a claim whose worker died before it was started."""
        (task,) = await trial.claimed(make_draft(timeout=SHORT / 2), lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        assert await trial.claim() == []
        for _ in range(2):
            for each in await trial.claim_stale():
                await trial.settle(each, Overdue())
        assert (await trial.get(task)).status is Status.TRACKING_TIMED_OUT

    @store_rule("STORE-STALE-11")
    async def test_deaths_in_a_row_are_counted(self, trial: Trial) -> None:
        """A task that kills its workers is stopped: the store counts leases that ended without an outcome."""
        (task,) = await trial.started(lease=SHORT)
        for deaths in range(1, 4):
            await trial.time.reach(lease_of(task).until)
            (task,) = await trial.claim_stale(1, lease=SHORT / 4)
            assert task.progress.lost_leases == deaths

    @store_rule("STORE-STALE-12")
    async def test_thousands_of_orphans_are_decided_batch_by_batch(self, trial: Trial) -> None:
        """Tasks that need a decision are found in batches of at most `limit`, until none is left."""
        tasks = await trial.add(*(make_draft(handler="kit:gone", timeout=SHORT) for _ in range(2000)))
        await trial.time.reach(tasks[-1].schedule.deadline_at)
        seen: set[str] = set()
        for _ in range(100):
            batch = await trial.store.claim_stale(WORKER, [HANDLER], 300, LONG)
            assert len(batch.tasks) <= 300
            assert not seen & {task.id for task in batch.tasks}
            seen |= {task.id for task in batch.tasks}
            if not batch.tasks and not batch.again:
                break
        assert len(seen) == len(tasks)

    @store_rule("STORE-STALE-13")
    async def test_what_is_not_ours_yet_hides_nothing(self, trial: Trial) -> None:
        """Workers that have the handler go first: what waits for others delays nobody, however much it is."""
        flagged = await trial.tracked(*make_drafts(300, handler=OTHER))
        (ours,) = await trial.tracked(make_draft(handler=HANDLER))
        for task in (*flagged, ours):
            assert await trial.store.request_cancellation(task.id)
        assert [task.id for task in await trial.claim_stale(5)] == [ours.id]
