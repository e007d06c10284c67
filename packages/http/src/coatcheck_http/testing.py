"""A provider made of raw replies on a real socket, to test handlers against whatever a server may do."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeVar

from attrs import define, field, frozen

from coatcheck.handler import CallContext, CancelContext, QueryContext, SubmitContext
from coatcheck.task import JSON

__all__ = ["Claim", "Ending", "Received", "Reply", "ScriptedServer"]

C = TypeVar("C", bound=CallContext)


class Ending(StrEnum):
    """What the server does after a reply."""

    KEEP = "keep"
    "Keep the connection and read the next request."
    CLOSE = "close"
    "Close it in order."
    RESET = "reset"
    "Reset it."
    STALL = "stall"
    "Say no more, and keep it open until the server stops."


@frozen
class Received:
    """A request, as far as it was read."""

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    body: bytes = field(repr=False)


@frozen(kw_only=True)
class Reply:
    """Bytes to send once a request has been read to its end, and what to do then."""

    raw: bytes = b""
    ending: Ending = Ending.CLOSE

    @classmethod
    def of(
        cls,
        body: JSON | bytes = b"",
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        ending: Ending = Ending.KEEP,
    ) -> Reply:
        """Return a well-formed reply; a `body` that is not bytes is sent as JSON."""
        if isinstance(body, bytes):
            content, kind = body, "application/octet-stream"
        else:
            content, kind = json.dumps(body).encode("utf-8"), "application/json"
        sent = {"content-type": kind, "content-length": str(len(content)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        return cls(raw=f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode("latin-1") + content, ending=ending)


@define(kw_only=True, eq=False)
class Claim:
    """A claim on a task, to call a handler by hand; it gives contexts and counts how often it is asked for."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    account_id: str | None = None
    lost: Exception | None = None
    """Raised by `ensure_held` if set."""
    asked: int = 0
    """How often `ensure_held` was called."""
    when_asked: Callable[[], None] | None = None
    """Called by `ensure_held` first."""

    def ensure_held(self) -> None:
        """Count; raise `lost` if it is set."""
        self.asked += 1
        if self.when_asked is not None:
            self.when_asked()
        if self.lost is not None:
            raise self.lost

    @property
    def submit(self) -> SubmitContext:
        """A context for `submit`."""
        return self._context(SubmitContext)

    @property
    def query(self) -> QueryContext:
        """A context for `query`."""
        return self._context(QueryContext)

    @property
    def cancel(self) -> CancelContext:
        """A context for `cancel`."""
        return self._context(CancelContext)

    def _context(self, kind: Callable[..., C]) -> C:
        return kind(
            task_id="task-1",
            idempotency_key="key-1",
            account_id=self.account_id,
            now=self.now,
            created_at=self.now,
            deadline_at=self.now + timedelta(hours=1),
            ensure_held=self.ensure_held,
        )


@define(eq=False)
class ScriptedServer:
    """Gives its replies in order, the last one again and again, and remembers every request.

    Use it as an async context manager; `url` is there inside.
    """

    replies: list[Reply]
    requests: list[Received] = field(factory=list)
    """Every request that was read to its end of headers, in order."""
    connections: int = 0
    """How many were accepted."""
    url: str = ""
    """Where it listens, without a slash at the end; stays after it has stopped."""
    _server: asyncio.Server | None = None
    _stopping: asyncio.Event = field(factory=asyncio.Event)
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(factory=dict)

    def sent(self, method: str) -> list[Received]:
        """Return the requests of one method."""
        return [each for each in self.requests if each.method == method]

    async def __aenter__(self) -> Self:
        """Listen on a free port of this machine."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and close every connection."""
        self._stopping.set()
        if self._server is not None:
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())  # accept no more
        for _ in range(10):
            await asyncio.sleep(0)  # what was accepted becomes a task: lost after close()
        if self._server is not None:
            self._server.close()
        for task, writer in list(self._open.items()):
            task.cancel()
            writer.transport.abort()  # a task that is cancelled before it began closes nothing
        await asyncio.gather(*self._open, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops, whoever still reads
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and reply; tell whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Received(method, target, headers, body))
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        writer.write(reply.raw)
        await writer.drain()
        if reply.ending is Ending.STALL:
            await self._stopping.wait()
        if reply.ending is Ending.RESET:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return reply.ending is Ending.KEEP
