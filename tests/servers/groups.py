"""The pytest plugin for several servers of Redis: ``sentinel_url`` and ``cluster_url``, whose servers are shared."""

from collections.abc import Iterator

import pytest

from servers.cluster import Cluster
from servers.errors import NoServer
from servers.redis import Redis
from servers.sentinel import Guarded
from servers.session import do_without


@pytest.fixture(scope="session")
def sentinel_servers() -> Iterator[Guarded]:
    """Give the session's master, its replica and the Sentinel: no test is to stop any of them."""
    try:
        servers = Guarded(Redis)
    except NoServer as missing:
        do_without("sentinel", missing)
    yield servers
    servers.close()


@pytest.fixture
def sentinel_url(sentinel_servers: Guarded) -> Iterator[str]:
    """Give the URL of an empty database of the master behind the Sentinel."""
    url = sentinel_servers.new_database()
    yield url
    sentinel_servers.drop_database(url)


@pytest.fixture(scope="session")
def cluster_servers() -> Iterator[Cluster]:
    """Give the session's Cluster of three masters: no test is to stop any of them."""
    try:
        servers = Cluster(Redis)
    except NoServer as missing:
        do_without("cluster", missing)
    yield servers
    servers.close()


@pytest.fixture
def cluster_url(cluster_servers: Cluster) -> Iterator[str]:
    """Give the URL of a Cluster that is emptied after the test."""
    yield cluster_servers.url
    cluster_servers.empty()
