"""Tallies in tables: exact under many counters, found by exact bytes, and swept a few at a time."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from coatcheck.clock import ManualClock
from coatcheck.errors import NotPersistable
from coatcheck.tallies import Count
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.drivers import AsyncpgDriver

sys.path.insert(0, str(Path(__file__).parent))
import places

kind, place, engine = places.kind, places.place, places.engine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SHORT = timedelta(seconds=1)
LONG = timedelta(hours=1)
COUNTERS = 8
NAMES = ["a", "b", "c", "d"]


def one(name: str, amount: int = 1, **others: Any) -> Count:
    """Return a count that is kept for an hour."""
    return Count(name=name, amount=amount, **{"lifetime": LONG, **others})


def rows_of(engine: Engine) -> int:
    """Return how many rows there are, forgotten or not."""
    with engine.connect() as connection:
        found: int = connection.execute(text("SELECT count(*) FROM coatcheck_tally")).scalar_one()
    return found


async def test_eight_counters_lose_nothing(place: str) -> None:
    """Batches on several tallies, in any order, on old ones and new ones, are exact, and `at_most` is never passed."""
    batches, most = 20, 100

    async def go_on(store: SqlStore, number: int) -> list[int]:
        dice = random.Random(number)
        gained = []
        for each in range(batches):
            counts = [one(name) for name in NAMES] + [
                one(f"new {each % 10}"),
                one("limited", 3, at_most=most),
            ]
            dice.shuffle(counts)
            answers = await store.count(counts)
            gained += [
                answer.total
                for wanted, answer in zip(counts, answers, strict=True)
                if wanted.name == "limited" and answer.counted
            ]
        return gained

    async with AsyncExitStack() as stack:
        await create(place).setup()
        stores = [await stack.enter_async_context(create(place)) for _ in range(COUNTERS)]
        gained = await asyncio.gather(*(go_on(store, number) for number, store in enumerate(stores)))
        totals = {tally.name: tally.total for tally in await stores[0].tallies()}
    assert {name: totals[name] for name in NAMES} == dict.fromkeys(NAMES, COUNTERS * batches)
    assert {totals[f"new {each}"] for each in range(10)} == {COUNTERS * batches // 10}
    assert totals["limited"] == most // 3 * 3
    # each amount was let in once, and at no time more
    assert sorted(total for each in gained for total in each) == list(range(3, most + 1, 3))


async def test_names_sort_and_begin_by_exact_bytes(place: str) -> None:
    """Wildcards, marks, blanks, control characters and the last character of all are characters like others."""
    ends = [
        "",
        " ",
        "  ",
        "!",
        "!0",
        '"',
        "%",
        "_",
        "\\",
        "'",
        "\0",
        "\0\0",
        "\n",
        "\x1e",
        "\x1f",
        "\x7f",
        "A",
        "a",
    ]
    ends += [
        "\xe9",
        "e\u0301",
        "\u2028",
        "\ud7ff",
        "\ue000",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
        "\U0010ffff\U0010ffffz",
    ]
    names = [f"p{end}" for end in ends] + ["o", "q", "P", "\U0010ffff", "!", "x" * 255]
    await create(place).setup()
    async with create(place) as store:
        await store.count([one(name, number + 1) for number, name in enumerate(names)])
        listed = await store.tallies(limit=999)
        assert [tally.name for tally in listed] == sorted(names)
        assert {tally.name: tally.total - 1 for tally in listed} == {name: n for n, name in enumerate(names)}
        for prefix in [*names, "", "p!0x", "\U0010ffff\U0010ffff"]:
            wanted = sorted(name for name in names if name.startswith(prefix))
            assert [tally.name for tally in await store.tallies(prefix, limit=999)] == wanted
        answers = await store.count([one(name, 0) for name in names])
        assert [answer.total - 1 for answer in answers] == list(range(len(names)))


@pytest.mark.parametrize("name", ["x" * 256, "\0" * 200])
async def test_names_that_no_row_can_have_are_refused(place: str, name: str) -> None:
    """What is too long for the index is refused, and nothing of its batch is counted."""
    await create(place).setup()
    async with create(place) as store:
        with pytest.raises(NotPersistable, match="255"):
            await store.count([one("a"), one(name)])
        assert await store.tallies() == []


async def test_forgotten_tallies_are_swept_a_few_at_a_time(
    place: str, engine: Engine, clock: ManualClock
) -> None:
    """Who makes tallies deletes about a hundred that are forgotten, until there are none; never one that lives."""
    await create(place).setup()
    async with create(place, clock=clock) as store:
        await store.count([one(f"old {number}", lifetime=SHORT) for number in range(250)] + [one("alive")])
        clock.advance(SHORT)
        assert [tally.name for tally in await store.tallies()] == ["alive"]
        left = [rows_of(engine)]
        for number in range(4):
            await store.count([one(f"new {number}")])
            left.append(rows_of(engine))
        assert left == [251, 151, 51, 4, 5]
        assert [tally.name for tally in await store.tallies()] == ["alive", *(f"new {n}" for n in range(4))]


async def test_what_is_refused_leaves_no_row(place: str, engine: Engine) -> None:
    """A tally that a count has made in vain is nobody's, and goes with the sweep of the same step."""
    await create(place).setup()
    async with create(place) as store:
        (answer,) = await store.count([one("a", 5, at_most=4)])
        assert (answer.total, answer.counted) == (0, False)
        assert (await store.tallies(), rows_of(engine)) == ([], 0)


async def test_a_tally_that_others_have_swept_begins_anew(place: str, engine: Engine) -> None:
    """A process that knows a tally counts on, also when somebody has deleted its row."""
    await create(place).setup()
    async with create(place) as store:
        await store.count([one("a", 7), one("b", 7)])
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM coatcheck_tally WHERE name = 'a'"))
        answers = await store.count([one("b"), one("a")])
        assert [(each.before, each.total) for each in answers] == [(7, 8), (0, 1)]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_the_sweep_waits_for_nobody(place: str, engine: Engine, clock: ManualClock) -> None:
    """A forgotten tally that another transaction has locked is left to the next sweep, and so is one being made."""
    await create(place).setup()
    async with create(place, clock=clock, timeout=timedelta(seconds=5)) as store:
        await store.count([one("locked", lifetime=SHORT), one("free", lifetime=SHORT)])
        clock.advance(SHORT)
        with engine.connect() as connection, connection.begin():
            connection.execute(text("SELECT 1 FROM coatcheck_tally WHERE name = 'locked' FOR UPDATE"))
            connection.execute(text("INSERT INTO coatcheck_tally VALUES ('making', 0, 0)"))
            await store.count([one("new")])
        assert rows_of(engine) == 3
        await store.count([one("newer")])
        assert rows_of(engine) == 2


@pytest.mark.parametrize("kind", ["postgresql"])
async def test_a_count_is_five_messages(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a process knows the tallies, it begins, locks, looks at the clock, writes and commits."""
    sent: list[str] = []

    def watched(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(driver: AsyncpgDriver, sql: str, *values: object) -> Any:
            sent.append(sql)
            return await method(driver, sql, *values)

        return call

    for name in ("rows", "simple"):
        monkeypatch.setattr(AsyncpgDriver, name, watched(getattr(AsyncpgDriver, name)))
    await create(place).setup()
    async with create(place) as store:
        await store.count([one(name) for name in NAMES])
        sent.clear()
        await store.count([one(name) for name in NAMES])
        assert len(sent) == 5, sent
