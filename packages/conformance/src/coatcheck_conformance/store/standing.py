"""S13: how the store stands."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Standing"]


class Standing(Suite):
    """S13: `stats` tells operators what they ask at night."""

    @store_rule("STORE-STATS-1")
    async def test_tasks_are_counted_by_handler_and_status(self, trial: Trial) -> None:
        """`stats()`: counts by handler and status."""
        await trial.claimed(*make_drafts(2, handler=OTHER))
        await trial.ended(Status.SUCCEEDED)
        await trial.ended(Status.SUBMIT_UNKNOWN)
        await trial.add(*make_drafts(3), make_draft(delay=LONG / 2))
        stats = await trial.store.stats()
        counts = {
            each.handler_key: {status: count for status, count in each.by_status.items() if count}
            for each in stats.handlers
        }
        assert counts == {
            HANDLER: {Status.PENDING_SUBMIT: 4, Status.SUCCEEDED: 1, Status.SUBMIT_UNKNOWN: 1},
            OTHER: {Status.SUBMITTING: 2},
        }

    @store_rule("STORE-STATS-2")
    async def test_the_queue_is_measured_by_priority(self, trial: Trial) -> None:
        """`stats()`: queue length and longest wait by priority, highest first; what is not due does not wait."""
        await trial.add(make_draft(priority=-1), make_draft(priority=5))
        await trial.time.pass_(SHORT)
        await trial.add(
            make_draft(priority=5), make_draft(priority=5, delay=LONG / 2), make_draft(priority=0)
        )
        queue = (await trial.store.stats()).queue
        assert [(each.priority, each.waiting) for each in queue] == [(5, 2), (0, 1), (-1, 1)]
        waits = {each.priority: each.longest_wait for each in queue}
        assert waits[5] >= SHORT
        assert waits[-1] >= SHORT
        assert timedelta() <= waits[0] < waits[5]

    @store_rule("STORE-STATS-3")
    async def test_the_oldest_submission_is_told(self, trial: Trial) -> None:
        """`stats()`: oldest SUBMITTING."""
        assert (await trial.store.stats()).oldest_submitting is None
        await trial.started()
        await trial.time.pass_(SHORT / 2)
        await trial.started()
        oldest = (await trial.store.stats()).oldest_submitting
        assert oldest is not None
        assert SHORT / 2 <= oldest < LONG

    @store_rule("STORE-STATS-4")
    async def test_the_lateness_of_queries_is_told(self, trial: Trial) -> None:
        """`stats()`: lateness of the most overdue query."""
        await trial.tracked(delay=LONG / 2)
        assert (await trial.store.stats()).query_lateness is None
        await trial.tracked(delay=timedelta())
        await trial.time.pass_(SHORT / 2)
        late = (await trial.store.stats()).query_lateness
        assert late is not None
        assert SHORT / 2 <= late < LONG

    @store_rule("STORE-STATS-5")
    async def test_tasks_that_nobody_works_for_are_told(self, trial: Trial) -> None:
        """`stats()`: tasks whose handler no worker has."""
        await trial.add(*make_drafts(2, handler="kit:gone"), *make_drafts(2))
        await trial.claim(1)
        await trial.claim_queries()
        assert dict((await trial.store.stats()).unattended) == {"kit:gone": 2}

    @store_rule("STORE-STATS-6")
    async def test_an_empty_store_has_empty_stats(self, trial: Trial) -> None:
        """`stats()` of a store that holds nothing says so."""
        before = await trial.time.now()
        stats = await trial.store.stats()
        assert before <= stats.now <= await trial.time.now()
        assert [sum(each.by_status.values()) for each in stats.handlers] in ([], [0])
        assert list(stats.queue) == []
        assert (stats.oldest_submitting, stats.query_lateness, stats.set_aside) == (None, None, 0)
        assert not stats.unattended
