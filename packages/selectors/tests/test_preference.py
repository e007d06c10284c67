from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from coatcheck import Gate, InvalidParams, Load, Rate, Selection
from coatcheck.gates import GateUsage, Pause
from coatcheck_selectors import first_available

Make = Callable[..., Selection]
PAUSE = Pause(reason="maintenance", since=datetime(2030, 1, 1, tzinfo=UTC))


def usage(*, used: int = 0, granted: int = 0, **limits: Any) -> list[GateUsage]:
    """Return one gate."""
    return [GateUsage(gate=Gate(name=f"{limits}{used}", **limits), used=used, granted=granted)]


async def test_the_preferred_one_is_taken_while_it_has_room(selection: Make, told: Any) -> None:
    """Then the next; who is not named comes last, by key."""
    choose = first_available(["c", "a"])
    standing = told(usages={"c": usage(concurrency=2, used=1)})
    assert await choose(selection(*"abcd", standing=standing)) == "c"
    standing.usages = {"c": usage(concurrency=2, used=2)}
    assert await choose(selection(*"abcd", standing=standing)) == "a"
    standing.usages = {key: usage(rate=Rate(3), granted=3, used=ord(key)) for key in "ca"}
    assert await choose(selection(*"abcd", standing=standing)) == "b"
    assert await choose(selection("b", "d", standing=standing)) == "b"


async def test_what_waits_takes_its_room_beforehand(selection: Make, told: Any) -> None:
    """A burst spills over before any worker has claimed a task of it."""
    standing = told(usages={"a": usage(concurrency=5, used=2)}, loads={"a": Load(waiting=2)})
    choose = first_available(["a", "b"])
    assert await choose(selection("a", "b", standing=standing)) == "a"
    standing.loads = {"a": Load(waiting=3)}
    assert await choose(selection("a", "b", standing=standing)) == "b"


async def test_if_nobody_has_room_the_task_waits_with_the_first_that_is_not_paused(
    selection: Make, told: Any
) -> None:
    """Or with whom another selector takes."""
    full = {"a": usage(pause=PAUSE), "b": usage(concurrency=1, used=1), "c": usage(rate=Rate(1), granted=1)}
    standing = told(usages=full)
    assert await first_available([*"abc"])(selection(*"abc", standing=standing)) == "b"

    async def last(selection: Selection) -> str:
        return selection.candidates[-1]

    assert await first_available([*"abc"], otherwise=last)(selection(*"abc", standing=standing)) == "c"
    standing.usages = {key: usage(pause=PAUSE, used=ord(key)) for key in "abc"}
    assert await first_available([*"cba"])(selection(*"abc", standing=standing)) == "c"


def test_an_order_names_each_once() -> None:
    """An empty one, or a handler twice, is refused."""
    with pytest.raises(InvalidParams, match="the order of preference is empty"):
        first_available([])
    with pytest.raises(InvalidParams, match="the order of preference names 'a' twice"):
        first_available(["a", "b", "a"])
