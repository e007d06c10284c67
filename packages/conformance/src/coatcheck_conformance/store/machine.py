"""A state machine that does the same to a store and to the memory store, and compares all that can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coatcheck.clock import ManualClock
from coatcheck.events import (
    Abandon,
    Adopt,
    CancelSeen,
    Event,
    Extend,
    GaveBack,
    Overdue,
    Proof,
    Resolution,
    Resubmit,
)
from coatcheck.gates import Rate
from coatcheck.store import Store
from coatcheck.task import Status, Task, TaskDraft
from coatcheck_conformance.drafts import make_draft
from coatcheck_conformance.store.outcomes import (
    accepted,
    cancel_done,
    deferred,
    failed,
    gave_up,
    going,
    params_of,
    rejected,
    succeeded,
    unknown,
)
from coatcheck_conformance.store.spec import StoreSpec
from coatcheck_conformance.store.twins import Claim, Subject, Twins

__all__ = ["compare_with_model"]

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_ALL = 10_000

_choices = st.tuples(
    st.integers(0, 1),
    st.sampled_from([0, 0, 1, 2, 3, 7]),
    st.integers(-1, 1),
    st.integers(0, 4),
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 0, 0, 1]),
)
"""Of a draft: handler, gates, priority, key, params, delay, timeout."""
_limits = st.sampled_from([1, 2, 3, None])
_jobs = st.integers(0, 2)
_picks = st.integers(0, 30)
_submitted_as = st.sampled_from([0, 0, 0, 0, 1, 3, 7])
_queried_as = st.sampled_from([1, 2, 2, 2, 5, 10])
"""Kinds of events, see `_Machine.event`: most often accepted, and still going."""


class _Machine(RuleBasedStateMachine):
    """The steps. Each is done to the store and to the model, and both must answer the same."""

    subject: ClassVar[Subject]

    def __init__(self) -> None:
        super().__init__()
        self.subject.examples.append(None)
        self.name = f"m{len(self.subject.examples)}"
        self.handlers = [f"{self.name}:one", f"{self.name}:two"]
        self.gates = [f"{self.name}/{gate}" for gate in "abc"]
        self.query_gate = f"{self.name}/q"
        self.ids: list[str] = []
        self.twins = Twins(self.subject)

    def teardown(self) -> None:
        """Close the model."""
        self.twins.close()

    # ------------------------------------------------------------------ what choices stand for

    def draft(self, choices: tuple[int, ...]) -> TaskDraft:
        """Return the draft that these choices stand for."""
        handler, gates, priority, key, params, delay, timeout = choices
        timed = self.subject.timed
        self.ids.append(f"{len(self.subject.examples):08x}-0000-7000-8000-{len(self.ids):012x}")
        return make_draft(
            id=self.ids[-1],
            handler=self.handlers[handler],
            gates=[gate for n, gate in enumerate(self.gates) if gates >> n & 1],
            query_gate=self.query_gate if gates == 1 else None,
            priority=priority,
            dedup_key=f"{self.name}-{key}" if key < 2 else None,
            tenant="t" if key == 1 else None,
            params={"n": params},
            delay=(timedelta(), timedelta(milliseconds=50) if timed else _HOUR / 2)[delay],
            timeout=(2 * _HOUR, _MINUTE if timed else _HOUR)[timeout],
        )

    def lease(self, *, short: bool) -> timedelta:
        """Return for how long to claim: short leases only where time can be made to pass."""
        return timedelta(milliseconds=300) if short and self.subject.timed else _HOUR

    def claim_of(self, pick: int) -> Claim:
        """Return one of the claims there have been; 0 is the latest."""
        return self.twins.claims[-1 - pick % len(self.twins.claims)]

    def event(self, kind: int, job: int) -> Event:
        """Return an event for a claim."""
        events: tuple[Event, ...] = (
            accepted(f"{self.name}-{job}", delay=_HOUR / 4 if job else timedelta()),
            succeeded({"job": job}),
            going(_HOUR / 4 if job else timedelta()),
            deferred(timedelta(milliseconds=50 * job) if self.subject.timed else timedelta()),
            GaveBack(),
            failed(),
            rejected(),
            unknown(),
            Overdue(),
            CancelSeen(),
            gave_up(),
            cancel_done(),
            succeeded(float("nan")),
        )
        return events[kind]

    # ------------------------------------------------------------------ applications

    @initialize(
        limits=st.tuples(_limits, _limits, _limits),
        turns=st.lists(st.tuples(_submitted_as, _queried_as), min_size=3, max_size=3),
    )
    def begin(self, limits: tuple[int | None, ...], turns: Sequence[tuple[int, int]]) -> None:
        """Begin with a few gates, and a few tasks on their way, so that there is something to do."""
        for gate, limit in enumerate(limits):
            self.operate(gate, "limit", limit, None)
        self.add([(0, 0, 0, 4, 0, 0, 0), (1, 1, 0, 0, 0, 0, 0), (0, 2, 1, 1, 0, 0, 0), (0, 3, 0, 4, 0, 0, 0)])
        for submitted_as, queried_as in turns:
            self.submit(1, submitted_as, 0)
            self.poll(queried_as, 0)

    @rule(choices=st.lists(_choices, min_size=1, max_size=4))
    def add(self, choices: list[tuple[int, ...]]) -> None:
        """Add a few tasks, some with keys that may be taken."""
        self.added([self.draft(each) for each in choices])

    def added(self, drafts: Sequence[TaskDraft]) -> None:
        """Add these drafts."""

        async def add(store: Store) -> list[tuple[str, bool]]:
            return [(each.task.id, each.created) for each in await store.add(drafts)]

        self.twins.both(add)

    @rule(pick=_picks)
    def cancel(self, pick: int) -> None:
        """Cancel a task, whatever it is doing."""
        task_id = self.ids[pick % len(self.ids)]
        self.twins.both(lambda store: store.request_cancellation(task_id))

    @rule(handler=st.integers(0, 1), job=_jobs)
    def nudge(self, handler: int, job: int) -> None:
        """Receive a callback, maybe of a job that nobody knows yet."""
        self.twins.both(lambda store: store.nudge(self.handlers[handler], f"{self.name}-{job}"))

    # ------------------------------------------------------------------ workers

    @rule(count=st.integers(1, 3), kind=_submitted_as, job=_jobs)
    def submit(self, count: int, kind: int, job: int) -> None:
        """Do what a worker does: claim, start and settle submissions, most often as accepted."""
        self.claim(count=count, handlers=3, short=False)
        self.finish(kind, job)

    @rule(kind=_queried_as, job=_jobs)
    def poll(self, kind: int, job: int) -> None:
        """Do what a worker does: claim, start and settle queries, most often as still going."""
        self.query(short=False)
        self.finish(kind, job)

    def finish(self, kind: int, job: int) -> None:
        """Start and settle whatever was claimed last."""
        started = self.twins.start(self.twins.latest)
        self.twins.settle([(claim, self.event(kind, job)) for claim in started])

    @rule(count=st.integers(1, 4), handlers=st.integers(1, 3), short=st.booleans())
    def claim(self, count: int, handlers: int, *, short: bool) -> None:
        """Claim for submission one by one."""
        keys = [key for n, key in enumerate(self.handlers) if handlers >> n & 1]
        self.twins.latest = []
        for _ in range(count):
            self.twins.claim_next(keys, self.lease(short=short))

    @rule(short=st.booleans())
    def query(self, *, short: bool) -> None:
        """Decide what is to be decided, and claim all queries."""
        self.decide()
        self.twins.claim("queries", self.handlers, self.lease(short=short), self.ids)

    def decide(self) -> None:
        """Do what a worker does with tasks that need a decision."""
        self.twins.claim("stale", self.handlers, _HOUR, self.ids)
        self.twins.settle([(claim, _decision(claim.model)) for claim in self.twins.latest])

    @precondition(lambda self: self.twins.claims)
    @rule(picks=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
    def start(self, picks: list[int]) -> None:
        """Start claims, of which some may be lost."""
        self.twins.start([self.claim_of(pick) for pick in picks])

    @precondition(lambda self: self.twins.claims)
    @rule(
        settlements=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12), _jobs), min_size=1, max_size=4)
    )
    def settle(self, settlements: list[tuple[int, int, int]]) -> None:
        """Settle claims with anything, also what they can't be settled with, and some twice."""
        self.twins.settle([(self.claim_of(pick), self.event(kind, job)) for pick, kind, job in settlements])

    @precondition(lambda self: self.twins.claims)
    @rule(pick=st.integers(0, 5))
    def renew(self, pick: int) -> None:
        """Renew a lease, which may be lost."""
        self.twins.renew(self.claim_of(pick))

    # ------------------------------------------------------------------ operators

    @rule(
        gate=st.integers(0, 3),
        what=st.sampled_from(["limit", "limit", "pause", "resume", "delete"]),
        limit=_limits,
        rate=st.sampled_from([None, 1, 2]),
    )
    def operate(self, gate: int, what: str, limit: int | None, rate: int | None) -> None:
        """Limit, pause, resume or delete a gate; rates only where time is shared."""
        name = [*self.gates, self.query_gate][gate]
        granted = Rate(rate, timedelta(milliseconds=200)) if rate and self.subject.timed else None

        async def change(store: Store) -> None:
            if what == "limit" and name != self.query_gate:
                await store.set_gate(name, concurrency=limit, rate=granted)
            elif what == "pause":
                await store.pause_gate(name, reason="maintenance")
            elif what == "resume":
                await store.resume_gate(name)
            else:
                await store.delete_gate(name)

        self.twins.both(change)

    @precondition(lambda self: self.twins.claims)
    @rule(pick=st.integers(0, 8), job=_jobs, done=st.booleans())
    def attest(self, pick: int, job: int, *, done: bool) -> None:
        """Hand in late proof of what a claim came to."""
        claim = self.claim_of(pick).store
        proof = Proof(event=succeeded("late") if done else accepted(f"{self.name}-{job}", delay=_HOUR / 4))
        self.twins.both(lambda store: store.attest(claim.id, claim.token, proof))

    @rule(pick=_picks, kind=st.integers(0, 3))
    def resolve(self, pick: int, kind: int) -> None:
        """Let a person decide, whether there is something to decide or not."""
        doubtful = [task.id for task in self.tasks() if task.status in _DOUBTFUL] or self.ids
        task_id = doubtful[pick % len(doubtful)]
        decisions: tuple[Resolution, ...] = (
            Adopt(query_params=params_of(f"{self.name}-0")),
            Resubmit(tracking_timeout=_HOUR),
            Abandon(),
            Extend(tracking_timeout=_HOUR),
        )

        async def resolve(store: Store) -> Task:
            task = await store.get(task_id)
            return await store.resolve(task_id, task.version if task else 0, decisions[kind])

        self.twins.both(resolve)

    @rule(what=st.sampled_from(["purge", "purge all", "add again", "add other"]), pick=_picks)
    def repeat_or_purge(self, what: str, pick: int) -> None:
        """Add an id once more, with the same params or with others, or delete what has ended."""
        if what.startswith("add"):
            params = {"n": int(what == "add other")}
            self.added(
                [make_draft(id=self.ids[pick % len(self.ids)], handler=self.handlers[0], params=params)]
            )
            return
        statuses = [status for status in Status if status.terminal] if what == "purge all" else None

        async def purge(store: Store) -> None:
            await store.purge(await store.now() + _HOUR, statuses=statuses, limit=_ALL)

        self.twins.both(purge)

    @precondition(lambda self: self.subject.timed)
    @rule(step=st.sampled_from([1, 49, 50, 100, 199, 200, 300, 301, 60_000, 900_000]))
    def time_passes(self, step: int) -> None:
        """Let time pass, and decide what it has brought about."""
        self.subject.clock.advance(timedelta(milliseconds=step))
        self.decide()

    # ------------------------------------------------------------------ what always holds

    def tasks(self) -> list[Task]:
        """Return the store's tasks, which are the model's."""

        async def read(store: Store) -> list[Task]:
            found = await store.get_many(self.ids)
            return [found[task_id] for task_id in self.ids if task_id in found]

        return self.twins.sure(read)[0]

    @invariant()
    def both_hold_the_same(self) -> None:
        """The store holds what the model does, and what no store may break is whole."""
        tasks = self.tasks()
        for name, _, used, _ in self.twins.sure(self._gates)[0]:
            held = sum(task.holds_slots and name in task.route.gates for task in tasks)
            assert used == held, f"gate {name} counts {used} slots, and {held} are held"
        for task in tasks:
            assert task.holds_slots <= task.status.active
            assert not (task.lease and task.status.terminal)
            if task.cancellation_requested_at is not None and task.status.terminal:
                assert task.status is Status.CANCELED, "a task whose cancel() was accepted ended otherwise"

    async def _gates(self, store: Store) -> list[tuple[str, object, int, int]]:
        return [
            (
                usage.gate.name,
                (usage.gate.concurrency, usage.gate.rate, usage.gate.pause is not None),
                usage.used,
                usage.granted,
            )
            for usage in await store.gates([*self.gates, self.query_gate])
            if usage.gate.concurrency or usage.gate.rate or usage.gate.pause
        ]


_DOUBTFUL = (Status.SUBMIT_UNKNOWN, Status.TRACKING_TIMED_OUT)


def _decision(task: Task) -> Event:
    """Return what a worker settles a stale claim with."""
    if task.submission_started:
        return unknown()
    if task.cancellation_requested_at is not None and task.status.queryable:
        return cancel_done()
    return Overdue()


def compare_with_model(
    spec: StoreSpec, *, examples: int, steps: int, derandomize: bool, seed: int = 0, shrink: bool
) -> None:
    """Try `examples` sequences of at most `steps` steps; raise `AssertionError` with one that differs.

    With `derandomize` they are the same every time, those of `seed`. With `shrink` the one that differs is made
    short first, which takes minutes.
    """
    phases = {*Phase} if shrink else {Phase.generate}
    clock = ManualClock()
    store = spec.create(clock)
    with asyncio.Runner() as runner:
        runner.run(store.setup())
        runner.run(store.open())
        subject = Subject(runner, store, clock, timed=spec.clock is not None)
        try:
            machine = type("Machine", (_Machine,), {"subject": subject})
            run_state_machine_as_test(
                seeded(seed)(machine) if derandomize and seed else machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    derandomize=derandomize and not seed,
                    database=None,
                    deadline=None,
                    report_multiple_bugs=False,
                    phases=phases,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        except Flaky as flaky:
            if not subject.failures:
                raise
            message = f"steps failed that did not fail again, or not so: {subject.failures[-1]!r}"
            raise AssertionError(message) from ExceptionGroup(str(flaky), subject.failures)
        finally:
            runner.run(store.close())
