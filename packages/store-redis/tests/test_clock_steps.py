"""A clock that steps, as an adjustment or a failover to a server with another clock makes it: S4, S7, S8, S11, S17."""

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from attrs import define, field

from coatcheck.clock import ManualClock
from coatcheck.errors import LeaseLost, VersionConflict
from coatcheck.events import Event, GaveBack
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Hold, Refusal, Refused, Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.store.outcomes import accepted, going, succeeded, unknown
from coatcheck_store_redis import RedisStore, create
from servers.redis import Redis
from servers.replicated import Replicated, ask, in_step, info, says_master, until

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=20)
RATE = Rate(5, timedelta(seconds=10))
STEPS = [timedelta(seconds=-30), timedelta(seconds=-3), timedelta(seconds=3), HOUR, -HOUR]


@pytest.fixture
def clock() -> ManualClock:
    """The server's clock, as the scripts are told it."""
    return ManualClock()


async def claimed(store: RedisStore, limit: int = 1) -> list[Task]:
    """Claim tasks for submission and declare their calls."""
    claims = await store.claim_submissions("w", [HANDLER], limit, LEASE)
    return [each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]


def hold(task: Task) -> Hold:
    """Return the lease of a claimed task."""
    assert task.lease is not None
    return Hold(task_id=task.id, lease=task.lease)


async def see_refused(store: RedisStore, task: Task) -> None:
    """See that whoever holds this claim can do nothing more with it."""
    assert await store.start([task], LEASE) == [Refused(task, Refusal.LEASE_LOST)]
    (renewal,) = await store.renew([hold(task)], LEASE)
    assert not renewal.held
    (answer,) = await store.settle([Settlement(task=task, event=succeeded())])
    assert isinstance(answer, LeaseLost | VersionConflict)


async def everything(store: RedisStore) -> list[Task]:
    """Return all that can be claimed."""
    found: list[Task] = []
    for claim in (store.claim_submissions, store.claim_queries, store.claim_stale):
        found += (await claim("other", [HANDLER], 100, LEASE)).tasks
    return found


# ------------------------------------------------------------------ one step


async def test_after_a_step_back_a_lease_is_live_and_nobody_elses(redis_url: str, clock: ManualClock) -> None:
    """Its holder may start, renew and settle, in the past of its claim; others get nothing of it."""
    async with create(redis_url, clock=clock) as store:
        await store.add(make_drafts(4))
        (unstarted,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
        sent, *_ = await claimed(store, 3)
        clock.set(clock.now() - HOUR)
        assert await everything(store) == []
        (start,) = await store.start([unstarted], LEASE)
        assert isinstance(start, Started)
        assert [each.held for each in await store.renew([hold(start.task), hold(sent)], LEASE)] == [True] * 2
        answers = await store.settle(
            [Settlement(task=start.task, event=succeeded()), Settlement(task=sent, event=accepted())]
        )
        assert [getattr(each, "status", each) for each in answers] == [Status.SUCCEEDED, Status.SUBMITTED]
        (query,) = (await store.claim_queries("w", [HANDLER], 9, LEASE)).tasks
        assert query.id == sent.id
        assert query.token > sent.token
        (fresh,) = await store.add([make_draft()])
        assert [task.id for task in await claimed(store)] == [fresh.task.id]
        assert len(await store.find(Filter())) == 5
        assert await store.set_aside() == []


async def test_after_a_step_forward_who_is_late_is_fenced_for_good(
    redis_url: str, clock: ManualClock
) -> None:
    """Another takes over with a higher token, and keeps the task when the clock is set back to where it was."""
    async with create(redis_url, clock=clock) as store:
        await store.add([make_draft(timeout=9 * HOUR) for _ in range(2)])
        (sent,) = await claimed(store)
        (unsent,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
        clock.advance(HOUR)
        (rescued,) = (await store.claim_stale("other", [HANDLER], 9, LEASE)).tasks
        (again,) = (await store.claim_submissions("other", [HANDLER], 9, LEASE)).tasks
        assert (rescued.id, again.id) == (sent.id, unsent.id)
        for moment in (clock.now(), clock.now() - HOUR):
            clock.set(moment)
            await see_refused(store, sent)
            await see_refused(store, unsent)
            assert await everything(store) == []
        assert rescued.token > sent.token
        assert again.token > unsent.token
        (start,) = await store.start([again], LEASE)
        assert isinstance(start, Started)
        answers = await store.settle(
            [Settlement(task=rescued, event=unknown()), Settlement(task=start.task, event=succeeded())]
        )
        assert [getattr(each, "status", each) for each in answers] == [
            Status.SUBMIT_UNKNOWN,
            Status.SUCCEEDED,
        ]


@pytest.mark.parametrize("renewed", [False, True], ids=["as-they-were", "renewed"])
async def test_what_came_back_before_a_step_back_is_neither_given_twice_nor_forgotten(
    redis_url: str,
    clock: ManualClock,
    renewed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Tasks whose leases had ended, and are live again, or longer, are claimed once these have ended again."""
    async with create(redis_url, clock=clock) as store:
        await store.add([make_draft(timeout=9 * HOUR) for _ in range(3)])
        accept, sent = await claimed(store, 2)
        await store.settle([Settlement(task=accept, event=accepted())])
        (asked,) = (await store.claim_queries("w", [HANDLER], 9, LEASE)).tasks
        (unsent,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
        clock.advance(LEASE)
        await store.stats()  # finds that the leases have ended
        clock.set(clock.now() - LEASE / 2)
        assert await everything(store) == []
        if renewed:
            renewals = await store.renew([hold(task) for task in (asked, sent, unsent)], LEASE)
            assert [each.held for each in renewals] == [True] * 3
            clock.advance(LEASE / 2)
            assert await everything(store) == []
        clock.advance(LEASE / 2)
        ids = [task.id for task in await everything(store)]
        ids += [task.id for task in await everything(store)]  # one has come back to be submitted
        assert sorted(ids) == sorted([asked.id, sent.id, unsent.id])


async def test_what_was_settled_after_a_step_back_is_not_asked_too_early(
    redis_url: str, clock: ManualClock
) -> None:
    """Where it stood when its lease had ended is not where its next turn is."""
    async with create(redis_url, clock=clock) as store:
        await store.add([make_draft(timeout=9 * HOUR)])
        (sent,) = await claimed(store)
        await store.settle([Settlement(task=sent, event=accepted())])
        (asked,) = (await store.claim_queries("w", [HANDLER], 9, LEASE)).tasks
        clock.advance(LEASE)
        await store.stats()  # finds that the lease has ended
        clock.set(clock.now() - LEASE / 2)
        await store.settle([Settlement(task=asked, event=going(10 * LEASE))])
        clock.advance(LEASE)
        assert await everything(store) == []
        clock.advance(9.5 * LEASE)
        assert [task.id for task in await everything(store)] == [sent.id]


async def test_a_rate_is_not_exceeded_whatever_the_clock_does(redis_url: str, clock: ManualClock) -> None:
    """After a step back nothing more is granted until the last window, as it was stamped, is over."""
    async with create(redis_url, clock=clock) as store:
        await store.set_gate("rated", rate=RATE)
        await store.add(make_drafts(30, gates=["rated"]))
        began = clock.now()
        assert len(await claimed(store, 9)) == RATE.count
        clock.set(began - HOUR)
        assert await claimed(store, 9) == []
        clock.set(began + RATE.per - timedelta(milliseconds=1))
        assert await claimed(store, 9) == []
        clock.set(began + RATE.per)
        assert len(await claimed(store, 9)) == RATE.count


# ------------------------------------------------------------------ many steps


@define
class Watch:
    """What was claimed, and what must hold of it whatever the clock did."""

    leases: dict[str, tuple[int, datetime]] = field(factory=dict)
    """The last token of each task, and until when its lease is."""
    stamps: list[datetime] = field(factory=list)
    """When a rate granted what then was used."""

    def claim(self, tasks: list[Task], now: datetime) -> None:
        """Check new claims: higher tokens, of tasks on which no lease was live."""
        for task in tasks:
            assert task.lease is not None
            token, ends = self.leases.get(task.id, (0, now))
            assert task.token > token
            assert ends <= now, "a task was claimed while a lease on it was live"
            self.leases[task.id] = (task.token, task.lease.until)

    def start(self, task: Task) -> None:
        """Note that a call may be made now."""
        if task.lease is not None and task.lease.granted_at is not None:
            self.stamps.append(task.lease.granted_at)

    def renew(self, task_id: str, ends: datetime) -> None:
        """Note that a lease is longer."""
        self.leases[task_id] = (self.leases[task_id][0], ends)

    def settle(self, task: Task) -> None:
        """Note that a lease has ended."""
        self.leases[task.id] = (task.token, datetime.min.replace(tzinfo=task.schedule.created_at.tzinfo))

    def windows(self) -> Iterator[int]:
        """Return how many grants are in each window that ends with one."""
        for end in self.stamps:
            yield sum(end - RATE.per < at <= end for at in self.stamps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_no_lease_is_given_twice_and_no_rate_exceeded(
    redis_url: str, clock: ManualClock, seed: int
) -> None:
    """In a long random run with steps of seconds and hours, in both directions, tokens only rise; all ends once."""
    chance, watch, held = random.Random(seed), Watch(), defaultdict[str, list[Task]](list)
    ended: set[str] = set()
    async with create(redis_url, clock=clock) as store:
        await store.set_gate("rated", rate=RATE)
        await store.set_gate("few", concurrency=3)
        for _ in range(250):
            act = chance.choice(["add", "submit", "query", "stale", "renew", "settle", "settle"])
            worker = chance.choice(["first", "second"])
            tasks: list[Task] = []
            if act == "add":
                gates = chance.choice([[], ["rated"], ["few"]])
                await store.add([make_draft(gates=gates, timeout=1000 * HOUR) for _ in range(3)])
            elif act == "submit":
                tasks = list((await store.claim_submissions(worker, [HANDLER], 4, LEASE)).tasks)
            elif act == "query":
                tasks = list((await store.claim_queries(worker, [HANDLER], 4, LEASE)).tasks)
            elif act == "stale":
                tasks = list((await store.claim_stale(worker, [HANDLER], 4, LEASE)).tasks)
            elif act == "renew":
                for each in await store.renew([hold(task) for task in held[worker]], LEASE):
                    if each.until is not None:
                        watch.renew(each.task_id, each.until)
            else:
                await _settle(store, watch, held[worker], chance, ended)
            watch.claim(tasks, clock.now())
            held[worker] += tasks
            step = (
                chance.choice(STEPS) if chance.random() < 0.1 else timedelta(seconds=chance.choice([0, 1, 4]))
            )
            clock.set(clock.now() + step)
            used = {usage.gate.name: usage.used for usage in await store.gates(["few"])}
            assert used["few"] <= 3
        assert await store.set_aside() == []
    assert max(watch.windows()) <= RATE.count
    assert len(ended) > 20


async def _settle(
    store: RedisStore, watch: Watch, held: list[Task], chance: random.Random, ended: set[str]
) -> None:
    """Let some claims end in one way or another."""
    for task in [held.pop() for _ in range(min(3, len(held)))]:
        (start,) = await store.start([task], LEASE)
        event: Event = GaveBack()
        if isinstance(start, Started):
            if not task.submission_started:
                watch.start(start.task)
            decided = task.status is Status.SUBMITTING and task.submission_started
            choices: list[Event] = [unknown()] if decided else [accepted(), succeeded()]
            event = going() if task.status.queryable and chance.random() < 0.5 else chance.choice(choices)
        answer = (await store.settle([Settlement(task=start.task, event=event)]))[0]
        if isinstance(answer, Task):
            watch.settle(answer)
            if answer.status.terminal:
                assert answer.id not in ended
                ended.add(answer.id)


# ------------------------------------------------------------------ another server


@pytest.mark.slow
@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_replica_with_another_clock_takes_over(clock: ManualClock, step: timedelta) -> None:
    """What it got of its master fences as before: tokens go on rising, live leases stay whose they are."""
    servers = Replicated(Redis, replicas=1)
    try:
        master, replica = servers.servers
        async with create(master.url, clock=clock) as store:
            await store.set_gate("rated", rate=RATE)
            await store.add(make_drafts(9, gates=["rated"]))
            before = await claimed(store, 9)
        until("the replica has all", lambda: _has_all(master, replica))
        master.kill()
        ask(replica, "REPLICAOF", "NO", "ONE")
        until("it is the master", lambda: says_master(replica))
        clock.set(clock.now() + step)
        async with create(replica.url, clock=clock) as store:
            others = await everything(store)
            assert {task.id for task in others if task.id in {each.id for each in before}} == (
                {each.id for each in before} if step > timedelta() else set()
            )
            tokens = {task.id: task.token for task in before}
            assert all(task.token > tokens.get(task.id, 0) for task in others)
            answers = await store.settle([Settlement(task=task, event=succeeded()) for task in before])
            refused = [isinstance(each, LeaseLost | VersionConflict) for each in answers]
            assert refused == [step > timedelta()] * RATE.count
    finally:
        servers.close()


def _has_all(master: object, replica: object) -> bool:
    given = info(master, "replication")["master_repl_offset"]  # type: ignore[arg-type]
    return in_step(replica) and info(replica, "replication")["slave_repl_offset"] == given  # type: ignore[arg-type]
