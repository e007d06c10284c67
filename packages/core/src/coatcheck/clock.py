"""The clocks that a store may have when no server gives it one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable

from coatcheck.errors import InvalidParams

__all__ = ["Clock", "ManualClock", "SystemClock"]


@runtime_checkable
class Clock(Protocol):
    """Tells the time in aware UTC, in whole milliseconds."""

    def now(self) -> datetime:
        """Return the time."""
        ...


class SystemClock:
    """The host's clock."""

    def now(self) -> datetime:
        """Return the host's time, cut to the millisecond."""
        at = datetime.now(UTC)
        return at.replace(microsecond=at.microsecond // 1000 * 1000)


class ManualClock:
    """A clock that stands still until it is told to go on, for tests.

    Stores that wait for a time subscribe with `on_advance` and look again whenever it moves.
    """

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            message = f"a clock starts at an aware datetime, not {start!r}; add tzinfo=UTC"
            raise InvalidParams(message)
        self._now = start
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the time that was set last."""
        return self._now

    def advance(self, duration: timedelta) -> datetime:
        """Let `duration` pass and return the new time."""
        if duration < timedelta():
            message = f"time goes forward; use set() for a step back, not advance({duration!r})"
            raise InvalidParams(message)
        return self.set(self._now + duration)

    def set(self, now: datetime) -> datetime:
        """Put the clock to `now`, which may be in its past, as a clock step would."""
        with self._lock:
            self._now = now
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()
        return now

    def on_advance(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each move, in the thread that moved it; return what unsubscribes it."""
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe
