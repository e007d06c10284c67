"""Letting time pass in the store under test, whether its clock can be moved or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

from attrs import frozen

from coatcheck.clock import ManualClock
from coatcheck.store import Store

__all__ = ["LONG", "PATIENCE_SECONDS", "SHORT", "Time"]

SHORT = timedelta(milliseconds=400)
"""What a rule lets pass: long enough for a server to do a few steps in it, short enough to be waited for."""
LONG = timedelta(hours=1)
"""What does not pass while a rule is tried."""
PATIENCE_SECONDS = 20.0
"""How long a rule waits, by the host's clock, for something that has to happen."""
_STEP_SECONDS = 0.02


@frozen
class Time:
    """The store's time. A manual clock is moved; any other is watched until enough has passed."""

    _store: Store
    manual: ManualClock | None
    """The store's clock, if it is one that can be moved."""

    async def now(self) -> datetime:
        """Return the store's time."""
        return await self._store.now()

    async def pass_(self, duration: timedelta) -> datetime:
        """Let `duration` pass by the store's clock, and return its time."""
        if self.manual is not None:
            self.manual.advance(duration)
            await settle_down()
            return await self.now()
        return await self.reach(await self.now() + duration)

    async def reach(self, instant: datetime) -> datetime:
        """Let time pass until the store's clock shows `instant` or later, and return its time."""
        now = await self.now()
        if self.manual is not None:
            return await self.pass_(max(instant - now, timedelta()))
        while now < instant:
            await asyncio.sleep(min((instant - now).total_seconds() + 0.001, _STEP_SECONDS))
            now = await self.now()
        return now


async def settle_down() -> None:
    """Give every task of the loop that can run a few turns."""
    for _ in range(5):
        await asyncio.sleep(0)


_T = TypeVar("_T")


async def soon(what: Awaitable[_T]) -> _T:
    """Return what `what` comes to, which must not take longer than `PATIENCE_SECONDS` of the host's time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await what
