"""What a server is told to keep, what is refused and warned of, and steps that wait for others to have them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from redis.asyncio import Redis

from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck_store_redis.clients import Connected, connect
from coatcheck_store_redis.durability import (
    Durability,
    DurabilitySettings,
    objections,
    shortcomings,
    warnings_of,
)
from coatcheck_store_redis.survey import Found, survey
from servers import OwnServer
from servers.cluster import Cluster
from servers.fixtures import Own
from servers.redis import Redis as RedisRecipe
from servers.redis import Valkey
from servers.replicated import Replicated, ask, in_step, until
from servers.sentinel import Guarded

KEY, FENCE = "{durability}:task", "{durability}:fence"
STEP = [("SET", KEY, "started")]
SHORT = timedelta(milliseconds=300)
NOTHING = DurabilitySettings()
SAFE = Found(version=(7, 4, 0), policy="noeviction", aof=True, fsync="always", saves=False)
PLACE = connect("redis://:hunter2@host")


def settings(**given: Any) -> DurabilitySettings:
    """Return settings that wait for all steps."""
    return DurabilitySettings(**{"acknowledge": "all", "ack_timeout": SHORT, **given})


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"acknowledge": "sometimes", "ack_disk": True}, "is 'none', 'start' or 'all', not 'sometimes'"),
        (
            {"acknowledge": "start"},
            "which steps wait, ack_replicas and ack_disk what they wait for: give both",
        ),
        ({"ack_replicas": 1}, "give both"),
        ({"acknowledge": "all", "ack_replicas": -1}, "a number of replicas, not -1"),
        ({"acknowledge": "all", "ack_disk": True, "ack_timeout": timedelta()}, "at least a millisecond"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], why: str) -> None:
    """The message says what goes together."""
    with pytest.raises(ConfigurationError, match=why):
        DurabilitySettings(**given)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_throws_data_away_is_refused(policy: str) -> None:
    """Unless that is allowed, and then it is warned of."""
    found = evolve(SAFE, policy=policy)
    (objection,) = objections(found, NOTHING, PLACE)
    assert f"maxmemory-policy {policy!r}" in objection
    assert "set `maxmemory-policy noeviction`" in objection
    allowed = DurabilitySettings(allow_eviction=True)
    assert objections(found, allowed, PLACE) == []
    assert "thrown away when the memory is full" in warnings_of(found, allowed)[0]


def test_a_server_that_is_too_old_is_refused() -> None:
    """The message has its version."""
    (objection,) = objections(evolve(SAFE, version=(6, 0, 16)), NOTHING, PLACE)
    assert "is Redis 6.0.16; the store needs 6.2 or later" in objection


def test_what_the_server_cannot_wait_for_is_refused() -> None:
    """WAITAOF needs a new server, with an append-only file."""
    (old,) = objections(evolve(SAFE, version=(7, 0, 15)), settings(ack_disk=True), PLACE)
    assert "WAITAOF" in old
    assert "7.0.15" in old
    (without,) = objections(evolve(SAFE, aof=False), settings(ack_disk=True), PLACE)
    assert "set `appendonly yes`" in without


# ------------------------------------------------------------------ what is promised


HELD = [
    (SAFE, NOTHING),
    (evolve(SAFE, fsync="everysec"), settings(ack_disk=True)),
    (evolve(SAFE, replicas=2), settings(ack_replicas=2)),
    (evolve(SAFE, replicas=2, fsync="everysec"), settings(ack_replicas=2, ack_disk=True)),
]
BROKEN = [
    (evolve(SAFE, fsync="everysec"), NOTHING, "`appendfsync everysec`, after the answer"),
    (evolve(SAFE, fsync="no"), NOTHING, "`appendfsync no`, after the answer"),
    (evolve(SAFE, aof=False), NOTHING, "set `appendonly yes`"),
    (
        evolve(SAFE, fsync="everysec"),
        DurabilitySettings(acknowledge="start", ack_disk=True),
        "acknowledge='all'",
    ),
    (evolve(SAFE, replicas=1), NOTHING, "any of 1 replicas may take over, and steps wait for 0"),
    (
        evolve(SAFE, replicas=2),
        settings(ack_replicas=1),
        "any of 2 replicas may take over, and steps wait for 1",
    ),
    (
        evolve(SAFE, replicas=1, fsync="everysec"),
        settings(ack_replicas=1),
        "after the answer",
    ),
]


@pytest.mark.parametrize(("found", "given"), HELD)
def test_surviving_failover_can_be_promised(found: Found, given: DurabilitySettings) -> None:
    """Where the disk of the master and all replicas have every step before it is acknowledged."""
    assert shortcomings(found, given) == []
    assert objections(found, evolve(given, survives_failover=True), PLACE) == []


@pytest.mark.parametrize(("found", "given", "why"), BROKEN)
def test_surviving_failover_cannot_be_promised(found: Found, given: DurabilitySettings, why: str) -> None:
    """Where one of them may lack a step: then a store that promises it does not open."""
    (objection,) = objections(found, evolve(given, survives_failover=True), PLACE)
    assert why in objection
    assert "survives_failover cannot be promised of redis://:***@host:6379/0" in objection
    assert objections(found, given, PLACE) == []


def test_of_a_server_that_hides_its_configuration_it_is_believed() -> None:
    """With a warning that says what to look at."""
    found = evolve(SAFE, aof=False, fsync=None, refused="unknown command 'CONFIG'")
    given = DurabilitySettings(survives_failover=True)
    assert objections(found, given, PLACE) == []
    assert "does not show its configuration (unknown command 'CONFIG')" in warnings_of(found, given)[0]


# ------------------------------------------------------------------ what is warned of


@pytest.mark.parametrize(
    ("found", "given", "said"),
    [
        (SAFE, NOTHING, []),
        (evolve(SAFE, fsync="everysec"), NOTHING, ["the steps of the last second or two"]),
        (evolve(SAFE, fsync="no"), NOTHING, ["the steps of the last half minute"]),
        (evolve(SAFE, aof=False, saves=True), NOTHING, ["all steps since the last snapshot"]),
        (evolve(SAFE, aof=False, saves=False), NOTHING, ["a crash or restart loses all tasks"]),
        (evolve(SAFE, replicas=1), NOTHING, ["acknowledge='start' and ack_replicas=1"]),
        (evolve(SAFE, replicas=2), settings(ack_replicas=1), ["a failover to one of 2 replicas"]),
        (evolve(SAFE, replicas=1), settings(ack_replicas=1), []),
        (evolve(SAFE, fsync="everysec"), settings(ack_disk=True), []),
    ],
)
def test_what_may_be_lost_is_said(found: Found, given: DurabilitySettings, said: list[str]) -> None:
    """With what comes of it: a second creating request."""
    warnings = warnings_of(found, given)
    assert len(warnings) == len(said)
    for warning, part in zip(warnings, said, strict=True):
        assert part in warning
        assert "be made a second time" in warning
        assert warning.endswith("(see docs/redis-durability.md)")


def test_waiting_for_replicas_that_are_not_there_is_said() -> None:
    """Each such step would fail."""
    (warning,) = warnings_of(evolve(SAFE, replicas=1), settings(ack_replicas=2))
    assert "steps wait for 2 replicas, and the server knows of 1" in warning


# ------------------------------------------------------------------ real servers


@pytest.fixture
async def opened() -> AsyncIterator[list[Connected]]:
    """Close what is put in."""
    ways: list[Connected] = []
    yield ways
    for way in ways:
        await way.close()


async def found_at(url: str, opened: list[Connected]) -> Found:
    """Return what a server says of itself."""
    opened.append(connect(url, timeout=5))
    return await survey(opened[-1], KEY)


@pytest.mark.slow
async def test_a_server_tells_how_it_stores(own_server: Own, opened: list[Connected]) -> None:
    """As it is set now."""
    server = own_server("redis")
    found = await found_at(server.url, opened)
    assert found == Found(
        version=server.version, policy="noeviction", aof=True, fsync="everysec", saves=False
    )
    async with Redis.from_url(server.url) as client:
        for option, value in {
            "appendfsync": "always",
            "save": "900 1",
            "maxmemory-policy": "allkeys-lru",
        }.items():
            await client.config_set(option, value)
    assert await survey(opened[-1], KEY) == evolve(found, fsync="always", saves=True, policy="allkeys-lru")


@pytest.mark.slow
async def test_a_server_that_refuses_config_tells_what_info_does(
    own_server: Own, opened: list[Connected]
) -> None:
    """The policy, and whether there is an append-only file; and that it refuses."""
    server = own_server("redis")
    async with Redis.from_url(server.url) as client:
        await client.acl_setuser(
            "app", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-config"]
        )
        await client.config_set("maxmemory-policy", "volatile-lru")
    found = await found_at(server.url.replace("//", "//app:secret@"), opened)
    assert (found.policy, found.aof, found.fsync, found.saves) == ("volatile-lru", True, None, None)
    assert found.refused is not None
    assert "config" in found.refused


@pytest.mark.slow
async def test_replicas_count_where_they_may_take_over(opened: list[Connected]) -> None:
    """Behind a Sentinel those that are down, too, but not those that are never promoted."""
    servers = Guarded(RedisRecipe, replicas=1)
    try:
        assert (await found_at(servers.url(), opened)).replicas == 1
        servers.servers[1].kill()
        until("it is gone", lambda: ask(servers.servers[0], "INFO", "replication").count("slave0") == 0)
        assert (await survey(opened[-1], KEY)).replicas == 1
    finally:
        servers.close()


@pytest.mark.slow
async def test_replicas_count_in_a_cluster(opened: list[Connected]) -> None:
    """Those of the node that holds the keys."""
    servers = Cluster(RedisRecipe, replicas=1)
    try:
        assert (await found_at(servers.url, opened)).replicas == 1
    finally:
        servers.close()


@pytest.mark.slow
async def test_opening_refuses_and_warns_once(
    own_server: Own, opened: list[Connected], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is logged, with the URL but not the password."""
    server = own_server("redis")
    opened.append(connect(server.url, timeout=5))
    durability = Durability(NOTHING, opened[0], FENCE)
    with caplog.at_level(logging.WARNING, "coatcheck_store_redis"):
        await durability.meet()
        await durability.meet()
    (warning,) = caplog.messages
    assert warning.startswith(f"{server.url}: appendfsync is 'everysec'")
    async with Redis.from_url(server.url) as client:
        await client.config_set("maxmemory-policy", "allkeys-lfu")
    with pytest.raises(ConfigurationError, match="maxmemory-policy 'allkeys-lfu'"):
        await durability.meet()


@pytest.fixture(scope="module", params=[RedisRecipe, Valkey])
def pair(request: pytest.FixtureRequest) -> Iterator[Replicated]:
    """Start a master and a replica."""
    servers = Replicated(request.param, replicas=1)
    yield servers
    servers.close()


def waiting(server: OwnServer, opened: list[Connected], **given: Any) -> Durability:
    """Return what sends steps that wait."""
    opened.append(connect(server.url, timeout=5))
    return Durability(settings(**given), opened[-1], FENCE)


@pytest.mark.slow
async def test_a_step_waits_for_a_replica(pair: Replicated, opened: list[Connected]) -> None:
    """It is acknowledged with it, and not without: then the step has been made, but must not be built on."""
    master, replica = pair.servers
    durability = waiting(master, opened, ack_replicas=1)
    assert await durability.send(KEY, STEP) == [b"OK"]
    async with Redis.from_url(replica.url) as client:
        assert await client.get(KEY) == b"started"
    replica.pause()
    try:
        with pytest.raises(
            StoreUnavailable, match=r"made the step, but 1 of 1 replicas did not have it within 0.3 s"
        ):
            await durability.send(KEY, STEP)
    finally:
        replica.resume()
    assert await durability.send(KEY, STEP) == [b"OK"]


@pytest.mark.slow
async def test_a_repeated_step_waits_for_what_another_connection_wrote(
    pair: Replicated, opened: list[Connected]
) -> None:
    """WAIT alone counts what its own connection wrote, on Valkey, and a repeated step writes nothing."""
    master, replica = pair.servers
    plain = connect(master.url, timeout=5)
    opened.append(plain)
    replica.pause()
    try:
        await plain.send(KEY, [("SET", KEY, "unknown outcome")])
        fresh = waiting(master, opened, ack_replicas=1)
        again = [("SET", KEY, "x", "NX")]
        with pytest.raises(StoreUnavailable, match="1 of 1 replicas did not have it"):
            await fresh.send(KEY, again)
    finally:
        replica.resume()


@pytest.mark.slow
async def test_only_starts_wait_if_so_set(pair: Replicated, opened: list[Connected]) -> None:
    """All other steps are acknowledged by the master alone."""
    master, replica = pair.servers
    durability = waiting(master, opened, acknowledge="start", ack_replicas=1)
    replica.pause()
    try:
        assert await durability.send(KEY, STEP) == [b"OK"]
        with pytest.raises(StoreUnavailable):
            await durability.send(KEY, STEP, start=True)
    finally:
        replica.resume()
    patient = waiting(master, opened, acknowledge="start", ack_replicas=1, ack_timeout=timedelta(seconds=20))
    assert await patient.send(KEY, STEP, start=True) == [b"OK"]


@pytest.mark.slow
async def test_a_step_waits_for_the_disks(opened: list[Connected]) -> None:
    """Those of the master and of a replica, where the server knows WAITAOF."""
    servers = Replicated(Valkey, replicas=1)
    try:
        master, replica = servers.servers
        durability = waiting(master, opened, ack_disk=True, ack_replicas=1, ack_timeout=timedelta(seconds=4))
        assert await durability.send(KEY, STEP) == [b"OK"]
        alone = waiting(master, opened, ack_disk=True)
        replica.kill()
        assert await alone.send(KEY, STEP) == [b"OK"]
        short = waiting(master, opened, ack_disk=True, ack_replicas=1)
        with pytest.raises(StoreUnavailable, match="the disks of 1 of 1 replicas did not have it"):
            await short.send(KEY, STEP)
    finally:
        servers.close()


@pytest.mark.slow
async def test_a_master_that_is_none_any_more_acknowledges_nothing(opened: list[Connected]) -> None:
    """A step that waits when its server is made a replica fails."""
    servers = Replicated(RedisRecipe, replicas=1)
    try:
        master, replica = servers.servers
        durability = waiting(master, opened, ack_replicas=1, ack_timeout=timedelta(seconds=20))
        replica.pause()
        step = asyncio.ensure_future(durability.send(KEY, STEP))
        await asyncio.sleep(0.2)
        ask(master, "REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="did not wait for others to have it: UNBLOCKED"):
            await step
    finally:
        replica.resume()
        servers.close()


@pytest.mark.slow
async def test_steps_in_a_cluster_wait_at_the_node_that_made_them(opened: list[Connected]) -> None:
    """For that node's own replica."""
    servers = Cluster(RedisRecipe, replicas=1)
    try:
        (follower,) = servers.replicas_of(servers.holder(KEY))
        opened.append(connect(servers.url, timeout=5))
        durability = Durability(settings(ack_replicas=1), opened[0], FENCE)
        assert await durability.send(KEY, STEP) == [b"OK"]
        assert in_step(follower)
        follower.pause()
        with pytest.raises(StoreUnavailable, match="1 of 1 replicas did not have it"):
            await durability.send(KEY, STEP)
        follower.resume()
    finally:
        servers.close()
