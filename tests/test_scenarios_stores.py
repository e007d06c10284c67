"""What really went wrong elsewhere, on stores that processes share: old names, orphans, races, late grants."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from coatcheck import QueryParams, Status, Task, create_store
from coatcheck.events import Accepted, Event, Finished, LeftUnknown
from coatcheck.gates import Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import Started, Store
from coatcheck.task import ErrorCode, TaskError
from coatcheck.testing import ManualClock
from coatcheck_conformance.drafts import HANDLER, OTHER, make_drafts
from coatcheck_store_redis import RedisStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

FIGURES = logging.getLogger(__name__)
"""Seen with ``--log-cli-level=INFO``."""
LEASE = timedelta(minutes=1)
BLOCKING = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mariadb": "mysql+pymysql",
    "mysql": "mysql+pymysql",
}
"""Drivers for a statement by hand."""
FOUND_DEAD = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="its worker is gone")
PAGE = 100


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """An open store with a manual clock."""
    async with create_store(url, clock=clock) as store:
        yield store


async def started(store: Store, worker_id: str, limit: int, *handlers: str) -> list[Task]:
    """Claim tasks for submission and say that their calls are about to be made."""
    claims = await store.claim_submissions(worker_id, handlers or [HANDLER], limit, LEASE)
    answers = await store.start(claims.tasks, LEASE)
    return [answer.task for answer in answers if isinstance(answer, Started)]


async def settle(store: Store, tasks: Sequence[Task], event: Event) -> list[object]:
    """Settle all with the same outcome."""
    return list(await store.settle([Settlement(task=task, event=event) for task in tasks]))


# ------------------------------------------------------------------ 16: the same name again


async def test_16_a_worker_restarts_under_its_old_name(store: Store, clock: ManualClock) -> None:
    """Scenario 16: what it claimed before its end is recovered, and what it has claimed since is untouched."""
    await store.add(make_drafts(4))
    (sent,) = await started(store, "w", 1)
    (unsent,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    clock.advance(LEASE / 2)
    new = await started(store, "w", 2)
    assert (await store.claim_stale("w", [HANDLER], 9, LEASE)).tasks == ()
    clock.advance(LEASE / 2)
    (recovered,) = (await store.claim_stale("w", [HANDLER], 9, LEASE)).tasks
    assert recovered.id == sent.id
    again = await store.claim_submissions("w", [HANDLER], 9, LEASE)
    assert [task.id for task in again.tasks] == [unsent.id]
    found = await store.get_many([task.id for task in new])
    assert list(found.values()) == new
    late = await settle(store, [sent, unsent], Finished(status=Status.SUCCEEDED))
    assert not any(isinstance(answer, Task) for answer in late)
    done = await settle(store, new, Finished(status=Status.SUCCEEDED))
    assert [getattr(answer, "status", answer) for answer in done] == [Status.SUCCEEDED] * 2
    assert {type(answer) for answer in await settle(store, [recovered], LeftUnknown(error=FOUND_DEAD))} == {
        Task
    }


# ------------------------------------------------------------------ 17: orphans


async def damage(url: str, store: Store, task_ids: Sequence[str]) -> None:
    """Make these tasks, which are all that is being submitted, unreadable, as a bad edit by hand would."""
    if not isinstance(store, RedisStore):
        await asyncio.to_thread(_damage_what_is_being_submitted, url)
        return
    documents = [("SET", f"{store.prefix}d:{task_id}", '{"half') for task_id in task_ids]
    assert await store.calls.connected.send(store.prefix, documents) == [b"OK"] * len(documents)


def _damage_what_is_being_submitted(url: str) -> None:
    place = make_url(url)
    engine = create_engine(place.set(drivername=BLOCKING[place.drivername]), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE coatcheck_task SET history = :half, rev = rev + 1 WHERE status = 'SUBMITTING'"),
            {"half": '[{"half'},
        )
    engine.dispose()


async def test_17_thousands_of_orphans_behind_some_that_nobody_can_rescue(
    url: str, store: Store, clock: ManualClock
) -> None:
    """Scenario 17: pages full of what is unreadable, or somebody else's, starve nobody; two leases are enough."""
    await store.add(make_drafts(2 * PAGE))
    damaged = [task.id for task in await started(store, "dead", 2 * PAGE)]
    assert len(damaged) == 2 * PAGE
    await damage(url, store, damaged)
    for count, handler in ((1_000, OTHER), (2_000, HANDLER)):
        clock.advance(timedelta(milliseconds=1))
        await store.add(make_drafts(count, handler=handler))
        assert len(await started(store, "dead", count, handler)) == count
    clock.advance(LEASE)
    rescued: Counter[str] = Counter()
    ends = clock.now() + 2 * LEASE
    while rescued[HANDLER] < 2_000 or rescued[OTHER] < 1_000:
        orphans = (await store.claim_stale("alive", [HANDLER], PAGE, LEASE)).tasks
        answers = await settle(store, orphans, LeftUnknown(error=FOUND_DEAD))
        rescued.update(answer.route.handler_key for answer in answers if isinstance(answer, Task))
        clock.advance(timedelta(seconds=3))
        assert clock.now() < ends, f"only {rescued} were rescued"
    assert sorted(each.task_id for each in await store.set_aside(limit=1_000)) == sorted(damaged)


# ------------------------------------------------------------------ 18: cancel against completion


async def test_18_a_cancel_races_the_completion(url: str) -> None:
    """Scenario 18: in each race one wins, and the loser is told."""
    chance = random.Random(url.partition(":")[0])
    wins: Counter[Status] = Counter()
    async with create_store(url) as worker, create_store(url) as desk:
        await worker.add(make_drafts(80))
        first = await started(worker, "w", 80)
        ids = [QueryParams(external_task_id=f"job-{task.id}") for task in first[40:]]
        for task, params in zip(first[40:], ids, strict=True):
            await settle(worker, [task], Accepted(query_params=params, delay=timedelta()))
        queries = (await worker.claim_queries("w", [HANDLER], 40, LEASE)).tasks
        assert len(queries) == 40
        done = Finished(status=Status.SUCCEEDED)
        for task in [*first[:40], *queries]:
            # whoever is asked first tends to win
            races = [desk.request_cancellation(task.id), settle(worker, [task], done)]
            cancel_first = chance.random() < 0.5
            answers = await asyncio.gather(*(races if cancel_first else reversed(races)))
            accepted, (answer,) = answers if cancel_first else reversed(answers)
            ended = await desk.get(task.id)
            assert ended is not None
            assert ended.status is (Status.CANCELED if accepted else Status.SUCCEEDED)
            assert answer == ended
            assert not await desk.request_cancellation(task.id)
            wins[ended.status] += 1
    assert wins.total() == 80
    FIGURES.info("wins: %s", dict(wins))


# ------------------------------------------------------------------ 24: grants that come back


async def test_24_a_grant_that_comes_back_late_makes_no_room(store: Store, clock: ManualClock) -> None:
    """Scenario 24: what a dead worker was granted before this window and did not use is not granted again in it."""
    await store.set_gate("rated", rate=Rate(10, timedelta(seconds=1)))
    await store.add(make_drafts(30, gates=["rated"]))
    unused = (await store.claim_submissions("dead", [HANDLER], 5, LEASE)).tasks
    clock.advance(LEASE - timedelta(milliseconds=500))
    assert len((await store.claim_submissions("alive", [HANDLER], 20, LEASE)).tasks) == 10
    clock.advance(timedelta(milliseconds=500))
    await store.claim_stale("alive", [HANDLER], 9, LEASE)
    back = await store.get_many([task.id for task in unused])
    assert {task.status for task in back.values()} == {Status.PENDING_SUBMIT}
    assert (await store.claim_submissions("alive", [HANDLER], 20, LEASE)).tasks == ()
    (usage,) = await store.gates(["rated"])
    assert usage.granted == 10
