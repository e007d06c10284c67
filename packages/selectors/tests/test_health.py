from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck import Gate, InvalidParams, Outcomes, Selection
from coatcheck.gates import GateUsage, Pause
from coatcheck_selectors import healthy, weighted

Make = Callable[..., Selection]
PAUSE = Pause(reason="maintenance", since=datetime(2030, 1, 1, tzinfo=UTC))


def gate(name: str, *, paused: bool = False) -> GateUsage:
    """Return a gate."""
    return GateUsage(gate=Gate(name=name, pause=PAUSE if paused else None), used=0, granted=0)


async def test_who_is_paused_is_left_out_and_comes_back(selection: Make, told: Any) -> None:
    """The inner selector sees the others, with the same standing."""
    standing = told(usages={"a": [gate("a", paused=True)], "b": [gate("b")], "c": []})
    choose = healthy(weighted({"a": 5, "b": 1, "c": 1}))
    assert [await choose(selection(*"abc", standing=standing)) for _ in range(4)] == [*"bcbc"]
    standing.usages = {}
    assert await choose(selection(*"abc", standing=standing)) == "a"


async def test_who_does_badly_is_left_out(selection: Make, told: Any) -> None:
    """From half of the outcomes on, if there are enough of them to judge."""
    standing = told(ends={"a": Outcomes(good=5, bad=5), "b": Outcomes(good=6, bad=4), "c": Outcomes(bad=9)})
    choose = healthy()
    assert {await choose(selection(*"abc", standing=standing)) for _ in range(6)} == {"b", "c"}
    assert standing.within == timedelta(minutes=5)
    strict = healthy(within=timedelta(hours=1), bad_share=0.4, minimum=3)
    assert await strict(selection(*"abc", standing=standing)) == "a"  # nobody is well: all are
    assert standing.within == timedelta(hours=1)


async def test_if_nobody_is_well_pauses_count_for_more(selection: Make, told: Any) -> None:
    """A handler that does badly is better than a closed gate, and that is better than none."""
    standing = told(
        usages={"a": [gate("a", paused=True)], "b": [gate("b")]},
        ends={"a": Outcomes(good=50), "b": Outcomes(bad=50)},
    )
    choose = healthy()
    assert await choose(selection("a", "b", standing=standing)) == "b"
    standing.usages = {key: [gate(key, paused=True)] for key in "ab"}
    assert {await choose(selection("a", "b", standing=standing)) for _ in range(4)} == {"a", "b"}


async def test_a_gate_that_all_pass_says_nothing_about_one(selection: Make, told: Any) -> None:
    """A paused tenant waits wherever it goes; that hides no other pause."""
    tenant = gate("tenant/t", paused=True)
    standing = told(usages={"a": [tenant, gate("a", paused=True)], "b": [tenant, gate("b")]})
    assert {await healthy()(selection("a", "b", standing=standing)) for _ in range(4)} == {"b"}


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"within": timedelta()}, "within must be positive"),
        ({"bad_share": 0}, "bad_share must be above 0 and at most 1"),
        ({"bad_share": 1.1}, "bad_share must be above 0 and at most 1"),
        ({"minimum": 0}, "minimum must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        healthy(**settings)
