"""S21: numbers that a fleet counts together."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from coatcheck.errors import InvalidParams
from coatcheck.store import Capability, Store
from coatcheck.tallies import MAX_TALLY, Count, Counted
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.time import LONG, PATIENCE_SECONDS, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Tallying"]

_MILLISECOND = timedelta(milliseconds=1)


def _count(name: str, amount: int = 1, *, at_most: int | None = None, clock: bool = False) -> Count:
    return Count(name=name, amount=amount, at_most=at_most, clock=clock, lifetime=LONG)


async def _total(store: Store, name: str) -> int:
    (answer,) = await store.count([_count(name, 0)])
    return answer.total


class Tallying(Suite):
    """S21: `count` and `tallies`."""

    @store_rule("STORE-TALLY-1")
    async def test_counts_add_up_in_order(self, trial: Trial) -> None:
        """A batch is counted in order, also where it counts twice on one tally, and says what stood there."""
        counts = [_count("a", 2), _count("b"), _count("a", 3), _count("a", -1), _count("b", 0)]
        assert await trial.store.count(counts) == [
            Counted(0, 2, counted=True),
            Counted(0, 1, counted=True),
            Counted(2, 5, counted=True),
            Counted(5, 4, counted=True),
            Counted(1, 1, counted=True),
        ]
        assert [await _total(trial.store, name) for name in "abc"] == [4, 1, 0]
        assert await trial.store.count([]) == []

    @store_rule("STORE-TALLY-2")
    async def test_at_most_is_never_passed(self, trial: Trial) -> None:
        """A count that would go above `at_most` is left out, and hurts no other of its batch."""
        store = trial.store
        await store.count([_count("a", 4, at_most=5)])
        assert await store.count([_count("a", 2, at_most=5), _count("b")]) == [
            Counted(4, 4, counted=False),
            Counted(0, 1, counted=True),
        ]
        assert await store.count([_count("a", 1, at_most=5)]) == [Counted(4, 5, counted=True)]
        assert await store.count([_count("a", -2, at_most=5)]) == [Counted(5, 3, counted=True)]

    @store_rule("STORE-TALLY-3")
    async def test_a_look_changes_nothing(self, trial: Trial) -> None:
        """An amount of 0 only looks: it makes no tally, and keeps none alive."""
        await trial.store.count([_count("looked at", 0), _count("clock", 0, clock=True)])
        assert await trial.store.tallies() == []
        await trial.store.count([Count(name="a", lifetime=SHORT)])
        (tally,) = await trial.store.tallies()
        await trial.store.count([_count("a", 0)])
        assert await trial.store.tallies() == [tally]

    @store_rule("STORE-TALLY-4")
    async def test_a_clock_is_never_behind(self, trial: Trial) -> None:
        """With `clock`, a tally is raised to the store's time in milliseconds before anything is added."""
        before = await trial.time.now()
        (first,) = await trial.store.count([_count("a", 60_000, clock=True)])
        (second,) = await trial.store.count([_count("a", 5, clock=True)])
        after = await trial.time.now()
        assert round(before.timestamp() * 1000 - 1) <= first.before <= round(after.timestamp() * 1000 + 1)
        assert first.total == first.before + 60_000
        assert second == Counted(first.total, first.total + 5, counted=True)
        await trial.store.count([_count("b", 1, clock=True)])
        now = await trial.time.pass_(SHORT)
        (behind,) = await trial.store.count([_count("b", 1, clock=True)])
        assert behind.before >= round(now.timestamp() * 1000 - 1)

    @store_rule("STORE-TALLY-5")
    async def test_tallies_are_forgotten(self, trial: Trial) -> None:
        """A tally lives for as long as its counts have said, the longest of them, and then begins anew."""
        store = trial.store
        await store.count([Count(name="short", amount=7, lifetime=SHORT), _count("long", 7)])
        await store.count([Count(name="long", lifetime=SHORT)])
        now = await trial.time.now()
        lives = {each.name: each.expires_at - now for each in await store.tallies()}
        assert lives.get("short", SHORT) <= SHORT
        assert LONG - timedelta(seconds=PATIENCE_SECONDS) <= lives["long"] <= LONG
        await trial.time.pass_(SHORT + _MILLISECOND)
        assert [each.name for each in await store.tallies()] == ["long"]
        assert await store.count([_count("short"), _count("long", 0)]) == [
            Counted(0, 1, counted=True),
            Counted(8, 8, counted=True),
        ]

    @store_rule("STORE-TALLY-6")
    async def test_tallies_are_listed_by_name(self, trial: Trial) -> None:
        """`tallies` lists those whose names begin so, by exact bytes, in order, as many as are wanted."""
        names = ["budget/a", "budget/b%", "budget/b_", "budget_c", "Budget/a", "budget/\N{SNOWMAN}"]
        await trial.store.count([_count(name, number + 1) for number, name in enumerate(names)])
        listed = await trial.store.tallies("budget/")
        assert [(each.name, each.total) for each in listed] == [
            ("budget/a", 1),
            ("budget/b%", 2),
            ("budget/b_", 3),
            ("budget/\N{SNOWMAN}", 6),
        ]
        assert [each.name for each in await trial.store.tallies("budget/b_")] == ["budget/b_"]
        assert [each.name for each in await trial.store.tallies(limit=2)] == ["Budget/a", "budget/a"]

    @store_rule("STORE-TALLY-7")
    async def test_large_totals_are_exact(self, trial: Trial) -> None:
        """Whole numbers up to 2^53 - 1 are counted exactly; beyond that nothing of the batch is counted."""
        store = trial.store
        await store.count([_count("most", MAX_TALLY - 1), _count("least", -MAX_TALLY)])
        assert await _total(store, "most") == MAX_TALLY - 1
        await store.count([_count("most")])
        for beyond in (_count("most"), _count("least", -1)):
            try:
                await store.count([_count("beside"), beyond])
            except InvalidParams:
                pass
            else:
                raise AssertionError(f"{beyond} was counted, beyond what is exact")
        assert [await _total(store, name) for name in ("most", "least", "beside")] == [
            MAX_TALLY,
            -MAX_TALLY,
            0,
        ]

    @store_rule("STORE-TALLY-8")
    async def test_many_at_once_count_exactly(self, trial: Trial) -> None:
        """No two counts are lost or mixed up, and `at_most` holds, however many count at the same moment."""
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(
                    trial.store.count(
                        [_count(f"b{n % 3}"), _count(f"b{(n + 1) % 3}"), _count("a", 2, at_most=20)]
                    )
                )
                for n in range(30)
            ]
        answers = [each.result() for each in asked]
        assert sum(answer[2].counted for answer in answers) == 10
        totals = [await _total(trial.store, name) for name in ("a", "b0", "b1", "b2")]
        assert totals == [20, 20, 20, 20]

    @store_rule("STORE-TALLY-9", requires=(Capability.SHARED,))
    async def test_processes_count_together(self, trial: Trial) -> None:
        """`shared`: what one client of the store has counted, another counts on."""
        other = await trial.another()
        async with asyncio.TaskGroup() as group:
            for store in (trial.store, other) * 10:
                group.create_task(store.count([_count("a", at_most=15)]))
        assert (await _total(trial.store, "a"), await _total(other, "a")) == (15, 15)
