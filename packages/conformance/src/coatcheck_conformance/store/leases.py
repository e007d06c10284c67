"""S8: renewing leases."""

from __future__ import annotations

from attrs import evolve

from coatcheck.store import Hold
from coatcheck.task import Task, new_task_id
from coatcheck_conformance.drafts import make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, deferred, succeeded
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Leases"]


def _hold(task: Task, *, token: int | None = None, nonce: str | None = None) -> Hold:
    lease = lease_of(task)
    shown = evolve(
        lease,
        token=lease.token if token is None else token,
        nonce=lease.nonce if nonce is None else nonce,
    )
    return Hold(task_id=task.id, lease=shown)


class Leases(Suite):
    """S8: `renew` extends only what is still held, and tells what was lost and what was flagged."""

    @store_rule("STORE-LEASE-1")
    async def test_renewing_extends_the_lease_and_nothing_else(self, trial: Trial) -> None:
        """`renew` extends only what is still held; version unchanged."""
        (task,) = await trial.claimed(*make_drafts(1), lease=10 * SHORT)
        before = await trial.time.now()
        (answer,) = await trial.store.renew([_hold(task)], LONG)
        assert (answer.task_id, answer.held, answer.cancellation_requested) == (task.id, True, False)
        assert answer.until is not None
        assert before + LONG <= answer.until <= await trial.time.now() + LONG
        now = await trial.get(task)
        assert now == evolve(task, lease=evolve(lease_of(task), until=answer.until))

    @store_rule("STORE-LEASE-2")
    async def test_a_renewed_lease_outlives_its_first_end(self, trial: Trial) -> None:
        """A renewed lease is live until its new end: nobody else gets the task, and its holder may settle."""
        (task,) = await trial.started(*make_drafts(1), lease=SHORT)
        assert await trial.renew(task)
        await trial.time.reach(lease_of(task).until)
        assert await trial.claim_stale() == []
        await trial.settle(task, succeeded())

    @store_rule("STORE-LEASE-3")
    async def test_a_lease_is_never_shortened(self, trial: Trial) -> None:
        """`renew` extends: a shorter lease leaves the longer one as it is."""
        (task,) = await trial.claimed(*make_drafts(1), lease=LONG)
        (answer,) = await trial.store.renew([_hold(task)], SHORT)
        assert answer.held
        assert answer.until == lease_of(task).until

    @store_rule("STORE-LEASE-4")
    async def test_an_expired_lease_is_lost_though_nobody_took_the_task(self, trial: Trial) -> None:
        """An expired lease is lost, as in S7."""
        (task,) = await trial.claimed(*make_drafts(1), lease=SHORT)
        await trial.time.reach(lease_of(task).until)
        (answer,) = await trial.store.renew([_hold(task)], LONG)
        assert (answer.held, answer.until) == (False, None)
        assert lease_of(await trial.get(task)).until == lease_of(task).until

    @store_rule("STORE-LEASE-5")
    async def test_another_token_or_nonce_renews_nothing(self, trial: Trial) -> None:
        """Only who shows the same token and nonce in time may write."""
        (task,) = await trial.claimed(*make_drafts(1), lease=LONG)
        answers = await trial.store.renew(
            [_hold(task, nonce="guessed"), _hold(task, token=task.token + 1), _hold(task, token=0)], 2 * LONG
        )
        assert [answer.held for answer in answers] == [False, False, False]
        assert await trial.get(task) == task

    @store_rule("STORE-LEASE-6")
    async def test_a_settled_lease_is_lost(self, trial: Trial) -> None:
        """After a settle the lease is gone, also when somebody else has claimed the task since (ABA)."""
        (task,) = await trial.claimed(*make_drafts(1))
        await trial.settle(task, deferred())
        assert not await trial.renew(task)
        (again,) = await trial.claim()
        assert not await trial.renew(task)
        assert await trial.get(task) == again

    @store_rule("STORE-LEASE-7")
    async def test_each_renewal_is_answered_in_order(self, trial: Trial) -> None:
        """`renew(leases, lease)` returns, in order, what was lost and what was flagged."""
        lost, flagged, held = await trial.started(*make_drafts(3))
        await trial.settle(lost, accepted())
        assert await trial.store.request_cancellation(flagged.id)
        missing = Hold(task_id=new_task_id(), lease=lease_of(lost))
        answers = await trial.store.renew([_hold(held), missing, _hold(lost), _hold(flagged)], LONG)
        assert [(each.task_id, each.held, each.cancellation_requested) for each in answers] == [
            (held.id, True, False),
            (missing.task_id, False, False),
            (lost.id, False, False),
            (flagged.id, True, True),
        ]

    @store_rule("STORE-LEASE-8")
    async def test_leases_of_queries_are_renewed_too(self, trial: Trial) -> None:
        """Every claim (S4-S6) gives a lease, and every lease can be renewed."""
        (task,) = await trial.querying(*make_drafts(1), lease=SHORT)
        assert await trial.renew(task)
        await trial.time.reach(lease_of(task).until)
        assert await trial.claim_queries() == []
        await trial.settle(task, succeeded())
