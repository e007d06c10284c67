"""A network that fails on command: a TCP proxy to put in front of a server."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import Self

from attrs import field, frozen

from servers.urls import address_of, through

HOST = "127.0.0.1"
BACKLOG = 512
CALL_SECONDS = 30.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Direction(Enum):
    """Where bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


@frozen(kw_only=True)
class _Trap:
    """Waits for bytes to cut the connection on which they pass."""

    pattern: bytes
    direction: Direction
    forwards: bool
    sprung: threading.Event = field(factory=threading.Event)


class _End(asyncio.Protocol):
    """One end of a connection through the proxy."""

    def __init__(self, link: "_Link", towards: Direction) -> None:
        self._link = link
        self.towards = towards
        """Where what arrives at this end goes."""
        self.transport: asyncio.Transport | None = None
        self.takes = True
        """Whether more may be written to it."""
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link.connected(self)

    def data_received(self, data: bytes) -> None:
        self._link.pass_on(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._link.close()

    def pause_writing(self) -> None:
        self.takes = False
        self._link.adjust()

    def resume_writing(self) -> None:
        self.takes = True
        self._link.adjust()

    def write(self, data: bytes) -> None:
        if self.transport:
            self.transport.write(data)

    def close(self) -> None:
        """Close it in good order, after what was written."""
        if self.transport:
            self.transport.close()

    def reset(self) -> None:
        if self.transport:
            connection: socket.socket = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.transport.abort()


class _Link:
    """One connection through the proxy, with its two ends."""

    def __init__(self, proxy: "FaultProxy") -> None:
        self._proxy = proxy
        self._answer_trap: _Trap | None = None
        self.client = _End(self, Direction.TO_SERVER)
        self.server = _End(self, Direction.TO_CLIENT)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return bool(self.client.transport or self.server.transport)

    def connected(self, end: _End) -> None:
        if end is self.client:
            self._proxy._links.add(self)
        self.adjust()

    def adjust(self) -> None:
        """Read from an end only while the other one takes it, and there is no black hole."""
        flows = not self._proxy._swallows
        if self.client.transport and not self.server.transport and flows and not self._task:
            self._task = asyncio.get_running_loop().create_task(self._connect())
        for end, other in ((self.client, self.server), (self.server, self.client)):
            if end.transport is None:
                continue
            if flows and other.transport and other.takes:
                end.transport.resume_reading()
            else:
                end.transport.pause_reading()

    async def _connect(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self.server, *self._proxy._target)
        except OSError:
            self.client.reset()
        if self.client.transport is None:  # it has left meanwhile
            self.server.close()

    def pass_on(self, end: _End, data: bytes) -> None:
        other = self.server if end is self.client else self.client
        if self._answer_trap and end is self.server:
            self._spring(self._answer_trap)
            return
        trap = self._proxy._trap_for(end.towards, end.tail + data)
        end.tail = (end.tail + data)[-self._proxy._longest :] if self._proxy._longest else b""
        if trap is None:
            other.write(data)
        elif not trap.forwards:
            self._spring(trap)
        else:
            other.write(data)
            if trap.direction is Direction.TO_SERVER:
                self._answer_trap = trap
            else:
                self.client.close()
                self.server.reset()
                trap.sprung.set()

    def _spring(self, trap: _Trap) -> None:
        self.client.reset()
        if trap.forwards:
            self.server.close()
        else:
            self.server.reset()
        trap.sprung.set()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        if not self.is_open:
            self._proxy._links.discard(self)

    def reset(self) -> None:
        if self._task:
            self._task.cancel()
        self.client.reset()
        self.server.reset()


class FaultProxy:
    """Forwards connections to a server, until it is told to fail.

    It runs in a thread of its own and may be told what to do from any other; each order is carried out when its
    method returns. As a context manager it is closed at the end.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        """Listen on a free port and forward to the target."""
        self._target = (target_host, target_port)
        self._links: set[_Link] = set()
        self._traps: list[_Trap] = []
        self._longest = 0
        self._swallows = False
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.port = 0
        """Where it listens, on the loopback interface."""
        self._do(self._listen)

    @classmethod
    def before(cls, server_url: str) -> Self:
        """Put one in front of the server of a URL, which must name the port."""
        to = address_of(server_url, port=0)
        return cls(to.host, to.port)

    def url_through(self, server_url: str) -> str:
        """Return the URL of the same database through the proxy."""
        return through(server_url, HOST, self.port)

    @property
    def connections(self) -> int:
        """How many connections it has now."""
        return len(self._links)

    def cut(self) -> None:
        """Reset all connections, in both directions; new ones are forwarded as before."""
        self._do(self._cut)

    def refuse(self) -> None:
        """Refuse new connections; those that there are stay."""
        self._do(self._stop_listening)

    def black_hole(self) -> None:
        """Forward nothing in either direction, keep connections open and accept new ones."""
        self._do(self._swallow)

    def cut_before(self, pattern: bytes, direction: Direction = Direction.TO_SERVER) -> threading.Event:
        """Reset the next connection on which `pattern` passes, without forwarding the chunk that completes it.

        Returns:
            What is set when that has happened; it happens once.
        """
        return self._set_trap(_Trap(pattern=pattern, direction=direction, forwards=False))

    def cut_after(self, pattern: bytes, direction: Direction = Direction.TO_SERVER) -> threading.Event:
        """Forward the next chunk that completes `pattern`, then cut its connection.

        Towards the server, the connection is cut when the server answers, and the answer is lost: so that it has
        done what it was told is certain, and that the client doesn't know it as well.

        Returns:
            What is set when that has happened; it happens once.
        """
        return self._set_trap(_Trap(pattern=pattern, direction=direction, forwards=True))

    def restore(self) -> None:
        """Forward again, accept connections, and forget patterns; a black hole gives back what it has swallowed."""
        self._do(self._restore)

    def close(self) -> None:
        """Reset all connections and end."""
        if self._loop.is_closed():
            return
        self._do(self._stop_listening)
        self._do(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, act: Callable[[], Coroutine[None, None, None]]) -> None:
        asyncio.run_coroutine_threadsafe(act(), self._loop).result(CALL_SECONDS)

    def _set_trap(self, trap: _Trap) -> threading.Event:
        async def add() -> None:
            self._traps.append(trap)
            self._longest = max(self._longest, len(trap.pattern) - 1)

        self._do(add)
        return trap.sprung

    def _trap_for(self, direction: Direction, seen: bytes) -> _Trap | None:
        for trap in self._traps:
            if trap.direction is direction and trap.pattern in seen:
                self._traps.remove(trap)
                return trap
        return None

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await self._loop.create_server(
                lambda: _Link(self).client, HOST, self.port, backlog=BACKLOG
            )
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server:
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())  # accept no more
            for _ in range(10):
                await asyncio.sleep(0)  # what was accepted becomes a task: lost after close()
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    async def _swallow(self) -> None:
        self._swallows = True
        self._adjust()

    async def _restore(self) -> None:
        self._traps.clear()
        self._longest = 0
        self._swallows = False
        await self._listen()
        self._adjust()

    async def _cut(self) -> None:
        links = list(self._links)
        for link in links:
            link.reset()
        while any(link.is_open for link in links):
            await asyncio.sleep(0)

    def _adjust(self) -> None:
        for link in self._links:
            link.adjust()
