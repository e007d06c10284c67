"""Faults: connections that are cut at the worst moment, servers that hang or are killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_store_redis import RedisStore, create
from coatcheck_store_redis.scripts import script
from servers import FaultProxy
from servers.fixtures import Own
from servers.proxy import Direction

pytestmark = pytest.mark.timeout(60)
LEASE = timedelta(minutes=1)


@pytest.fixture
def proxy(redis_url: str) -> Iterator[FaultProxy]:
    """Put a network before the server."""
    with FaultProxy.before(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def store(redis_url: str, proxy: FaultProxy) -> AsyncIterator[RedisStore]:
    """Open a store behind that network, in which every script was run before."""
    async with create(proxy.url_through(redis_url), timeout=timedelta(seconds=10)) as store:
        (added,) = await store.add([make_draft()])
        await store.request_cancellation(added.task.id)
        claims = await store.claim_submissions("w", [HANDLER], 1, LEASE)
        assert not claims.tasks
        yield store


def cut(proxy: FaultProxy, name: str, *, made: bool) -> None:
    """Cut the connection on which a script goes next: before the server has it, or before its answer is here."""
    if made:
        proxy.cut_after(script(name).sha.encode())
    else:
        proxy.cut_before(script(name).sha.encode(), Direction.TO_SERVER)


@pytest.mark.parametrize("made", [True, False])
async def test_an_add_whose_answer_is_lost_adds_once(
    store: RedisStore, proxy: FaultProxy, *, made: bool
) -> None:
    """The step is repeated, the task is there once, and it is told as created."""
    cut(proxy, "add", made=made)
    draft = make_draft(dedup_key="k")
    (added,) = await store.add([draft])
    assert added.created
    assert (await store.get(draft.id)) == added.task


@pytest.mark.parametrize("made", [True, False])
async def test_a_cancellation_whose_answer_is_lost_is_told_as_made(
    store: RedisStore, proxy: FaultProxy, *, made: bool
) -> None:
    """True is answered, since this call did it, and only once."""
    (added,) = await store.add([make_draft()])
    cut(proxy, "write", made=made)
    assert await store.request_cancellation(added.task.id) is True
    assert await store.request_cancellation(added.task.id) is False


@pytest.mark.parametrize("made", [True, False])
async def test_a_settle_whose_answer_is_lost_is_written_once(
    store: RedisStore, proxy: FaultProxy, *, made: bool
) -> None:
    """The outcome is there, at the version of one settle."""
    await store.add(make_drafts(3))
    claims = await store.claim_submissions("w", [HANDLER], 3, LEASE)
    cut(proxy, "start", made=made)
    started = [each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
    assert [task.progress.submit_attempts for task in started] == [1, 1, 1]
    cut(proxy, "write", made=made)
    answers = await store.settle([Settlement(task=task, event=succeeded()) for task in started])
    assert [each.version for each in answers if isinstance(each, Task)] == [2, 2, 2]
    assert {each.status for each in answers if isinstance(each, Task)} == {Status.SUCCEEDED}


async def test_a_server_that_does_not_answer_is_told_in_time(proxy: FaultProxy, redis_url: str) -> None:
    """Each call ends within its time, with what is wrong and where; afterwards all is well."""
    async with create(proxy.url_through(redis_url), timeout=timedelta(seconds=1)) as hasty:
        proxy.black_hole()
        for call in (
            hasty.now(),
            hasty.add([make_draft()]),
            hasty.claim_submissions("w", [HANDLER], 1, LEASE),
        ):
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await call
            assert time.monotonic() - begun < 3
        proxy.restore()
        assert (await hasty.add([make_draft()]))[0].created


async def test_waiting_goes_on_when_the_line_is_cut(store: RedisStore, proxy: FaultProxy) -> None:
    """A wait survives a cut, and hears again of new work."""
    wait = asyncio.ensure_future(store.wait([HANDLER], timedelta(seconds=30)))
    await asyncio.sleep(0.1)
    proxy.cut()
    await asyncio.sleep(0.1)
    await store.add([make_draft()])
    assert await asyncio.wait_for(wait, 10)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [True, False], ids=["always", "everysec"])
async def test_what_was_acknowledged_survives_a_kill(own_server: Own, *, durable: bool) -> None:
    """`kill -9` of the server under load loses nothing that was acknowledged: the kernel had the log."""
    server = own_server("redis", durable=durable)
    acknowledged: list[str] = []
    async with create(server.url, timeout=timedelta(seconds=30)) as store:

        async def load() -> None:
            while True:
                drafts = make_drafts(5)
                await store.add(drafts)
                acknowledged.extend(draft.id for draft in drafts)
                claims = await store.claim_submissions("w", [HANDLER], 5, LEASE)
                started = [
                    each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)
                ]
                settled = await store.settle([Settlement(task=task, event=succeeded()) for task in started])
                done.update(each.id for each in settled if isinstance(each, Task))

        done: set[str] = set()
        loads = [asyncio.ensure_future(load()) for _ in range(3)]
        while len(acknowledged) < 200:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(server.kill)
        at_kill, done_at_kill = list(acknowledged), set(done)
        await asyncio.to_thread(server.start)
        for each in loads:
            each.cancel()
        await asyncio.wait(loads)
        found = await store.get_many(at_kill)
        assert len(found) == len(at_kill)
        assert {found[each].status for each in done_at_kill if each in found} == {Status.SUCCEEDED}
        assert all(task.progress.submit_attempts <= 1 for task in found.values())
