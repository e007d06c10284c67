"""Selectors that look at how the candidates stand, on every embedded store."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import App, QueryResult, Rate, Store, SubmitRejected, gates
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end
from coatcheck_selectors import first_available, healthy, least_active

HOUR = timedelta(hours=1)


@frozen
class Page:
    """What all handlers take."""

    url: str = "https://example.com/a.png"


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask the store each time, as if a second passed between submissions."""
    monkeypatch.setattr("coatcheck.standing.FRESH", timedelta())
    monkeypatch.setattr("coatcheck.standing.COST_SHARE", 0)
    return iter(())


async def chosen(app: App, times: int) -> Counter[str]:
    """Submit that often, and return which handlers got the tasks."""
    tasks = [await app.manager.submit(Page(), tracking_timeout=HOUR) for _ in range(times)]
    return Counter(task.route.handler_key for task in tasks)


async def test_usage_of_gates_is_seen_across_apps(store: Store) -> None:
    """One app works and another submits: slots that are taken, and grants that are spent, make tasks spill over."""

    def handlers() -> list[ScriptedHandler[Page]]:
        return [ScriptedHandler(key, Page, query=[QueryResult.running()] * 99) for key in "abc"]

    working = App(store, handlers(), selector=first_available(["a"]))
    async with working:
        submitting = App(store, handlers(), selector=first_available(["a", "b"]))
        await working.manager.set_gate(gates.provider("a"), concurrency=2)
        await working.manager.set_gate(gates.provider("b"), rate=Rate(3, timedelta(hours=1)))
        assert await chosen(submitting, 4) == {"a": 2, "b": 2}
        await working.worker().run_once()
        assert await chosen(submitting, 3) == {"b": 1, "c": 2}


async def test_outcomes_and_load_are_those_of_the_fleet(store: Store, clock: ManualClock) -> None:
    """What another app's worker has brought to an end counts, and what lies in the store, too."""
    broken: ScriptedHandler[Page] = ScriptedHandler("a", Page, submit=[SubmitRejected("broken")] * 99)
    others: list[ScriptedHandler[Page]] = [ScriptedHandler(key, Page) for key in "bc"]
    working = App(store, [broken, *others])
    async with working:
        idle: list[ScriptedHandler[Page]] = [ScriptedHandler(key, Page) for key in "abc"]
        submitting = App(store, idle, selector=healthy(least_active(), minimum=3))
        assert await chosen(submitting, 9) == {"a": 3, "b": 3, "c": 3}
        await run_to_end(working, clock)
        assert await chosen(submitting, 6) == {"b": 3, "c": 3}
