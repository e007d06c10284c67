"""S10: a callback came."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from attrs import evolve

from coatcheck.events import Adopt, Proof
from coatcheck.store import MAX_NUDGES, NUDGE_MEMORY, Filter
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, cancel_done, going, params_of, succeeded
from coatcheck_conformance.store.spec import Hook
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Nudges"]

_AT_ONCE = 250


class Nudges(Suite):
    """S10: `nudge` makes tasks of an external id due now, or as soon as the id is known."""

    @store_rule("STORE-NUDGE-1")
    async def test_a_nudged_task_is_due_now(self, trial: Trial) -> None:
        """`nudge(handler_key, external_task_id)`: such a task is due now (a callback arrived); nothing else changes."""
        (task,) = await trial.started()
        task = await trial.settle(task, accepted("remote-1", delay=LONG))
        assert await trial.claim_queries() == []
        assert await trial.store.nudge(HANDLER, "remote-1") == 1
        after = await trial.get(task)
        assert after.schedule.due_at <= await trial.time.now()
        assert after == evolve(task, schedule=evolve(task.schedule, due_at=after.schedule.due_at))
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-NUDGE-2")
    async def test_a_nudge_flags_a_leased_task(self, trial: Trial) -> None:
        """Or flagged if it is leased: nothing else of it changes."""
        (task,) = await trial.querying()
        assert task.external_task_id is not None
        await trial.time.pass_(SHORT / 8)
        assert await trial.store.nudge(HANDLER, task.external_task_id) == 1
        assert await trial.get(task) == evolve(task, nudged=True)

    @store_rule("STORE-NUDGE-3")
    async def test_an_id_that_is_not_known_yet_is_remembered(self, trial: Trial) -> None:
        """Unknown ids are remembered, and applied in the step that saves the id."""
        (task,) = await trial.started()
        assert await trial.store.nudge(HANDLER, "remote-1") == 0
        after = await trial.settle(task, accepted("remote-1", delay=LONG))
        assert after.schedule.due_at <= await trial.time.now()
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-NUDGE-4")
    async def test_ids_belong_to_handlers(self, trial: Trial) -> None:
        """`nudge(handler_key, external_task_id)`: the same id at another handler's provider is another job."""
        one, two, three = await trial.started(
            make_draft(handler=HANDLER), make_draft(handler=OTHER), make_draft(handler=OTHER)
        )
        for task in (one, two):
            await trial.settle(task, accepted("remote-1", delay=LONG))
        assert await trial.store.nudge(OTHER, "remote-1") == 1
        claimed = await trial.claim_queries(handlers=[HANDLER, OTHER])
        assert [task.id for task in claimed] == [two.id]
        assert await trial.store.nudge(HANDLER, "remote-3") == 0
        after = await trial.settle(three, accepted("remote-3", delay=LONG))
        assert after.schedule.due_at > await trial.time.now()

    @store_rule("STORE-NUDGE-5")
    async def test_every_task_of_the_id_is_nudged(self, trial: Trial) -> None:
        """Every such task is due now."""
        tasks = await trial.started(*make_drafts(3))
        for task in tasks:
            await trial.settle(task, accepted("remote-1", delay=LONG))
        assert await trial.store.nudge(HANDLER, "remote-1") == 3
        assert len(await trial.claim_queries()) == 3

    @store_rule("STORE-NUDGE-6", requires=(Hook.CLOCK,))
    async def test_an_unknown_id_is_forgotten_after_minutes(self, trial: Trial) -> None:
        """Unknown ids are remembered for a few minutes."""
        early, late = await trial.claimed(*make_drafts(2), lease=10 * NUDGE_MEMORY)
        early, late = await trial.start(early, late, lease=10 * NUDGE_MEMORY)
        await trial.store.nudge(HANDLER, "remote-1")
        await trial.store.nudge(HANDLER, "remote-2")
        await trial.time.pass_(NUDGE_MEMORY - timedelta(seconds=1))
        after = await trial.settle(early, accepted("remote-1", delay=LONG / 4))
        assert after.schedule.due_at <= await trial.time.now()
        await trial.time.pass_(timedelta(seconds=2))
        after = await trial.settle(late, accepted("remote-2", delay=LONG / 4))
        assert after.schedule.due_at > await trial.time.now()

    @store_rule("STORE-NUDGE-7")
    async def test_a_nudge_is_applied_once(self, trial: Trial) -> None:
        """A callback makes one query due; the next turn is again when the handler says."""
        (task,) = await trial.started()
        await trial.store.nudge(HANDLER, "remote-1")
        await trial.settle(task, accepted("remote-1", delay=SHORT / 8))
        await trial.time.pass_(SHORT / 8)
        (task,) = await trial.claim_queries()
        after = await trial.settle(task, going(LONG))
        assert after.schedule.due_at > await trial.time.now()

    @store_rule("STORE-NUDGE-8")
    async def test_late_proof_and_adoption_save_the_id_too(self, trial: Trial) -> None:
        """Applied in the step that saves the id, whichever step that is."""
        attested, adopted = [await trial.ended(Status.SUBMIT_UNKNOWN) for _ in range(2)]
        await trial.store.nudge(HANDLER, "remote-1")
        await trial.store.nudge(HANDLER, "remote-2")
        proof = Proof(event=accepted("remote-1", delay=LONG))
        await trial.store.attest(attested.id, attested.token, proof)
        await trial.store.resolve(adopted.id, adopted.version, Adopt(query_params=params_of("remote-2")))
        assert {task.id for task in await trial.claim_queries()} == {attested.id, adopted.id}

    @store_rule("STORE-NUDGE-9")
    async def test_an_ended_task_is_not_nudged(self, trial: Trial) -> None:
        """Every such task is due now, and is counted: one that has ended is none of them, and stays as it is."""
        done, flagged = await trial.querying(*make_drafts(2))
        assert await trial.store.request_cancellation(flagged.id)
        done = await trial.settle(done, succeeded())
        canceled = await trial.settle(flagged, cancel_done())
        for task in (done, canceled):
            assert task.external_task_id is not None
            assert await trial.store.nudge(HANDLER, task.external_task_id) == 0
            assert await trial.get(task) == task

    @store_rule("STORE-NUDGE-10")
    async def test_an_id_that_was_replaced_is_found_by_the_new_one(self, trial: Trial) -> None:
        """`QueryResult.next_params` replaces the stored query params: from then on the new id is the job's."""
        (task,) = await trial.started()
        await trial.settle(task, accepted("remote-1"))
        (task,) = await trial.claim_queries()
        after = await trial.settle(task, evolve(going(LONG), next_params=params_of("remote-2", {"page": 2})))
        assert after.query_params == params_of("remote-2", {"page": 2})
        assert await trial.store.find(Filter(external_task_id="remote-1")) == []
        assert await trial.store.find(Filter(external_task_id="remote-2")) == [after]
        assert await trial.store.nudge(HANDLER, "remote-1") == 0
        assert await trial.store.nudge(HANDLER, "remote-2") == 1
        assert [each.id for each in await trial.claim_queries()] == [task.id]

    @store_rule("STORE-NUDGE-11")
    async def test_unknown_ids_are_remembered_in_bounded_number(self, trial: Trial) -> None:
        """Unknown ids are remembered for a few minutes, in bounded number: the oldest go first."""
        oldest, latest = await trial.started(*make_drafts(2))
        await trial.store.nudge(HANDLER, "remote-0")
        await trial.time.pass_(SHORT / 8)
        for first in range(1, MAX_NUDGES + 1, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, MAX_NUDGES + 1))
            await asyncio.gather(*(trial.store.nudge(HANDLER, f"remote-{number}") for number in numbers))
        after = await trial.settle(oldest, accepted("remote-0", delay=LONG))
        assert after.schedule.due_at > await trial.time.now()
        after = await trial.settle(latest, accepted(f"remote-{MAX_NUDGES}", delay=LONG))
        assert after.schedule.due_at <= await trial.time.now()
