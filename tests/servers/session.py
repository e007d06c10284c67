"""The servers of a test session: each is started when a test first asks for it, and then shared."""

import os
from typing import Literal, NoReturn

import pytest

from servers.clients import Client, MysqlClient, PostgresqlClient, RedisClient
from servers.errors import NoServer, ServerError, ServerFailed
from servers.mariadb import Mariadb
from servers.postgresql import Pgbouncer, Postgresql
from servers.redis import Redis, Valkey
from servers.server import OwnServer, Recipe, Server

Kind = Literal["postgresql", "pgbouncer", "mariadb", "mysql", "redis", "valkey"]
REQUIRED = "COATCHECK_REQUIRE_SERVERS"
"""The variable that names the kinds, with commas between, whose tests must not be skipped."""
CLIENTS: dict[Kind, type[Client]] = {
    "postgresql": PostgresqlClient,
    "mariadb": MysqlClient,
    "mysql": MysqlClient,
    "redis": RedisClient,
    "valkey": RedisClient,
}
RECIPES: dict[Kind, type[Postgresql | Mariadb | Redis]] = {
    "postgresql": Postgresql,
    "mariadb": Mariadb,
    "redis": Redis,
    "valkey": Valkey,
}

_shared: dict[Kind, Server | ServerError] = {}


def shared(kind: Kind) -> Server:
    """Return the session's server: that of the URL in the environment, or else one of our own.

    Without one, the test is skipped; it fails if ``COATCHECK_REQUIRE_SERVERS`` names the kind.

    Raises:
        ServerFailed: there is one, and it doesn't work; all tests that need it are told so.
    """
    try:
        return _find(kind)
    except NoServer as missing:
        do_without(kind, missing)


def own(kind: Kind, *, durable: bool = False) -> OwnServer:
    """Start a server that the caller may stop and kill, and should close; one that is given by a URL is left alone.

    It is skipped as by `shared`. A commit waits for the disk only if it is `durable`; a killed server has all that
    was committed in either case.

    Raises:
        ServerFailed: it doesn't start.
    """
    try:
        return OwnServer(_recipe(kind, durable=durable))
    except NoServer as missing:
        do_without(kind, missing)


def pgbouncer_before(behind: Server) -> OwnServer:
    """Start a PgBouncer in front of a PostgreSQL server, in transaction mode; skipped as by `shared`.

    Raises:
        ServerFailed: it doesn't start.
    """
    try:
        return OwnServer(Pgbouncer(behind))
    except NoServer as missing:
        do_without("pgbouncer", missing)


def release() -> None:
    """Drop all databases in servers that were given by a URL."""
    while _shared:
        _, server = _shared.popitem()
        if isinstance(server, Server):
            server.close()


def _find(kind: Kind) -> Server:
    if kind not in _shared:
        try:
            _shared[kind] = _given(kind) or OwnServer(_recipe(kind, durable=False))
        except ServerError as error:
            _shared[kind] = error
    found = _shared[kind]
    if isinstance(found, ServerError):
        raise found
    return found


def _given(kind: Kind) -> Server | None:
    url = os.environ.get(f"COATCHECK_TEST_{kind.upper()}_URL")
    if not url or kind not in CLIENTS:
        return None
    client = CLIENTS[kind](url)
    try:
        client.version()
    except client.errors as error:
        raise ServerFailed(f"the {kind} server of COATCHECK_TEST_{kind.upper()}_URL: {error}") from error
    return Server(client)


def _recipe(kind: Kind, *, durable: bool) -> Recipe:
    if kind == "pgbouncer":
        return Pgbouncer(_find("postgresql"))
    if kind == "mysql":
        raise NoServer("no MySQL: set COATCHECK_TEST_MYSQL_URL")
    return RECIPES[kind](durable=durable)


def do_without(kind: str, missing: NoServer) -> NoReturn:
    """Skip the test that needs it, or fail it if the kind is required."""
    if kind in os.environ.get(REQUIRED, "").replace(" ", "").split(","):
        pytest.fail(f"{missing} ({REQUIRED} names {kind})", pytrace=False)
    pytest.skip(str(missing))
