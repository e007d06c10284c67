from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from coatcheck import App, InvalidParams, Rate, SubmitDeferred
from coatcheck.gates import named
from coatcheck.memory import MemoryStore
from coatcheck.tallies import Count
from coatcheck.testing import ManualClock, ScriptedHandler
from coatcheck_admissions import adaptive_rate

SECOND = timedelta(seconds=1)
Handler = ScriptedHandler[dict[str, Any]]
GATE = named("adaptive", "scan")


def slow_down(seconds: float | None = None) -> SubmitDeferred:
    """Return a 429."""
    wait = None if seconds is None else timedelta(seconds=seconds)
    return SubmitDeferred("HTTP 429 (rate_limited)", rate_limited=True, retry_after=wait)


def process(store: MemoryStore, steps: Sequence[Any] = (), **settings: Any) -> App:
    """Return an app, as one process of a fleet has it."""
    return App(store, [Handler("scan", dict, submit=steps)], admission=adaptive_rate(**settings))


async def fill(app: App, count: int) -> None:
    """Submit so many tasks."""
    for number in range(count):
        await app.manager.submit({"n": number}, tracking_timeout=timedelta(hours=9))


async def work(app: App, submissions: int = 50) -> int:
    """Do one round; return how many submissions were claimed."""
    return await app.worker(submissions=submissions, queries=0).run_once()


async def rate(app: App) -> int:
    """Return what the gate grants."""
    [usage] = await app.store.gates([GATE])
    assert usage.gate.rate is not None
    assert usage.gate.rate.per == SECOND
    return usage.gate.rate.count


async def test_it_rises_step_by_step_while_it_is_used() -> None:
    """At most once in each step, up to the ceiling, also with two processes."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, other = (process(store, start=4, ceiling=6) for _ in range(2))
    async with one:
        await fill(one, 400)
        assert await rate(one) == 4
        seen = []
        for _ in range(60):
            assert await work(one) + await work(other) <= 6
            seen.append(await rate(one))
            clock.advance(SECOND)
        assert seen[0] == 4
        changes = [now - before for before, now in pairwise(seen)]
        assert set(changes) == {0, 1}
        assert changes.index(1, changes.index(1) + 1) - changes.index(1) >= 10
        assert seen[-1] == 6
        reasons = [each.reason for each in await one.manager.gate_history(GATE)]
        assert reasons[-1] == "no 429 lately: 5 became 6"


async def test_it_does_not_rise_while_less_than_half_of_it_is_used() -> None:
    """A rate that nobody has tried is not known to be good."""
    clock = ManualClock()
    app = process(MemoryStore(clock=clock), start=10)
    async with app:
        for _ in range(40):
            await fill(app, 4)
            await work(app)
            clock.advance(SECOND)
        assert await rate(app) == 10


async def test_a_429_halves_it_once_in_a_cool_down_for_the_whole_fleet() -> None:
    """However many are answered so, in however many processes; down to the floor."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, other = (process(store, [slow_down(0.001)] * 500, start=10, floor=2) for _ in range(2))
    async with one:
        await fill(one, 100)
        seen = []
        for _ in range(35):
            await work(one, 3)
            await work(other, 3)
            seen.append(await rate(one))
            clock.advance(SECOND)
        assert set(seen[:10]) == {5}
        assert set(seen[14:]) == {2}
        reasons = [each.reason for each in await one.manager.gate_history(GATE) if each.action == "LIMITED"]
        assert "the provider said 429: 10 became 5" in reasons


async def test_after_a_429_it_does_not_rise_for_a_step() -> None:
    """Each one puts the next rise off."""
    clock = ManualClock()
    app = process(MemoryStore(clock=clock), [slow_down(0.001)], start=10)
    async with app:
        await fill(app, 300)
        seen = []
        for _ in range(25):
            await work(app)
            seen.append(await rate(app))
            clock.advance(SECOND)
        assert set(seen[:10]) == {5}
        assert seen[-1] in {6, 7}


async def test_nothing_passes_for_as_long_as_the_provider_asked() -> None:
    """Its own gate is paused, as long as the retry policy takes the hint for."""
    clock = ManualClock()
    app = process(MemoryStore(clock=clock), [slow_down(40)], start=10)
    async with app:
        await fill(app, 30)
        await work(app, 1)
        await app.manager.resume("provider/scan")
        [usage] = await app.store.gates([GATE])
        assert usage.gate.pause is not None
        assert usage.gate.pause.until is not None
        assert 40 * SECOND <= usage.gate.pause.until - clock.now() <= 41 * SECOND
        assert usage.gate.pause.reason == "the provider asked to slow down (429)"
        clock.advance(39 * SECOND)
        assert await work(app) == 0
        clock.advance(2 * SECOND)
        assert await work(app) > 0


async def test_two_that_would_change_it_at_once_change_it_once() -> None:
    """The rate is replaced only as it was known."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, other = (process(store, start=8, cool_down=SECOND) for _ in range(2))
    async with one:
        await fill(one, 1)
        for app in (one, other):
            await app._admission._set(GATE, 0, 4, "a test")  # type: ignore[attr-defined]
        assert await rate(one) == 4
        [tally] = await store.tallies(f"{GATE}/rate")
        assert divmod(tally.total, 2**24) == (1, 4)


async def test_what_it_has_found_is_not_forgotten_at_a_bound() -> None:
    """Weeks at the ceiling do not end in a fall to the start."""
    clock = ManualClock()
    app = process(MemoryStore(clock=clock), start=1, ceiling=2, step_every=timedelta(hours=1), step=9)
    async with app:
        await fill(app, 1)
        for _ in range(5):
            clock.advance(timedelta(days=6))
            await app._admission._set(GATE, await number(app), 2, "a test")  # type: ignore[attr-defined]
        assert await rate(app) == 2
        assert await number(app) % 2**24 == 2


async def test_a_gate_that_lags_behind_is_mended() -> None:
    """A worker that lowered the rate and died before it set the gate; a gate that somebody has deleted."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    app = process(store, start=10)
    async with app:
        await fill(app, 30)
        await store.count([Count(name=f"{GATE}/rate", amount=2**24 + 3, lifetime=timedelta(days=7))])
        await work(process(store, start=10), 1)
        assert await rate(app) == 3
        await store.delete_gate(GATE)
        await work(process(store, start=10), 1)
        assert await rate(app) == 3


async def number(app: App) -> int:
    """Return the tally of the rate."""
    return sum(each.total for each in await app.manager.tallies(f"{GATE}/rate"))


async def test_an_operators_limit_stays() -> None:
    """It sets its own gate only."""
    clock = ManualClock()
    app = process(MemoryStore(clock=clock), [slow_down(0.001)] * 5)
    async with app:
        await app.manager.set_gate("provider/scan", rate=Rate(3, SECOND))
        await fill(app, 20)
        await work(app)
        [usage] = await app.manager.gates(["provider/scan"])
        assert usage.gate.rate == Rate(3, SECOND)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"floor": 0}, "floor must be at least 1"),
        ({"ceiling": 2, "floor": 3}, "ceiling must not be below floor"),
        ({"ceiling": 2**24}, "ceiling must be below 16777216"),
        ({"start": 101}, "start must be between floor and ceiling"),
        ({"per": timedelta()}, "per must be positive"),
        ({"step": 0}, "step must be at least 1"),
        ({"step_every": timedelta()}, "step_every must be positive"),
        ({"factor": 1}, "factor must be above 0 and below 1"),
        ({"cool_down": timedelta()}, "cool_down must be positive"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        adaptive_rate(**settings)
