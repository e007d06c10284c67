import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck import (
    AdmissionPolicy,
    App,
    Gate,
    Gates,
    Rate,
    StandardAdmission,
    Status,
    Submission,
    SubmitDeferred,
    SubmitOptions,
    SubmitRejected,
    TaskChange,
    gates,
)
from coatcheck.gates import Fleet, GateChange, SetGate
from coatcheck.memory import MemoryStore
from coatcheck.task import TaskDraft
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end
from coatcheck_admissions import (
    Wrapping,
    adaptive_rate,
    circuit_breaker,
    daily_budget,
    fair_share,
    time_window,
)

Handler = ScriptedHandler[dict[str, Any]]
HOUR = timedelta(hours=1)


class Inside(AdmissionPolicy):
    """A policy of somebody else's, which knows nothing of being inside another."""

    def __init__(self) -> None:
        self.fleet: Fleet | None = None
        self.observed: list[str] = []

    def attach(self, fleet: Fleet) -> None:
        """Remember it."""
        self.fleet = fleet

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name gates that no other has."""
        return Gates(submit=["mine"], query="asked")

    async def credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Give everybody an hour."""
        return [HOUR] * len(drafts)

    def observe(self, change: TaskChange) -> Sequence[GateChange]:
        """Remember it, and limit a gate."""
        self.observed.append(change.event)
        return [SetGate(name="mine", concurrency=7)]


def five(inner: AdmissionPolicy, **budget: Any) -> AdmissionPolicy:
    """Return all five policies, one within another."""
    policy: AdmissionPolicy = daily_budget(**{"limit": 30, "inner": inner, **budget})
    policy = time_window("06:00-22:00", below_priority=0, inner=policy)
    return fair_share(inner=circuit_breaker(inner=adaptive_rate(inner=policy)))


async def test_what_is_innermost_is_asked_about_everything() -> None:
    """Its gates, its credits, its answers, and the fleet: through all five."""
    inside = Inside()
    app = App(MemoryStore(clock=ManualClock()), [Handler("scan", dict)], admission=five(inside))
    async with app:
        submissions = [Submission(params={"n": n}, tracking_timeout=HOUR) for n in range(2)]
        tasks = await app.manager.submit_many(submissions)
        assert tasks[0].route.gates == ("adaptive/scan", "breaker/scan", "mine")
        assert tasks[0].route.query_gate == "asked"
        assert [task.schedule.rank.credit for task in tasks] == [HOUR, HOUR - timedelta(seconds=1)]
        await app.worker().run_once()
        assert "Accepted" in inside.observed
        assert inside.fleet is not None
        assert (await inside.fleet.gates(["mine"]))["mine"].gate.concurrency == 7
        draft = await app.manager.prepare(submissions[0])
        assert app._admission.gates_for(draft).query == "asked"


async def test_all_five_together_in_two_processes() -> None:
    """The budget is kept, everybody has turns, the failing provider is left alone, limits stay, all tasks end."""
    clock = ManualClock(datetime(2030, 1, 1, 5, tzinfo=UTC))
    store = MemoryStore(clock=clock)
    steps = [SubmitDeferred("HTTP 503")] * 12 + [SubmitRejected("no")]
    handler = ScriptedHandler("scan", dict, submit=steps)
    limits = [Gate(name=gates.provider("scan"), concurrency=9, rate=Rate(50))]
    one, other = (App(store, [handler], admission=five(StandardAdmission(limits=limits))) for _ in range(2))
    async with one:
        for app, tenant, count in ((one, "big", 40), (other, "small", 4)):
            options = SubmitOptions(tenant_id=tenant, priority=-1)
            await app.manager.submit_many(
                [
                    Submission(params={"of": tenant}, tracking_timeout=99 * HOUR, options=options)
                    for _ in range(count)
                ]
            )
        await one.worker().run_once()
        assert handler.submitted == []  # it is before six
        tasks = await run_to_end(one, clock)
        assert {task.status for task in tasks} == {Status.SUCCEEDED, Status.FAILED}
        whose = [params["of"] for params, _ in handler.submitted]
        assert whose[:24].count("small") >= 4
        budget = {each.name[-10:]: each.total for each in await one.manager.tallies("budget/")}
        assert budget == {"2030-01-01": 30, "2030-01-02": len(whose) - 30}
        assert len(whose) == 44 + 12
        opened = [each.reason for each in await one.manager.gate_history("breaker/scan")]
        assert "submissions failed within 30 s" in str(opened)
        [usage] = await one.manager.gates([gates.provider("scan")])
        assert (usage.gate.concurrency, usage.gate.rate) == (9, Rate(50))


class Broken(Wrapping):
    """A policy that cannot answer."""

    async def own_settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Fail."""
        message = "broken"
        raise ValueError(message)


async def test_one_that_fails_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Inside or outside: it is named in the log, and the others answer."""
    clock = ManualClock()
    handler = ScriptedHandler("scan", dict, submit=[SubmitDeferred("HTTP 503")] * 10)
    policy = Broken(inner=circuit_breaker(inner=Broken()))
    app = App(MemoryStore(clock=clock), [handler], admission=policy)
    async with app:
        for _ in range(10):
            await app.manager.submit({}, tracking_timeout=HOUR)
        await app.worker().run_once()
        [usage] = [each for each in await app.manager.gates() if each.gate.pause]
        assert usage.gate.name == "breaker/scan"
    failed = [each for each in caplog.records if "failed to answer what was settled" in each.getMessage()]
    assert len(failed) >= 2
    assert all(each.levelno == logging.ERROR for each in failed)
