"""S17: declaring that the provider call is about to be made."""

from __future__ import annotations

from attrs import evolve

from coatcheck.events import CancelSeen, GaveBack, Overdue
from coatcheck.gates import Rate
from coatcheck.store import STALE_GRANT, Refusal, Refused, Started
from coatcheck.task import Status, new_task_id
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import deferred, succeeded, unknown
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["Starting"]


class Starting(Suite):
    """S17: `start` lets a call through if and only if the claim still stands and the task is still wanted."""

    @store_rule("STORE-START-1")
    async def test_start_stamps_extends_and_keeps_the_version(self, trial: Trial) -> None:
        """Extends the lease; stamps `started_at`; versions stay."""
        (task,) = await trial.claimed(make_draft(), lease=10 * SHORT)
        before = await trial.time.pass_(SHORT / 8)
        (started,) = await trial.start(task, lease=LONG)
        after = await trial.time.now()
        lease = lease_of(started)
        assert (started.version, started.token, started.status) == (task.version, task.token, task.status)
        assert lease.started_at is not None
        assert before <= lease.started_at <= after
        assert before + LONG <= lease.until <= after + LONG
        assert started.attempt is not None
        assert (started.attempt.token, started.attempt.open) == (task.token, True)
        assert started.progress.submit_attempts == 1
        assert started == await trial.get(task)

    @store_rule("STORE-START-2")
    async def test_start_is_idempotent_per_token(self, trial: Trial) -> None:
        """Idempotent per token."""
        (task,) = await trial.claimed(make_draft())
        (first,) = await trial.start(task)
        await trial.time.pass_(SHORT / 8)
        (again,) = await trial.start(task)
        (once_more,) = await trial.start(first)
        for each in (again, once_more):
            assert each.progress.submit_attempts == 1
            assert each.attempt == first.attempt
            assert lease_of(each).started_at == lease_of(first).started_at

    @store_rule("STORE-START-3")
    async def test_a_lost_lease_is_refused(self, trial: Trial) -> None:
        """Refused if the lease is lost: expired, settled, or of another token or nonce."""
        (expired,) = await trial.claimed(make_draft(), lease=SHORT)
        await trial.time.reach(lease_of(expired).until)
        settled, good = await trial.claimed_again(await trial.add(*make_drafts(2)))
        await trial.settle(settled, deferred(LONG))
        lease = lease_of(good)
        lost = [
            expired,
            settled,
            evolve(good, lease=evolve(lease, nonce="guessed")),
            evolve(good, lease=evolve(lease, token=lease.token + 1)),
            evolve(good, id=new_task_id()),
        ]
        answers = await trial.store.start(lost, LONG)
        assert [isinstance(each, Refused) and each.reason for each in answers] == [Refusal.LEASE_LOST] * len(
            lost
        )
        assert await trial.get(good) == good

    @store_rule("STORE-START-4")
    async def test_a_requested_cancellation_is_reported(self, trial: Trial) -> None:
        """Reports cancellation; the claim still stands and is to be settled so."""
        (task,) = await trial.claimed(make_draft())
        assert await trial.store.request_cancellation(task.id)
        (answer,) = await trial.store.start([task], LONG)
        assert isinstance(answer, Refused)
        assert answer.reason is Refusal.CANCELED
        after = await trial.settle(task, CancelSeen())
        assert (after.status, after.progress.submit_attempts) == (Status.CANCELED, 0)

    @store_rule("STORE-START-5")
    async def test_a_passed_deadline_is_reported(self, trial: Trial) -> None:
        """Reports the deadline: a task past it never reaches the provider; the claim still stands."""
        (task,) = await trial.claimed(make_draft(timeout=SHORT))
        await trial.time.reach(task.schedule.deadline_at)
        (answer,) = await trial.store.start([task], LONG)
        assert isinstance(answer, Refused)
        assert answer.reason is Refusal.OVERDUE
        after = await trial.settle(task, Overdue())
        assert (after.status, after.progress.submit_attempts) == (Status.TRACKING_TIMED_OUT, 0)

    @store_rule("STORE-START-6")
    async def test_each_claim_is_answered_in_order(self, trial: Trial) -> None:
        """`start(claims) -> list[Started | Refused]`: batched, in order."""
        tasks = await trial.claimed(*make_drafts(6))
        for task in tasks[::2]:
            assert await trial.store.request_cancellation(task.id)
        answers = await trial.store.start(tasks, LONG)
        assert [answer.task.id for answer in answers] == [task.id for task in tasks]
        assert [type(answer) for answer in answers] == [Refused, Started] * 3
        assert await trial.store.start([], LONG) == []

    @store_rule("STORE-START-7")
    async def test_queries_are_started_too(self, trial: Trial) -> None:
        """Right before the calls: queries are declared like submissions, and are no attempt to submit."""
        (task,) = await trial.querying()
        (started,) = await trial.start(task)
        assert lease_of(started).started_at is not None
        assert (started.attempt, started.progress.submit_attempts) == (task.attempt, 1)
        await trial.settle(started, succeeded())

    @store_rule("STORE-START-8")
    async def test_an_aged_grant_is_reported_and_returns_when_given_back(self, trial: Trial) -> None:
        """A rate-gated claim older than about 100 ms at `start` is given back: the rate is counted near the call."""
        await trial.store.set_gate("g", rate=Rate(1, LONG))
        (task,) = await trial.claimed(make_draft(gates=["g"]))
        assert lease_of(task).granted_at is not None
        await trial.time.pass_(STALE_GRANT * 2)
        (answer,) = await trial.store.start([task], LONG)
        assert isinstance(answer, Refused)
        assert answer.reason is Refusal.GRANT_AGED
        await trial.settle(task, GaveBack())
        assert [each.id for each in await trial.claim()] == [task.id]

    @store_rule("STORE-START-9")
    async def test_age_matters_only_to_rate_grants(self, trial: Trial) -> None:
        """A rate-gated claim is given back when it is old; one that took no grant may start while its lease lasts."""
        (task,) = await trial.claimed(make_draft(gates=["g"]))
        await trial.time.pass_(STALE_GRANT * 2)
        await trial.start(task)

    @store_rule("STORE-START-10")
    async def test_attempts_add_up(self, trial: Trial) -> None:
        """Submissions started are counted; the first start opens the window in which a provider deduplicates."""
        (task,) = await trial.started()
        assert task.attempt is not None
        first = task.attempt.started_at
        await trial.settle(task, deferred())
        await trial.time.pass_(SHORT / 8)
        (task,) = await trial.start(*await trial.claim())
        assert task.attempt is not None
        assert (task.progress.submit_attempts, task.attempt.first_started_at) == (2, first)
        assert task.attempt.started_at > first

    @store_rule("STORE-START-11")
    async def test_only_started_submissions_can_become_unknown(self, trial: Trial) -> None:
        """Only started submissions can become SUBMIT_UNKNOWN: those that were started under the present lease."""
        unstarted, started = await trial.claimed(*make_drafts(2))
        (started,) = await trial.start(started)
        await trial.try_settle(unstarted, unknown())
        assert (await trial.get(unstarted)).status is Status.SUBMITTING
        await trial.settle(started, deferred())
        (again,) = await trial.claim()
        await trial.try_settle(again, unknown())
        assert (await trial.get(again)).status is Status.SUBMITTING
        (started,) = await trial.start(again)
        assert (await trial.settle(started, unknown())).status is Status.SUBMIT_UNKNOWN
