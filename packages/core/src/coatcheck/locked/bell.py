"""The bell: wakes calls that wait for work, in whatever event loops and threads of this process they wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection, Iterator

__all__ = ["Bell", "Listener"]


class Listener:
    """One waiting call. It belongs to the event loop in which it was made."""

    def __init__(self, handler_keys: Collection[str]) -> None:
        self.handler_keys = frozenset(handler_keys)
        self.urgent = False
        """Whether it was rung for something that it cannot see by looking."""
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the call, from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._rung.set()
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
            self._loop.call_soon_threadsafe(self._rung.set)

    async def sleep(self, seconds: float) -> None:
        """Return when rung, at once if rung since the last sleep, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class Bell:
    """Rings the listeners that are concerned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()

    @contextlib.contextmanager
    def listening(self, handler_keys: Collection[str]) -> Iterator[Listener]:
        """Give a listener for news of these handlers. Look for work after entering, so that nothing is missed."""
        listener = Listener(handler_keys)
        with self._lock:
            self._listeners.add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def ring(self, news: Collection[str], urgent: Collection[str] = ()) -> None:
        """Wake those who wait for work of handlers in `news` or `urgent`."""
        if not self._listeners:
            return
        for listener in self._heard_by():
            if not listener.handler_keys.isdisjoint(urgent):
                listener.urgent = True
                listener.ring()
            elif not listener.handler_keys.isdisjoint(news):
                listener.ring()

    def ring_all(self) -> None:
        """Wake everybody."""
        for listener in self._heard_by():
            listener.ring()

    def _heard_by(self) -> tuple[Listener, ...]:
        with self._lock:
            return tuple(self._listeners)
