"""Selectors in an app: what they make of a real store."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import App, QueryResult, Selection, Selector, SubmitOptions, SubmitRejected, gates
from coatcheck.testing import ManualClock, ScriptedHandler, memory_app, run_to_end
from coatcheck_selectors import (
    first_available,
    healthy,
    least_active,
    round_robin,
    sticky_by_tenant,
    weighted,
)

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


def app_of(selector: Selector, clock: ManualClock, *handlers: ScriptedHandler[Page]) -> App:
    """Return an app of these handlers, or of three that succeed."""
    return memory_app(
        *(handlers or [ScriptedHandler(key, Page) for key in "abc"]), selector=selector, clock=clock
    )


async def chosen(app: App, times: int, **options: str) -> Counter[str]:
    """Submit that often, and return which handlers got the tasks."""
    given = SubmitOptions(**options)  # type: ignore[arg-type] # texts
    tasks = [await app.manager.submit(Page(), tracking_timeout=HOUR, options=given) for _ in range(times)]
    return Counter(task.route.handler_key for task in tasks)


async def test_a_provider_that_fails_gets_nothing_more_for_a_while() -> None:
    """From the outcomes of the fleet, as the store counts them; the weights of the others stay as they are."""
    clock = ManualClock()
    broken: ScriptedHandler[Page] = ScriptedHandler("a", Page, submit=[SubmitRejected("broken")] * 100)
    others = [ScriptedHandler(key, Page) for key in "bc"]
    selector = healthy(weighted({"a": 2, "b": 2, "c": 1}), minimum=5)
    async with app_of(selector, clock, broken, *others) as app:
        assert await chosen(app, 15) == {"a": 6, "b": 6, "c": 3}
        await run_to_end(app, clock)
        assert await chosen(app, 9) == {"b": 6, "c": 3}


async def test_a_paused_provider_gets_nothing_until_it_is_resumed() -> None:
    """By whomever, in whatever process."""
    clock = ManualClock()
    async with app_of(healthy(round_robin()), clock) as app:
        await app.manager.pause(gates.provider("b"), reason="maintenance")
        assert await chosen(app, 6) == {"a": 3, "c": 3}
        await app.manager.resume(gates.provider("b"))
        assert (await chosen(app, 6))["b"] == 2


async def test_what_does_not_fit_spills_over() -> None:
    """Two fit with the preferred one, and three with the next; then the last takes all, and all wait for the first."""
    clock = ManualClock()
    async with app_of(first_available(["b", "a"]), clock) as app:
        await app.manager.set_gate(gates.provider("b"), concurrency=2)
        await app.manager.set_gate(gates.provider("a"), concurrency=3)
        assert await chosen(app, 9) == {"b": 2, "a": 3, "c": 4}
        await run_to_end(app, clock)
        await app.manager.set_gate(gates.provider("c"), concurrency=1)
        assert await chosen(app, 9) == {"b": 5, "a": 3, "c": 1}


async def test_what_is_under_way_takes_room_too() -> None:
    """Slots that a worker has taken, and tasks that wait, count together."""
    clock = ManualClock()
    going = ScriptedHandler("a", Page, query=[QueryResult.running()] * 9)
    async with app_of(first_available(["a"]), clock, going, ScriptedHandler("b", Page)) as app:
        await app.manager.set_gate(gates.provider("a"), concurrency=2)
        assert await chosen(app, 1) == {"a": 1}
        await app.worker().run_once()
        assert await chosen(app, 3) == {"a": 1, "b": 2}


async def test_they_compose() -> None:
    """Tenants stay where they are while their handler is well; the others go to whoever has least to do."""
    clock = ManualClock()
    asked: list[Selection] = []
    inner = least_active()

    async def noted(selection: Selection) -> str:
        asked.append(selection)
        return await inner(selection)

    async with app_of(healthy(sticky_by_tenant(noted)), clock) as app:
        (home,) = await chosen(app, 5, tenant_id="acme")
        assert await chosen(app, 10) == {key: 5 for key in "abc" if key != home}
        await app.manager.pause(gates.provider(home), reason="maintenance")
        (moved,) = await chosen(app, 5, tenant_id="acme")
        assert moved != home
        await app.manager.resume(gates.provider(home))
        assert await chosen(app, 5, tenant_id="acme") == {home: 5}
    assert len(asked) == 10
