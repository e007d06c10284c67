"""Whether a worker is alive and ready: a file that is touched, and a port that answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, frozen

from coatcheck_cli.failing import Exit, Failure

if TYPE_CHECKING:
    from coatcheck import Store

__all__ = ["FRESH_SECONDS", "HealthOrders", "Pulse", "is_fresh", "serving", "watched"]

logger = logging.getLogger("coatcheck_cli.health")

BEAT_SECONDS = 1.0
ANSWER_SECONDS = 5.0
"""How long the store may take to answer."""
FRESH_SECONDS = 15.0
"""How long after its last answer a store counts as there."""
REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
_NO_TASK = "00000000-0000-0000-0000-000000000000"

Question = Callable[[], str | None]
"""Answers None if all is well, and else why it is not."""


@frozen(kw_only=True)
class HealthOrders:
    """Where a worker is to show how it is."""

    file: Path | None = None
    """Touched every second while the worker's loop goes round and its store answers; removed at the end."""
    host: str = "127.0.0.1"
    port: int | None = None
    """Answers ``/live`` and ``/ready``; 0 takes a free one, and says which."""


def is_fresh(file: Path) -> bool:
    """Whether the file was touched a moment ago."""
    try:
        return time.time() - file.stat().st_mtime < FRESH_SECONDS
    except OSError:
        return False


@define(eq=False)
class Pulse:
    """Knows whether the loop that it shares with a worker goes round, and whether the store answers."""

    store: Store
    _trouble: str | None = "the store has not answered yet"
    _looked_at: float = 0.0

    async def beat(self) -> None:
        """Ask the store."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.store.get(_NO_TASK)
        except TimeoutError:
            self._trouble = f"the store has not answered within {ANSWER_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, the store has not answered
            self._trouble = f"the store does not answer: {type(error).__name__}"
        else:
            self._trouble = None
        self._looked_at = time.monotonic()

    def unready(self) -> str | None:
        """Return why no work can be done; None if it can."""
        if self._trouble is None and time.monotonic() - self._looked_at > FRESH_SECONDS:
            return "the worker's loop was held up"
        return self._trouble


async def _no_beat() -> None:
    """Do nothing."""


@contextlib.asynccontextmanager
async def watched(
    orders: HealthOrders, ready: Question, beat: Callable[[], Awaitable[None]] = _no_beat
) -> AsyncIterator[None]:
    """Show in the file and at the port how what runs inside is.

    Args:
        orders: where.
        ready: why it is not ready, or None.
        beat: looks after what `ready` tells; called every second.

    Raises:
        Failure: the file cannot be written, or the port cannot be listened at.
    """
    if orders.file is None and orders.port is None:
        yield
        return
    _check_place(orders.file)
    async with serving(orders, ready):
        beating = asyncio.create_task(_beat(orders.file, ready, beat), name="health")
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            _remove(orders.file)


async def _beat(file: Path | None, ready: Question, beat: Callable[[], Awaitable[None]]) -> None:
    told = False
    while True:
        await beat()
        trouble = _touch(file) if file is not None and ready() is None else None
        if trouble is not None and not told:
            logger.warning("the health file %s cannot be touched: %s", file, trouble)
        told = told or trouble is not None
        await asyncio.sleep(BEAT_SECONDS)


def _touch(file: Path) -> str | None:
    try:
        file.touch()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _check_place(file: Path | None) -> None:
    if file is None:
        return
    try:
        file.touch()
        file.unlink()  # it is there once the store has answered, and not before
    except OSError as error:
        message = f"the health file {str(file)!r} cannot be written: {error.strerror}"
        raise Failure(message, Exit.USAGE) from error


def _remove(file: Path | None) -> None:
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


@contextlib.asynccontextmanager
async def serving(orders: HealthOrders, ready: Question) -> AsyncIterator[None]:
    """Answer at the port, if there is one: ``/live``, since the loop goes round if it answers, and ``/ready``.

    Raises:
        Failure: the port cannot be listened at.
    """
    if orders.port is None:
        yield
        return
    questions: dict[str, Question] = {"/live": lambda: None, "/ready": ready}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, questions))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks wrongly gets no answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    try:
        server = await asyncio.start_server(answer, orders.host, orders.port, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        message = f"{orders.host}:{orders.port} cannot be listened at: {error.strerror or error}"
        raise Failure(message) from error
    port = server.sockets[0].getsockname()[1]
    logger.info("http://%s:%d/live and /ready tell how it is", orders.host, port)
    try:
        yield
    finally:
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())  # accept no more
        for _ in range(10):
            await asyncio.sleep(0)  # what was accepted becomes a task: lost after close()
        server.close()


def _answer(head: bytes, questions: dict[str, Question]) -> bytes:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    method, target = (words[0], words[1]) if len(words) == 3 else ("", "")  # noqa: PLR2004 - method, target, version
    question = questions.get(target.partition("?")[0])
    if method not in {"GET", "HEAD"}:
        status, text = "405 Method Not Allowed", "ask with GET"
    elif question is None:
        status, text = "404 Not Found", "there are /live and /ready"
    else:
        trouble = question()
        status, text = ("200 OK", "yes") if trouble is None else ("503 Service Unavailable", trouble)
    body = f"{text}\n".encode()
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body)
