"""The life of a handler: made without I/O, opened, closed, opened again; and it never sleeps."""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coatcheck.handler import Handler
from coatcheck.results import SubmitResult
from coatcheck_conformance.handler.calls import Call
from coatcheck_conformance.handler.spec import HandlerSpec
from coatcheck_conformance.handler.trial import Trial, handler_rule, opening_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Opening"]

_AT_ONCE_SECONDS = 1.0
_SOMEWHERE = "http://127.0.0.1:9"
_DOORS = (
    (builtins, "open"),
    (io, "open"),
    (os, "open"),
    (socket.socket, "connect"),
    (socket.socket, "connect_ex"),
    (socket, "getaddrinfo"),
    (socket, "gethostbyname"),
    (subprocess, "Popen"),
)
"""By which I/O is done."""


@contextmanager
def _no_io() -> Iterator[None]:
    """Let I/O of this process fail."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a constructor does no I/O; leave that to open()")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _DOORS:
            patch.setattr(owner, name, refuse)
        yield


class Opening(Suite):
    """Constructors do no I/O and need no credentials; `open` acquires what calls need, `close` releases it."""

    @opening_rule("HANDLER-OPEN-1")
    def test_a_constructor_does_no_io(self, handler_spec: HandlerSpec) -> None:
        """Constructors do no I/O: a web process makes handlers, too, and never opens them."""
        handler_spec.create(_SOMEWHERE, accounts=handler_spec.accounts or None)  # imports what it needs
        with _no_io():
            handler_spec.create(_SOMEWHERE, accounts=handler_spec.accounts or None)

    @opening_rule("HANDLER-OPEN-2")
    def test_a_constructor_needs_no_credentials(self, handler_spec: HandlerSpec) -> None:
        """Constructors need no credentials: a process that only submits tasks has none."""
        assert isinstance(handler_spec.create(_SOMEWHERE, accounts=None), Handler)

    @opening_rule("HANDLER-OPEN-3")
    def test_closing_is_always_possible(self, handler_spec: HandlerSpec) -> None:
        """`close` is called after the last call, also if `open` failed half-way: closing too often does no harm."""

        async def close() -> None:
            handler = handler_spec.create(_SOMEWHERE, accounts=handler_spec.accounts or None)
            await handler.close()
            await handler.open()
            await handler.close()
            await handler.close()

        asyncio.run(close())

    @handler_rule("HANDLER-OPEN-4")
    async def test_a_closed_handler_opens_again_on_another_loop(self, trial: Trial) -> None:
        """A handler that was closed works after it is opened again, on another event loop."""
        handler = trial.create()

        async def use() -> Call:
            await handler.open()
            try:
                return await trial.submit(handler=handler)
            finally:
                await handler.close()

        for _ in range(2):
            call = await asyncio.to_thread(lambda: asyncio.run(use()))
            assert isinstance(call.answer, SubmitResult), f"opened once more it came to {call.told}"

    @handler_rule("HANDLER-OPEN-5")
    async def test_closing_leaves_no_connection(self, trial: Trial) -> None:
        """`close` releases what `open` acquired: no connection stays open."""
        handler = trial.create()
        await handler.open()
        job = (await trial.submit(handler=handler)).submitted.query_params
        await trial.query(trial.going_on, job, handler=handler)
        await handler.close()
        until = time.monotonic() + 2
        while trial.server.open_connections and time.monotonic() < until:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
        assert not trial.server.open_connections, (
            f"{trial.server.open_connections} connections are open after close()"
        )

    @handler_rule("HANDLER-SLEEP-1")
    async def test_a_query_does_not_sleep(self, trial: Trial) -> None:
        """`query` asks once and returns. It does not sleep, and it does not loop."""
        job = await trial.accepted()
        calls = [await trial.query(trial.going_on.with_headers(retry_after="20"), job) for _ in range(2)]
        assert min(each.seconds for each in calls) < _AT_ONCE_SECONDS, "a query of a job that goes on sleeps"

    @handler_rule("HANDLER-SLEEP-2")
    async def test_a_submission_does_not_sleep(self, trial: Trial) -> None:
        """`submit` does not sleep: a Retry-After is the worker's to wait for."""
        reply = trial.script.rate_limited.with_headers(retry_after="20")
        calls = [await trial.submit(reply) for _ in range(2)]
        assert min(each.seconds for each in calls) < _AT_ONCE_SECONDS, "a submission sleeps after a 429"
