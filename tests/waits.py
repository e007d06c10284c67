"""Waiting for what other threads, loops and processes do."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

PATIENCE_SECONDS = 90.0
"""Long, because a test machine may be busy; what is waited for comes much sooner."""
PATIENCE = timedelta(seconds=PATIENCE_SECONDS)


async def until(
    condition: Callable[[], bool | Awaitable[bool]], what: str = "it", *, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until `condition`, which may be async, is true.

    Raises:
        TimeoutError: it has not become so within `seconds`.
    """
    ends = time.monotonic() + seconds
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        if time.monotonic() > ends:
            message = f"{what} has not happened within {seconds:g} s"
            raise TimeoutError(message)
        await asyncio.sleep(0.02)
