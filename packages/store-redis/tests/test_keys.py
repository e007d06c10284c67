"""The keys: each is in the inventory, and none outlives what it is about."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

from attrs import evolve
from redis_hooks import ask

from coatcheck.clock import ManualClock
from coatcheck.events import CancelDone, Event, GaveBack, Overdue
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.tallies import Count
from coatcheck.task import CancelOutcome, Status, Task
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft
from coatcheck_conformance.store.outcomes import accepted, deferred, failed, going, succeeded, unknown
from coatcheck_store_redis import RedisStore, create

LEASE = timedelta(seconds=20)
PER_TASK = ("t:", "d:")
WHILE_TASKS = (
    "ids", "count", "lanes", "lane:", "q:", "open:", "park:", "parkh:", "wake:", "any", "own:", "delayed:", "leases",
    "wait:", "queued", "ready", "submitting", "fin:", "dedup", "ext", "used", "aside", "asidewhy",
)  # fmt: skip
"""What there is while there are tasks of which it tells."""
WHILE_COUNTED = ("tally", "tallyends", "tallynames")
"""What there is while there are tallies."""
LASTING = ("schema", "mode", "seen", "lanes#", "gates", "gate:", "hist:", "win:", "nudges", "made:", "fence")
"""What is about the store, its handlers and its gates; windows, nudges and marks of steps go by themselves."""


async def keys_of(store: RedisStore) -> set[str]:
    """Return all keys of the database, without the prefix."""
    keys: list[bytes] = await ask(store, "KEYS", "*")
    assert all(key.startswith(store.prefix.encode()) for key in keys)
    return {key.decode("utf-8", "replace").removeprefix(store.prefix) for key in keys}


def family(key: str) -> str:
    """Return the entry of the inventory that a key belongs to."""
    for name in (*PER_TASK, *WHILE_TASKS, *WHILE_COUNTED, *LASTING):
        if key == name or (name.endswith(":") and key.startswith(name)):
            return name
    raise AssertionError(f"the inventory does not know {key!r}")


class Life:
    """A long random run over a store."""

    def __init__(self, store: RedisStore, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.chance = random.Random(seed)
        self.number = 0

    async def step(self) -> None:
        """Do something."""
        act = self.chance.choice([self.add, self.add, self.submit, self.query, self.decide, self.disturb])
        await act()
        self.clock.advance(timedelta(seconds=self.chance.choice([0, 0, 1, 5])))

    async def add(self) -> None:
        """Add a few, of all sorts."""
        chance = self.chance
        drafts = []
        for _ in range(chance.randint(1, 6)):
            self.number += 1
            drafts.append(
                make_draft(
                    handler=chance.choice([HANDLER, OTHER]),
                    gates=chance.choice([[], ["a"], ["a", "b"], [f"tenant-{self.number % 7}"]]),
                    priority=chance.choice([0, 0, 5]),
                    delay=timedelta(seconds=chance.choice([0, 0, 30])),
                    timeout=timedelta(seconds=chance.choice([40, 400])),
                    dedup_key=chance.choice([None, f"key-{self.number}"]),
                    query_gate=chance.choice([None, "asked"]),
                )
            )
        await self.store.add(drafts)

    async def submit(self) -> None:
        """Claim some, and let them end in one way or another, or die."""
        claims = await self.store.claim_submissions("w", [HANDLER, OTHER], 5, LEASE)
        if self.chance.random() < 0.1:
            return
        for each in await self.store.start(claims.tasks, LEASE):
            self.number += 1
            event: Event = GaveBack()
            if isinstance(each, Started):
                known = accepted(f"r-{self.number}")
                event = self._one_of(known, known, succeeded(), failed(), unknown(), deferred())
                if self.chance.random() < 0.1:
                    continue
            await self.store.settle([Settlement(task=each.task, event=event)])

    def _one_of(self, *events: Event) -> Event:
        return self.chance.choice(events)

    async def query(self) -> None:
        """Ask about some."""
        claims = await self.store.claim_queries("w", [HANDLER, OTHER], 5, LEASE)
        await self.store.settle(
            [
                Settlement(task=each, event=self._one_of(going(), succeeded(), failed()))
                for each in claims.tasks
            ]
        )

    async def decide(self) -> None:
        """Decide about some."""
        claims = await self.store.claim_stale("w", [HANDLER, OTHER], 9, LEASE)
        await self.store.settle([Settlement(task=each, event=_decision(each, self)) for each in claims.tasks])

    async def disturb(self) -> None:
        """Change gates, count, cancel, nudge."""
        chance = self.chance
        acts: list[Callable[[], Awaitable[object]]] = [
            lambda: self.store.set_gate("a", concurrency=chance.randint(1, 4)),
            lambda: self.store.set_gate("b", rate=Rate(3, timedelta(seconds=10))),
            lambda: self.store.set_gate("asked", rate=Rate(5, timedelta(seconds=3))),
            lambda: self.store.pause_gate("a", reason="x", duration=timedelta(seconds=7)),
            lambda: self.store.delete_gate(chance.choice(["a", "b"]), who="x", reason="y"),
            lambda: self.store.resume_gate("a", who="x"),
            lambda: self.store.count([_count(f"t{chance.randint(1, 20)}"), _count("t")]),
            lambda: self.store.nudge(HANDLER, f"r-{chance.randint(1, 50)}"),
        ]
        await chance.choice(acts)()
        for task in await self.store.find(_filter(), limit=1):
            await self.store.request_cancellation(task.id)


def _count(name: str) -> Count:
    return Count(name=name, lifetime=timedelta(seconds=30))


def _filter() -> Filter:
    return Filter(statuses=[Status.SUBMITTED, Status.PENDING_SUBMIT])


def _decision(task: Task, life: Life) -> Event:
    if task.submission_started:
        return unknown()
    if task.schedule.deadline_at <= life.clock.now():
        return Overdue()
    if task.status.queryable:
        return CancelDone(remote_cancel=CancelOutcome.UNSUPPORTED)
    return GaveBack()


async def test_a_long_random_run_leaks_no_key(redis_url: str) -> None:
    """All keys are in the inventory; once all has ended and is purged, only what is about the store itself is left."""
    clock = ManualClock()
    async with create(redis_url, clock=clock) as store:
        life = Life(store, clock, seed=7)
        for _ in range(400):
            await life.step()
        seen = {family(key) for key in await keys_of(store)}
        assert {"t:", "d:", "ids", "count", "lane:", "q:", "any", "fin:", "ext", "hist:", "made:"} <= seen
        assert set(WHILE_COUNTED) <= seen
        for _ in range(60):  # let the rest end
            clock.advance(timedelta(seconds=61))
            await life.decide()
            for task in await store.find(_filter()):
                await store.request_cancellation(task.id)
        ends = [status for status in Status if status.terminal]
        clock.advance(timedelta(seconds=1))
        assert await store.purge(clock.now(), statuses=ends, limit=100_000) > 300
        await store.count([evolve(_count("t"), amount=0)])
        left = await keys_of(store)
        assert {family(key) for key in left} <= set(LASTING), left
        assert len(left) < 30


async def test_what_has_ended_goes_by_itself_if_wanted(redis_url: str) -> None:
    """With `keep_finished`, ended tasks are deleted after that time; those in doubt stay."""
    clock = ManualClock()
    async with create(redis_url, clock=clock, keep_finished=timedelta(hours=1)) as store:
        drafts = [make_draft() for _ in range(3)]
        await store.add(drafts)
        claims = await store.claim_submissions("w", [HANDLER], 3, LEASE)
        started = [each.task for each in await store.start(claims.tasks, LEASE)]
        events: tuple[Event, ...] = (succeeded(), failed(), unknown())
        await store.settle(
            [Settlement(task=task, event=event) for task, event in zip(started, events, strict=True)]
        )
        await store.claim_stale("w", [HANDLER], 3, LEASE)
        assert len(await store.get_many([draft.id for draft in drafts])) == 3
        clock.advance(timedelta(hours=2))
        store._expires_next = 0.0
        await store.claim_stale("w", [HANDLER], 3, LEASE)
        assert set(await store.get_many([draft.id for draft in drafts])) == {started[2].id}
