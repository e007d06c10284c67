"""S20: rows that cannot be decoded."""

from __future__ import annotations

from coatcheck.store import Filter
from coatcheck.task import Task
from coatcheck_conformance.drafts import make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.spec import Hook, Repair
from coatcheck_conformance.store.time import SHORT
from coatcheck_conformance.store.trial import Trial, lease_of, store_rule

__all__ = ["SettingAside"]


async def _corrupt(trial: Trial, task: Task) -> Repair:
    assert trial.spec.corrupt is not None
    return await trial.spec.corrupt(trial.store, task.id)


class SettingAside(Suite):
    """S20: a row that cannot be decoded never blocks the batch it is in."""

    @store_rule("STORE-ASIDE-1", requires=(Hook.CORRUPT,))
    async def test_a_broken_row_blocks_no_submission(self, trial: Trial) -> None:
        """A row that cannot be decoded never blocks the batch it is in: it is set aside with the reason, listed."""
        broken, *others = await trial.add(make_draft(priority=9), *make_drafts(4))
        before = await trial.time.now()
        await _corrupt(trial, broken)
        assert [task.id for task in await trial.claim()] == [task.id for task in others]
        (aside,) = await trial.store.set_aside()
        assert aside.task_id == broken.id
        assert aside.reason
        assert before <= aside.since <= await trial.time.now()
        assert (await trial.store.stats()).set_aside == 1

    @store_rule("STORE-ASIDE-2", requires=(Hook.CORRUPT,))
    async def test_a_broken_row_blocks_no_query(self, trial: Trial) -> None:
        """A row that cannot be decoded never blocks the batch it is in: queries."""
        broken, other = await trial.tracked(*make_drafts(2))
        await _corrupt(trial, broken)
        assert [task.id for task in await trial.claim_queries()] == [other.id]
        assert [aside.task_id for aside in await trial.store.set_aside()] == [broken.id]

    @store_rule("STORE-ASIDE-3", requires=(Hook.CORRUPT,))
    async def test_a_broken_row_blocks_no_decision(self, trial: Trial) -> None:
        """A row that cannot be decoded never blocks the batch it is in: stale tasks."""
        broken, other = await trial.add(*(make_draft(timeout=SHORT) for _ in range(2)))
        await _corrupt(trial, broken)
        await trial.time.reach(other.schedule.deadline_at)
        assert [task.id for task in await trial.claim_stale()] == [other.id]
        assert [aside.task_id for aside in await trial.store.set_aside()] == [broken.id]

    @store_rule("STORE-ASIDE-4", requires=(Hook.CORRUPT,))
    async def test_a_broken_row_hides_no_other_from_readers(self, trial: Trial) -> None:
        """`get_many` returns those that exist and can be decoded."""
        broken, other = await trial.add(*make_drafts(2))
        await _corrupt(trial, broken)
        assert await trial.store.get_many([broken.id, other.id]) == {other.id: other}
        assert await trial.store.find(Filter()) == [other]
        await trial.claim()
        assert await trial.store.set_aside() != []

    @store_rule("STORE-ASIDE-5", requires=(Hook.CORRUPT,))
    async def test_what_can_be_decoded_again_can_be_released(self, trial: Trial) -> None:
        """And can be released after an upgrade."""
        first, second, third = await trial.add(*make_drafts(3))
        repairs = [await _corrupt(trial, task) for task in (first, second, third)]
        assert await trial.claim() == []
        assert [aside.task_id for aside in await trial.store.set_aside(limit=2)] == [first.id, second.id]
        for repair in repairs:
            await repair()
        assert await trial.store.release_set_aside([second.id]) == 1
        assert [task.id for task in await trial.claim()] == [second.id]
        assert await trial.store.release_set_aside() == 2
        assert [task.id for task in await trial.claim()] == [first.id, third.id]
        assert await trial.store.set_aside() == []

    @store_rule("STORE-ASIDE-8", requires=(Hook.CORRUPT,))
    async def test_what_is_released_goes_on_from_where_it_was(self, trial: Trial) -> None:
        """And can be released after an upgrade: a tracked task is queried again, a lost one decided."""
        (tracked,) = await trial.tracked()
        (lost,) = await trial.started(lease=SHORT)
        repairs = [await _corrupt(trial, task) for task in (tracked, lost)]
        await trial.time.reach(lease_of(lost).until)
        assert await trial.claim_queries() == []
        assert await trial.claim_stale() == []
        assert {aside.task_id for aside in await trial.store.set_aside()} == {tracked.id, lost.id}
        for repair in repairs:
            await repair()
        assert await trial.store.release_set_aside() == 2
        assert await trial.claim() == []
        assert [task.id for task in await trial.claim_queries()] == [tracked.id]
        assert [task.id for task in await trial.claim_stale()] == [lost.id]

    @store_rule("STORE-ASIDE-7", requires=(Hook.CORRUPT,))
    async def test_what_is_released_too_early_is_set_aside_again(self, trial: Trial) -> None:
        """A row that cannot be decoded never blocks the batch it is in, however often it is released."""
        broken, other = await trial.add(make_draft(priority=9), make_draft())
        await _corrupt(trial, broken)
        await trial.claim()
        for _ in range(2):
            await trial.store.release_set_aside()
            (task,) = await trial.claimed(make_draft())
            assert task.id not in (broken.id, other.id)
            assert [aside.task_id for aside in await trial.store.set_aside()] == [broken.id]

    @store_rule("STORE-ASIDE-6")
    async def test_a_sound_store_has_nothing_set_aside(self, trial: Trial) -> None:
        """Only what cannot be decoded is set aside, and only that is released."""
        tasks = await trial.claimed(*make_drafts(3))
        assert await trial.store.set_aside() == []
        assert await trial.store.release_set_aside([task.id for task in tasks]) == 0
        assert await trial.store.release_set_aside() == 0
