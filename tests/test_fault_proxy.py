"""A network that fails on command, in front of a server that echoes and in front of real ones."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from servers import Direction, FaultProxy
from servers.clients import MysqlClient, PostgresqlClient
from waits import PATIENCE_SECONDS

SHORT_SECONDS = 0.2
MUCH = 8_000_000


class _Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets, and remembers it."""

    def handle(self) -> None:
        """Serve one connection."""
        assert isinstance(self.server, _EchoServer)
        with contextlib.suppress(ConnectionError):
            while got := self.request.recv(65536):
                self.server.got += got
                self.request.sendall(got)


class _EchoServer(socketserver.ThreadingTCPServer):
    """A server in a thread."""

    daemon_threads = True
    allow_reuse_address = True
    got = b""


@pytest.fixture
def echo() -> Iterator[_EchoServer]:
    """A server that echoes."""
    with _EchoServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: _EchoServer) -> Iterator[FaultProxy]:
    """A proxy in front of it."""
    with FaultProxy("127.0.0.1", echo.server_address[1]) as proxy:
        yield proxy


@contextlib.contextmanager
def connected(proxy: FaultProxy) -> Iterator[socket.socket]:
    """Connect through the proxy."""
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS) as client:
        yield client


def said(client: socket.socket, words: bytes) -> bytes:
    """Say something and return as many bytes of the answer."""
    client.sendall(words)
    return answered(client, len(words))


def answered(client: socket.socket, count: int) -> bytes:
    """Return that many bytes, or fewer if the connection ends in good order."""
    got = b""
    while len(got) < count and (more := client.recv(count - len(got))):
        got += more
    return got


def test_a_proxy_forwards(proxy: FaultProxy) -> None:
    """What goes in comes out, on several connections, and an end is passed on."""
    with connected(proxy) as one, connected(proxy) as two:
        assert said(one, b"tickets") == b"tickets"
        assert said(two, b"coats") == b"coats"
        assert proxy.connections == 2
        two.shutdown(socket.SHUT_WR)
        assert two.recv(1) == b""


def test_a_proxy_forwards_much_in_both_directions(proxy: FaultProxy) -> None:
    """A side that is slow to take holds up the other one, and nothing is lost."""
    with connected(proxy) as client, ThreadPoolExecutor() as threads:
        sending = threads.submit(client.sendall, b"x" * MUCH)
        assert len(answered(client, MUCH)) == MUCH
        sending.result()


def test_a_cut_resets_what_is_connected_and_nothing_else(proxy: FaultProxy) -> None:
    """Connections end with a reset; the next ones work."""
    with connected(proxy) as client:
        said(client, b"tickets")
        proxy.cut()
        assert proxy.connections == 0
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connected(proxy) as client:
        assert said(client, b"tickets") == b"tickets"


def test_refused_connections_leave_others_alone(proxy: FaultProxy) -> None:
    """While it refuses, nobody gets in and nobody is thrown out; then the same port works again."""
    with connected(proxy) as client:
        said(client, b"tickets")
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), connected(proxy):
            pass
        assert said(client, b"coats") == b"coats"
        proxy.restore()
    with connected(proxy) as client:
        assert said(client, b"tickets") == b"tickets"


def test_a_black_hole_answers_nobody_until_it_is_gone(proxy: FaultProxy, echo: _EchoServer) -> None:
    """Old and new connections hang without an error, nothing arrives, and nothing is lost once it is over."""
    with connected(proxy) as old:
        said(old, b"before.")
        proxy.black_hole()
        with connected(proxy) as new:
            for client in (old, new):
                client.sendall(b"hidden.")
                client.settimeout(SHORT_SECONDS)
                with pytest.raises(TimeoutError):
                    client.recv(1)
                client.settimeout(PATIENCE_SECONDS)
            assert echo.got == b"before."
            proxy.restore()
            assert answered(old, 7) == answered(new, 7) == b"hidden."


def test_a_black_hole_can_be_cut(proxy: FaultProxy) -> None:
    """Connections that hang are reset, and the black hole stays."""
    with connected(proxy) as old:
        said(old, b"before.")
        proxy.black_hole()
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with connected(proxy) as new:
        new.sendall(b"hidden.")
        new.settimeout(SHORT_SECONDS)
        with pytest.raises(TimeoutError):
            new.recv(1)


def test_a_cut_before_a_pattern_keeps_it_from_the_server(proxy: FaultProxy, echo: _EchoServer) -> None:
    """The server never sees the chunk; the next connection is forwarded."""
    cut = proxy.cut_before(b"COMMIT")
    with connected(proxy) as client:
        said(client, b"BEGIN;")
        assert not cut.is_set()
        client.sendall(b"COMMIT;")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert cut.wait(PATIENCE_SECONDS)
    assert echo.got == b"BEGIN;"
    with connected(proxy) as client:
        assert said(client, b"COMMIT;") == b"COMMIT;"


def test_a_cut_after_a_pattern_loses_the_answer(proxy: FaultProxy, echo: _EchoServer) -> None:
    """The server has seen the chunk, and has answered, when the client's connection is reset."""
    cut = proxy.cut_after(b"COMMIT")
    with connected(proxy) as client:
        said(client, b"BEGIN;COM")
        client.sendall(b"MIT;")  # a pattern may come in pieces
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert cut.wait(PATIENCE_SECONDS)
    assert echo.got == b"BEGIN;COMMIT;"


def test_an_answer_can_be_cut_before_or_after_a_pattern(proxy: FaultProxy) -> None:
    """The other direction has patterns too: the client gets the chunk, or doesn't."""
    before = proxy.cut_before(b"no", Direction.TO_CLIENT)
    after = proxy.cut_after(b"yes", Direction.TO_CLIENT)
    with connected(proxy) as client:
        assert said(client, b"yes") == b"yes"
        assert client.recv(1) == b""
    assert after.wait(PATIENCE_SECONDS)
    with connected(proxy) as client:
        client.sendall(b"no")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert before.wait(PATIENCE_SECONDS)


def test_patterns_are_forgotten(proxy: FaultProxy) -> None:
    """After `restore` nothing is waited for."""
    cut = proxy.cut_before(b"COMMIT")
    proxy.restore()
    with connected(proxy) as client:
        assert said(client, b"COMMIT") == b"COMMIT"
    assert not cut.is_set()


def test_a_proxy_without_a_server_resets() -> None:
    """A server that is down is seen as such."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with (
            FaultProxy("127.0.0.1", nobody.getsockname()[1]) as proxy,
            pytest.raises(ConnectionResetError),
            connected(proxy) as client,
        ):
            client.recv(1)


def test_a_closed_proxy_refuses(echo: _EchoServer) -> None:
    """Its thread and its connections end with it."""
    with (
        FaultProxy.before(f"redis://127.0.0.1:{echo.server_address[1]}/0") as proxy,
        connected(proxy) as client,
    ):
        said(client, b"tickets")
        proxy.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionRefusedError), connected(proxy):
            pass
    assert not any(thread.name == "fault proxy" for thread in threading.enumerate())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PostgresqlClient, MysqlClient])
def test_the_answer_of_a_commit_is_lost(
    kind: type[PostgresqlClient | MysqlClient], request: pytest.FixtureRequest
) -> None:
    """The client sees a broken connection, and the transaction is there; cut before the commit, it is not."""
    url = request.getfixturevalue("mariadb_url" if kind is MysqlClient else "postgresql_url")
    with closing(kind(url).connect()) as direct, FaultProxy.before(url) as proxy:
        cursor = direct.cursor()
        cursor.execute("CREATE TABLE tickets (number INT)")
        client = kind(proxy.url_through(url))
        for number, set_trap in enumerate((proxy.cut_before, proxy.cut_after)):
            with closing(client.connect()) as connection:
                writing = connection.cursor()
                writing.execute("BEGIN")
                writing.execute("INSERT INTO tickets VALUES (%s)", [number])
                cut = set_trap(b"COMMIT")
                with pytest.raises(client.errors, match="[Ll]ost connection|closed|reset"):
                    connection.commit()
                assert cut.is_set()
        cursor.execute("SELECT number FROM tickets")
        assert list(cursor.fetchall()) == [(1,)]
