"""Answers that HTTP servers are built to prevent, and the way past the server to the socket."""

import asyncio
import socket
import struct

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_TRANSPORT = "coatcheck_sandbox.transport"
_PIECES = 10
_CHUNK_BYTES = 64 * 1024


class SocketProtocol(H11Protocol):
    """uvicorn's HTTP protocol, with the connection itself put into each request's scope."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wrap the application for this connection."""
        super().connection_made(transport)
        self.app = _with_transport(self.app, transport)


def _with_transport(app: ASGIApp, transport: asyncio.Transport) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        scope[_TRANSPORT] = transport
        await app(scope, receive, send)

    return call


async def _close(scope: Scope, receive: Receive, *, reset: bool = False) -> None:
    """End the connection, and wait until uvicorn knows, or it would send a 500 or complain."""
    transport: asyncio.Transport = scope[_TRANSPORT]
    if reset:
        # Closing a socket that must not linger sends a reset.
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        transport.abort()
    else:
        transport.close()
    await _until_gone(receive)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class DroppedConnection(Response):
    """No answer: the connection ends."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close the connection."""
        del send
        await _close(scope, receive, reset=self._reset)


class MalformedResponse(Response):
    """Bytes that are no HTTP response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write past the server, then close the connection."""
        del send
        transport: asyncio.Transport = scope[_TRANSPORT]
        transport.write(b"\x00\xff SANDBOX/9.9 garbage\r\n\x17\r\n")
        await _close(scope, receive)


class TruncatedResponse(Response):
    """Half of a body that was announced in full."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers and the first half, then close the connection."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body[: len(self.body) // 2])
        await send({"type": "http.response.body", "body": half, "more_body": True})
        await _close(scope, receive)


class SlowResponse(Response):
    """A body that comes in pieces over some time."""

    def __init__(self, body: bytes, status: int, media_type: str, seconds: float) -> None:
        super().__init__(body, status, media_type=media_type)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers at once and the body by and by; stop when the client leaves."""
        del scope
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        step = max(1, -(-len(self.body) // _PIECES))
        gone = asyncio.ensure_future(_until_gone(receive))
        for start in range(0, len(self.body), step):
            await asyncio.wait({gone}, timeout=self._seconds / _PIECES)
            if gone.done():
                break
            piece = bytes(self.body[start : start + step])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class HugeResponse(Response):
    """A body behind a great many blanks."""

    def __init__(self, body: bytes, status: int, media_type: str, size_bytes: int) -> None:
        self._padding_bytes = max(0, size_bytes - len(body))
        headers = {"content-length": str(len(body) + self._padding_bytes)}
        super().__init__(body, status, headers=headers, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the blanks in chunks, then the body."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = self._padding_bytes
        while left:
            chunk = min(left, _CHUNK_BYTES)
            await send({"type": "http.response.body", "body": b" " * chunk, "more_body": True})
            left -= chunk
        await send({"type": "http.response.body", "body": bytes(self.body), "more_body": False})
