"""The worker: claims due tasks, makes one handler call each, settles the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Self

from coatcheck.calling import Caller
from coatcheck.claiming import Claimer, WorkerSettings
from coatcheck.errors import ConfigurationError, StoreUnavailable
from coatcheck.gates import AdmissionPolicy, TaskChange
from coatcheck.leases import LeaseKeeper
from coatcheck.loops import HandlerLoops
from coatcheck.registry import Registry
from coatcheck.retry import RetryPolicy
from coatcheck.settling import Settler
from coatcheck.store import Store
from coatcheck.task import CancelOutcome, Task

__all__ = ["Worker", "WorkerSettings"]

logger = logging.getLogger("coatcheck.worker")

FIRST_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 5.0
WATCH_INTERVAL_SECONDS = 0.25
LAST_FLUSH_SECONDS = 1.0
BREATH_SECONDS = 0.001
EXIT_AT_ONCE = 130
"""Exit status at a second signal."""


class Worker:
    """One incarnation of a worker. Made by `App.worker()`.

    Use it as an async context manager beside other things, or ``await worker.run()`` where it is the program:
    that handles signals. `run_once` and `drain` are for tests and scripts.
    """

    def __init__(  # noqa: PLR0913 - the parts that an app puts together, once
        self,
        store: Store,
        registry: Registry,
        loops: HandlerLoops,
        *,
        admission: AdmissionPolicy,
        retry: RetryPolicy,
        on_change: Callable[[Sequence[TaskChange]], None],
        settings: WorkerSettings,
    ) -> None:
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        """Unique per incarnation."""
        self.settings = settings
        self._store = store
        self._registry = registry
        self._loops = loops
        self._keeper = LeaseKeeper(store, settings.lease)
        self._settler = Settler(
            store, self._keeper, admission=admission, on_change=on_change, remote_cancel=self._cancel_late
        )
        self._caller = Caller(
            registry,
            loops,
            self._keeper,
            self._settler,
            retry=retry,
            call_timeout=settings.call_timeout,
            callback_url=settings.callback_url,
        )
        self._claimer = Claimer(
            store, self._caller, self._settler, who=self.id, admission=admission, settings=settings
        )
        self._open_keys: set[str] = set()
        self._stopping = asyncio.Event()
        self._running = False
        self._background: asyncio.Task[None] | None = None

    # -------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        """Work beside the caller's code; signals are left alone."""
        self._begin_life()
        self._background = asyncio.create_task(self._work(), name=f"worker {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, as `stop` says."""
        self.stop()
        if self._background is not None:
            await self._background

    async def run(self) -> None:
        """Work until `stop`, SIGTERM or SIGINT; a second signal exits at once with status 130."""
        self._begin_life()
        with self._signals():
            await self._work()

    def stop(self) -> None:
        """Stop claiming; calls in flight may finish within the stop timeout, unstarted claims are given back."""
        self._caller.stopping = True
        self._stopping.set()
        self._caller.room.set()

    async def run_once(self) -> int:
        """Do one round: claim what is due, make its calls, settle them. Returns how many tasks were claimed."""
        self._begin_life()
        async with self._machinery():
            claimed = await self._claimer.round(self._open_keys, force_stale=True)
            await self._caller.quiet()
            return claimed

    async def drain(self) -> int:
        """Do rounds until nothing is due. Returns how many tasks were claimed."""
        self._begin_life()
        total = 0
        async with self._machinery():
            while claimed := await self._claimer.round(self._open_keys, force_stale=True):
                total += claimed
                await self._caller.quiet()
        return total

    def _begin_life(self) -> None:
        if self._running:
            message = f"worker {self.id} works already; make another one with app.worker()"
            raise ConfigurationError(message)
        if self._stopping.is_set():
            message = f"worker {self.id} has ended, and its id with it; make a new one with app.worker()"
            raise ConfigurationError(message)
        self._running = True

    @contextlib.asynccontextmanager
    async def _machinery(self) -> AsyncIterator[None]:
        """Have the handlers open, and leases, settling and the watchdog going."""
        self._caller.loop = asyncio.get_running_loop()
        helpers = [
            asyncio.create_task(self._keeper.run(), name="leases"),
            asyncio.create_task(self._settler.run(), name="settling"),
            asyncio.create_task(self._watch(), name="watchdog"),
        ]
        try:
            await self._open_handlers()
            yield
        finally:
            with contextlib.suppress(TimeoutError):  # what is known when a round fails is worth a try
                await asyncio.wait_for(self._settler.flush(), LAST_FLUSH_SECONDS)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            keys, self._open_keys = self._open_keys, set()
            await asyncio.gather(*(self._loops.release(key) for key in keys))
            self._running = False

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at the first SIGTERM or SIGINT, exit at the second."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._stopping.is_set():
                os._exit(EXIT_AT_ONCE)
            loop.call_soon_threadsafe(
                logger.info, "%s: finishing what is in flight", signal.Signals(number).name
            )
            self._stopping.set()  # at once, so that a second signal counts even if the loop is blocked
            loop.call_soon_threadsafe(self.stop)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _open_handlers(self) -> None:
        """Open the handlers that are not; those that fail are set aside and tried again later."""
        wanted = [key for key in self._registry if key not in self._open_keys and self._loops.may_retry(key)]
        if not wanted:
            return
        opened = await asyncio.gather(*(self._loops.acquire(key) for key in wanted))
        self._open_keys.update(key for key, ok in zip(wanted, opened, strict=True) if ok)

    async def _cancel_late(self, task: Task) -> CancelOutcome:
        return await self._caller.cancel_late(task)

    # -------------------------------------------------------------- the loop

    async def _work(self) -> None:
        async with self._machinery():
            logger.info("worker %s works for %s", self.id, ", ".join(sorted(self._open_keys)) or "no handler")
            idle_rounds, backoff = 0, 0.0
            while not self._stopping.is_set():
                self._caller.room.clear()
                try:
                    await self._open_handlers()
                    claimed = await self._claimer.round(self._open_keys)
                except StoreUnavailable as error:
                    if not backoff:
                        logger.error("the store is away, backing off: %s", error)  # noqa: TRY400 - expected
                    backoff = min(backoff * 2, MAX_BACKOFF_SECONDS) or FIRST_BACKOFF_SECONDS
                    await self._pause(backoff)
                except Exception:
                    logger.exception("a round failed; the worker goes on")
                    await self._pause(1.0)
                else:
                    if backoff:
                        logger.warning("the store is back")
                        backoff = 0.0
                    idle_rounds = 0 if claimed else idle_rounds + 1
                    await (self._breathe() if claimed else self._idle(idle_rounds))
            await self._wind_down()

    async def _pause(self, seconds: float) -> None:
        """Wait, give or take a half, so that workers spread out; a stop ends it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds * (0.5 + random.random()))  # noqa: S311

    async def _breathe(self) -> None:
        """Wait a moment for the first answer: handlers get the interpreter only when this thread waits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BREATH_SECONDS):
                await self._caller.room.wait()

    async def _idle(self, rounds: int) -> None:
        """Wait until there may be work, there is room again, or the worker is to stop."""
        jitter = 0.9 + 0.2 * random.random()  # noqa: S311 - spreads workers out
        began = time.monotonic()
        room = asyncio.ensure_future(self._caller.room.wait())
        work = asyncio.ensure_future(
            self._store.wait(sorted(self._open_keys), self.settings.poll_interval * jitter)
        )
        try:
            await asyncio.wait((room, work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            room.cancel()
            work.cancel()
        if not work.done():
            await asyncio.wait((work,))  # until the store has let go of what it waits with
        if not work.cancelled() and work.exception() is not None:
            await self._pause(0.1)  # the next round meets the store's trouble, tells of it and backs off
        # the store says "work" again and again, and this worker gets none of it, as when a budget is used up
        if rounds > 2 and time.monotonic() - began < 0.005 and not self._caller.room.is_set():  # noqa: PLR2004
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._caller.room.wait(), min(0.005 * 2 ** min(rounds - 3, 6), 0.25))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            try:
                self._caller.look_after(self._open_keys)
            except Exception:
                logger.exception("the watchdog stumbled")

    async def _wind_down(self) -> None:
        """Let calls finish within the stop timeout, then record what is left as it is."""
        seconds = self.settings.stop_timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                await self._caller.quiet()
        except TimeoutError:
            cut_off = self._caller.cut_off()
            logger.warning("%d calls were still in flight after %g s and were cut off", cut_off, seconds)
        try:
            async with asyncio.timeout(max(1.0, seconds)):
                await self._settler.flush()
        except TimeoutError:
            logger.error("%d outcomes could not be settled; the store is away", self._settler.backlog)  # noqa: TRY400
        logger.info("worker %s has ended", self.id)
