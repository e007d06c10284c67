"""Requests that are kept waiting."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial


class Stalls:
    """The requests that wait now; `release` and `close` are safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()
        self._closed = False

    async def wait(self, seconds: float | None) -> bool:
        """Wait for so long, or until released; False says that the sandbox is being stopped."""
        released = asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, released.set)
        with self._lock:
            if self._closed:
                return False
            self._wakers.add(wake)
        try:
            async with asyncio.timeout(seconds):
                await released.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._wakers.discard(wake)
        return not self._closed

    def release(self) -> int:
        """Let all waiting requests go on; how many there were."""
        with self._lock:
            for wake in self._wakers:
                wake()
            return len(self._wakers)

    def close(self) -> None:
        """Let none wait any more."""
        self._closed = True
        self.release()
