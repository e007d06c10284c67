"""Who changed a gate: written by the script that changes it, in the shape that core reads, and once."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta

import pytest
from redis_hooks import ask

from coatcheck.clock import ManualClock
from coatcheck.codec import encode_gate_records
from coatcheck.errors import NotPersistable
from coatcheck.gates import MAX_GATE_RECORDS, GateAction, Rate
from coatcheck.memory import MemoryStore
from coatcheck.store import Store
from coatcheck_store_redis import RedisStore, create
from coatcheck_store_redis.scripts import script
from servers import FaultProxy
from servers.proxy import Direction

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def proxy(redis_url: str) -> Iterator[FaultProxy]:
    """Put a network before the server."""
    with FaultProxy.before(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def store(redis_url: str, proxy: FaultProxy) -> AsyncIterator[RedisStore]:
    """Open a store behind that network, in which the script was run before."""
    async with create(proxy.url_through(redis_url), timeout=timedelta(seconds=10)) as store:
        await store.resume_gate("none")
        yield store


def change(chance: random.Random) -> Callable[[Store], Awaitable[None]]:
    """Return a change of one of two gates."""
    name, who = chance.choice(["a", "b/\N{SNOWMAN}"]), chance.choice([None, "ada", 'o"k\n\\'])
    reason = chance.choice(["why", 'x,"times":7}', "\0\x7f\N{SNOWMAN}"])
    if chance.random() < 0.3:
        seconds = chance.choice([None, 5, 0.0005, 50])
        duration = None if seconds is None else timedelta(seconds=seconds)
        return lambda store: store.pause_gate(name, reason=reason, who=who, duration=duration)
    if chance.random() < 0.2:
        return lambda store: store.delete_gate(name, who=who, reason=reason)
    if chance.random() < 0.3:
        return lambda store: store.resume_gate(name, who=who, reason=reason)
    only_if_new = chance.random() < 0.3
    concurrency = chance.choice([None, 1, 2**40])
    rate = chance.choice([None, Rate(3), Rate(10**9, timedelta(days=400))])
    return lambda store: store.set_gate(
        name, concurrency=concurrency, rate=rate, only_if_new=only_if_new, who=who, reason=reason
    )


@pytest.mark.parametrize("seed", range(3))
async def test_histories_are_those_of_the_reference(redis_url: str, seed: int) -> None:
    """After any changes a gate's history is the very one that core's own code keeps, also as it is stored."""
    chance, clock = random.Random(seed), ManualClock()
    async with create(redis_url, clock=clock) as store, MemoryStore(clock=clock) as model:
        for _ in range(200):
            done = change(chance)
            await done(store)
            await done(model)
            clock.advance(timedelta(seconds=chance.choice([0, 0, 2, 7])))
            for name in ("a", "b/\N{SNOWMAN}"):
                assert await store.gate_history(name) == await model.gate_history(name)
        for name in ("a", "b/\N{SNOWMAN}"):
            history = await store.gate_history(name)
            assert len(history) > 5
            stored: list[bytes] = await ask(store, "LRANGE", f"{store.prefix}hist:{name}", 0, -1)
            assert [json.loads(each) for each in stored] == encode_gate_records(history)


async def test_the_thousandth_change_costs_no_more_room(redis_url: str) -> None:
    """What repeats is counted in one entry, and of different changes as many are kept as the contract says."""
    async with create(redis_url) as store:
        for number in range(2 * MAX_GATE_RECORDS):
            await store.set_gate("g", concurrency=number + 1, who=f"operator {number}")
        for number in range(120):
            await store.set_gate("g", concurrency=number + 1, who="adaptive", reason="more is taken")
        assert await ask(store, "LLEN", f"{store.prefix}hist:g") == MAX_GATE_RECORDS
        *_, before, last = await store.gate_history("g")
        assert (before.who, before.times, last.who, last.times) == ("operator 99", 1, "adaptive", 120)


async def test_words_that_are_no_text_are_refused(redis_url: str) -> None:
    """A lone surrogate in a name, in who or in the reason is refused before anything is written."""
    async with create(redis_url) as store:
        for name, who, reason in (("\ud800", "w", "r"), ("g", "\ud800", "r"), ("g", "w", "\ud800")):
            with pytest.raises(NotPersistable, match="surrogate"):
                await store.set_gate(name, concurrency=1, who=who, reason=reason)
        assert await store.gates() == []


@pytest.mark.parametrize("made", [True, False])
async def test_a_change_whose_answer_is_lost_is_recorded_once(
    store: RedisStore, proxy: FaultProxy, *, made: bool
) -> None:
    """The step is repeated, and neither lengthens the pause again nor counts as a second one."""
    sha = script("gate").sha.encode()
    trap = proxy.cut_after(sha) if made else proxy.cut_before(sha, Direction.TO_SERVER)
    await store.pause_gate("g", reason="429", who="worker", duration=timedelta(hours=1))
    assert trap.is_set()
    (record,) = await store.gate_history("g")
    (usage,) = await store.gates(["g"])
    assert (record.action, record.times, record.gate) == (GateAction.PAUSED, 1, usage.gate)


async def test_a_repeated_change_does_not_undo_what_came_between(redis_url: str) -> None:
    """Once it was made, a step is not made again, whatever others have done to the gate meanwhile."""
    async with create(redis_url) as store:
        words = ("g", '"g"', "null", "null", MAX_GATE_RECORDS, "set", 1, "", "", "")
        with store.calls.marks.one() as mark:
            assert await store.calls.step("gate", (*mark, *words)) == 1
            await store.set_gate("g", concurrency=2, who="ada")
            assert await store.calls.step("gate", (*mark, *words)) == 1
        assert [each.gate.concurrency for each in await store.gate_history("g")] == [1, 2]
        (usage,) = await store.gates(["g"])
        assert usage.gate.concurrency == 2
