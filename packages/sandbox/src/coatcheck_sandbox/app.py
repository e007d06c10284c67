"""The ASGI application: all routes, with a recorder around them."""

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coatcheck_sandbox.backend import Backend
from coatcheck_sandbox.control import PREFIX, Control
from coatcheck_sandbox.doors import FilmsDoor, PagesDoor, ProviderDoor
from coatcheck_sandbox.log import RequestLog
from coatcheck_sandbox.protocol import WireProtocol


class Recorder:
    """Enters each request into the log, those to unknown paths too, and the answer it got."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; the sandbox's own routes are not recorded."""
        if scope["type"] != "http" or scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        entry = self._log.receive(
            scope["method"], scope["path"], has_authorization="authorization" in Headers(scope=scope)
        )
        scope["coatcheck_sandbox.entry"] = entry

        async def send_and_remember(message: Message) -> None:
            # Entered before it is sent: a client that has its answer must find it in the log.
            if message["type"] == "http.response.start":
                self._log.answer(entry, message["status"])
            elif not message.get("more_body", False):
                self._log.finish(entry)
            await send(message)

        try:
            await self._app(scope, receive, send_and_remember)
        finally:
            self._log.finish(entry)


def build_app(backend: Backend, protocols: Iterable[WireProtocol]) -> ASGIApp:
    """The application for these protocols; it needs `wire.SocketProtocol` under it to drop connections."""
    routes = [route for protocol in protocols for route in ProviderDoor(protocol, backend).routes()]
    routes += PagesDoor(backend).routes()
    routes += FilmsDoor(backend).routes()
    routes += Control(backend).routes()
    return Recorder(Starlette(routes=routes), backend.log)
