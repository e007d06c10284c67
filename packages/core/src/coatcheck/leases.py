"""Keeping the leases of the tasks that a worker holds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import timedelta

from coatcheck.calls import Call
from coatcheck.errors import StoreError
from coatcheck.store import Hold, Store

__all__ = ["LeaseKeeper"]

logger = logging.getLogger("coatcheck.worker")


class LeaseKeeper:
    """Renews what is held, three times in a lease, until the outcome is settled.

    It runs on the worker's loop, which handlers never block. A call whose lease is lost can write nothing
    to the wire from then on; when the store cannot be reached, the hold runs out by this worker's own clock.
    """

    def __init__(self, store: Store, lease: timedelta) -> None:
        self._store = store
        self._lease = lease
        self._held: dict[str, Call] = {}

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[Call]:
        """Go through what is held."""
        return iter(tuple(self._held.values()))

    def add(self, call: Call) -> None:
        """Hold a claimed task."""
        self._held[call.task.id] = call

    def drop(self, call: Call) -> None:
        """Let go of a task that is settled, or lost."""
        if self._held.get(call.task.id) is call:
            del self._held[call.task.id]

    async def run(self) -> None:
        """Renew for ever."""
        pause = self._lease.total_seconds() / 3
        while True:
            await asyncio.sleep(pause)
            try:
                await self.renew()
            except StoreError as error:
                logger.debug("leases were not renewed: %s", error)
            except Exception:
                logger.exception("leases were not renewed")

    async def renew(self) -> None:
        """Renew everything that is held, once."""
        calls = [call for call in self if call.task.lease is not None]
        holds = [Hold(task_id=call.task.id, lease=call.task.lease) for call in calls if call.task.lease]
        if not holds:
            return
        asked_at = time.monotonic()
        renewals = await self._store.renew(holds, self._lease)
        for call, renewal in zip(calls, renewals, strict=True):
            if renewal.held:
                call.held_until = asked_at + self._lease.total_seconds()
            elif self._held.get(call.task.id) is call and not call.over:
                call.lose()
                logger.warning(
                    "the lease on task %s is lost; what its %s call comes to is kept if it can be",
                    call.task.id,
                    call.purpose,
                )
