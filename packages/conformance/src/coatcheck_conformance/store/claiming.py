"""S4: claiming tasks for submission."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.store import Claims
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, deferred
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import WORKER, Trial, lease_of, store_rule

__all__ = ["Claiming"]

_MILLISECOND = timedelta(milliseconds=1)


class Claiming(Suite):
    """S4: `claim_submissions` gives due tasks of the named handlers to one worker, for a time."""

    @store_rule("STORE-CLAIM-1")
    async def test_a_claim_raises_version_and_token_and_gives_a_lease(self, trial: Trial) -> None:
        """Each becomes SUBMITTING, version + 1, token + 1, with a lease (token and a random nonce)."""
        (added,) = await trial.add()
        before = await trial.time.now()
        (task,) = await trial.claim(worker="worker-9", lease=LONG)
        after = await trial.time.now()
        lease = lease_of(task)
        assert (task.status, task.version, task.token) == (Status.SUBMITTING, 1, added.token + 1)
        assert (lease.worker_id, lease.token) == ("worker-9", task.token)
        assert before + LONG <= lease.until <= after + LONG
        assert lease.nonce
        assert lease.started_at is None
        assert task.holds_slots
        assert task == await trial.get(task)

    @store_rule("STORE-CLAIM-2")
    async def test_nonces_never_repeat(self, trial: Trial) -> None:
        """A lease has a random nonce, which tells apart two holds of the same token."""
        tasks = await trial.claimed(*make_drafts(50))
        nonces = {lease_of(task).nonce for task in tasks}
        await trial.settle(tasks[0], deferred())
        nonces |= {lease_of(task).nonce for task in await trial.claim()}
        assert len(nonces) == len(tasks) + 1

    @store_rule("STORE-CLAIM-3")
    async def test_only_named_handlers_are_claimed_for(self, trial: Trial) -> None:
        """A claim gives tasks of those handlers, and of no others."""
        mine, _ = await trial.add(make_draft(handler=HANDLER), make_draft(handler=OTHER, priority=9))
        assert await trial.claim(handlers=[]) == []
        assert await trial.claim(handlers=["kit:none", HANDLER.upper()]) == []
        assert [task.id for task in await trial.claim(handlers=["kit:none", HANDLER])] == [mine.id]

    @store_rule("STORE-CLAIM-4")
    async def test_nothing_is_claimed_before_it_is_due(self, trial: Trial) -> None:
        """A claim gives due tasks."""
        (task,) = await trial.add(make_draft(delay=SHORT))
        due_at = task.schedule.due_at
        claimed: list[Task] = []
        for early in (SHORT, SHORT / 2, _MILLISECOND):
            await trial.time.reach(due_at - early)
            claimed += await trial.claim()
            assert not claimed or await trial.time.now() >= due_at
        await trial.time.reach(due_at)
        claimed += await trial.claim()
        assert [each.id for each in claimed] == [task.id]

    @store_rule("STORE-CLAIM-5")
    async def test_a_claim_never_exceeds_its_limit(self, trial: Trial) -> None:
        """`claim_submissions(worker_id, handler_keys, limit, lease)` gives at most `limit` tasks."""
        await trial.add(*make_drafts(10), *make_drafts(10, gates=["g"]))
        seen: set[str] = set()
        for _ in range(40):
            batch = await trial.store.claim_submissions(WORKER, [HANDLER], 3, LONG)
            assert len(batch.tasks) <= 3
            assert not seen & {task.id for task in batch.tasks}
            seen |= {task.id for task in batch.tasks}
        assert len(seen) == 20

    @store_rule("STORE-CLAIM-6")
    async def test_a_task_past_its_deadline_is_not_claimed(self, trial: Trial) -> None:
        """Not past their deadline: a task past it never reaches the provider."""
        (task, other) = await trial.add(make_draft(timeout=SHORT, priority=1), make_draft())
        await trial.time.reach(task.schedule.deadline_at)
        assert [each.id for each in await trial.claim()] == [other.id]

    @store_rule("STORE-CLAIM-7")
    async def test_a_cancelled_task_is_not_claimed(self, trial: Trial) -> None:
        """Not flagged for cancellation."""
        task, other = await trial.add(make_draft(priority=1), make_draft())
        assert await trial.store.request_cancellation(task.id)
        assert [each.id for each in await trial.claim()] == [other.id]

    @store_rule("STORE-CLAIM-8")
    async def test_a_claimed_row_is_invisible_to_all_claims(self, trial: Trial) -> None:
        """A claimed row is invisible to all claims until its lease ends."""
        (tracked,) = await trial.querying()
        started, _ = await trial.start(*await trial.claimed(*make_drafts(2)))
        await trial.claimed(make_draft())
        for task in (tracked, started):
            assert await trial.store.request_cancellation(task.id)
        assert await trial.claim() == []
        assert await trial.claim_queries() == []
        assert await trial.claim_stale() == []

    @store_rule("STORE-CLAIM-9")
    async def test_every_claim_raises_the_token(self, trial: Trial) -> None:
        """Every claim (S4-S6) raises version and token."""
        (task,) = await trial.claimed(make_draft())
        for count in range(2, 6):
            await trial.settle(task, deferred())
            (task,) = await trial.claim()
            assert (task.token, task.version) == (count, 2 * count - 1)
        (task,) = await trial.start(task)
        await trial.settle(task, accepted())
        (task,) = await trial.claim_queries(lease=SHORT)
        assert (task.token, task.version) == (6, 11)
        await trial.time.reach(lease_of(task).until)
        (task,) = await trial.claim_queries()
        assert (task.token, task.version) == (7, 12)

    @store_rule("STORE-CLAIM-11")
    async def test_no_rate_no_grant(self, trial: Trial) -> None:
        """`granted_at`: when a rate-limited gate granted this turn; None if no rate was involved."""
        await trial.store.set_gate("c", concurrency=5)
        (task,) = await trial.claimed(make_draft(gates=["c", "undefined"]))
        assert lease_of(task).granted_at is None

    @store_rule("STORE-CLAIM-12")
    async def test_a_repeated_claim_finds_nothing_and_says_so(self, trial: Trial) -> None:
        """A batch says "again" if it is empty for a passing reason only, and not if there is nothing to claim."""

        async def require_nothing() -> None:
            store = trial.store
            for claim in (store.claim_submissions, store.claim_queries, store.claim_stale):
                assert await claim(WORKER, [HANDLER], 10, LONG) == Claims()

        await require_nothing()
        await trial.claimed(make_draft(), make_draft(gates=["a"]))
        await trial.add(make_draft(delay=timedelta(minutes=5)), make_draft(handler=OTHER))
        await require_nothing()
