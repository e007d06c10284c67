import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck import (
    App,
    InvalidParams,
    QueryResult,
    Status,
    SubmitDeferred,
    SubmitOptions,
    SubmitRejected,
    Task,
)
from coatcheck.memory import MemoryStore
from coatcheck.tallies import Count, Counted
from coatcheck.testing import ManualClock, ScriptedHandler, make_task
from coatcheck_admissions import DailyBudget, daily_budget, time_window

HOUR = timedelta(hours=1)
Handler = ScriptedHandler[dict[str, Any]]
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Charging(ScriptedHandler[dict[str, Any]]):
    """A handler that tells what its jobs cost."""

    def cost(self, task: Task) -> int | None:
        """Read it from the result."""
        result = task.result
        return result.get("cents") if isinstance(result, dict) else None


def process(store: MemoryStore, policy: DailyBudget, steps: Sequence[Any] = (), **script: Any) -> App:
    """Return an app, as one process of a fleet has it."""
    return App(store, [Charging("scan", dict, submit=steps, **script)], admission=policy)


async def fill(app: App, count: int, **options: Any) -> list[Task]:
    """Submit so many tasks."""
    return [
        await app.manager.submit(
            {"n": n}, tracking_timeout=99 * HOUR, options=SubmitOptions(**options) if options else None
        )
        for n in range(count)
    ]


async def waiting(app: App) -> list[Task]:
    """Return the tasks that wait to be submitted."""
    return [task for task in await app.manager.find() if task.status is Status.PENDING_SUBMIT]


def nearly(at: datetime, wanted: datetime) -> bool:
    """Whether it is so, but for what the worker's own clock went on while the manual one stood still."""
    return timedelta() <= wanted - at < timedelta(minutes=1)


async def spent(app: App) -> dict[str, int]:
    """Return what was counted, by tally."""
    return {each.name: each.total for each in await app.manager.tallies("budget/")}


async def test_by_count_it_is_exact_across_processes() -> None:
    """Two that claim at once start no more than the limit; the rest waits for midnight, with the numbers told."""
    clock = ManualClock(NOON)
    store = MemoryStore(clock=clock)
    one, other = (process(store, daily_budget(25)) for _ in range(2))
    async with one:
        await fill(one, 60)
        workers = [app.worker(submissions=30, queries=0) for app in (one, other)]
        await asyncio.gather(*(worker.run_once() for worker in workers))
        assert await spent(one) == {"budget/count/provider/scan/2030-01-01": 25}
        left = await waiting(one)
        assert len(left) == 35
        assert all(nearly(task.schedule.due_at, NOON + 12 * HOUR) for task in left)
        told = "postponed: 25 submissions of 25 in the daily budget of the provider are spent on 2030-01-01 (UTC)"
        assert left[0].history[-1].note == told
        clock.set(NOON + 12 * HOUR)
        await one.worker(submissions=30, queries=0).run_once()
        assert await spent(one) == {
            "budget/count/provider/scan/2030-01-01": 25,
            "budget/count/provider/scan/2030-01-02": 25,
        }


async def test_a_started_submission_counts_whatever_comes_of_it() -> None:
    """Rejected or put off: it was sent."""
    clock = ManualClock(NOON)
    steps = [SubmitRejected("no"), SubmitDeferred("busy"), ConnectionResetError("lost")]
    app = process(MemoryStore(clock=clock), daily_budget(9), steps)
    async with app:
        await fill(app, 4)
        await app.worker(queries=0).run_once()
        assert [*(await spent(app)).values()] == [4]


@pytest.mark.parametrize("reason", ["postponed", "cancelled", "not started"])
async def test_a_claim_that_is_given_back_unspent_is_counted_back(reason: str) -> None:
    """Postponed by a policy around it, cancelled before the call, or never started: nothing was sent."""
    clock = ManualClock(NOON)
    store = MemoryStore(clock=clock)
    budget = daily_budget(5)
    app = process(store, budget)
    policy = _Refusing(budget) if reason == "postponed" else budget
    app = App(store, [Handler("scan", dict)], admission=policy)
    async with app:
        tasks = await fill(app, 3)
        start = store.start

        async def meanwhile(claims: Sequence[Task], lease: timedelta) -> Any:
            if reason == "not started":
                raise ConnectionError
            assert [*(await spent(app)).values()] == [3]
            for task in tasks:
                await app.manager.cancel(task.id)
            return await start(claims, lease)

        if reason != "postponed":
            store.start = meanwhile  # type: ignore[method-assign,assignment] # it has the same arguments
        worker = app.worker(queries=0)
        if reason == "not started":
            with pytest.raises(ConnectionError):
                await worker.run_once()
            store.start = start  # type: ignore[method-assign]
            await worker.drain()
        else:
            await worker.run_once()
        assert sum((await spent(app)).values()) == 0
        assert not budget._admitted


class _Refusing(DailyBudget):
    """A policy that lets the one inside admit a task, and then does not."""

    def __init__(self, inner: DailyBudget) -> None:
        super().__init__(inner=inner, limit=1, per="tenant")

    async def admit(self, task: Task, now: datetime) -> Any:
        await self.inner.admit(task, now)
        return self._tomorrow(now.date(), "none")


async def test_a_count_whose_answer_came_too_late_is_taken_back() -> None:
    """The worker has given the task up meanwhile, so it was counted for nobody."""
    clock = ManualClock(NOON)
    policy = daily_budget(2)
    app = process(MemoryStore(clock=clock), policy)
    async with app:
        go, count = asyncio.Event(), policy.fleet.count

        class Slow:
            async def count(self, counts: Sequence[Count]) -> list[Counted]:
                await go.wait()
                return await count(counts)

        policy.attach(Slow())  # type: ignore[arg-type] # as much as is asked of it
        asking = asyncio.ensure_future(policy.admit(make_task(handler_key="scan"), NOON))
        for _ in range(5):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go.set()
        while not policy._places._owed:
            await asyncio.sleep(0)
        assert [*(await spent(app)).values()] == [1]
        await policy.admit(make_task(handler_key="scan"), NOON)
        assert [*(await spent(app)).values()] == [1]


@pytest.mark.parametrize(
    ("per", "of", "other"),
    [
        ("provider", {}, {"account_id": "eu", "tenant_id": "acme"}),
        ("everything", {}, {"account_id": "eu", "tenant_id": "acme"}),
        ("account", {"account_id": "eu"}, {"account_id": "us"}),
        ("tenant", {"tenant_id": "acme"}, {"tenant_id": "umbrella"}),
    ],
)
async def test_what_has_a_budget_of_its_own(per: Any, of: dict[str, Any], other: dict[str, Any]) -> None:
    """The provider, everything together, each account, or each tenant; who has none has no budget."""
    clock = ManualClock(NOON)
    app = process(MemoryStore(clock=clock), daily_budget(2, per=per))
    async with app:
        for options in (of, other, {}):
            await fill(app, 3, **options)
        await app.worker(queries=0).run_once()
        shared = per in {"provider", "everything"}
        assert len(await waiting(app)) == (7 if shared else 2)
        assert [*(await spent(app)).values()] == ([2] if shared else [2, 2])
        assert all(name.startswith(f"budget/count/{per}") for name in await spent(app))


def cost(cents: int | None) -> QueryResult:
    """Return the end of a job that costs so much."""
    return QueryResult.succeeded({"cents": cents})


async def test_by_cost_it_counts_what_ended_jobs_cost() -> None:
    """Until the limit is reached; what is under way then is not stopped."""
    clock = ManualClock(NOON)
    policy = daily_budget(100, by="cost", default_cost=7)
    app = process(MemoryStore(clock=clock), policy, query=[cost(60), cost(None), cost(33), cost(50)])
    async with app:
        await fill(app, 4)
        await app.worker().run_once()
        clock.advance(timedelta(minutes=1))
        await app.worker().drain()
        assert await spent(app) == {"budget/cost/provider/scan/2030-01-01": 150}
        await fill(app, 1)
        await app.worker().run_once()
        [left] = await waiting(app)
        assert nearly(left.schedule.due_at, NOON + 12 * HOUR)
        assert "costs of 150 of 100 in the daily budget" in left.history[-1].note
        clock.set(NOON + 12 * HOUR)
        await app.worker().run_once()
        assert await waiting(app) == []


async def test_what_was_never_submitted_costs_nothing() -> None:
    """Rejected and cancelled tasks; one that ends in doubt may be charged, and counts the default."""
    clock = ManualClock(NOON)
    policy = daily_budget(100, by="cost", default_cost=7)
    steps = [SubmitRejected("no"), ConnectionResetError("lost")]
    app = process(MemoryStore(clock=clock), policy, steps)
    async with app:
        tasks = await fill(app, 3)
        await app.manager.cancel(tasks[2].id)
        await app.worker().run_once()
        assert [*(await spent(app)).values()] == [7]


@pytest.mark.parametrize(
    ("zone", "now", "midnight", "day"),
    [
        ("Europe/Berlin", "2030-03-30T23:30+00:00", "2030-03-31T22:00+00:00", "2030-03-31"),  # 23 hours
        ("Europe/Berlin", "2030-10-26T22:30+00:00", "2030-10-27T23:00+00:00", "2030-10-27"),  # 25 hours
        ("Asia/Shanghai", "2030-01-01T15:59+00:00", "2030-01-01T16:00+00:00", "2030-01-01"),
        (
            "America/Sao_Paulo",
            "2018-11-03T12:00+00:00",
            "2018-11-04T03:00+00:00",
            "2018-11-03",
        ),  # no midnight
        (
            "America/Havana",
            "2022-11-05T12:00+00:00",
            "2022-11-06T04:00+00:00",
            "2022-11-05",
        ),  # midnight twice
        ("Pacific/Apia", "2011-12-29T12:00+00:00", "2011-12-30T10:00+00:00", "2011-12-29"),  # no 30 December
    ],
)
async def test_days_are_those_of_the_zone(zone: str, now: str, midnight: str, day: str) -> None:
    """Also where clocks go forward or back, and where a day has no midnight, or two."""
    clock = ManualClock(datetime.fromisoformat(now))
    app = process(MemoryStore(clock=clock), daily_budget(1, zone=zone))
    async with app:
        await fill(app, 2)
        await app.worker(queries=0).run_once()
        assert [*(await spent(app))] == [f"budget/count/provider/scan/{day}"]
        [left] = await waiting(app)
        assert nearly(left.schedule.due_at, datetime.fromisoformat(midnight))


async def test_two_budgets_have_numbers_of_their_own() -> None:
    """One inside the other, and the hours around both."""
    clock = ManualClock(NOON)
    inner = daily_budget(3, per="tenant")
    policy = time_window("10:00-14:00", inner=daily_budget(5, inner=inner))
    app = App(MemoryStore(clock=clock), [Handler("scan", dict)], admission=policy)
    async with app:
        for tenant in ("acme", "umbrella"):
            await fill(app, 4, tenant_id=tenant)
        await app.worker(queries=0).run_once()
        assert await spent(app) == {
            "budget/count/provider/scan/2030-01-01": 5,
            "budget/count/tenant/acme/2030-01-01": 3,
            "budget/count/tenant/umbrella/2030-01-01": 2,
        }


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"per": "planet"}, "per must be one of provider, account, tenant, everything"),
        ({"by": "weight"}, "by must be 'count' or 'cost'"),
        ({"default_cost": -1}, "default_cost must not be negative"),
        (
            {"zone": "Mars/Olympus"},
            "there is no time zone 'Mars/Olympus' here; write one such as 'Europe/Paris'",
        ),
        ({"zone": ""}, "there is no time zone '' here"),
        ({"zone": "../etc"}, "there is no time zone"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        daily_budget(**{"limit": 1, **settings})
