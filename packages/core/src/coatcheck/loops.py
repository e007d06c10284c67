"""Where handlers run: each on an event loop of its own, in a thread of its own.

So a handler that blocks stalls only its own calls; leases and everybody else's calls go on. Calls go to a
loop and come back in batches, because waking another thread costs more than a call that has nothing to wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from types import coroutine
from typing import Any, TypeVar

from attrs import define, field

from coatcheck.errors import ConfigurationError
from coatcheck.handler import AnyHandler
from coatcheck.registry import Registry

__all__ = ["HandlerLoop", "HandlerLoops", "Job"]

logger = logging.getLogger("coatcheck.worker")
T = TypeVar("T")

OPEN_TIMEOUT_SECONDS = 30.0
CLOSE_TIMEOUT_SECONDS = 10.0
REOPEN_AFTER_SECONDS = 30.0
BLOCKING_CALLS = 128
"""Threads for the calls of one blocking handler."""


@define(eq=False)
class Job:
    """One coroutine to run on a handler's loop, and what came of it."""

    make: Callable[[], Coroutine[Any, Any, None]]
    """Makes the coroutine, on the handler's loop."""
    timeout_seconds: float
    calls: tuple[Any, ...] = ()
    """What the job is for, as its owner knows it."""
    error: BaseException | None = None
    waiting: asyncio.Task[None] | None = field(default=None, repr=False)
    """Whose task it has become, once it had to wait for something."""
    canceled: bool = False
    """Whether it was given up; if it has not begun by then, it never does."""


class HandlerLoop:
    """The thread and event loop of one handler."""

    def __init__(self, handler: AnyHandler) -> None:
        self.handler = handler
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._main, name=f"coatcheck-handler-{handler.key}", daemon=True
        )
        self._executor = ThreadPoolExecutor(
            BLOCKING_CALLS, thread_name_prefix=f"coatcheck-blocking-{handler.key}"
        )
        self._loop.set_default_executor(self._executor)
        self._tasks: set[asyncio.Task[None]] = set()
        self.beat = time.monotonic()
        """When the loop was last seen turning."""
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._pulse)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _pulse(self) -> None:
        self.beat = time.monotonic()
        self._loop.call_later(0.25, self._pulse)

    def blocked_for_seconds(self) -> float:
        """Return for how long the loop has not turned, beyond its pulse."""
        return max(0.0, time.monotonic() - self.beat - 0.25)

    def future(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run one coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, jobs: Sequence[Job], done: Callable[[Job], None]) -> None:
        """Run jobs on the loop; `done` is called there, once for each."""
        self._loop.call_soon_threadsafe(self._begin, jobs, done)

    def _begin(self, jobs: Sequence[Job], done: Callable[[Job], None]) -> None:
        task = self._loop.create_task(self._run(iter(jobs), done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, jobs: Iterator[Job], done: Callable[[Job], None]) -> None:
        """Make calls one after the other, in this one task, as long as none of them has to wait.

        A task and a timeout each cost more than a call that has nothing to wait for. The first that has to
        wait keeps this task, and each one after it gets a task of its own.
        """
        task = asyncio.current_task()
        for job in jobs:
            if job.canceled:
                job.error = asyncio.CancelledError()
            else:
                await self._make(job, jobs, done)
            done(job)
            if task is not None and task.cancelling():  # by the handler itself; meant for nobody else
                self._spread(jobs, done)

    async def _make(self, job: Job, others: Iterator[Job], done: Callable[[Job], None]) -> None:
        context = copy_context()  # of its own, as if the call had a task of its own
        try:
            call = job.make()
            waits_for = context.run(call.send, None)
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - the worker judges every error of a handler
            job.error = error
            return
        self._spread(others, done)
        job.waiting = asyncio.current_task()
        try:
            async with asyncio.timeout(job.timeout_seconds):
                await _go_on(call, waits_for, context)
        except BaseException as error:  # noqa: BLE001 - as above
            job.error = error

    def _spread(self, jobs: Iterator[Job], done: Callable[[Job], None]) -> None:
        for job in jobs:
            self._begin((job,), done)

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel jobs that still run."""

        def do() -> None:
            for job in jobs:
                job.canceled = True
                if job.waiting is not None:
                    job.waiting.cancel()

        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
            self._loop.call_soon_threadsafe(do)

    async def stop(self) -> None:
        """Close the handler and end the thread; a handler that blocks for ever is left behind, and named."""
        future = self.future(self._shut())
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), CLOSE_TIMEOUT_SECONDS)
        except TimeoutError:
            logger.error(  # noqa: TRY400 - the message says it all
                "handler %r blocks its event loop and could not be closed within %g s; its thread is left behind",
                self.handler.key,
                CLOSE_TIMEOUT_SECONDS,
            )
            return
        except Exception:
            logger.exception("handler %r failed to close", self.handler.key)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_SECONDS)

    async def _shut(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_SECONDS / 2)
        try:
            await self.handler.close()
        finally:
            await self._loop.shutdown_asyncgens()
            self._executor.shutdown(wait=False, cancel_futures=True)


@coroutine
def _go_on(call: Coroutine[Any, Any, None], waits_for: object, context: Context) -> Generator[Any, Any, None]:
    """Go on, as if by ``await``, with a call that was begun in `context` and waits for something."""
    while True:
        try:
            answer = yield waits_for
        except GeneratorExit:
            context.run(call.close)
            raise
        except BaseException as error:  # noqa: BLE001 - it is the call's
            step = partial(call.throw, error)
        else:
            step = partial(call.send, answer)
        try:
            waits_for = context.run(step)
        except StopIteration:
            return


@define
class _Place:
    """A handler's loop, how many use it, and why it cannot be used."""

    loop: HandlerLoop | None = None
    users: int = 0
    reason: str | None = None
    failed_at: float = 0.0
    opening: asyncio.Lock = field(factory=asyncio.Lock)


class HandlerLoops:
    """Opens each handler for its first user and closes it after the last. Belongs to one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._places: dict[str, _Place] = {}

    def loop_of(self, key: str) -> HandlerLoop:
        """Return the loop of an open handler."""
        place = self._places.get(key)
        if place is None or place.loop is None:
            reason = place.reason if place and place.reason else "it is not open"
            message = f"handler {key!r} cannot be called: {reason}"
            raise ConfigurationError(message)
        return place.loop

    def set_aside(self) -> dict[str, str]:
        """Return the handlers that failed to open, with the reason."""
        return {key: place.reason for key, place in self._places.items() if place.reason}

    async def acquire(self, key: str) -> bool:
        """Open the handler if nobody has; False if it fails to open, with the reason kept."""
        place = self._places.setdefault(key, _Place())
        async with place.opening:
            if place.loop is None:
                await self._open(key, place)
            if place.loop is None:
                return False
            place.users += 1
            return True

    def may_retry(self, key: str) -> bool:
        """Whether a handler that failed to open is due for another try."""
        place = self._places.get(key)
        return place is None or time.monotonic() - place.failed_at >= REOPEN_AFTER_SECONDS

    async def _open(self, key: str, place: _Place) -> None:
        loop = HandlerLoop(self._registry[key])
        try:
            await asyncio.wait_for(
                asyncio.wrap_future(loop.future(loop.handler.open())), OPEN_TIMEOUT_SECONDS
            )
        except Exception as error:  # noqa: BLE001 - a broken handler is set aside, with its reason
            place.reason = f"it failed to open: {type(error).__name__}: {error}"
            place.failed_at = time.monotonic()
            logger.error("handler %r is set aside: %s", key, place.reason)  # noqa: TRY400 - the reason says it
            await loop.stop()
        else:
            place.loop, place.reason = loop, None

    async def release(self, key: str) -> None:
        """Give one use back; the last one closes the handler."""
        place = self._places[key]
        async with place.opening:
            place.users -= 1
            if place.users == 0 and place.loop is not None:
                loop, place.loop = place.loop, None
                await loop.stop()

    async def call(self, key: str, make: Callable[[], Coroutine[Any, Any, T]], timeout_seconds: float) -> T:
        """Run one coroutine on the handler's loop, opening the handler for it if need be."""
        if not await self.acquire(key):
            self.loop_of(key)
        try:
            future = asyncio.wrap_future(self.loop_of(key).future(_deferred(make)))
            return await asyncio.wait_for(future, timeout_seconds)
        finally:
            await self.release(key)


async def _deferred(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await make()
