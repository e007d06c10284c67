"""S16: rows that another version wrote."""

from __future__ import annotations

from coatcheck.store import Filter
from coatcheck.task import Status, Task
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted, going, succeeded
from coatcheck_conformance.store.spec import Hook
from coatcheck_conformance.store.time import LONG
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Upgrading"]


async def _written(trial: Trial) -> tuple[list[Task], list[Task]]:
    """Have rows written as other versions do; return those that wait for submission, and those that are tracked."""
    assert trial.spec.previous is not None
    tasks = await trial.spec.previous(trial.store)
    pending = [task for task in tasks if task.status is Status.PENDING_SUBMIT]
    tracked = [task for task in tasks if task.status.queryable]
    for some in (pending, tracked):
        assert [task for task in some if task.extra], "the hook wrote no row of a newer version"
        assert [task for task in some if not task.extra], "the hook wrote no row of an earlier version"
    return pending, tracked


def _extras_of_parts(task: Task) -> dict[str, str | None]:
    """Return what a newer version has stored in the parts that are never replaced."""
    return {
        "route": task.route.extra_json,
        "schedule": task.schedule.extra_json,
        "identity": task.identity.extra_json,
        "progress": task.progress.extra_json,
        "outcome": task.outcome.extra_json,
    }


def _ids(tasks: list[Task]) -> set[str]:
    return {task.id for task in tasks}


class Upgrading(Suite):
    """S16: workers of version N and N-1 run together: what another version wrote is a task like any other."""

    @store_rule("STORE-UPGRADE-1", requires=(Hook.PREVIOUS,))
    async def test_rows_of_other_versions_are_read(self, trial: Trial) -> None:
        """Workers of version N and N-1 run together: each reads what the other wrote, and sets nothing aside."""
        pending, tracked = await _written(trial)
        tasks = {task.id: task for task in (*pending, *tracked)}
        assert await trial.store.get_many(list(tasks)) == tasks
        assert await trial.store.find(Filter()) == [tasks[task_id] for task_id in sorted(tasks)]
        assert await trial.store.set_aside() == []

    @store_rule("STORE-UPGRADE-2", requires=(Hook.PREVIOUS,))
    async def test_rows_of_other_versions_are_submitted(self, trial: Trial) -> None:
        """Workers of version N and N-1 run together: what one added, the other claims, starts and settles."""
        pending, _ = await _written(trial)
        claimed = await trial.claim()
        assert _ids(claimed) == _ids(pending)
        for task in await trial.start(*claimed):
            assert (await trial.settle(task, succeeded())).status is Status.SUCCEEDED
        assert await trial.store.purge(await trial.time.now() + LONG) == len(pending)

    @store_rule("STORE-UPGRADE-3", requires=(Hook.PREVIOUS,))
    async def test_rows_of_other_versions_are_queried(self, trial: Trial) -> None:
        """Workers of version N and N-1 run together: what one submitted, the other queries."""
        _, tracked = await _written(trial)
        for event in (going(), succeeded()):
            claimed = await trial.claim_queries()
            assert _ids(claimed) == _ids(tracked)
            for task in await trial.start(*claimed):
                assert (await trial.settle(task, event)).status is event.status

    @store_rule("STORE-UPGRADE-4", requires=(Hook.PREVIOUS,))
    async def test_fields_that_are_not_known_are_kept(self, trial: Trial) -> None:
        """Workers of version N and N-1 run together and preserve fields that they don't know."""
        pending, tracked = await _written(trial)
        for task in await trial.start(*await trial.claim()):
            await trial.settle(task, accepted())
        for task in await trial.claim_queries():
            await trial.settle(task, going())
        (canceled, *_) = tracked
        assert await trial.store.request_cancellation(canceled.id)
        for task in (*pending, *tracked):
            now = await trial.get(task)
            assert now.extra == task.extra
            assert _extras_of_parts(now) == _extras_of_parts(task)

    @store_rule("STORE-UPGRADE-5", requires=(Hook.PREVIOUS,))
    async def test_rows_of_other_versions_are_found_from_outside(self, trial: Trial) -> None:
        """Workers of version N and N-1 run together: callbacks and cancellations meet what either wrote."""
        pending, tracked = await _written(trial)
        for task in tracked:
            assert task.external_task_id is not None
            assert await trial.store.nudge(task.route.handler_key, task.external_task_id) == 1
            found = await trial.store.find(Filter(external_task_id=task.external_task_id))
            assert [each.id for each in found] == [task.id]
        for task in (*pending, *tracked):
            assert await trial.store.request_cancellation(task.id)
        assert {(await trial.get(task)).status for task in pending} == {Status.CANCELED}
        assert _ids(await trial.claim_stale()) == _ids(tracked)
