"""The bell that wakes the waiting calls of this process, from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

__all__ = ["Bell", "Sleeper"]


_AGAIN_SECONDS = (0.005, 0.05, 0.5)
"""After how long `Bell.ring_around` rings again; a commit takes milliseconds, and seldom longer."""


class Sleeper:
    """One waiting call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def wake(self) -> None:
        """Let `sleep` return, now or when it is called next; for any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    def wake_later(self, seconds: float) -> None:
        """Do so after `seconds`; for any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._rung.set)

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

    def ring_around(self) -> None:
        """Wake all now, and again: something is about to happen, and nobody will say when it has."""
        self.ring()
        with self._lock:
            sleepers = tuple(self._sleepers)
        for sleeper in sleepers:
            for seconds in _AGAIN_SECONDS:
                sleeper.wake_later(seconds)

    def ring(self) -> None:
        """Wake all."""
        with self._lock:
            sleepers = tuple(self._sleepers)
        for sleeper in sleepers:
            sleeper.wake()
