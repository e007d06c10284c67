"""Several servers: who is the master, and where keys are, changes while commands are sent."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import TryAgainError

from coatcheck_store_redis.clients import Connected, connect
from coatcheck_store_redis.troubles import FAULTS
from servers import OwnServer
from servers.cluster import Cluster
from servers.redis import Redis as RedisRecipe
from servers.redis import Valkey
from servers.replicated import ask, says_master, until
from servers.sentinel import Guarded

pytestmark = pytest.mark.slow

KEY = "{orders}:count"
TIMEOUT = 1.0
PATIENCE_SECONDS = 40.0


async def count(connected: Connected) -> int:
    """Count one up, as often as it takes, and return the count."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            (number,) = await connected.send(KEY, [("INCR", KEY)])
        except FAULTS:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.05)
        else:
            assert isinstance(number, int), number
            return number


async def value_at(server: OwnServer, key: str = KEY) -> bytes | None:
    """Return what a server has."""
    async with Redis.from_url(server.url) as client:
        found = await client.get(key)
    assert found is None or isinstance(found, bytes)
    return found


@pytest.fixture(params=[RedisRecipe, Valkey])
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    """Start a master, a replica and a Sentinel."""
    servers = Guarded(request.param)
    yield servers
    servers.close()


FAILURES: list[Callable[[OwnServer], None]] = [OwnServer.kill, OwnServer.pause]


@pytest.mark.parametrize("fail", FAILURES)
async def test_the_client_follows_the_new_master(guarded: Guarded, fail: Callable[[OwnServer], None]) -> None:
    """Whether the old one is gone or hangs; nothing that the replica had is lost."""
    connected = connect(guarded.url(), timeout=TIMEOUT)
    await asyncio.gather(*(count(connected) for _ in range(5)))
    old = guarded.servers[0]
    until("the replica has it", lambda: ask(guarded.servers[1], "GET", KEY) == "5")
    fail(old)
    assert await count(connected) >= 6
    new = guarded.wait_for_successor(old)
    assert await value_at(new) is not None
    await connected.close()
    old.resume()


async def test_a_master_that_was_made_a_replica_is_left(guarded: Guarded) -> None:
    """It answers READONLY on the open connection, and the next attempt asks the Sentinel again."""
    connected = connect(guarded.url(), timeout=TIMEOUT)
    assert await count(connected) == 1
    old = guarded.servers[0]
    until("the replica has it", lambda: ask(guarded.servers[1], "GET", KEY) == "1")
    until("a failover begins", lambda: ask(guarded.sentinel, "SENTINEL", "FAILOVER", "orders") == "OK")
    new = guarded.wait_for_successor(old)
    until("the old one follows", lambda: not says_master(old))
    assert await count(connected) == 2
    assert await value_at(new) == b"2"
    await connected.close()


async def test_sentinels_that_are_gone_are_passed_over(guarded: Guarded) -> None:
    """Any one that runs is enough."""
    where = f"127.0.0.1:{guarded.sentinel.port}"
    connected = connect(guarded.url().replace(where, f"127.0.0.1:1,{where},127.0.0.1:2"), timeout=TIMEOUT)
    assert await count(connected) == 1
    await connected.close()


# ------------------------------------------------------------------ Cluster


@pytest.fixture(scope="module", params=[RedisRecipe, Valkey])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start three masters with a replica each."""
    servers = Cluster(request.param, replicas=1)
    yield servers
    servers.close()


async def test_all_keys_of_one_hash_tag_are_on_one_node(cluster: Cluster) -> None:
    """However many there are; the other nodes have none."""
    connected = connect(cluster.url, timeout=TIMEOUT)
    keys = [f"{{orders}}:{number}" for number in range(50)]
    answers = await connected.send(KEY, [("SET", key, "x") for key in keys])
    assert answers == [b"OK"] * 50
    sizes = {server: ask(server, "DBSIZE") for server in cluster.masters}
    assert sorted(sizes.values()) == [0, 0, 50]
    assert sizes[cluster.holder(KEY)] == 50
    cluster.empty()
    await connected.close()


async def test_keys_that_have_moved_are_followed(cluster: Cluster) -> None:
    """The old node says MOVED, and the commands go to the new one, all of them."""
    connected = connect(cluster.url, timeout=TIMEOUT)
    assert await count(connected) == 1
    old = cluster.holder(KEY)
    cluster.empty()
    new = cluster.move(KEY)
    assert new is not old
    assert await connected.send(KEY, [("INCR", KEY), ("GET", KEY)]) == [1, b"1"]
    assert await value_at(new) == b"1"
    cluster.empty()
    await connected.close()


async def test_nothing_is_done_while_keys_are_moving(cluster: Cluster) -> None:
    """A script would find some of its keys and not others, and so would wreck them: it waits for the end."""
    connected = connect(cluster.url, timeout=TIMEOUT)
    prefix = "{orders}"
    script = ("EVAL", "return redis.call('INCR', KEYS[1] .. ':count')", 1, prefix)
    assert await connected.send(prefix, [script]) == [1]
    old = cluster.holder(KEY)
    new = next(server for server in cluster.masters if server is not old)
    slot = str(key_slot(KEY.encode()))
    names: dict[OwnServer, Any] = {server: ask(server, "CLUSTER", "MYID") for server in (old, new)}
    ask(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[old])
    ask(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[new])
    for moved in (False, True):
        with pytest.raises(TryAgainError, match="the slot of {orders} moves to another node"):
            await connected.send(prefix, [script])
        if not moved:
            ask(old, "MIGRATE", "127.0.0.1", str(new.port), KEY, "0", "5000")
    for server in (new, *cluster.masters):
        ask(server, "CLUSTER", "SETSLOT", slot, "NODE", names[new])
    assert await connected.send(prefix, [script]) == [2]
    cluster.empty()
    await connected.close()


async def test_a_replica_that_took_over_is_found(cluster: Cluster) -> None:
    """After the node that had the keys is killed; it comes back as a replica."""
    connected = connect(cluster.url, timeout=TIMEOUT)
    assert await count(connected) == 1
    old = cluster.holder(KEY)
    (replica,) = cluster.replicas_of(old)
    until("the replica has it", lambda: ask(replica, "DBSIZE") == 1)
    old.kill()
    assert await count(connected) == 2
    assert cluster.holder(KEY) is replica
    old.start()
    until("the old one follows", lambda: not says_master(old))
    assert await count(connected) == 3
    await connected.close()
