"""A provider made of replies: a real socket, in a thread of its own, that remembers all that reaches it.

It stands on another thread than the handlers that are tried, which may block theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from attrs import define, field

from coatcheck_conformance.handler.replies import FOREIGN, SERVER, Ending, Received, Reply

__all__ = ["Server", "unused_url"]

_HEAD_LIMIT_BYTES = 1024 * 1024
_PIECE = b"x" * 65_536
_CHUNK = b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE)

Answers = Callable[[Received], Reply]
"""Says what to reply to a request."""


def unused_url() -> str:
    """Return a URL at which nobody listens, so that connections to it are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@define(eq=False)
class Server:
    """Replies to each request what `answers` says. Use it as a context manager; `url` is there inside."""

    answers: Answers = field(repr=False)
    foreign: str = ""
    """What ``{foreign}`` in replies stands for."""
    flood_bytes: int = 0
    """How much body `Ending.FLOOD` sends at most."""
    requests: list[Received] = field(factory=list)
    """All that was read to its end, in order."""
    problems: list[Exception] = field(factory=list)
    """What went wrong in the server itself, such as a reply that cannot be sent."""
    connections: int = 0
    """How many were accepted."""
    flooded_bytes: int = 0
    """How much body of floods was taken from the server."""
    url: str = ""
    """Where it listens, without a slash at the end."""
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, repr=False)
    _thread: threading.Thread | None = None
    _server: asyncio.Server | None = None
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(factory=dict, repr=False)
    """Who serves each connection. A task that is cancelled before it began closes nothing, so the server does."""

    @property
    def open_connections(self) -> int:
        """How many connections the other side has not closed."""
        return len(self._open)

    def __enter__(self) -> Self:
        """Listen on a free port of this machine."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="kit-server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and close every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT_BYTES)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def _stop(self) -> None:
        if self._server is not None:
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())  # accept no more
        for _ in range(10):
            await asyncio.sleep(0)  # what was accepted becomes a task: lost after close()
        if self._server is not None:
            self._server.close()
        while self._open:
            for task, writer in list(self._open.items()):
                task.cancel()
                writer.transport.abort()
            await asyncio.gather(*self._open, return_exceptions=True)
            await asyncio.sleep(0)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, _NoHttp):
            pass  # the other side has left, or speaks no HTTP
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops, whoever still reads
        except Exception as error:  # noqa: BLE001 - of the script's replies; told when the rule is over
            self.problems.append(error)
        await _close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and reply; tell whether the connection goes on."""
        request = await _read(reader)
        self.requests.append(request)
        reply = self.answers(request)
        writer.write(reply.encoded({SERVER: self.url, FOREIGN: self.foreign}))
        await writer.drain()
        match reply.ending:
            case Ending.STALL:
                await reader.read()
            case Ending.RESET:
                _reset(writer)
            case Ending.FLOOD:
                await self._flood(writer)
            case Ending.KEEP | Ending.CLOSE:
                pass
        return reply.ending is Ending.KEEP

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while self.flooded_bytes < self.flood_bytes:
                writer.write(_CHUNK)
                await writer.drain()
                self.flooded_bytes += len(_PIECE)
            writer.write(b"0\r\n\r\n")
            await writer.drain()


class _NoHttp(Exception):
    """What came is no HTTP."""


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection once what was written has left, or when the server stops."""
    writer.close()
    try:
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    except asyncio.CancelledError:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1"):
        raise _NoHttp(first)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
