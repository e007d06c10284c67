"""One parent, and the worker processes that it starts, restarts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import FrameType

from attrs import define, field

from coatcheck_cli.failing import Exit
from coatcheck_cli.output import duration_text

__all__ = ["Supervisor"]

logger = logging.getLogger("coatcheck_cli.worker")

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
SOUND_SECONDS = 60.0
"""A worker that lived so long was all right: what ended it counts as its first trouble."""


@define(eq=False)
class Supervisor:
    """Keeps worker processes going until it is told to stop.

    A worker is stopped by closing its standard input, which works everywhere, reaches one that is still starting,
    and also happens when the parent is killed. Signals of the terminal reach the parent only.
    """

    command: Callable[[int], Sequence[str]]
    """What starts worker number n; the first is 1."""
    count: int
    patience: timedelta
    """How long stopping may take before a worker is killed."""
    exit_code: Exit = field(default=Exit.OK, init=False)
    running: dict[int, asyncio.subprocess.Process] = field(factory=dict, init=False)
    """The processes that run, by number."""
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    _signalled: bool = field(default=False, init=False)

    async def run(self) -> Exit:
        """Work until SIGTERM, SIGINT, or until the workers cannot work at all; return what to exit with.

        A second signal kills the workers and exits with status 130 at once.
        """
        with self._signals():
            await asyncio.gather(*(self._keep(number) for number in range(1, self.count + 1)))
        return self.exit_code

    @property
    def stopping(self) -> bool:
        """Whether the workers are being stopped."""
        return self._stopping.is_set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self._signalled:
                for process in list(self.running.values()):
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                os._exit(Exit.INTERRUPTED)
            self._signalled = True
            loop.call_soon_threadsafe(self._stop, signal.Signals(number).name)

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, why: str) -> None:
        logger.info("%s: stopping %d workers", why, len(self.running))
        self._stopping.set()

    async def _keep(self, number: int) -> None:
        """Have worker `number` running, again and again."""
        backoff = 0.0
        while not self.stopping:
            began = time.monotonic()
            how = await self._live(number)
            if self.stopping:
                return
            sound = time.monotonic() - began >= SOUND_SECONDS
            backoff = FIRST_BACKOFF_SECONDS if sound or not backoff else min(backoff * 2, MAX_BACKOFF_SECONDS)
            nap = duration_text(timedelta(seconds=backoff))
            logger.error("worker %d %s; it is started again in %s", number, how, nap)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)

    async def _live(self, number: int) -> str:
        """Start a worker and see it to its end; return how it ended."""
        try:
            process = await self._start(number)
        except OSError as error:
            return f"could not be started ({error.strerror or error})"
        self.running[number] = process
        logger.info("worker %d is process %d", number, process.pid)
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._end(number, process, ended)
        finally:
            stop.cancel()
            del self.running[number]
        if process.returncode == Exit.USAGE and not self.stopping:
            self.exit_code = Exit.USAGE
            self._stop(f"worker {number} cannot work as it is configured")
        return _how(process)

    async def _start(self, number: int) -> asyncio.subprocess.Process:
        # a group of their own: Ctrl-C reaches the parent alone, so that workers don't take it for a second signal
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        return await asyncio.create_subprocess_exec(
            *self.command(number),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=os.name == "posix",
            creationflags=flags,
        )

    async def _end(self, number: int, process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait((ended,), timeout=self.patience.total_seconds())
        if not ended.done():
            patience = duration_text(self.patience)
            logger.error("worker %d has not ended within %s and is killed", number, patience)
            process.kill()
            await ended
        if process.returncode not in {0, None}:
            logger.warning("worker %d %s while it was stopped", number, _how(process))


def _how(process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"(process {process.pid}) was killed by {signal.Signals(-code).name}"
    return f"(process {process.pid}) ended with exit code {code}"
