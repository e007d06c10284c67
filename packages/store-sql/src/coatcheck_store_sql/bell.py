"""The bell that wakes the waiting calls of this process, from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

__all__ = ["Bell", "Sleeper"]


class Sleeper:
    """One waiting call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def wake(self) -> None:
        """Let `sleep` return, now or when it is called next; for any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def sleep(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until woken; return whether it was woken."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Bell:
    """Wakes everyone who listens."""

    def __init__(self) -> None:
        self._sleepers: set[Sleeper] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def listening(self) -> Iterator[Sleeper]:
        """Give a sleeper that hears every ring from now on."""
        sleeper = Sleeper()
        with self._lock:
            self._sleepers.add(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                self._sleepers.discard(sleeper)

    def ring(self) -> None:
        """Wake all."""
        with self._lock:
            sleepers = tuple(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()
