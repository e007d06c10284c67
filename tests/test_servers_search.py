"""How the tests' servers are found, and what happens without them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import servers.search
import servers.session
from servers import Kind, OwnServer, Server, own, shared
from servers.clients import RedisClient
from servers.fixtures import Own
from servers.urls import address_of

ALL: list[Kind] = ["postgresql", "mariadb", "redis", "pgbouncer"]


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of server that can be installed."""
    name: Kind = request.param
    return name


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without servers, and without URLs of any."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers.search, "PLACES", [])
    monkeypatch.setattr(servers.search, "WHEELS", {})
    monkeypatch.setattr(servers.session, "_shared", {})
    for kind in ALL:
        monkeypatch.delenv(f"COATCHECK_TEST_{kind.upper()}_URL", raising=False)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("take", [shared, own])
def test_a_missing_server_is_skipped_by_name(
    kind: Kind, take: Callable[[Kind], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that need what is not there are skipped, and the reason says what to install or set."""
    monkeypatch.setenv("COATCHECK_REQUIRE_SERVERS", "mysql")
    with pytest.raises(pytest.skip.Exception, match="no .*: .*install"):
        take(kind)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("take", [shared, own])
def test_a_missing_server_that_is_required_is_a_failure(
    kind: Kind, take: Callable[[Kind], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment names a kind, its tests can't be skipped by mistake."""
    monkeypatch.setenv("COATCHECK_REQUIRE_SERVERS", "postgresql, mariadb,redis,pgbouncer")
    with pytest.raises(pytest.fail.Exception, match=f"no .*: .*install.*{kind}"):
        take(kind)


def test_a_server_that_is_given_is_used_and_left_as_it_was(
    own_server: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL in the environment comes first; what tests made in that server is dropped in the end."""
    theirs = own_server("redis")
    monkeypatch.setattr(servers.session, "_shared", {})
    monkeypatch.setenv("COATCHECK_TEST_REDIS_URL", theirs.url)
    given = shared("redis")
    assert not isinstance(given, OwnServer)
    url = given.new_database()
    assert address_of(url, port=0).port == theirs.port
    number = int(address_of(url, port=0).database)
    client = RedisClient(url)
    assert client.ask(number, "SET", "ticket", "7") == "OK"
    servers.release()
    assert client.ask(number, "DBSIZE") == 0


def test_a_given_server_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong URL is not a reason to skip."""
    monkeypatch.setattr(servers.session, "_shared", {})
    monkeypatch.setenv("COATCHECK_TEST_REDIS_URL", "redis://127.0.0.1:1/0")
    for _ in range(2):
        with pytest.raises(servers.ServerFailed, match="COATCHECK_TEST_REDIS_URL"):
            shared("redis")


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the server's log, and nothing stays."""
    program = tmp_path / "redis-server"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo v=99.0 && exit\necho no luck; exit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = list(servers.server._open)
    with pytest.raises(servers.ServerFailed, match="no luck"):
        own("redis")
    assert servers.server._open == before
