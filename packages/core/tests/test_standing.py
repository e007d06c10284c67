"""What selectors learn of how the candidates stand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import (
    App,
    Gate,
    Load,
    Outcomes,
    QueryResult,
    Rate,
    Selection,
    StandardAdmission,
    Standing,
    SubmitOptions,
    SubmitRejected,
    TaskChange,
    gates,
)
from coatcheck.errors import StoreUnavailable
from coatcheck.gates import Gates, GateUsage
from coatcheck.memory import MemoryStore
from coatcheck.store import Stats
from coatcheck.task import TaskDraft
from coatcheck.testing import ManualClock, ScriptedHandler, memory_app, run_to_end

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@frozen
class Page:
    """What both handlers take."""

    url: str = "https://example.com/a.png"


Look = Callable[[Standing], Awaitable[None]]


class Asker:
    """Takes the first candidate, after a look at how they stand."""

    look: Look | None = None

    async def __call__(self, selection: Selection) -> str:
        """Look."""
        if self.look is not None:
            await self.look(selection.standing)
        return selection.candidates[0]


def scan(key: str, **script: object) -> ScriptedHandler[Page]:
    """Return a handler of pages."""
    return ScriptedHandler(key, Page, **script)  # type: ignore[arg-type] # as the test says


async def submit(app: App, **options: object) -> None:
    """Submit a page."""
    given = SubmitOptions(**options)  # type: ignore[arg-type] # as the test says
    await app.manager.submit(Page(), tracking_timeout=HOUR, options=given)


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the store each time."""
    monkeypatch.setattr("coatcheck.standing.FRESH", timedelta())
    monkeypatch.setattr("coatcheck.standing.COST_SHARE", 0)


async def test_a_standing_made_by_hand_knows_nothing() -> None:
    """Whoever asks a selector without a store gives it nothing to go by, and it answers all the same."""
    standing = Selection(params=None, options={}, candidates=("a",)).standing
    assert (await standing.gates(), await standing.load(), await standing.outcomes(HOUR)) == ({}, {}, {})


async def test_each_candidate_has_its_own_gates() -> None:
    """Gates are those that this very task would pass there, by its account and tenant, with pause and usage."""
    seen: dict[str, list[str]] = {}
    paused: dict[str, list[str]] = {}

    async def look(standing: Standing) -> None:
        for key, usages in (await standing.gates()).items():
            seen[key] = [usage.gate.name for usage in usages]
            paused[key] = [usage.gate.name for usage in usages if usage.gate.pause]

    asker = Asker()
    asker.look = look
    async with memory_app(scan("a"), scan("b"), selector=asker) as app:
        await app.manager.set_gate(gates.provider("a"), concurrency=3)
        await app.manager.set_gate(gates.account("b", "eu"), rate=Rate(5))
        await app.manager.set_gate(gates.tenant("acme"), concurrency=9)
        await app.manager.pause(gates.provider("b"), reason="maintenance")
        await submit(app, account_id="eu", tenant_id="acme")
        assert seen == {
            "a": ["provider/a", "tenant/acme"],
            "b": ["account/b/eu", "provider/b", "tenant/acme"],
        }
        assert paused == {"a": [], "b": ["provider/b"]}
        await submit(app)
        assert seen == {"a": ["provider/a"], "b": ["provider/b"]}


async def test_a_pause_that_has_ended_is_none() -> None:
    """Selectors need no clock: where a pause is told, the gate grants nothing now."""
    clock = ManualClock()
    seen: list[bool] = []

    async def look(standing: Standing) -> None:
        seen.append(any(usage.gate.pause for usage in (await standing.gates())["a"]))

    asker = Asker()
    asker.look = look
    async with memory_app(scan("a"), scan("b"), selector=asker, clock=clock) as app:
        await app.manager.pause(gates.provider("a"), reason="429", until=clock.now() + MINUTE)
        await submit(app)
        clock.advance(2 * MINUTE)
        await submit(app)
    assert seen == [True, False]


async def test_limits_that_nobody_has_applied_yet_are_told() -> None:
    """A policy's own limits count before the first task has defined the gate."""
    seen: list[int | None] = []

    async def look(standing: Standing) -> None:
        seen.extend(usage.gate.concurrency for usage in (await standing.gates())["a"])

    asker = Asker()
    asker.look = look
    limits = StandardAdmission(limits=[Gate(name=gates.provider("a"), concurrency=2)])
    async with memory_app(scan("a"), scan("b"), selector=asker, admission=limits) as app:
        await submit(app)
        await submit(app)
    assert seen == [2, 2]


async def test_load_counts_what_waits_and_what_is_under_way() -> None:
    """Each candidate has its own tasks that have not ended."""
    clock = ManualClock()
    seen: list[dict[str, Load]] = []

    async def look(standing: Standing) -> None:
        seen.append(dict(await standing.load()))

    asker = Asker()
    asker.look = look
    going = scan("a", query=[QueryResult.running()])
    async with memory_app(going, scan("b"), selector=asker, clock=clock) as app:
        await submit(app)
        await app.worker().run_once()
        await submit(app)
        await submit(app, handler_key="b")
        await submit(app)
        await run_to_end(app, clock)
        await submit(app)
    nothing = Load()
    assert seen == [
        {"a": nothing, "b": nothing},
        {"a": Load(active=1), "b": nothing},
        {"a": Load(waiting=1, active=1), "b": Load(waiting=1)},
        {"a": nothing, "b": nothing},
    ]
    assert Load(waiting=1, active=2).total == 3


async def test_what_was_just_sent_counts_before_the_store_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A burst within a second does not go to one handler as if it had nothing to do."""
    monkeypatch.setattr("coatcheck.standing.FRESH", HOUR)
    seen: list[int] = []

    async def look(standing: Standing) -> None:
        seen.append((await standing.load())["a"].waiting)

    asker = Asker()
    asker.look = look
    async with memory_app(scan("a"), scan("b"), selector=asker) as app:
        for _ in range(4):
            await submit(app)
    assert seen == [0, 1, 2, 3]


async def test_outcomes_are_those_since_it_was_first_asked() -> None:
    """What has ended well and badly is told by handler; cancelled tasks and those before do not count."""
    clock = ManualClock()
    seen: list[dict[str, Outcomes]] = []

    async def look(standing: Standing) -> None:
        seen.append(dict(await standing.outcomes(HOUR)))

    asker = Asker()
    refused = [SubmitRejected("no")] * 3
    async with memory_app(scan("a", submit=refused[:2]), scan("b"), selector=asker, clock=clock) as app:
        await submit(app)
        await run_to_end(app, clock)
        asker.look = look
        await submit(app)
        await submit(app, handler_key="b")
        await run_to_end(app, clock)
        await submit(app)
        task = await app.manager.submit(Page(), tracking_timeout=HOUR)
        await app.manager.cancel(task.id)
        await run_to_end(app, clock)
        await submit(app)
    assert seen[0] == {"a": Outcomes(), "b": Outcomes()}
    assert seen[1] == {"a": Outcomes(bad=1), "b": Outcomes(good=1)}
    assert seen[-1] == {"a": Outcomes(good=1, bad=1), "b": Outcomes(good=1)}


async def test_purged_tasks_are_no_outcomes() -> None:
    """Where counts fall, nothing is told, rather than something wrong."""
    clock = ManualClock()
    seen: list[Outcomes] = []

    async def look(standing: Standing) -> None:
        seen.append((await standing.outcomes(HOUR))["a"])

    asker = Asker()
    asker.look = look
    async with memory_app(scan("a"), scan("b"), selector=asker, clock=clock) as app:
        await submit(app)
        await run_to_end(app, clock)
        await submit(app)
        await app.store.purge(clock.now() + HOUR)
        await submit(app)
    assert seen == [Outcomes(), Outcomes(good=1), Outcomes(good=1)]


async def test_the_store_is_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many submissions in a second cost one question, also if they come at once; an old answer serves meanwhile."""
    monkeypatch.setattr("coatcheck.standing.FRESH", HOUR)
    asked: list[str] = []

    class Counting(MemoryStore):
        async def stats(self) -> Stats:
            asked.append("stats")
            await asyncio.sleep(0)
            return await super().stats()

    async def look(standing: Standing) -> None:
        await standing.load()
        await standing.outcomes(HOUR)

    asker = Asker()
    asker.look = look
    async with App(Counting(), [scan("a"), scan("b")], selector=asker) as app:
        for _ in range(5):
            await submit(app)
        assert asked == ["stats"]
        await asyncio.gather(*(submit(app) for _ in range(20)))
    assert asked == ["stats"]


async def test_nobody_asks_nothing_is_asked() -> None:
    """A selector that does not look costs the store nothing."""

    class Untouched(MemoryStore):
        async def stats(self) -> Stats:
            raise AssertionError

        async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
            raise AssertionError

    async with App(Untouched(), [scan("a"), scan("b")], selector=Asker()) as app:
        await submit(app)


async def test_policies_that_observe_are_told_what_was_committed() -> None:
    """A selector or retry policy with `coatcheck_tasks_changed` is an observer of its app, once."""
    told: list[str] = []

    class Watching(Asker):
        def coatcheck_tasks_changed(self, changes: Sequence[TaskChange]) -> None:
            told.extend(change.event for change in changes)

    watching = Watching()
    async with memory_app(scan("a"), scan("b"), selector=watching, observers=[watching]) as app:
        await submit(app)
    assert told == ["created"]


async def test_an_old_answer_serves_while_a_newer_one_is_fetched() -> None:
    """A slow store holds up one submission, not all; and one that fails is asked again."""
    gate, fail = asyncio.Event(), [False]
    gate.set()

    class Slow(MemoryStore):
        async def stats(self) -> Stats:
            await gate.wait()
            if fail[0]:
                raise StoreUnavailable
            return await super().stats()

    async def look(standing: Standing) -> None:
        await standing.load()

    asker = Asker()
    asker.look = look
    async with App(Slow(), [scan("a"), scan("b")], selector=asker) as app:
        await submit(app)
        gate.clear()
        first = asyncio.ensure_future(submit(app))
        await asyncio.sleep(0)
        await asyncio.wait_for(submit(app), 5)
        assert not first.done()
        fail[0] = True
        gate.set()
        with pytest.raises(StoreUnavailable):
            await first
        with pytest.raises(StoreUnavailable):
            await submit(app)
        fail[0] = False
        await submit(app)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand tenants, each with a gate, leave no ten thousand answers behind."""
    monkeypatch.setattr("coatcheck.standing.MAX_KEPT", 3)
    monkeypatch.setattr("coatcheck.standing.FRESH", HOUR)
    asked: list[tuple[str, ...]] = []

    class Counting(MemoryStore):
        async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
            asked.append(tuple(names or ()))
            return await super().gates(names)

    async def look(standing: Standing) -> None:
        await standing.gates()

    asker = Asker()
    asker.look = look
    async with App(Counting(), [scan("a"), scan("b")], selector=asker) as app:
        for tenant in ("one", "one", "two", "three", "four", "four", "one"):
            await submit(app, tenant_id=tenant)
    assert len(asked) == 5


async def test_a_task_without_gates_asks_for_none() -> None:
    """A policy may name no gate at all."""

    class Open(StandardAdmission):
        def gates_for(self, draft: TaskDraft) -> Gates:
            return Gates()

    seen: list[dict[str, list[GateUsage]]] = []

    async def look(standing: Standing) -> None:
        seen.append({key: list(usages) for key, usages in (await standing.gates()).items()})

    asker = Asker()
    asker.look = look
    async with memory_app(scan("a"), scan("b"), selector=asker, admission=Open()) as app:
        await submit(app)
    assert seen == [{"a": [], "b": []}]
