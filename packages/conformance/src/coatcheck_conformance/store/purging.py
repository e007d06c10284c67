"""S14: deleting what ended long ago."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from coatcheck.errors import InvalidParams
from coatcheck.events import Resubmit
from coatcheck.store import Filter
from coatcheck.task import Status
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import failed, succeeded
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Purging"]

_LATER = timedelta(days=30)


class Purging(Suite):
    """S14: `purge` deletes ended tasks in bounded batches, and never a live one."""

    @store_rule("STORE-PURGE-1")
    async def test_only_what_finished_before_is_purged(self, trial: Trial) -> None:
        """`purge(finished_before, statuses, limit)`: tasks that finished before then."""
        early = await trial.ended(Status.SUCCEEDED)
        middle = await trial.time.pass_(SHORT / 10)
        await trial.time.pass_(SHORT / 10)
        late = await trial.ended(Status.SUCCEEDED)
        assert early.outcome.finished_at is not None
        assert await trial.store.purge(early.outcome.finished_at) == 0
        assert await trial.store.purge(middle) == 1
        assert await trial.store.get(early.id) is None
        assert await trial.get(late) == late
        assert await trial.store.find(Filter()) == [late]

    @store_rule("STORE-PURGE-2")
    async def test_a_live_task_is_never_purged(self, trial: Trial) -> None:
        """Never a live task."""
        live = [
            *await trial.claimed(make_draft()),
            *await trial.started(),
            *await trial.tracked(delay=LONG),
            *await trial.add(make_draft(timeout=SHORT)),
        ]
        await trial.time.reach(live[-1].schedule.deadline_at)
        finished_before = await trial.time.now() + _LATER
        assert await trial.store.purge(finished_before) == 0
        assert len(await trial.store.get_many([task.id for task in live])) == len(live)

    @store_rule("STORE-PURGE-3")
    async def test_doubt_is_purged_only_if_named(self, trial: Trial) -> None:
        """SUBMIT_UNKNOWN only if named."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        for status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELED):
            await trial.ended(status)
        await trial.timed_out(make_draft(timeout=SHORT))
        finished_before = await trial.time.now() + _LATER
        assert await trial.store.purge(finished_before) == 4
        assert await trial.get(doubtful) == doubtful
        assert await trial.store.purge(finished_before, statuses=[Status.SUBMIT_UNKNOWN]) == 1
        assert await trial.store.get(doubtful.id) is None

    @store_rule("STORE-PURGE-4")
    async def test_only_named_statuses_are_purged(self, trial: Trial) -> None:
        """`statuses` are those to purge; others stay."""
        tasks = {
            status: await trial.ended(status) for status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELED)
        }
        finished_before = await trial.time.now() + _LATER
        assert await trial.store.purge(finished_before, statuses=[Status.FAILED, Status.CANCELED]) == 2
        assert await trial.get(tasks[Status.SUCCEEDED]) == tasks[Status.SUCCEEDED]
        assert await trial.store.purge(finished_before, statuses=[]) == 0

    @store_rule("STORE-PURGE-5")
    async def test_batches_are_bounded(self, trial: Trial) -> None:
        """Bounded batches: at most `limit` tasks, and how many is returned."""
        for task in await trial.started(*make_drafts(10)):
            await trial.settle(task, failed())
        for task in await trial.add(*make_drafts(15)):
            await trial.store.request_cancellation(task.id)
        finished_before = await trial.time.now() + _LATER
        counts = [await trial.store.purge(finished_before, limit=10) for _ in range(4)]
        assert counts == [10, 10, 5, 0]

    @store_rule("STORE-PURGE-6")
    async def test_purging_leaves_gates_and_others_alone(self, trial: Trial) -> None:
        """Never a live task: and nothing that a live task holds."""
        await trial.store.set_gate("g", concurrency=2)
        done, live = await trial.started(*make_drafts(2, gates=["g"]))
        await trial.settle(done, succeeded())
        assert await trial.store.purge(await trial.time.now() + _LATER) == 1
        assert await trial.used("g") == 1
        await trial.settle(live, succeeded())
        assert await trial.used("g") == 0

    @store_rule("STORE-PURGE-7")
    async def test_a_task_that_was_resolved_is_live_again(self, trial: Trial) -> None:
        """Never a live task: also not one that had ended before and was taken up again."""
        doubtful = await trial.ended(Status.SUBMIT_UNKNOWN)
        await trial.store.resolve(doubtful.id, doubtful.version, Resubmit(tracking_timeout=LONG))
        everything = [status for status in Status if status.terminal]
        assert await trial.store.purge(await trial.time.now() + _LATER, statuses=everything) == 0
        assert [task.id for task in await trial.claim()] == [doubtful.id]

    @store_rule("STORE-PURGE-8")
    async def test_naming_a_live_status_purges_nothing(self, trial: Trial) -> None:
        """Never a live task: `statuses` are terminal ones, and naming another deletes nothing."""
        (pending,) = await trial.add(make_draft(delay=LONG / 2))
        (tracked,) = await trial.tracked(delay=LONG / 2)
        finished_before = await trial.time.now() + _LATER
        for task in (pending, tracked):
            with suppress(InvalidParams):
                assert await trial.store.purge(finished_before, statuses=[task.status]) == 0
            assert await trial.get(task) == task
