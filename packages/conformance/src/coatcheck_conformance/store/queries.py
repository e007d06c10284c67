"""S5: claiming tasks for querying."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from coatcheck.events import GaveBack
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, going
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Queries"]


class Queries(Suite):
    """S5: `claim_queries` gives SUBMITTED and RUNNING tasks whose time has come, earliest first."""

    @store_rule("STORE-QUERY-1")
    async def test_a_due_query_is_claimed(self, trial: Trial) -> None:
        """SUBMITTED/RUNNING tasks with `due_at` passed; version + 1, token + 1."""
        (first, second) = await trial.started(*make_drafts(2))
        submitted = await trial.settle(first, accepted())
        running = await trial.settle(second, accepted(status=Status.RUNNING))
        claimed = {task.id: task for task in await trial.claim_queries(worker="worker-9")}
        for before in (submitted, running):
            after = claimed[before.id]
            lease = lease_of(after)
            assert after == evolve(before, version=before.version + 1, token=before.token + 1, lease=lease)
            assert (lease.worker_id, lease.token) == ("worker-9", after.token)
            assert after == await trial.get(before)

    @store_rule("STORE-QUERY-2")
    async def test_nothing_is_queried_before_it_is_due(self, trial: Trial) -> None:
        """Tasks with `due_at` passed, and no others."""
        (task,) = await trial.tracked(delay=SHORT)
        await trial.add()
        assert await trial.claim_queries() == [] or await trial.time.now() >= task.schedule.due_at
        await trial.time.reach(task.schedule.due_at)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-QUERY-3")
    async def test_the_earliest_due_goes_first(self, trial: Trial) -> None:
        """Earliest first."""
        step = SHORT / 20
        tasks = await trial.started(*make_drafts(10))
        order = [3, 7, 1, 9, 0, 5, 8, 2, 6, 4]
        await trial.store.settle(
            [
                Settlement(task=task, event=accepted(f"remote-{n}", delay=n * step))
                for task, n in zip(tasks, order, strict=True)
            ]
        )
        await trial.time.pass_(SHORT)
        claimed = [task.external_task_id for n in range(4) for task in await trial.claim_queries(n + 1)]
        assert claimed == [f"remote-{n}" for n in range(10)]

    @store_rule("STORE-QUERY-4")
    async def test_only_named_handlers_are_queried(self, trial: Trial) -> None:
        """`claim_queries(worker_id, handler_keys, ...)` gives tasks of those handlers."""
        mine, _ = await trial.tracked(make_draft(handler=HANDLER), make_draft(handler=OTHER))
        assert await trial.claim_queries(handlers=[]) == []
        assert [task.id for task in await trial.claim_queries(handlers=[HANDLER, "kit:none"])] == [mine.id]

    @store_rule("STORE-QUERY-5")
    async def test_a_query_gates_rate_is_exact(self, trial: Trial) -> None:
        """Subject to the rate of their query gate."""
        per = SHORT
        await trial.tracked(*(make_draft(query_gate="q") for _ in range(7)))
        await trial.store.set_gate("q", rate=Rate(3, per))
        tasks = await trial.claim_queries()
        while len(tasks) < 7:
            await trial.time.pass_(SHORT / 4)
            tasks += await trial.claim_queries()
        grants = [lease_of(task).granted_at for task in tasks]
        stamps = sorted(at for at in grants if at is not None)
        assert len(stamps) == 7
        assert all(later - earlier >= per for earlier, later in zip(stamps, stamps[3:], strict=False))

    @store_rule("STORE-QUERY-6")
    async def test_a_paused_query_gate_stops_queries(self, trial: Trial) -> None:
        """Subject to the pause of their query gate."""
        (task,) = await trial.tracked(make_draft(query_gate="q"))
        await trial.store.pause_gate("q", reason="429")
        assert await trial.claim_queries() == []
        await trial.store.resume_gate("q")
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-QUERY-7")
    async def test_submit_gates_do_not_stop_queries(self, trial: Trial) -> None:
        """A paused, exhausted or full submit gate stops no query."""
        (task,) = await trial.tracked(make_draft(gates=["p", "r", "c"]))
        await trial.store.pause_gate("p", reason="maintenance")
        await trial.store.set_gate("r", rate=Rate(1, LONG))
        await trial.store.set_gate("c", concurrency=1)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-QUERY-8")
    async def test_a_closed_query_gate_delays_no_other(self, trial: Trial) -> None:
        """The no-blocking promise of S4 holds here too."""
        await trial.tracked(*(make_draft(query_gate="closed") for _ in range(600)))
        (free,) = await trial.tracked(make_draft(query_gate="open"), delay=timedelta(milliseconds=1))
        await trial.time.reach(free.schedule.due_at)
        await trial.store.pause_gate("closed", reason="429")
        await trial.store.set_gate("open", rate=Rate(5, LONG))
        assert [task.id for task in await trial.claim_queries(1)] == [free.id]

    @store_rule("STORE-QUERY-9")
    async def test_an_exhausted_query_rate_delays_no_other(self, trial: Trial) -> None:
        """The no-blocking promise of S4 holds here too, behind a rate that is used up."""
        await trial.tracked(*(make_draft(query_gate="slow") for _ in range(100)))
        await trial.tracked(make_draft())
        await trial.store.set_gate("slow", rate=Rate(1, LONG))
        claimed = await trial.claim_queries()
        assert sorted(task.route.query_gate or "" for task in claimed) == ["", "slow"]

    @store_rule("STORE-QUERY-10")
    async def test_a_lost_query_is_asked_by_another(self, trial: Trial) -> None:
        """A claimed row is invisible to all claims until its lease ends, and visible then."""
        (task,) = await trial.querying(lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        (again,) = await trial.claim_queries(worker="worker-2")
        assert (again.id, again.token, again.progress.lost_leases) == (task.id, task.token + 1, 1)

    @store_rule("STORE-QUERY-11")
    async def test_a_query_given_back_returns_its_grant(self, trial: Trial) -> None:
        """A claim that is given back unused returns its rate grant, and is due again."""
        await trial.tracked(make_draft(query_gate="q"))
        await trial.store.set_gate("q", rate=Rate(1, LONG))
        (task,) = await trial.claim_queries()
        after = await trial.settle(task, GaveBack())
        assert (after.status, after.progress.query_count) == (Status.SUBMITTED, 0)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-QUERY-12")
    async def test_a_query_takes_no_slot(self, trial: Trial) -> None:
        """A task holds one slot of each of its gates while it is active, however often it is queried."""
        await trial.store.set_gate("g", concurrency=2)
        (task,) = await trial.querying(make_draft(gates=["g"]))
        assert await trial.used("g") == 1
        for _ in range(3):
            await trial.settle(task, going())
            (task,) = await trial.claim_queries()
        assert await trial.used("g") == 1

    @store_rule("STORE-QUERY-13")
    async def test_an_answered_query_is_asked_again_when_it_said(self, trial: Trial) -> None:
        """SUBMITTED or RUNNING, a query says still going: due again after its delay."""
        (task,) = await trial.querying()
        before = await trial.time.pass_(SHORT / 4)
        after = await trial.settle(task, going(SHORT))
        assert (after.status, after.progress.query_count) == (Status.RUNNING, 1)
        assert before + SHORT <= after.schedule.due_at <= await trial.time.now() + SHORT
        await trial.time.reach(after.schedule.due_at)
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-QUERY-14")
    async def test_an_overdue_task_is_not_queried(self, trial: Trial) -> None:
        """A task past its deadline never reaches the provider; it needs a decision rather than a turn."""
        late, other = await trial.tracked(make_draft(timeout=SHORT), make_draft())
        await trial.time.reach(late.schedule.deadline_at)
        assert [task.id for task in await trial.claim_queries()] == [other.id]
        assert [task.id for task in await trial.claim_stale()] == [late.id]

    @store_rule("STORE-QUERY-15")
    async def test_a_flagged_task_is_not_queried(self, trial: Trial) -> None:
        """SUBMITTED/RUNNING flagged for cancellation needs a decision rather than a turn."""
        flagged, other = await trial.tracked(*make_drafts(2))
        assert await trial.store.request_cancellation(flagged.id)
        assert [task.id for task in await trial.claim_queries()] == [other.id]
        assert [task.id for task in await trial.claim_stale()] == [flagged.id]

    @store_rule("STORE-QUERY-16")
    async def test_a_query_is_started_by_its_claim_unless_a_rate_granted_it(self, trial: Trial) -> None:
        """A claim that no rate has granted is started with it; a grant is counted near the call, at `start`."""
        await trial.tracked(make_draft(query_gate="rated"), make_draft(query_gate="free"), make_draft())
        await trial.store.set_gate("rated", rate=Rate(9, LONG))
        before = await trial.time.now()
        claimed = await trial.claim_queries()
        after = await trial.time.now()
        rated, *others = sorted(claimed, key=lambda task: task.route.query_gate == "rated", reverse=True)
        assert lease_of(rated).started_at is None
        for task in others:
            started_at = lease_of(task).started_at
            assert started_at is not None
            assert before <= started_at <= after
