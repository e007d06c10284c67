import gc
import http.client
import json
import socket
import warnings
from collections.abc import Iterator
from contextlib import closing
from email.message import Message
from urllib.parse import urlsplit

import pytest
from attrs import frozen

from coatcheck_conformance import Ending, Reply
from coatcheck_conformance.handler.replies import Received
from coatcheck_conformance.handler.server import Server, unused_url


@frozen
class Answer:
    """What came back."""

    status: int
    headers: Message
    body: bytes


def ask(server: Server, path: str = "/", *, method: str = "GET", body: bytes | None = None) -> Answer:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)
    with closing(connection):
        connection.request(method, path, body=body, headers={"X-Kit": "yes"})
        with connection.getresponse() as response:
            return Answer(response.status, response.headers, response.read())


@pytest.fixture
def foreign() -> Iterator[Server]:
    """Another server."""
    with Server(lambda _: Reply.of({})) as server:
        yield server


def test_a_request_is_remembered_as_it_was_read() -> None:
    """Method, target, headers in lower case, body; and a request can be searched for a text."""
    with Server(lambda _: Reply.of({"ok": True})) as server:
        assert json.loads(ask(server, "/a?b=c", method="POST", body=b"text").body) == {"ok": True}
        (seen,) = server.requests
    assert (seen.method, seen.target, seen.path, seen.body) == ("POST", "/a?b=c", "/a", b"text")
    assert seen.headers["x-kit"] == "yes"
    assert str(seen) == "POST /a?b=c"
    assert all(seen.holds(each) for each in ("b=c", "yes", "text"))
    assert not seen.holds("other")


def test_chunked_requests_are_read() -> None:
    """Clients that stream a document send it in chunks."""
    with Server(lambda _: Reply.of({})) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)
        connection.request("POST", "/", body=iter([b"one", b"two"]), encode_chunked=True)
        with closing(connection), connection.getresponse() as response:
            assert response.status == 200
        assert server.requests[0].body == b"onetwo"


def test_the_reply_depends_on_the_request() -> None:
    """A connection that is kept gets one reply after the other."""

    def answers(request: Received) -> Reply:
        return Reply.of({"path": request.path}, status=201 if request.path == "/b" else 200)

    with Server(answers) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)
        statuses = []
        for path in ("/a", "/b"):
            connection.request("GET", path)
            response = connection.getresponse()
            statuses.append((response.status, json.loads(response.read())["path"]))
        connection.close()
        assert statuses == [(200, "/a"), (201, "/b")]
        assert server.connections == 1


def test_placeholders_are_urls(foreign: Server) -> None:
    """Replies can hold links to the server itself, and to the other one; the length is right."""
    reply = Reply.of({"here": "{server}/x", "there": "{foreign}/y"}, headers={"Location": "{foreign}/z"})
    with Server(lambda _: reply, foreign=foreign.url) as server:
        response = ask(server)
        assert json.loads(response.body) == {"here": f"{server.url}/x", "there": f"{foreign.url}/y"}
        assert response.headers["location"] == f"{foreign.url}/z"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply.raw(b""), http.client.RemoteDisconnected),
        (Reply.raw(b"", ending=Ending.RESET), ConnectionError),
        (Reply.raw(b"SSH-2.0\r\n"), http.client.BadStatusLine),
        (Reply.of({"a": "{server}"}).cut(), http.client.IncompleteRead),
    ],
)
def test_connections_break(reply: Reply, error: type[Exception]) -> None:
    """Closed, reset, no HTTP, or broken off one byte before the end; the request was read all the same."""
    with Server(lambda _: reply) as server:
        with pytest.raises(error):
            ask(server)
        assert len(server.requests) == 1


def test_a_stall_lasts_until_somebody_leaves() -> None:
    """The server says nothing more, and ends nothing."""
    with (
        Server(lambda _: Reply.raw(b"", ending=Ending.STALL)) as server,
        socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert server.open_connections == 1


def test_a_flood_is_counted() -> None:
    """How much of an answer without an end was taken is what a rule looks at."""
    with Server(lambda _: Reply.of(b"", ending=Ending.FLOOD), flood_bytes=200_000) as server:
        assert len(ask(server).body) == server.flooded_bytes
        assert server.flooded_bytes >= 200_000


def test_a_bomb_unpacks() -> None:
    """A packed body is small on the wire."""
    bomb = Reply.of({}).gzipped(b" " * 1_000_000)
    assert bomb.headers["content-encoding"] == "gzip"
    assert len(bomb.encoded({})) < 10_000


def test_what_speaks_no_http_is_left_alone() -> None:
    """Noise neither stops the server nor counts as a request."""
    with Server(lambda _: Reply.of({})) as server:
        with socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as connection:
            connection.sendall(b"noise\r\n\r\n")
            assert connection.recv(1) == b""
        assert ask(server).status == 200
        assert len(server.requests) == 1


def test_a_reply_that_cannot_be_sent_is_told() -> None:
    """A mistake of the script is no silent loss of a connection."""
    with Server(lambda _: Reply.of({}, headers={"x-name": "\N{SNOWMAN}"})) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server)
        assert [type(each) for each in server.problems] == [UnicodeEncodeError]


def test_nobody_listens_at_an_unused_url() -> None:
    """Connections to it are refused."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(unused_url()).port or 0), timeout=5)


def test_a_connection_of_the_last_moment_is_closed() -> None:
    """Without care asyncio loses one that it accepts as its server is closed, and leaves it to the garbage."""
    servers = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(50):
            with Server(lambda _: Reply.of({})) as server, socket.socket() as late:
                late.settimeout(0)
                address = urlsplit(server.url)
                late.connect_ex((address.hostname or "", address.port or 0))
                servers.append(server)
        gc.collect()
    assert [str(each.message) for each in told] == []
    assert all(server.open_connections == 0 for server in servers)
