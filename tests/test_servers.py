"""The tests' own servers: private, found or named as missing, and gone when the tests are."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from servers import Kind, Server, own, pgbouncer_before, shared
from servers.clients import MysqlClient, PostgresqlClient, RedisClient
from servers.fixtures import Own
from servers.urls import address_of, database_at
from waits import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

DATABASES: list[Kind] = ["postgresql", "mariadb", "redis"]
ALL: list[Kind] = [*DATABASES, "pgbouncer"]
HANGING_SECONDS = 0.3
DROPPED = "Unknown database|does not exist"


def ask(kind: Kind, url: str, statement: str) -> list[str]:
    """Ask a server and return the first column of its answer."""
    if kind == "redis":
        return [str(RedisClient(url).ask(int(address_of(url, port=0).database), *statement.split()))]
    connection = _client_of(kind, url).connect()
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return [str(row[0]) for row in cursor.fetchall()] if cursor.description else []


def _client_of(kind: Kind, url: str) -> PostgresqlClient | MysqlClient:
    return MysqlClient(url) if kind == "mariadb" else PostgresqlClient(url)


def write(kind: Kind, url: str) -> None:
    """Write the one thing that `written` finds."""
    if kind == "redis":
        ask(kind, url, "SET ticket 7")
    else:
        ask(kind, url, "CREATE TABLE tickets (number INT)")
        ask(kind, url, "INSERT INTO tickets VALUES (7)")


def written(kind: Kind, url: str) -> list[str]:
    """Return what was written."""
    return ask(kind, url, "GET ticket" if kind == "redis" else "SELECT number FROM tickets")


def is_empty(kind: Kind, url: str) -> bool:
    """Tell whether there is nothing in a database."""
    if kind == "redis":
        return ask(kind, url, "DBSIZE") == ["0"]
    name = "DATABASE()" if kind == "mariadb" else "'public'"
    found = ask(kind, url, f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {name}")
    return found == ["0"]


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of server that is shared."""
    name: Kind = request.param
    return name


@pytest.fixture
def server(kind: Kind) -> Server:
    """The session's server of each kind."""
    return shared(kind)


def test_a_server_is_shared_within_a_session(kind: Kind, server: Server) -> None:
    """Whoever asks for a kind gets the same server, and it knows its version."""
    assert shared(kind) is server
    assert server.version > (0,)


def test_new_databases_are_empty_and_apart(kind: Kind, server: Server) -> None:
    """What is written to one database is not in the next."""
    first, second = server.new_database(), server.new_database()
    write(kind, first)
    assert written(kind, first) == ["7"]
    assert is_empty(kind, second)
    server.drop_database(first)
    server.drop_database(second)


def test_a_dropped_database_is_gone_though_others_use_it(kind: Kind, server: Server) -> None:
    """Dropping does not wait for those who are connected."""
    url = server.new_database()
    write(kind, url)
    if kind == "redis":
        server.drop_database(url)
        assert is_empty(kind, url)
        return
    client = _client_of(kind, url)
    with closing(client.connect()) as busy, closing(busy.cursor()) as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM tickets")
        server.drop_database(url)
    # PgBouncer would let whoever connects wait for a database to come
    direct = shared("postgresql").url if kind == "pgbouncer" else url
    with pytest.raises(client.errors, match=DROPPED):
        _client_of(kind, database_at(direct, address_of(url, port=0).database)).connect()


def test_text_of_all_of_unicode_comes_back_from_mariadb(mariadb_url: str) -> None:
    """A new database takes four-byte characters by default."""
    ask("mariadb", mariadb_url, "CREATE TABLE notes (note VARCHAR(20))")
    ask("mariadb", mariadb_url, "INSERT INTO notes VALUES ('🧥')")
    assert ask("mariadb", mariadb_url, "SELECT note FROM notes") == ["🧥"]


def test_a_transaction_behind_pgbouncer_gets_any_connection(pgbouncer_url: str) -> None:
    """PgBouncer pools transactions: what a session says is not kept for it."""
    client = PostgresqlClient(pgbouncer_url)
    with closing(client.connect()) as one, closing(client.connect()) as two:
        (mine,) = one.execute("SELECT pg_backend_pid()").fetchone()
        other = two.execute("SELECT pg_backend_pid(), current_database()").fetchone()
        assert other == (mine, address_of(pgbouncer_url, port=0).database)


def test_a_postgresql_database_is_the_same_through_pgbouncer(own_server: Own) -> None:
    """PgBouncer stands in front of any PostgreSQL server, and comes back after it was killed."""
    behind = own_server("postgresql")
    with pgbouncer_before(behind) as pool:
        url = pool.new_database()
        write("pgbouncer", url)
        direct = url.replace(f":{address_of(url, port=0).port}/", f":{address_of(behind.url, port=0).port}/")
        assert written("postgresql", direct) == ["7"]
        pool.kill()
        with pytest.raises(PostgresqlClient(url).errors):
            written("pgbouncer", url)
        pool.start()
        assert written("pgbouncer", url) == ["7"]
        pool.drop_database(url)


@pytest.mark.parametrize("kind", DATABASES)
def test_an_own_server_starts_again_where_it_was(kind: Kind, own_server: Own) -> None:
    """After a stop and after a kill, the same URL leads to the same data."""
    server = own_server(kind)
    assert server.url != shared(kind).url
    url = server.new_database()
    write(kind, url)
    for end in (server.stop, server.kill):
        end()
        end()  # twice is once
        with pytest.raises(OSError if kind == "redis" else _client_of(kind, url).errors):
            written(kind, url)
        server.start()
        server.start()
        assert written(kind, url) == ["7"]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_paused_server_hangs_and_goes_on(kind: Kind, own_server: Own) -> None:
    """A paused server answers nobody, not even the connections that it has, and loses nothing."""
    server = own_server(kind)
    url = server.new_database()
    write(kind, url)
    server.pause()
    with ThreadPoolExecutor() as threads:
        question = threads.submit(written, kind, url)
        try:
            with pytest.raises(TimeoutError):
                question.result(HANGING_SECONDS)
        finally:
            server.resume()
        assert question.result(PATIENCE_SECONDS) == ["7"]
    server.pause()
    server.stop()  # which must not wait for ever
    server.start()
    assert written(kind, url) == ["7"]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_closed_server_leaves_nothing(kind: Kind) -> None:
    """Closing ends a server, even one that is paused, and removes its folder and its shared memory."""
    server = own(kind, durable=True)
    assert server._run is not None
    pid, folder = server._run.pid, server._folder
    marker = folder / "data/postmaster.pid"
    segment = marker.read_text().splitlines()[6].split()[1] if kind == "postgresql" else None
    server.pause()
    server.close()
    server.close()
    assert not _runs(pid)
    assert not folder.exists()
    assert segment not in _segments()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_server_dies_with_the_tests(kind: Kind) -> None:
    """A server ends, with its folder, when the process that started it is killed, though its thread has long ended."""
    shared(kind)  # or skip
    tests = subprocess.Popen(
        [sys.executable, __file__, kind], stdout=subprocess.PIPE, text=True, env=_environment()
    )
    with tests:
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split()
        assert _runs(int(pid))
        tests.kill()
        _until(lambda: not _runs(int(pid)) and not Path(folder).exists())


def test_a_server_dies_with_its_supervisor(own_server: Own) -> None:
    """Where the kernel can do it, a server does not survive a supervisor that is killed."""
    if sys.platform != "linux":
        pytest.skip("only Linux has signals for children whose parents die")
    server = own_server("redis")
    assert server._run is not None
    server._run._process.kill()
    _until(lambda: not _runs(server._run.pid if server._run else 0))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    # one whose parent was killed may have to wait until somebody buries it
    return not stat.exists() or stat.read_text("latin-1").rpartition(")")[2].split()[0] != "Z"


def _segments() -> list[str]:
    table = Path("/proc/sysvipc/shm")
    return [line.split()[1] for line in table.read_text().splitlines()[1:]] if table.exists() else []


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def _main(kind: Kind) -> None:
    with ThreadPoolExecutor() as threads:
        server = threads.submit(own, kind).result()
    assert server._run is not None
    print(server._run.pid, server._folder, flush=True)  # noqa: T201 - for the parent
    signal.pause()


if __name__ == "__main__":
    _main(sys.argv[1])  # type: ignore[arg-type]  # by the test above
