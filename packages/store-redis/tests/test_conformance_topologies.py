"""The store contract on Valkey, behind a Sentinel, and on a Cluster of three masters, each by its own clock."""

import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis_hooks as hooks

from coatcheck_conformance import StoreConformance, StoreSpec
from servers import NoServer, Server
from servers.cluster import Cluster
from servers.redis import Redis
from servers.replicated import ask, in_step, until
from servers.sentinel import Guarded
from servers.session import do_without

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_RULES = itertools.count(1)
_MIDDLE = 100
"""Before which of its rules the master behind the Sentinel is killed."""


def spec_at(url: str, server: Server, name: str) -> StoreSpec:
    """Return a spec for an empty place."""
    return StoreSpec(
        "coatcheck_store_redis:create",
        url,
        server=f"{name} {'.'.join(map(str, server.version))}",
        corrupt=hooks.corrupt,
        previous=hooks.previous,
        patience=timedelta(seconds=150),
    )


class TestValkey(StoreConformance):
    """Valkey keeps the whole contract."""

    @pytest.fixture
    def store_spec(self, valkey_url: str, valkey_server: Server) -> StoreSpec:
        """Return an empty database for each rule."""
        return spec_at(valkey_url, valkey_server, "Valkey, as Redis")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """Start a master, a replica and a Sentinel, of which the master is killed in the middle."""
    try:
        servers = Guarded(Redis)
    except NoServer as missing:
        do_without("sentinel", missing)
    yield servers
    servers.close()


def fail_over(servers: Guarded) -> None:
    """Kill the master; the replica takes its place, and the old one follows it."""
    old, new = servers.servers
    old.kill()
    assert servers.wait_for_successor(old) is new
    old.start()
    ask(old, "REPLICAOF", "127.0.0.1", str(new.port))
    until("the old master follows", lambda: in_step(old))


class TestSentinel(StoreConformance):
    """A master that a Sentinel names keeps it, and so does the replica that takes its place in the middle."""

    @pytest.fixture
    def store_spec(self, guarded: Guarded) -> Iterator[StoreSpec]:
        """Return an empty database for each rule."""
        if next(_RULES) == _MIDDLE:
            fail_over(guarded)
        url = guarded.new_database()
        yield spec_at(url, guarded.servers[0], "Redis behind a Sentinel,")
        guarded.drop_database(url)


class TestCluster(StoreConformance):
    """A Cluster keeps it: all keys of the store are on one of the masters."""

    @pytest.fixture
    def store_spec(self, cluster_url: str, cluster_servers: Cluster) -> StoreSpec:
        """Return an empty Cluster for each rule."""
        return spec_at(cluster_url, cluster_servers.servers[0], "Redis Cluster,")
