"""Connecting to Redis, in every way there is."""

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme
from redis.asyncio import Redis, RedisCluster, Sentinel

from coatcheck.errors import ConfigurationError
from coatcheck_store_redis.clients import Client, Connected, connect
from coatcheck_store_redis.troubles import FAULTS, told
from coatcheck_store_redis.urls import Topology
from servers import FaultProxy, Kind, OwnServer
from servers.clients import RedisClient
from servers.fixtures import Own
from servers.redis import Redis as Recipe
from servers.urls import address_of

KEY = "{clients}:count"
COUNT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
TIMEOUT = 5.0
SECRET = "p@ss:w/rd?#%&= é"
WRITTEN = "p%40ss%3Aw%2Frd%3F%23%25%26%3D%20%C3%A9"

pytestmark = pytest.mark.slow


async def count(connected: Connected) -> int:
    """Count one up, by a script."""
    (number,) = await connected.send(KEY, [("EVAL", COUNT, 1, KEY, 1)])
    assert isinstance(number, int), number
    return number


@pytest.fixture(params=["redis", "valkey", "sentinel", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Give an empty place of each kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def test_commands_go_together_and_answers_come_in_order(url: str) -> None:
    """An error stands in its place, and what follows it is done."""
    connected = connect(url, timeout=TIMEOUT)
    answers = await connected.send(
        KEY, [("SET", KEY, b"\xff"), ("LPUSH", KEY, 1), ("GET", KEY), ("DEL", KEY)]
    )
    assert (answers[0], answers[2], answers[3]) == (b"OK", b"\xff", 1)
    assert "WRONGTYPE" in str(answers[1])
    assert connected.own
    assert connected.url == url
    await connected.close()


async def test_a_closed_way_opens_again(url: str) -> None:
    """What is used after `close` is made anew."""
    connected = connect(url, timeout=TIMEOUT)
    assert await count(connected) == 1
    await connected.close()
    assert await count(connected) == 2
    await connected.close()


def test_each_event_loop_has_a_client(url: str) -> None:
    """Loops in several threads, and one after another, use the same way; what a loop leaves behind is closed."""
    connected = connect(url, timeout=TIMEOUT)
    seen: list[int] = []

    def work() -> None:
        seen.append(asyncio.run(count(connected)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    assert sorted(seen) == [1, 2, 3, 4]
    assert not connected._loops


def test_closing_closes_the_clients_of_other_threads(redis_url: str) -> None:
    """Their loops run on."""
    connected = connect(redis_url, timeout=TIMEOUT)
    used, closed = threading.Event(), threading.Event()

    async def stay() -> None:
        await count(connected)
        (line,) = connected._free[asyncio.get_running_loop()][""]
        used.set()
        while not closed.is_set():
            await asyncio.sleep(0.01)
        assert not line.is_connected

    async def close() -> None:
        await connected.close()

    thread = threading.Thread(target=lambda: asyncio.run(stay()))
    thread.start()
    assert used.wait(20)
    asyncio.run(close())
    closed.set()
    thread.join()


# ------------------------------------------------------------------ clients that are given


def of_sentinel(url: str) -> Redis:
    """Make what a Sentinel's own class makes."""
    port = int(url.partition("//")[2].partition("/")[0].rpartition(":")[2])
    sentinel = Sentinel([("127.0.0.1", port)])  # type: ignore[no-untyped-call]  # of redis
    made: Redis = sentinel.master_for("orders", db=int(url.rpartition("/")[2]))
    return made


def of_cluster(url: str) -> RedisCluster:
    """Make one from its first node."""
    return RedisCluster.from_url(f"redis://{url.partition('//')[2].partition(',')[0]}")


@pytest.mark.parametrize(
    ("kind", "make", "topology"),
    [
        ("redis", Redis.from_url, Topology.SINGLE),
        ("sentinel", of_sentinel, Topology.SENTINEL),
        ("cluster", of_cluster, Topology.CLUSTER),
    ],
)
async def test_a_client_that_is_given_is_not_closed(
    request: pytest.FixtureRequest, kind: str, make: object, topology: Topology
) -> None:
    """It serves, its place is told, and it serves its owner afterwards."""
    url: str = request.getfixturevalue(f"{kind}_url")
    client: Client = make(url)  # type: ignore[operator]
    connected = connect(client)
    assert (connected.own, connected.topology) == (False, topology)
    assert connected.url == url.partition(",")[0]
    assert await count(connected) == 1
    assert connected.client is client
    await connected.close()
    assert await client.get(KEY) == b"1"
    await client.aclose()
    if kind == "sentinel":
        await client.connection_pool.sentinel_manager.sentinels[0].aclose()  # type: ignore[union-attr]


def test_a_client_that_is_given_serves_one_loop(redis_url: str) -> None:
    """Its connections belong to that; another is told what to give instead."""
    client = Redis.from_url(redis_url)
    connected = connect(client)
    refusals: list[str] = []

    def elsewhere() -> None:
        with pytest.raises(ConfigurationError) as refusal:
            asyncio.run(count(connected))
        refusals.append(str(refusal.value))

    async def here() -> None:
        await count(connected)
        await asyncio.to_thread(elsewhere)
        await connected.close()
        await client.aclose()

    asyncio.run(here())
    assert "give the store the URL instead of a client" in refusals[0]


def test_a_client_that_cannot_serve_is_refused() -> None:
    """Synchronous ones, decoding ones, and what is none."""
    with pytest.raises(ConfigurationError, match=r"one of redis.asyncio instead, not redis.client.Redis"):
        connect(redis.Redis())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="make it without decode_responses=True"):
        connect(Redis(decode_responses=True))
    with pytest.raises(ConfigurationError, match="a URL, such as redis://host:6379/0, not builtins.int"):
        connect(7)  # type: ignore[arg-type]


# ------------------------------------------------------------------ ways in


async def test_passwords_of_any_characters_open(own_server: Own) -> None:
    """That of the default user, and that of another."""
    server = own_server("redis")
    asked = RedisClient(server.url)
    asked.ask(0, "ACL", "SETUSER", "us@er", "on", f">{SECRET}", "~*", "&*", "+@all")
    where = server.url.partition("//")[2]
    connected = connect(f"redis://us%40er:{WRITTEN}@{where}", timeout=TIMEOUT)
    assert await count(connected) == 1
    assert SECRET not in connected.url
    await connected.close()
    async with Redis.from_url(server.url) as client:
        await client.config_set("requirepass", SECRET)
    connected = connect(f"redis://:{WRITTEN}@{where}", timeout=TIMEOUT)
    assert await count(connected) == 2
    await connected.close()


async def test_a_wrong_password_is_told(own_server: Own) -> None:
    """So is a missing one; neither is shown."""
    server = own_server("redis")
    where = server.url.partition("//")[2]
    async with Redis.from_url(server.url) as client:
        await client.config_set("requirepass", SECRET)
    connected = connect(f"redis://:hunter2@{where}", timeout=TIMEOUT)
    with pytest.raises(FAULTS) as fault:
        await count(connected)
    message = told(fault.value, connected.url)
    assert "does not accept the" in message
    assert "hunter2" not in message
    nobody = connect(server.url, timeout=TIMEOUT)
    with pytest.raises(FAULTS) as fault:
        await count(nobody)
    assert "does not accept the" in told(fault.value, nobody.url)
    await connected.close()
    await nobody.close()


async def test_a_unix_socket_opens(tmp_path: Path) -> None:
    """With the database that the URL names."""
    path = tmp_path / "redis.sock"
    with OwnServer(Recipe(durable=False, options=("--unixsocket", str(path)))) as server:
        connected = connect(f"unix://{path}?db=3", timeout=TIMEOUT)
        assert await count(connected) == 1
        await connected.close()
        assert RedisClient(server.url).ask(3, "GET", KEY) == "1"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Give one that nobody trusts."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="module")
def encrypted(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Start a server that speaks only TLS beside its plain port; give its address and the authority's file."""
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1", not_after=_tomorrow())
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    files = ("--tls-cert-file", str(folder / "cert.pem"), "--tls-key-file", str(folder / "key.pem"))
    with OwnServer(Recipe(durable=False)) as probe:
        port = probe.port  # free in a moment
    options = ("--tls-port", str(port), "--tls-auth-clients", "no", *files)
    with OwnServer(Recipe(durable=False, options=(*options, "--tls-ca-cert-file", str(folder / "ca.pem")))):
        yield f"127.0.0.1:{port}", folder / "ca.pem"


def _tomorrow() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


async def test_encrypted_connections_check_whom_they_reach(encrypted: tuple[str, Path]) -> None:
    """A certificate of a known authority is accepted; one of an unknown is not."""
    address, authority = encrypted
    connected = connect(f"rediss://{address}/0?ssl_ca_certs={authority}", timeout=TIMEOUT)
    assert await count(connected) == 1
    await connected.close()
    stranger = connect(f"rediss://{address}/0", timeout=TIMEOUT)
    with pytest.raises(FAULTS, match="(?i)certificate verify failed"):
        await count(stranger)
    await stranger.close()


async def test_the_name_in_a_certificate_counts(encrypted: tuple[str, Path]) -> None:
    """Unless the URL says that it does not."""
    address, authority = encrypted
    named = address.replace("127.0.0.1", "localhost")
    strict = connect(f"rediss://{named}/0?ssl_ca_certs={authority}", timeout=TIMEOUT)
    with pytest.raises(FAULTS, match="(?i)certificate verify failed"):
        await count(strict)
    lax = connect(f"rediss://{named}/0?ssl_ca_certs={authority}&ssl_check_hostname=false", timeout=TIMEOUT)
    assert await count(lax) > 0
    await strict.close()
    await lax.close()


# ------------------------------------------------------------------ what fails


@pytest.mark.parametrize(
    ("start", "kind", "why"),
    [
        ("redis", "cluster", r"is a node of a Cluster; write redis\+cluster://"),
        ("redis+cluster", "redis", "is no node of a Cluster; write redis://"),
        ("redis", "sentinel", r"Sentinels are written redis\+sentinel://"),
    ],
)
async def test_the_wrong_scheme_is_told(
    request: pytest.FixtureRequest, start: str, kind: str, why: str
) -> None:
    """The message says which is right."""
    url: str = request.getfixturevalue(f"{kind}_url")
    address = url.partition("//")[2].partition("/")[0].rpartition(",")[2]
    connected = connect(f"{start}://{address}", timeout=TIMEOUT)
    # of three masters one has the keys
    keys = [f"{{{name}}}:count" for name in "abcdefgh"]
    said = [await outcome(connected, key) for key in keys]
    await connected.close()
    assert any(matches(why, each) for each in said), said


async def outcome(connected: Connected, key: str) -> str:
    """Return what an attempt is told; nothing if it succeeds."""
    try:
        (answer,) = await connected.send(key, [("EVAL", COUNT, 1, key, 1)])
    except FAULTS as fault:
        answer = fault
    return told(answer, connected.url) if isinstance(answer, Exception) else ""


def matches(pattern: str, text: str) -> bool:
    """Tell whether a message says it."""
    with pytest.raises(ConfigurationError, match=pattern):
        raise ConfigurationError(text)
    return True


async def test_a_missing_server_is_told_at_once() -> None:
    """Nothing is tried again by the client."""
    connected = connect("redis://127.0.0.1:1/0", timeout=TIMEOUT)
    with pytest.raises(FAULTS) as fault:
        await count(connected)
    assert "Redis at redis://127.0.0.1:1/0 cannot be reached" in told(fault.value, connected.url)
    await connected.close()


async def test_missing_sentinels_are_told(sentinel_url: str) -> None:
    """So is a name that they do not know."""
    connected = connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/orders", timeout=TIMEOUT)
    with pytest.raises(FAULTS) as fault:
        await count(connected)
    assert "see SENTINEL MASTERS for names" in told(fault.value, connected.url)
    await connected.close()
    unknown = connect(sentinel_url.replace("/orders/", "/orderz/"), timeout=TIMEOUT)
    with pytest.raises(FAULTS, match="No master found for 'orderz'"):
        await count(unknown)
    await unknown.close()


async def test_a_hanging_server_costs_the_timeout(redis_url: str) -> None:
    """An answer that does not come is given up, and the next command goes through once the server answers."""
    with FaultProxy.before(redis_url) as proxy:
        connected = connect(proxy.url_through(redis_url), timeout=0.3)
        assert await count(connected) == 1
        proxy.black_hole()
        with pytest.raises(FAULTS) as fault:
            await count(connected)
        assert "did not answer in time" in told(fault.value, connected.url)
        proxy.restore()
        assert await count(connected) > 1
        await connected.close()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_one_failure_is_all_that_a_restart_costs(kind: Kind, own_server: Own) -> None:
    """However many connections were open: all others are dropped with the first that fails."""
    server = own_server(kind)
    connected = connect(server.url, timeout=TIMEOUT)
    await asyncio.gather(*(count(connected) for _ in range(8)))
    server.kill()
    server.start()
    failures = 0
    for _ in range(4):
        try:
            await count(connected)
        except FAULTS:
            failures += 1
    assert failures <= 1
    await connected.close()


async def test_a_cancelled_call_leaves_no_answer_to_another(redis_url: str) -> None:
    """Its connection is given up, since the answer is still to come."""
    connected = connect(redis_url, timeout=TIMEOUT)
    waiting = asyncio.ensure_future(connected.send(KEY, [("BLPOP", "{clients}:nothing", 30)]))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await count(connected) == 1
    assert address_of(redis_url, port=0).host == "127.0.0.1"
    await connected.close()
