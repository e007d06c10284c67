"""S4: who goes first."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.events import GaveBack
from coatcheck.task import Rank
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import deferred
from coatcheck_conformance.store.time import SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Ordering"]

_MINUTE = timedelta(minutes=1)
_HIGHEST, _LOWEST = 2**31 - 1, -(2**31)


class Ordering(Suite):
    """S4: submittable tasks go by (band, scheduled_at - credit, created_at, id), smallest first."""

    @store_rule("STORE-ORDER-1")
    async def test_higher_priority_goes_first(self, trial: Trial) -> None:
        """Order among submittable tasks: `priority` (signed 32-bit) high first."""
        priorities = [0, 3, _LOWEST, -1, _HIGHEST, 1, 0, 10, 9, -10]
        await trial.add(*(make_draft(priority=each) for each in priorities))
        assert [task.schedule.priority for task in await trial.claim()] == sorted(priorities, reverse=True)

    @store_rule("STORE-ORDER-2")
    async def test_then_who_was_scheduled_earlier(self, trial: Trial) -> None:
        """Then `scheduled_at`."""
        late, early = await trial.add(make_draft(delay=SHORT / 2), make_draft())
        await trial.time.reach(late.schedule.scheduled_at)
        (fresh,) = await trial.add(make_draft())
        assert [task.id for task in await trial.claim()] == [early.id, late.id, fresh.id]

    @store_rule("STORE-ORDER-3")
    async def test_then_who_was_created_earlier(self, trial: Trial) -> None:
        """Then `created_at`."""
        instant = await trial.time.now() + 2 * SHORT
        second_id = make_draft().id
        (first,) = await trial.add(make_draft(not_before=instant))
        await trial.time.pass_(timedelta(milliseconds=5))
        (second,) = await trial.add(make_draft(id=second_id, not_before=instant))
        assert second.id < first.id
        await trial.time.reach(instant)
        assert [task.id for task in await trial.claim()] == [first.id, second.id]

    @store_rule("STORE-ORDER-4")
    async def test_then_the_smaller_id(self, trial: Trial) -> None:
        """Then id."""
        instant = await trial.time.now() + SHORT / 2
        drafts = [make_draft(not_before=instant) for _ in range(20)]
        tasks = await trial.add(*drafts[::-1])
        await trial.time.reach(instant)
        tasks.sort(key=lambda task: (task.schedule.scheduled_at, task.schedule.created_at, task.id))
        assert [task.id for task in await trial.claim()] == [task.id for task in tasks]

    @store_rule("STORE-ORDER-5")
    async def test_priority_does_not_shorten_a_delay(self, trial: Trial) -> None:
        """Due tasks are claimed: priority never lets a task go before its time."""
        (first, ordinary) = await trial.add(make_draft(priority=_HIGHEST, delay=SHORT), make_draft())
        assert [task.id for task in await trial.claim()] == [ordinary.id]
        await trial.time.reach(first.schedule.scheduled_at)
        assert [task.id for task in await trial.claim()] == [first.id]

    @store_rule("STORE-ORDER-6")
    async def test_credit_counts_as_time_waited(self, trial: Trial) -> None:
        """The store sorts by scheduled_at - credit: one point of priority is worth that much waiting."""

        def aged(credit: timedelta) -> Rank:
            return Rank(band=0, credit=credit, mode="ageing")

        (waited,) = await trial.add(make_draft(rank=aged(timedelta())))
        now = await trial.time.pass_(SHORT)
        spare = now - waited.schedule.scheduled_at
        worse, less, more = await trial.add(
            make_draft(priority=-1, rank=aged(-_MINUTE)),
            make_draft(priority=1, rank=aged(spare / 2)),
            make_draft(priority=2, rank=aged(spare + _MINUTE)),
        )
        assert [task.id for task in await trial.claim()] == [more.id, waited.id, less.id, worse.id]

    @store_rule("STORE-ORDER-7")
    async def test_credits_may_be_longer_than_history(self, trial: Trial) -> None:
        """With ageing the credit is priority x ageing, whatever 32-bit priority there is."""
        priorities = [_LOWEST, 1, _HIGHEST, -1, 0, _HIGHEST - 1, _LOWEST + 1]
        await trial.add(
            *(
                make_draft(priority=each, rank=Rank(band=0, credit=each * timedelta(hours=1), mode="ageing"))
                for each in priorities
            )
        )
        tasks = await trial.claim()
        assert [task.schedule.priority for task in tasks] == sorted(priorities, reverse=True)
        assert tasks[0] == await trial.get(tasks[0])

    @store_rule("STORE-ORDER-8")
    async def test_order_holds_from_claim_to_claim(self, trial: Trial) -> None:
        """Order is exact within a lane (a handler and an exact set of gates)."""
        drafts = [make_draft(priority=n * 7 % 20, gates=["g"]) for n in range(60)]
        tasks = await trial.add(*drafts)
        claimed: list[str] = []
        for _ in range(10):
            claimed += [task.id for task in await trial.claim(7)]
        by_rank = sorted(
            tasks, key=lambda task: (-task.schedule.priority, task.schedule.scheduled_at, task.id)
        )
        assert claimed == [task.id for task in by_rank]

    @store_rule("STORE-ORDER-9")
    async def test_order_holds_across_lanes_by_their_heads(self, trial: Trial) -> None:
        """Order is exact across lanes by their heads."""
        lanes: list[tuple[str, list[str]]] = [
            (HANDLER, []),
            (HANDLER, ["a"]),
            (HANDLER, ["a", "b"]),
            (HANDLER, ["b"]),
            (OTHER, ["a"]),
        ]
        drafts = [
            make_draft(priority=n * 13 % 40, handler=lanes[n % 5][0], gates=lanes[n % 5][1])
            for n in range(40)
        ]
        await trial.add(*drafts)
        one_by_one = [(await trial.claim(1, handlers=[HANDLER, OTHER]))[0] for _ in range(20)]
        at_once = await trial.claim(handlers=[OTHER, HANDLER])
        priorities = [task.schedule.priority for task in (*one_by_one, *at_once)]
        assert priorities == sorted(range(40), reverse=True)

    @store_rule("STORE-ORDER-10")
    async def test_a_deferred_task_keeps_its_rank(self, trial: Trial) -> None:
        """Back to PENDING_SUBMIT after a backoff: rank kept."""
        (first,) = await trial.started()
        others = await trial.add(*make_drafts(3))
        again = await trial.settle(first, deferred(SHORT))
        assert again.schedule.scheduled_at == first.schedule.scheduled_at
        await trial.time.reach(again.schedule.due_at)
        assert [task.id for task in await trial.claim()] == [first.id, *(task.id for task in others)]

    @store_rule("STORE-ORDER-11")
    async def test_a_task_given_back_keeps_its_rank(self, trial: Trial) -> None:
        """A claim that is given back unused goes to the place from where it came."""
        tasks = await trial.claimed(*make_drafts(3))
        for task in reversed(tasks):
            await trial.settle(task, GaveBack())
            await trial.time.pass_(timedelta(milliseconds=5))
        assert [task.id for task in await trial.claim()] == [task.id for task in tasks]

    @store_rule("STORE-ORDER-12")
    async def test_the_band_comes_before_all_else(self, trial: Trial) -> None:
        """The store sorts by band first, whatever times and credits are."""
        now = await trial.time.now()
        await trial.add(
            make_draft(priority=1, rank=Rank(band=1, credit=timedelta(days=9)), not_before=now - 9 * _MINUTE),
            make_draft(priority=2, rank=Rank(band=0)),
            make_draft(priority=3, rank=Rank(band=-1, credit=-timedelta(days=9))),
            make_draft(priority=4, rank=Rank(band=-(2**31) + 1, credit=-timedelta(days=9))),
        )
        assert [task.schedule.priority for task in await trial.claim()] == [4, 3, 2, 1]
