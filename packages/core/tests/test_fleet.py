"""What admission policies share with the fleet, and what they answer to what was settled."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import (
    AdmissionPolicy,
    App,
    Rate,
    StandardAdmission,
    Status,
    Submission,
    SubmitOptions,
    TaskChange,
)
from coatcheck import gates as names
from coatcheck.errors import (
    ConfigurationError,
    InvalidParams,
    StoreUnavailable,
    SubmitDeferred,
    UnknownAccount,
)
from coatcheck.faulty import FaultyStore
from coatcheck.fleet import StoreFleet
from coatcheck.gates import DeleteGate, Fleet, Gate, GateAction, GateChange, PauseGate, ResumeGate, SetGate
from coatcheck.handler import SubmitContext
from coatcheck.memory import MemoryStore
from coatcheck.results import SubmitResult
from coatcheck.standing import StoreStanding
from coatcheck.tallies import MAX_TALLY, Count, Counted
from coatcheck.task import Task, TaskDraft
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end

HOUR = timedelta(hours=1)
GATE = names.named("sorted", "scan")


@frozen
class Page:
    """What the handler takes."""

    url: str = "https://example.com/a.png"


class Scan(ScriptedHandler[Page]):
    """A handler that knows what a task costs."""

    def __init__(self, *, cost: object = 3, at_once: bool = True) -> None:
        done = SubmitResult(status=Status.SUCCEEDED, result={"pages": 1})
        super().__init__("scan", Page, submit=[done] * 20 if at_once else [])
        self._cost = cost

    def cost(self, task: Task) -> int | None:
        """Charge for what succeeded."""
        if isinstance(self._cost, Exception):
            raise self._cost
        return self._cost if task.status is Status.SUCCEEDED else None  # type: ignore[return-value]


class Answering(StandardAdmission):
    """Remembers what it is told, and answers with what it was made with."""

    seen: list[Sequence[TaskChange]]
    answers: list[list[GateChange]]
    fleet: Fleet
    wait_for: asyncio.Event | None = None

    def attach(self, fleet: Fleet) -> None:
        """Keep it."""
        object.__setattr__(self, "fleet", fleet)
        object.__setattr__(self, "seen", [])

    async def settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Answer once, after waiting if it is to."""
        self.seen.append(changes)
        if self.wait_for is not None:
            await self.wait_for.wait()
        return self.answers.pop(0) if self.answers else ()


def answering(*answers: list[GateChange], wait_for: asyncio.Event | None = None) -> Answering:
    """Return a policy that answers so."""
    policy = Answering()
    object.__setattr__(policy, "answers", list(answers))
    object.__setattr__(policy, "wait_for", wait_for)
    return policy


def make_app(policy: AdmissionPolicy, handler: Scan | None = None, clock: ManualClock | None = None) -> App:
    """Return an app in memory."""
    return App(MemoryStore(clock=clock or ManualClock()), [handler or Scan()], admission=policy)


async def submit(app: App, count: int = 1, **options: object) -> list[Task]:
    """Submit a few pages."""
    one = Submission(params=Page(), tracking_timeout=HOUR, options=SubmitOptions(**options))  # type: ignore[arg-type]
    return await app.manager.submit_many([one] * count)


# ------------------------------------------------------------------ what was settled


async def test_answers_to_what_was_settled_change_gates() -> None:
    """They are carried out before a worker that drains has ended, whatever they are."""
    policy = answering(
        [SetGate(name=GATE, concurrency=2, rate=Rate(9), who="sorted", reason="a start")],
        [PauseGate(name=GATE, reason="enough", who="sorted")],
        [
            ResumeGate(name=GATE, who="sorted", reason="on"),
            DeleteGate(name=GATE, who="sorted", reason="done"),
        ],
    )
    async with make_app(policy) as app:
        for _ in range(3):
            await submit(app)
            await app.worker().run_once()
        history = await app.manager.gate_history(GATE)
        assert [(each.action, each.who, each.reason) for each in history] == [
            (GateAction.LIMITED, "sorted", "a start"),
            (GateAction.PAUSED, "sorted", "enough"),
            (GateAction.RESUMED, "sorted", "on"),
            (GateAction.DELETED, "sorted", "done"),
        ]
        assert history[1].gate.concurrency == 2
        assert await app.manager.gates([GATE]) == []


async def test_changes_are_told_together_and_in_order() -> None:
    """A policy gets what was committed in one step at once, each task's changes as they came."""
    policy, clock = answering(), ManualClock()
    async with make_app(policy, Scan(at_once=False), clock) as app:
        tasks = await submit(app, 5)
        await run_to_end(app, clock)
    told = [(change.after.id, change.event) for changes in policy.seen for change in changes]
    for task in tasks:
        assert [event for task_id, event in told if task_id == task.id] == ["Accepted", "Finished"]
    assert len(policy.seen) < len(told)


async def test_settling_does_not_wait_for_a_policy() -> None:
    """Tasks end while a policy still thinks; a worker that ends waits for its answer."""
    thought = asyncio.Event()
    policy = answering([PauseGate(name=GATE, reason="thought")], wait_for=thought)
    async with make_app(policy) as app:
        (task,) = await submit(app)
        async with app.worker():
            ended = await app.manager.wait(task.id, timedelta(seconds=20))
            assert ended.status is Status.SUCCEEDED
            assert await app.manager.gates([GATE]) == []
            thought.set()
        (usage,) = await app.manager.gates([GATE])
        assert usage.gate.pause is not None


async def test_a_policy_that_hangs_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time its answer is not waited for any more, and what comes next is told as ever."""
    monkeypatch.setattr("coatcheck.settling.ANSWER_TIMEOUT_SECONDS", 0.05)
    policy = answering(wait_for=asyncio.Event())
    async with make_app(policy) as app:
        await submit(app)
        await app.worker().drain()
        assert "failed to observe" in caplog.text
        object.__setattr__(policy, "wait_for", None)
        await submit(app)
        await app.worker().drain()
    assert len(policy.seen) == 2


async def test_a_slow_policy_keeps_no_more_than_it_can(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is settled while it thinks is bounded; the oldest go without its answer, and the log says so."""
    monkeypatch.setattr("coatcheck.settling.MAX_UNANSWERED", 3)
    thought = asyncio.Event()
    policy = answering(wait_for=thought)
    async with make_app(policy) as app:
        async with app.worker():
            for _ in range(6):
                (task,) = await submit(app)
                await app.manager.wait(task.id, timedelta(seconds=20))
            thought.set()
        assert "changes go without its answer" in caplog.text
    assert all(len(changes) <= 3 for changes in policy.seen[1:])


# ------------------------------------------------------------------ cost


async def test_a_handler_tells_what_a_task_costs() -> None:
    """It is told with the change that ends the task, and with no other."""
    policy, clock = answering(), ManualClock()
    async with make_app(policy, Scan(cost=7, at_once=False), clock) as app:
        await submit(app)
        await run_to_end(app, clock)
    told = [(change.after.status.terminal, change.cost) for changes in policy.seen for change in changes]
    assert told == [(ended, 7 if ended else None) for ended, _ in told]
    assert told[-1] == (True, 7)


@pytest.mark.parametrize("cost", ["much", True, 1.5, ZeroDivisionError("no pages")])
async def test_a_cost_that_cannot_be_told_is_none(cost: object, caplog: pytest.LogCaptureFixture) -> None:
    """A broken handler hurts no task: the log says what it answered."""
    policy = answering()
    async with make_app(policy, Scan(cost=cost)) as app:
        (task,) = await submit(app)
        await app.worker().drain()
        found = await app.manager.get(task.id)
        assert found is not None
        assert found.status is Status.SUCCEEDED
    assert policy.seen[-1][-1].cost is None
    assert "failed to tell the cost" in caplog.text


# ------------------------------------------------------------------ what an error tells


class Failing(ScriptedHandler[Page]):
    """A handler that looks its account up before it goes to the wire."""

    async def submit(self, params: Page, context: SubmitContext) -> SubmitResult:
        """Fail early, or do the next step."""
        early = self._submit[0]
        if isinstance(early, UnknownAccount):
            self._submit.popleft()
            raise early
        return await super().submit(params, context)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SubmitDeferred("busy", rate_limited=True, retry_after=HOUR), (True, HOUR, True)),
        (SubmitDeferred("HTTP 503"), (False, None, True)),
        (SubmitDeferred("no money", blames_provider=False), (False, None, False)),
        (UnknownAccount("no account 'eu'"), (False, None, False)),
        (ConnectionResetError("lost"), (False, None, True)),
    ],
    ids=["429", "error", "money", "ours", "lost"],
)
async def test_a_change_tells_what_an_error_says_of_the_provider(
    error: Exception, told: tuple[bool, timedelta | None, bool]
) -> None:
    """Policies need not guess from words whether the provider is slow, broken, or not to blame."""
    policy = answering()
    handler = Failing("scan", Page, submit=[error])
    async with App(MemoryStore(clock=ManualClock()), [handler], admission=policy) as app:
        await submit(app)
        await app.worker().run_once()
    ((change,),) = policy.seen
    assert (change.rate_limited, change.retry_after, change.blames_provider) == told


async def test_a_fleets_pauses_for_429_are_one_change() -> None:
    """However many workers are told to slow down in turns, what an operator did stays in the gate's history."""
    clock = ManualClock()
    store, gate = MemoryStore(clock=clock), names.provider("scan")
    busy = SubmitDeferred("busy", rate_limited=True, retry_after=timedelta(seconds=5))
    handlers = [ScriptedHandler[Page]("scan", Page, submit=[busy] * 9) for _ in range(2)]
    one, other = (App(store, [handler]) for handler in handlers)
    async with one:
        await one.manager.set_gate(gate, concurrency=9, who="mina", reason="a larger contract")
        await submit(one)
        for app in (one, other, one, other):
            await app.worker().run_once()
            clock.advance(timedelta(minutes=1))
        limited, paused = await one.manager.gate_history(gate)
    assert (limited.who, paused.who, paused.times) == ("mina", "worker", 4)


# ------------------------------------------------------------------ credits


class Crediting(StandardAdmission):
    """Credits by the tenant's name."""

    async def credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Let `late` wait an hour, and count what it cannot."""
        if any(draft.route.tenant_id == "wrong" for draft in drafts):
            return [timedelta()]
        return [-HOUR if draft.route.tenant_id == "late" else timedelta() for draft in drafts]


async def test_credits_order_the_queue() -> None:
    """A task with less credit goes after one that came later, within the same priority."""
    async with make_app(Crediting()) as app:
        (late,) = await submit(app, tenant_id="late")
        (soon,) = await submit(app, tenant_id="soon")
        (urgent,) = await submit(app, tenant_id="late", priority=1)
        claims = await app.store.claim_submissions("worker", ["scan"], 3, HOUR)
        assert [task.id for task in claims.tasks] == [urgent.id, soon.id, late.id]


async def test_credits_that_mean_nothing_are_refused() -> None:
    """A policy that answers for one of two is named, and nothing is added."""
    async with make_app(Crediting()) as app:
        with pytest.raises(ConfigurationError, match="credits each draft with a timedelta"):
            await submit(app, 2, tenant_id="wrong")
        assert await app.manager.find() == []


# ------------------------------------------------------------------ the fleet's tallies


def count(name: str, amount: int = 1) -> Count:
    """Return a count that is remembered for an hour."""
    return Count(name=name, amount=amount, lifetime=HOUR)


async def test_counts_of_one_moment_go_together() -> None:
    """A hundred admissions are one step of the store."""
    store = FaultyStore(MemoryStore(clock=ManualClock()))
    fleet = StoreFleet(store, StoreStanding(store))
    async with store:
        answers = await asyncio.gather(*(fleet.count([count("a"), count("b", 2)]) for _ in range(100)))
        assert sorted(each[0].total for each in answers) == list(range(1, 101))
        assert await fleet.count([]) == []
        assert await store.tallies() == await store.tallies("")
    assert store.calls.count("count") <= 2


async def test_a_count_that_fails_is_its_callers_alone() -> None:
    """What no store can count is refused to whoever wanted it; the others have theirs."""
    store = MemoryStore(clock=ManualClock())
    fleet = StoreFleet(store, StoreStanding(store))
    async with store:
        good, bad, other = await asyncio.gather(
            fleet.count([count("a")]),
            fleet.count([count("b", MAX_TALLY), count("b", 1)]),
            fleet.count([count("a")]),
            return_exceptions=True,
        )
        assert [good, other] == [[Counted(0, 1, counted=True)], [Counted(1, 2, counted=True)]]
        assert isinstance(bad, InvalidParams)


async def test_an_outage_is_told_to_everybody() -> None:
    """All who count at the moment hear of it, and the next may count again."""
    store = FaultyStore(MemoryStore(clock=ManualClock()))
    fleet = StoreFleet(store, StoreStanding(store))
    async with store:
        store.fail("count", error=StoreUnavailable("away"))
        answers = await asyncio.gather(
            fleet.count([count("a")]), fleet.count([count("a")]), return_exceptions=True
        )
        assert all(isinstance(each, StoreUnavailable) for each in answers)
        assert await fleet.count([count("a")]) == [Counted(0, 1, counted=True)]


async def test_one_who_gives_up_disturbs_nobody() -> None:
    """A caller that is cancelled leaves the others their answers."""
    store = MemoryStore(clock=ManualClock())
    fleet = StoreFleet(store, StoreStanding(store))
    async with store:
        asked = [asyncio.create_task(fleet.count([count("a")])) for _ in range(3)]
        await asyncio.sleep(0)
        asked[1].cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert [answers[0], answers[2]] != []
        assert [type(each) for each in (answers[0], answers[2])] == [list, list]


async def test_a_policy_is_attached_to_its_fleet(caplog: pytest.LogCaptureFixture) -> None:
    """It counts, reads gates and changes them by the same store that the manager shows."""
    caplog.set_level(logging.WARNING)
    policy = answering()
    clock = ManualClock()
    async with make_app(policy, clock=clock) as app:
        await policy.fleet.count([count("sorted/scan", 5)])
        await policy.fleet.change(SetGate(name=GATE, concurrency=4, who="sorted", reason="asked to"))
        assert (await policy.fleet.gates([GATE]))[GATE].gate == Gate(name=GATE, concurrency=4)
        assert await policy.fleet.now() == clock.now()
        (tally,) = await app.manager.tallies("sorted/")
        assert (tally.name, tally.total, tally.expires_at) == ("sorted/scan", 5, clock.now() + HOUR)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "non-empty text, not ''"),
        ({"name": "\ud800"}, r"non-empty text, not '\\ud800'"),
        ({"amount": 1.5}, "not 1.5"),
        ({"amount": True}, "not True"),
        ({"amount": 2**53}, "not 9007199254740992"),
        ({"at_most": "5"}, "not '5'"),
        ({"lifetime": timedelta()}, "lives for a millisecond to"),
        ({"lifetime": timedelta.max}, "lives for a millisecond to"),
    ],
)
def test_counts_that_mean_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    """The error names the value."""
    with pytest.raises(InvalidParams, match=said):
        Count(**{"name": "a", "lifetime": HOUR, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["", "a/b"])
def test_a_policys_gates_have_a_kind(kind: str) -> None:
    """A kind with a slash could not be told from a kind and a part."""
    with pytest.raises(InvalidParams, match="a word without a slash"):
        names.named(kind, "scan")


def test_names_of_policies_quote_their_parts() -> None:
    """A provider with slashes or colons stays one part."""
    assert names.named("breaker", "ocr:gitee", "a/b") == "breaker/ocr%3Agitee/a%2Fb"
