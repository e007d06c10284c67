import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from coatcheck import ConfigurationError, Load, Selection
from coatcheck_selectors import least_active
from coatcheck_selectors.activity import LeastActiveSettings, create_least_active

Make = Callable[..., Selection]
COUNTS = {"a": 4, "b": 1, "c": 1, "d": 9}


def count(key: str) -> int:
    """Count, as an application would."""
    return COUNTS[key]


async def test_who_has_least_to_do_is_taken_and_ties_go_to_the_first(selection: Make) -> None:
    """The first in the order of keys, whatever order they are told in."""
    choose = least_active(count)
    assert await choose(selection("d", "c", "b", "a")) == "b"
    assert await choose(selection("a", "d")) == "a"
    assert await least_active(lambda _: 0)(selection("b", "a")) == "a"


async def test_each_count_is_read_once(selection: Make) -> None:
    """A count that changes while it is compared confuses nobody."""
    asked: Counter[str] = Counter()

    def moving(key: str) -> int:
        asked[key] += 1
        return 10 - asked.total()

    assert await least_active(moving)(selection("a", "b", "c")) == "c"
    assert asked == {"a": 1, "b": 1, "c": 1}


async def test_a_provider_may_be_awaited(selection: Make) -> None:
    """All candidates are asked at once, not one after the other; one may answer at once and another late."""
    waiting = asyncio.Event()

    async def slow(key: str) -> int:
        if key == "b":
            waiting.set()
        await waiting.wait()
        return COUNTS[key]

    assert await least_active(slow)(selection("a", "b")) == "b"

    def mixed(key: str) -> Any:
        return slow(key) if key == "b" else COUNTS[key]

    assert await least_active(mixed)(selection("a", "b", "d")) == "b"


@pytest.mark.parametrize("wrong", [-1, None, 1.0, True, "1"])
async def test_a_count_that_is_none_is_refused(selection: Make, wrong: object) -> None:
    """A negative one, too, by the candidate's name, and also if it would not have been taken."""
    choose = least_active(lambda key: wrong if key == "b" else 0)  # type: ignore[arg-type,return-value] # refused
    with pytest.raises(
        ConfigurationError, match=f"counts {wrong!r} tasks of 'b'; a count is an integer from 0"
    ):
        await choose(selection("a", "b"))


async def test_without_a_provider_the_store_counts(selection: Make, told: Any) -> None:
    """What waits and what is under way; read once, and whoever is not told has nothing to do."""
    standing = told(loads={"a": Load(waiting=2), "b": Load(active=1), "c": Load(waiting=1, active=1)})
    assert await least_active()(selection("a", "b", "c", standing=standing)) == "b"
    assert await least_active()(selection("a", "b", "x", standing=standing)) == "x"
    assert standing.asked == ["load", "load"]


async def test_configuration_names_the_provider(selection: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``module:attribute``; without it the store counts."""
    monkeypatch.setattr("coatcheck_selectors.activity.imported", {"app.counts:count": count}.__getitem__)
    made = create_least_active(LeastActiveSettings(provider="app.counts:count"))
    assert await made(selection("a", "b")) == "b"
    assert create_least_active(LeastActiveSettings()).provider is None
