import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from coatcheck import (
    App,
    Gate,
    InvalidParams,
    Rate,
    Status,
    SubmitContext,
    SubmitDeferred,
    SubmitOptions,
    SubmitRejected,
    SubmitResult,
    UnknownAccount,
)
from coatcheck.gates import GateChange, PauseGate, SetGate, named
from coatcheck.memory import MemoryStore
from coatcheck.testing import ManualClock, ScriptedHandler
from coatcheck_admissions import CircuitBreaker, circuit_breaker

SECOND = timedelta(seconds=1)
GATE = named("breaker", "scan")
DOWN = SubmitDeferred("HTTP 503")


class Careful(ScriptedHandler[dict[str, Any]]):
    """A handler that looks its account up before it goes to the wire."""

    async def submit(self, params: dict[str, Any], context: SubmitContext) -> SubmitResult:
        """Fail early, or do the next step."""
        early = self._submit[0] if self._submit else None
        if isinstance(early, UnknownAccount):
            self._submit.popleft()
            raise early
        return await super().submit(params, context)


def process(
    store: MemoryStore, steps: Sequence[Any] = (), **settings: Any
) -> tuple[App, ScriptedHandler[dict[str, Any]]]:
    """Return an app and its handler, as one process of a fleet has them."""
    handler = Careful("scan", dict, submit=steps)
    return App(store, [handler], admission=circuit_breaker(**settings)), handler


async def fill(app: App, count: int) -> None:
    """Submit so many tasks."""
    for number in range(count):
        await app.manager.submit({"n": number}, tracking_timeout=timedelta(hours=9))


async def work(app: App, submissions: int) -> int:
    """Do one round, with room for so many; return how many submissions were claimed."""
    return await app.worker(submissions=submissions, queries=0).run_once()


async def gate_of(app: App, clock: ManualClock) -> str:
    """Return how the gate stands: closed, half-open or open, as for the circuit."""
    for usage in await app.store.gates([GATE]):
        if usage.gate.paused_at(clock.now()):
            return "open"
        return "half-open" if usage.gate.rate else "closed"
    return "closed"


async def test_it_opens_when_enough_of_enough_calls_fail_in_the_whole_fleet() -> None:
    """Neither process alone has seen enough; with a reason that says the numbers, and for so long."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, _ = process(store, [DOWN] * 5)
    other, _ = process(store, [*[DOWN] * 3])
    async with one:
        await fill(one, 20)
        await work(one, 5)
        assert await gate_of(one, clock) == "closed"
        await work(other, 5)
        [usage] = await store.gates([GATE])
        assert usage.gate.pause is not None
        assert usage.gate.pause.reason == "8 of 10 submissions failed within 30 s; opened for 30 s"
        assert usage.gate.pause.who == "circuit-breaker"
        assert usage.gate.pause.until == clock.now() + 30 * SECOND
        assert usage.gate.rate == Rate(1, 5 * SECOND)
        assert await work(one, 5) == await work(other, 5) == 0
        assert {each.name for each in await one.manager.tallies("breaker/")} > {f"{GATE}/state"}


@pytest.mark.parametrize(
    ("failures", "min_calls", "failure_rate", "opens"),
    [(5, 10, 0.5, True), (4, 10, 0.5, False), (10, 11, 0.5, False), (10, 10, 1.0, True), (9, 10, 1.0, False)],
)
async def test_it_needs_enough_calls_and_enough_failures(
    failures: int, min_calls: int, failure_rate: float, *, opens: bool
) -> None:
    """At the share it opens, below it, or with fewer calls, it does not."""
    clock = ManualClock()
    app, _ = process(
        MemoryStore(clock=clock), [DOWN] * failures, min_calls=min_calls, failure_rate=failure_rate
    )
    async with app:
        await fill(app, 10)
        await work(app, 10)
        assert (await gate_of(app, clock) == "open") is opens


async def test_old_failures_are_forgotten() -> None:
    """What was settled longer ago than the window counts for nothing."""
    clock = ManualClock()
    app, _ = process(MemoryStore(clock=clock), [DOWN] * 18)
    async with app:
        await fill(app, 60)
        await work(app, 9)
        clock.advance(31 * SECOND)
        await work(app, 9)
        assert await gate_of(app, clock) == "closed"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("gone"),
        SubmitDeferred("connection refused", code="not_sent"),
        SubmitDeferred("HTTP 503"),
        SubmitDeferred("busy", rate_limited=True),
    ],
    ids=["unknown outcome", "unreachable", "error", "429"],
)
async def test_what_counts_as_a_failure(error: Exception) -> None:
    """A lost outcome, a provider out of reach or in error, and 429."""
    clock = ManualClock()
    app, _ = process(MemoryStore(clock=clock), [error] * 10)
    async with app:
        await fill(app, 10)
        await work(app, 10)
        assert await gate_of(app, clock) == "open"


@pytest.mark.parametrize(
    "error",
    [
        SubmitRejected("the page is too large", code="413"),
        SubmitDeferred("the provider answered HTTP 402", code="no_money", blames_provider=False),
        SubmitDeferred("the provider answered HTTP 401", blames_provider=False),
        UnknownAccount("no account 'eu'"),
    ],
    ids=["rejected", "quota", "key", "ours"],
)
async def test_what_says_nothing_about_the_provider_is_not_counted(error: Exception) -> None:
    """Neither as a failure nor as a good call, which would hide an outage."""
    clock = ManualClock()
    app, _ = process(MemoryStore(clock=clock), [error] * 90 + [DOWN] * 10)
    async with app:
        await fill(app, 100)
        await work(app, 90)
        assert await app.manager.tallies("breaker/") == []
        await work(app, 10)
        assert await gate_of(app, clock) == "open"


async def test_workers_that_die_are_no_sign_of_an_outage() -> None:
    """What another worker settles in their place counts for nothing."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    app, _ = process(store)
    async with app:
        await fill(app, 20)
        claims = await store.claim_submissions("dead", ["scan"], 20, 60 * SECOND)
        await store.start(claims.tasks, 60 * SECOND)
        clock.advance(61 * SECOND)
        await app.worker().drain()
        assert {task.status for task in await app.manager.find()} == {Status.SUBMIT_UNKNOWN}
        assert await gate_of(app, clock) == "closed"
        assert await app.manager.tallies("breaker/") == []


async def opened(app: App, clock: ManualClock) -> None:
    """Have the circuit opened by ten failures, and let its pause end."""
    await fill(app, 40)
    await work(app, 10)
    assert await gate_of(app, clock) == "open"
    clock.advance(30 * SECOND)


async def test_after_the_pause_it_lets_a_probe_through_and_closes() -> None:
    """One in five seconds, whatever the room; after three good ones in a row its gate has no limits."""
    clock = ManualClock()
    app, _ = process(MemoryStore(clock=clock), [DOWN] * 10, successes=3)
    async with app:
        await opened(app, clock)
        for _ in range(3):
            assert await gate_of(app, clock) == "half-open"
            assert await work(app, 10) == 1
            assert await work(app, 10) == 0 or await gate_of(app, clock) == "closed"
            clock.advance(5 * SECOND)
        assert await gate_of(app, clock) == "closed"
        assert await work(app, 10) == 10
        history = await app.manager.gate_history(GATE)
        assert history[-1].reason == "3 probes in a row went well; closed"
        assert history[-1].who == "circuit-breaker"


async def test_a_bad_probe_opens_it_for_twice_as_long_up_to_a_maximum() -> None:
    """Also after good ones: they have to be in a row. Closed and opened again, it begins with the first time."""
    clock = ManualClock()
    steps = [DOWN] * 12
    app, handler = process(MemoryStore(clock=clock), steps, max_open=100 * SECOND, min_calls=2)
    async with app:
        await fill(app, 60)
        await work(app, 10)
        for seconds in (30, 60, 100):
            [usage] = await app.store.gates([GATE])
            assert usage.gate.pause is not None
            assert usage.gate.pause.until == clock.now() + seconds * SECOND
            clock.advance(seconds * SECOND)
            assert await work(app, 10) == 1
        assert len(handler.submitted) == 13
        assert await gate_of(app, clock) == "closed"
        handler._submit.extend([DOWN] * 2)
        clock.advance(31 * SECOND)
        await work(app, 2)
        [usage] = await app.store.gates([GATE])
        assert usage.gate.pause is not None
        assert usage.gate.pause.until == clock.now() + 30 * SECOND


@pytest.mark.parametrize("good", [True, False])
async def test_calls_begun_before_it_opened_neither_close_nor_reopen_it(*, good: bool) -> None:
    """Their results come when it is half-open, and leave it so."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    other, _ = process(store, [DOWN] * 10)
    begun: list[asyncio.Event] = []

    async def meanwhile(_params: object, _context: object) -> SubmitResult:
        if begun:
            await begun[0].wait()
        else:
            begun.append(asyncio.Event())
            await work(other, 10)
            clock.advance(31 * SECOND)
            begun[0].set()
        if good:
            return SubmitResult.accepted("job")
        raise DOWN

    app, _ = process(store, [meanwhile] * 3)
    async with app:
        await fill(app, 13)
        await work(app, 3)
        assert await gate_of(app, clock) == "half-open"
        history = await app.manager.gate_history(GATE)
        assert [each.action for each in history][:2] == ["PAUSED", "LIMITED"]
        assert not [each for each in history[2:] if each.action == "PAUSED"]


class Watching:
    """A fleet that does something when a gate is to be changed."""

    def __init__(self, fleet: Any, before: Callable[[GateChange], Any]) -> None:
        self._fleet = fleet
        self._before = before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    async def change(self, change: GateChange) -> None:
        """Change it, after something else."""
        await self._before(change)
        await self._fleet.change(change)


def watched(app: App, before: Callable[[GateChange], Any]) -> None:
    """Have `before` called before the app's policy changes a gate."""
    policy = app._admission
    assert isinstance(policy, CircuitBreaker)
    policy.attach(Watching(policy.fleet, before))


async def test_it_is_not_closed_when_another_worker_has_opened_it_again() -> None:
    """A good probe and a bad one, in two processes: whichever is first, the gate ends as the circuit does."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, _ = process(store, [DOWN] * 10, probes=2)
    other, _ = process(store, [DOWN] * 2, probes=2, min_calls=1)
    reopened: list[GateChange] = []

    async def open_again(change: GateChange) -> None:
        if isinstance(change, SetGate) and change.rate is None and not reopened:
            reopened.append(change)
            await fill(other, 1)
            clock.advance(5 * SECOND)
            await store.set_gate(GATE, concurrency=None, rate=None)
            await work(other, 1)

    async with one:
        await opened(one, clock)
        watched(one, open_again)
        await work(one, 1)
        assert reopened
        assert await gate_of(one, clock) == "open"
        [usage] = await store.gates([GATE])
        assert usage.gate.rate == Rate(2, 5 * SECOND)


async def test_only_one_of_two_workers_opens_it() -> None:
    """Both see the failures at once; one pause comes of it."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    one, _ = process(store, [DOWN] * 20)
    other, _ = process(store, [DOWN] * 20)
    async with one:
        await fill(one, 40)
        changes: list[Any] = []
        for app in (one, other):
            policy = app._admission
            policy.settled, taken = _collecting(changes), policy.settled  # type: ignore[method-assign]
            await work(app, 10)
            policy.settled = taken  # type: ignore[method-assign]
        await one._admission.settled(changes[:10])
        await other._admission.settled(changes[10:])
        history = await one.manager.gate_history(GATE)
        assert [each.action for each in history] == ["PAUSED", "LIMITED"]


def _collecting(changes: list[Any]) -> Callable[..., Any]:
    async def settled(given: Sequence[Any]) -> list[Any]:
        changes.extend(given)
        return []

    return settled


@pytest.mark.parametrize("dies_at", [PauseGate, SetGate])
async def test_what_a_worker_left_undone_is_mended(dies_at: type[GateChange]) -> None:
    """A worker that opened the circuit and died before its gate was limited: the next batch limits it."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    dying, _ = process(store, [DOWN] * 10)
    other, _ = process(store, successes=2)

    async def die(change: GateChange) -> None:
        if isinstance(change, dies_at):
            raise ConnectionError

    async with dying:
        watched(dying, die)
        await fill(dying, 40)
        await work(dying, 10)
        assert [each.gate.rate for each in await store.gates([GATE])] in ([], [None])
        clock.advance(30 * SECOND)
        await work(other, 1)
        assert [each.gate.rate for each in await store.gates([GATE])] == [Rate(1, 5 * SECOND)]
        clock.advance(5 * SECOND)
        await work(other, 1)
        assert await gate_of(other, clock) == "closed"


async def test_an_operator_may_let_it_through() -> None:
    """Resumed by a person, its gate grants probes at once; limits of the provider's own gate stay."""
    clock = ManualClock()
    app, _ = process(MemoryStore(clock=clock), [DOWN] * 10)
    async with app:
        await app.manager.set_gate("provider/scan", concurrency=33, who="mina")
        await fill(app, 40)
        await work(app, 10)
        await app.manager.resume(GATE, who="mina")
        assert await work(app, 10) == 1
        [usage] = await app.manager.gates(["provider/scan"])
        assert usage.gate == Gate(name="provider/scan", concurrency=33)


async def test_each_provider_or_account_has_a_circuit_of_its_own() -> None:
    """A broken account closes no door to the others, if it is to be so."""
    clock = ManualClock()
    handler = ScriptedHandler("scan", dict, submit=[DOWN] * 10)
    app = App(MemoryStore(clock=clock), [handler], admission=circuit_breaker(per="account"))
    async with app:
        for account in ("eu", "us", None):
            for number in range(10):
                options = SubmitOptions(account_id=account)
                await app.manager.submit({"n": number}, tracking_timeout=timedelta(hours=1), options=options)
        await work(app, 10)
        [usage] = [each for each in await app.manager.gates() if each.gate.pause]
        assert usage.gate.name == named("breaker", "scan", "eu")
        await app.worker(queries=0).run_once()
        left = [task for task in await app.manager.find() if task.status is Status.PENDING_SUBMIT]
        assert {task.route.account_id for task in left} == {"eu"}


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"window": timedelta()}, "window must be positive"),
        ({"min_calls": 0}, "min_calls must be at least 1"),
        ({"failure_rate": 0}, "failure_rate must be above 0, and at most 1"),
        ({"failure_rate": 1.1}, "failure_rate must be above 0, and at most 1"),
        ({"open_for": timedelta()}, "open_for must be positive"),
        ({"max_open": SECOND}, "max_open must not be below open_for"),
        ({"probes": 0}, "probes must be at least 1"),
        ({"probe_every": timedelta()}, "probe_every must be positive"),
        ({"successes": 0}, "successes must be at least 1"),
        ({"per": "planet"}, "per must be 'provider' or 'account'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        circuit_breaker(**settings)


def test_however_often_it_opens_the_time_has_a_limit() -> None:
    """Doubling ends at the maximum, also where the double would be no duration any more."""
    policy = circuit_breaker(open_for=timedelta(days=1), max_open=timedelta(days=3))
    assert [policy._pause(level).days for level in (0, 1, 2, 31)] == [1, 2, 3, 3]
