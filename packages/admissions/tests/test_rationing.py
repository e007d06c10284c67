import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from coatcheck import StoreUnavailable
from coatcheck.memory import MemoryStore
from coatcheck.tallies import Count, Counted
from coatcheck_admissions.rationing import Rationing


class Counting:
    """Counts in a store, and remembers how often it was asked."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.asked = 0
        self.error: Exception | None = None

    async def __call__(self, counts: Sequence[Count]) -> list[Counted]:
        """Count, or fail."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        return await self.store.count(counts)

    async def total(self, name: str = "a") -> int:
        """Return how a tally stands."""
        return sum([each.total for each in await self.store.tallies(name)])


@pytest.fixture
async def count() -> AsyncIterator[Counting]:
    """Return what counts in an open store."""
    async with MemoryStore() as store:
        yield Counting(store)


def places(count: Counting, limit: int = 10) -> Rationing:
    """Return one process's rationing of ten places a name."""
    return Rationing(limit=limit, lifetime=timedelta(days=1), count=count)


async def test_a_whole_claim_is_counted_at_once(count: Counting) -> None:
    """As many as there are get one, in order, in two steps at most."""
    rationing = places(count)
    told = await asyncio.gather(*(rationing.take("a") for _ in range(15)), rationing.take("b"))
    assert [each.granted for each in told] == [*[True] * 10, *[False] * 5, True]
    assert count.asked == 3
    assert (await count.total("a"), await count.total("b")) == (10, 1)


async def test_two_processes_never_grant_more_than_there_are(count: Counting) -> None:
    """Whoever is first, all of them are granted."""
    one, other = places(count, 25), places(count, 25)
    told = await asyncio.gather(*(each.take("a") for _ in range(20) for each in (one, other)))
    assert sum(each.granted for each in told) == await count.total() == 25


async def test_those_that_are_gone_leave_their_places(count: Counting) -> None:
    """Given up before they were told, their places are counted back with the next count."""
    rationing = places(count)
    asking = [asyncio.ensure_future(rationing.take("a")) for _ in range(6)]
    await asyncio.sleep(0)
    for each in asking[:4]:
        each.cancel()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in told] == [True] * 4 + [False] * 2
    await rationing.give_back(["a"])
    assert await count.total() == 1
    await rationing.give_back([])
    assert await count.total() == 1


async def test_a_store_that_is_away_is_told_to_all_and_leaves_nothing_stuck(count: Counting) -> None:
    """Each who asked gets the error; whoever asks later is served."""
    rationing = places(count)
    count.error = StoreUnavailable("away")
    told = await asyncio.gather(*(rationing.take("a") for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in told} == {StoreUnavailable}
    with pytest.raises(StoreUnavailable):
        await rationing.total("a")
    count.error = None
    assert (await rationing.take("a")).granted
    assert await asyncio.gather(*(rationing.total("a") for _ in range(5))) == [1] * 5
