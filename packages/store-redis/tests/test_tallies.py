"""Tallies: exact in Lua's numbers, once whatever the network does, and never more work than a step can bear."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from redis_hooks import ask

from coatcheck.clock import ManualClock
from coatcheck.errors import InvalidParams
from coatcheck.tallies import MAX_TALLY, Count, Counted
from coatcheck_store_redis import RedisStore, create
from coatcheck_store_redis.scripts import script
from servers import FaultProxy
from servers.proxy import Direction

pytestmark = pytest.mark.timeout(60)
LONG, SHORT = timedelta(hours=1), timedelta(seconds=1)
EACH, ROOM = 40, 100


def one(name: str, amount: int = 1, *, at_most: int | None = None, lifetime: timedelta = LONG) -> Count:
    """Return one count."""
    return Count(name=name, amount=amount, at_most=at_most, lifetime=lifetime)


async def total(store: RedisStore, name: str) -> int:
    """Return what a tally stands at."""
    (answer,) = await store.count([one(name, 0)])
    return answer.total


async def keys(store: RedisStore, pattern: str) -> list[bytes]:
    """Return the store's keys that look so."""
    found: list[bytes] = await ask(store, "KEYS", f"{store.prefix}{pattern}")
    return found


@pytest.fixture
def proxy(redis_url: str) -> Iterator[FaultProxy]:
    """Put a network before the server."""
    with FaultProxy.before(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def store(redis_url: str, proxy: FaultProxy) -> AsyncIterator[RedisStore]:
    """Open a store behind that network, in which the script was run before."""
    async with create(proxy.url_through(redis_url), timeout=timedelta(seconds=10)) as store:
        await store.count([one("none", 0)])
        yield store


# ------------------------------------------------------------------ exact


async def hammer(url: str) -> int:
    """Count as two clients of one process; return how many counts found room."""
    async with create(url) as first, create(url) as second:
        made = await asyncio.gather(*(hammer_one(store) for store in (first, second)))
    return sum(made)


async def hammer_one(store: RedisStore) -> int:
    """Count as one client."""
    found = 0
    for _ in range(EACH):
        free, limited, _ = await store.count([one("free"), one("limited", at_most=ROOM), one("free", 2)])
        assert free.counted
        assert limited.total <= ROOM
        found += limited.counted
    return found


@pytest.mark.slow
async def test_processes_count_exactly_together(redis_url: str) -> None:
    """Eight clients in four processes lose no count, and never pass `at_most` together."""
    command = sys.executable, __file__, redis_url
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=env) for _ in range(4)]
    told = await asyncio.gather(*(each.communicate() for each in processes))
    assert sum(int(out) for out, _ in told) == ROOM
    async with create(redis_url) as store:
        assert await total(store, "free") == 8 * EACH * 3
        assert await total(store, "limited") == ROOM


async def test_large_totals_are_told_digit_by_digit(redis_url: str) -> None:
    """No number is rounded or written with an exponent, on its way in, stored, or on its way out."""
    async with create(redis_url) as store:
        for amount in (MAX_TALLY, -MAX_TALLY, 10**15, 10**14 + 1, -(10**15) - 1):
            assert await store.count([one(f"{amount}", amount)]) == [Counted(0, amount, counted=True)]
            (tally,) = await store.tallies(f"{amount}")
            assert tally.total == amount
        assert await store.count([one(f"{MAX_TALLY}", MAX_TALLY, at_most=MAX_TALLY)]) == [
            Counted(MAX_TALLY, MAX_TALLY, counted=False)
        ]
        with pytest.raises(InvalidParams, match=rf"'{MAX_TALLY}' stands at {MAX_TALLY}, and counting 1 "):
            await store.count([one("beside"), one(f"{MAX_TALLY}")])
        assert await store.tallies("beside") == []


async def test_no_name_begins_with_what_is_no_text(redis_url: str) -> None:
    """Names hold any text; a lone surrogate is none, and nothing is listed under it."""
    async with create(redis_url) as store:
        await store.count([one("beside\0\n\xff")])
        assert await store.tallies("\ud800") == []
        assert [each.name for each in await store.tallies("beside\0")] == ["beside\0\n\xff"]


# ------------------------------------------------------------------ lost answers


@pytest.mark.parametrize("made", [True, False])
async def test_a_count_whose_answer_is_lost_counts_once(
    store: RedisStore, proxy: FaultProxy, *, made: bool
) -> None:
    """The step is repeated, counted once, and told as if its answer had never been lost."""
    await store.count([one("a", MAX_TALLY - 10)])
    sha = script("count").sha.encode()
    trap = proxy.cut_after(sha) if made else proxy.cut_before(sha, Direction.TO_SERVER)
    answers = await store.count([one("a", 7), one("b", at_most=1), one("b", at_most=1)])
    assert trap.is_set()
    assert answers == [
        Counted(MAX_TALLY - 10, MAX_TALLY - 3, counted=True),
        Counted(0, 1, counted=True),
        Counted(1, 1, counted=False),
    ]
    assert [await total(store, name) for name in "ab"] == [MAX_TALLY - 3, 1]


async def test_a_repeated_count_is_told_as_it_was(redis_url: str) -> None:
    """Whatever others have counted meanwhile, a step that was made is not made again, and its answer is the first."""
    async with create(redis_url) as store:
        with store.calls.marks.one() as mark:
            words = (*mark, "a", 5, "", "", 60_000)
            assert await store.calls.step("count", words) == [b"", b"0", b"5", b"1"]
            await store.count([one("a", 100)])
            assert await store.calls.step("count", words) == [b"", b"0", b"5", b"1"]
        assert await total(store, "a") == 105


async def test_marks_are_as_few_as_calls_at_once(redis_url: str) -> None:
    """The server remembers one mark for each call that runs at the same time, for some minutes, not one for each."""
    async with create(redis_url) as store:
        for _ in range(20):
            await store.count([one("a")])
            await store.set_gate("g", concurrency=1)
        (made,) = await keys(store, "made:*")
        assert 0 < await ask(store, "PTTL", made) <= 300_000
        await asyncio.gather(*(store.count([one("a")]) for _ in range(5)))
        assert len(await keys(store, "made:*")) <= 5
        assert await total(store, "a") == 25


async def test_a_failed_call_keeps_its_place(redis_url: str) -> None:
    """Its step may still be on its way, so no other call gets the place whose mark it would take."""
    async with create(redis_url) as store:
        marks = store.calls.marks
        with marks.one() as (first, *_):
            pass
        with pytest.raises(InvalidParams), marks.one() as (second, *_):
            raise InvalidParams("made by a test")
        with marks.one() as (third, *_):
            pass
        assert first == second != third


# ------------------------------------------------------------------ bounded


async def test_forgotten_tallies_are_swept_some_at_a_time(redis_url: str) -> None:
    """A step deletes about a hundred of them, however many there are; in the end nothing is left of them."""
    clock = ManualClock()
    async with create(redis_url, clock=clock) as store:
        await store.count([one(f"t{number:03}", lifetime=SHORT) for number in range(1000)])
        clock.advance(SHORT)
        assert await store.tallies() == []
        await store.count([one("t999", 0)])
        assert await ask(store, "HLEN", f"{store.prefix}tally") == 1000 - 101
        assert await total(store, "t998") == 0  # forgotten, though it is still there
        for _ in range(9):
            await store.count([one("t999", 0)])
        assert await keys(store, "tall*") == []


async def test_long_batches_and_long_lists_are_whole(redis_url: str) -> None:
    """A batch of 5,000 is one step, and `tallies` lists all of them, in order, past forgotten ones, page by page."""
    clock = ManualClock()
    async with create(redis_url, clock=clock) as store:
        counts = [one(f"t{n:04}", n + 1, lifetime=SHORT if n % 3 else LONG) for n in range(5000)]
        answers = await store.count(counts)
        assert [each.total for each in answers] == list(range(1, 5001))
        assert len(await store.tallies("t", limit=10_000)) == 5000
        clock.advance(SHORT)
        left = await store.tallies("t0", limit=10_000)
        assert [each.name for each in left] == [f"t{n:04}" for n in range(0, 1000, 3)]
        assert [each.name for each in await store.tallies(limit=700)] == [
            f"t{n:04}" for n in range(0, 2100, 3)
        ]
        assert await store.tallies(limit=0) == []


if __name__ == "__main__":
    sys.stdout.write(str(asyncio.run(hammer(sys.argv[1]))))
