from datetime import timedelta
from typing import Any

import pytest

from coatcheck import App, InvalidParams, Rate, Submission, SubmitOptions, gates
from coatcheck.memory import MemoryStore
from coatcheck.testing import ManualClock, ScriptedHandler, memory_app
from coatcheck_admissions import FairShare, fair_share

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
Handler = ScriptedHandler[dict[str, Any]]


def batch(count: int, name: str = "", **options: Any) -> list[Submission]:
    """Return so many submissions."""
    given = SubmitOptions(**options)
    return [
        Submission(params={"of": name, "n": n}, tracking_timeout=999 * HOUR, options=given)
        for n in range(count)
    ]


def of(name: str, count: int, **options: Any) -> list[Submission]:
    """Return so many submissions of one tenant."""
    return batch(count, name, tenant_id=name, **options)


async def order(app: App, handler: Handler) -> list[str]:
    """Submit what waits, one after the other; return whose tasks went when."""
    before = len(handler.submitted)
    await app.worker(submissions=1, queries=0).drain()
    return [params["of"] for params, _ in handler.submitted[before:]]


def fair(clock: ManualClock, **settings: Any) -> tuple[App, Handler]:
    """Return an app whose queue is fair, and its handler."""
    handler: Handler = ScriptedHandler("scan", dict)
    return memory_app(handler, clock=clock, admission=fair_share(**settings)), handler


async def test_three_tasks_do_not_wait_behind_a_thousand() -> None:
    """They take turns with those that were there before; and nothing is left undone."""
    clock = ManualClock()
    app, handler = fair(clock)
    async with app:
        await app.manager.submit_many(of("big", 1_000))
        clock.advance(timedelta(milliseconds=1500))
        await app.manager.submit_many(of("small", 3))
        told = await order(app, handler)
        assert [at for at, name in enumerate(told) if name == "small"] == [2, 4, 6]
        assert len(told) == 1_003


async def test_turns_are_taken_across_processes_and_single_submissions() -> None:
    """One process queues for one tenant, another for two: all have equal turns."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    handler: Handler = ScriptedHandler("scan", dict)
    one, other = (App(store, [handler], admission=fair_share()) for _ in range(2))
    async with one:
        await one.manager.submit_many(of("a", 20))
        await other.manager.submit_many([*of("b", 10), *of("c", 10)])
        for _ in range(10):
            await other.manager.submit_many(of("b", 1))
        told = await order(one, handler)
        assert [sorted(told[at : at + 3]) for at in range(0, 30, 3)] == [["a", "b", "c"]] * 10
        assert sorted(told[30:]) == ["a"] * 10 + ["b"] * 10


async def test_weights_are_shares() -> None:
    """A tenant of weight three has three turns in four."""
    clock = ManualClock()
    app, handler = fair(clock, weights={"gold": 3})
    async with app:
        await app.manager.submit_many([*of("iron", 40), *of("gold", 40)])
        told = await order(app, handler)
        assert 29 <= told[:40].count("gold") <= 31


async def test_those_without_a_tenant_share_one_lane() -> None:
    """And take turns with the tenants."""
    clock = ManualClock()
    app, handler = fair(clock)
    async with app:
        await app.manager.submit_many([*batch(10, "nobody"), *of("acme", 10)])
        told = await order(app, handler)
        assert [sorted(told[at : at + 2]) for at in range(0, 20, 2)] == [["acme", "nobody"]] * 10


@pytest.mark.parametrize("by", ["account", "handler", "metadata:team"])
async def test_others_than_tenants_may_take_turns(by: str) -> None:
    """Accounts, handlers, or whatever the caller notes; a long name is no trouble."""
    clock = ManualClock()
    handlers: list[Handler] = [ScriptedHandler(key, dict, provider_key="scan") for key in ("a", "b")]
    app = memory_app(*handlers, clock=clock, admission=fair_share(by=by))
    async with app:
        for name in ("a", "b"):
            notes = {"team": name * 500}
            await app.manager.submit_many(batch(5, name, handler_key=name, account_id=name, metadata=notes))
        credits_ = [task.schedule.rank.credit for task in await app.manager.find()]
        assert sorted(credits_) == sorted([*(-n * SECOND for n in range(5))] * 2)
        tallies = await app.manager.tallies("fair/")
        assert len(tallies) == 2
        assert all(len(each.name) < 100 for each in tallies)


async def test_who_submits_little_is_never_behind() -> None:
    """Less than a task in each spacing leaves nothing to make up for."""
    clock = ManualClock()
    app, _ = fair(clock)
    async with app:
        for _ in range(5):
            [task] = await app.manager.submit_many(of("a", 1))
            assert task.schedule.rank.credit == timedelta()
            clock.advance(SECOND)


async def test_credits_are_never_positive_and_add_up_with_ageing() -> None:
    """What priority is worth counts on top; strict priority goes before fairness."""
    clock = ManualClock()
    handler: Handler = ScriptedHandler("scan", dict)
    app = memory_app(handler, clock=clock, admission=fair_share(), priority_ageing=HOUR)
    async with app:
        tasks = await app.manager.submit_many(of("a", 3, priority=2))
        assert [task.schedule.rank.credit for task in tasks] == [2 * HOUR - n * SECOND for n in range(3)]
    app, handler = fair(ManualClock())
    async with app:
        await app.manager.submit_many(of("busy", 10, priority=1))
        await app.manager.submit_many(of("idle", 3))
        assert (await order(app, handler))[-3:] == ["idle"] * 3


async def test_a_delayed_task_keeps_its_place_among_those_of_its_time() -> None:
    """The delay counts from the store's time, and the turn is taken then."""
    clock = ManualClock()
    app, handler = fair(clock)
    async with app:
        await app.manager.submit_many([*of("a", 5, delay=HOUR), *of("b", 5, delay=HOUR)])
        clock.advance(HOUR)
        told = await order(app, handler)
        assert [sorted(told[at : at + 2]) for at in range(0, 10, 2)] == [["a", "b"]] * 5


async def test_a_debt_is_forgotten_after_an_hour_without_submissions() -> None:
    """A tenant that had much when nobody else wanted anything is not held back for days; until then it is."""
    clock = ManualClock()
    app, _ = fair(clock)
    async with app:
        await app.manager.submit_many(of("a", 10_000))
        clock.advance(timedelta(minutes=59))
        [task] = await app.manager.submit_many(of("a", 1))
        assert task.schedule.rank.credit == -(10_000 - 59 * 60) * SECOND
        clock.advance(timedelta(minutes=60))
        [task] = await app.manager.submit_many(of("a", 1))
        assert task.schedule.rank.credit == timedelta()


async def test_a_backlog_older_than_the_memory_starves_nobody() -> None:
    """Submitted in many batches, hours ago, at one task a second: three of another still take turns."""
    clock = ManualClock()
    app, handler = fair(clock, memory=10 * SECOND)
    async with app:
        await app.manager.set_gate(gates.provider("scan"), rate=Rate(1, SECOND))
        for _ in range(10):
            await app.manager.submit_many(of("big", 20))
        for _ in range(60):
            await app.worker(submissions=1, queries=0).drain()
            clock.advance(SECOND)
        done = len(handler.submitted)
        await app.manager.submit_many([*of("big", 100), *of("small", 3)])
        for _ in range(10):
            await app.worker(submissions=1, queries=0).drain()
            clock.advance(SECOND)
        assert [params["of"] for params, _ in handler.submitted[done:]].count("small") == 3


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"spacing": timedelta(microseconds=1)}, "spacing must be a millisecond or longer"),
        ({"memory": timedelta(milliseconds=1)}, "memory must not be below spacing"),
        ({"weights": {"a": 0}}, "weights must be above 0"),
        ({"weights": {"a": float("inf")}}, "weights must be above 0"),
        ({"by": "mood"}, "by must be one of tenant, account, handler, or 'metadata:' and a name"),
        ({"by": "metadata:"}, "by must be one of"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], rule: str) -> None:
    """When it is made, by the rule."""
    with pytest.raises(InvalidParams, match=rule):
        fair_share(**settings)


def test_a_light_weight_has_long_steps_and_a_heavy_one_at_least_a_millisecond() -> None:
    """Two milliseconds at half the weight; no step of nothing."""
    policy: FairShare = fair_share(spacing=timedelta(milliseconds=1), weights={"light": 0.5, "heavy": 1e9})
    assert [policy._step(key) for key in ("light", "heavy", None)] == [2, 1, 1]
