"""The pytest plugin: for each kind, ``KIND_server``, which is shared, and ``KIND_url``, an empty database in it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from servers import Kind, OwnServer, Server, close_all, own, release, shared


class Own(Protocol):
    """Starts servers that end with the test."""

    def __call__(self, kind: Kind, *, durable: bool = False) -> OwnServer:
        """Start one as `servers.own` does."""


def _server_of(kind: Kind) -> Callable[[], Server]:
    @pytest.fixture(scope="session", name=f"{kind}_server")
    def server() -> Server:
        """Return the session's server."""
        return shared(kind)

    return server


def _url_of(kind: Kind) -> Callable[[pytest.FixtureRequest], Iterator[str]]:
    @pytest.fixture(name=f"{kind}_url")
    def url(request: pytest.FixtureRequest) -> Iterator[str]:
        """Return the URL of an empty database, which is dropped after the test."""
        server: Server = request.getfixturevalue(f"{kind}_server")
        database = server.new_database()
        yield database
        server.drop_database(database)

    return url


postgresql_server, postgresql_url = _server_of("postgresql"), _url_of("postgresql")
pgbouncer_server, pgbouncer_url = _server_of("pgbouncer"), _url_of("pgbouncer")
mariadb_server, mariadb_url = _server_of("mariadb"), _url_of("mariadb")
mysql_server, mysql_url = _server_of("mysql"), _url_of("mysql")
redis_server, redis_url = _server_of("redis"), _url_of("redis")
valkey_server, valkey_url = _server_of("valkey"), _url_of("valkey")


@pytest.fixture
def own_server() -> Iterator[Own]:
    """Return what starts servers that the test may stop and kill; they are closed after it."""
    with ExitStack() as stack:

        def start(kind: Kind, *, durable: bool = False) -> OwnServer:
            return stack.enter_context(own(kind, durable=durable))

        yield start


def pytest_unconfigure() -> None:
    """Leave nothing behind, whatever ended the session."""
    release()
    close_all()
