"""Watching a policy at work: whether it reaches outside, changes what it was given, holds up the loop, or grows."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["growth", "longest_gap_seconds", "staying_inside", "unchanged", "watched"]

_OUTSIDE = frozenset(
    {
        "ftplib.connect",
        "http.client.connect",
        "open",
        "os.exec",
        "os.mkdir",
        "os.posix_spawn",
        "os.remove",
        "os.rename",
        "os.spawn",
        "os.system",
        "smtplib.connect",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendto",
        "sqlite3.connect",
        "subprocess.Popen",
        "urllib.Request",
    }
)
"""Python's audit events that are I/O."""
_IMPORTED = (".py", ".pyc", ".so", ".pyd", ".dll")
"""Endings of files that are opened by an import that is put off until it is needed."""


class _Seen(threading.local):
    """What the present thread has done outside; None while nobody watches it."""

    events: list[str] | None = None


_seen = _Seen()
_hooked = threading.Lock()


def _note(event: str, arguments: tuple[object, ...]) -> None:
    events = _seen.events
    if events is None or event not in _OUTSIDE:
        return
    if event == "open" and str(arguments[0]).endswith(_IMPORTED):
        return
    events.append(f"{event}({', '.join(map(repr, arguments[:2]))})")


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note what I/O this thread does inside the block, and whether it sleeps."""
    if _hooked.acquire(blocking=False):  # an audit hook stays for good, so there is one
        sys.addaudithook(_note)
    events: list[str] = []
    sleep = time.sleep

    def noted_sleep(seconds: float, /) -> None:
        if _seen.events is not None:
            _seen.events.append(f"time.sleep({seconds!r})")
        sleep(seconds)

    _seen.events = events
    time.sleep = noted_sleep  # type: ignore[assignment] # an audit event of it has come with Python 3.13 only
    try:
        yield events
    finally:
        time.sleep = sleep
        _seen.events = None


@contextmanager
def staying_inside(what: str) -> Iterator[None]:
    """Fail if this thread does I/O or sleeps inside the block, which is `what` in the message."""
    with watched() as events:
        yield
    assert not events, f"{what} reached outside: {'; '.join(events[:3])}"


def _shown(value: object) -> str:
    return repr((value, vars(value))) if isinstance(value, BaseException) else repr(value)


@contextmanager
def unchanged(what: str, *values: object) -> Iterator[None]:
    """Fail if one of the values looks different after the block."""
    before = [_shown(each) for each in values]
    yield
    for each, shown in zip(values, before, strict=True):
        assert _shown(each) == shown, f"{what} changed what it was given"


async def longest_gap_seconds(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    """Return how long the loop stood still at most, by a heartbeat on it, while `call` was called that often.

    The least of three tries: a loop that stands still in each was held up, and not by another process.
    """
    gaps = []
    for _ in range(3):
        gaps.append(await _longest_gap(call, calls))
        if gaps[-1] < _QUICK_SECONDS:
            break
    return min(gaps)


_QUICK_SECONDS = 0.05


async def _longest_gap(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    loop = asyncio.get_running_loop()
    longest, beaten_at = 0.0, loop.time()

    async def beat() -> None:
        nonlocal longest, beaten_at
        while True:
            await asyncio.sleep(0.005)
            longest, beaten_at = max(longest, loop.time() - beaten_at), loop.time()

    heart = asyncio.create_task(beat())
    try:
        for number in range(calls):
            await call(number)
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart
    return longest


def growth(step: Callable[[int], object], times: int, *, warm_up: int = 200) -> int:
    """Return by how many blocks of memory the process grew while `step` was called `times` times, after a warm-up.

    Whatever remembers something each time grows by one block a time, or more.
    """
    for number in range(warm_up):
        step(-number)
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(times):
        step(number)
    gc.collect()
    return sys.getallocatedblocks() - before
