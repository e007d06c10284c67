"""Places on a tally with a limit, asked for one by one and counted together: a claim of 200 tasks is one count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from attrs import define, field, frozen

from coatcheck.tallies import Count, Counted

__all__ = ["Place", "Rationing"]


@frozen
class Place:
    """What somebody who asked for one got."""

    granted: bool
    total: int
    """The tally afterwards."""


@define(kw_only=True, eq=False)
class Rationing:
    """Grants at most `limit` places on each tally, across the fleet."""

    limit: int
    lifetime: timedelta
    count: Callable[[Sequence[Count]], Awaitable[list[Counted]]]
    """Counts in the store."""
    _waiting: dict[str, list[asyncio.Future[Place]]] = field(init=False, factory=dict)
    _looking: dict[str, asyncio.Future[list[Counted]]] = field(init=False, factory=dict)
    _serving: set[asyncio.Task[None]] = field(init=False, factory=set)
    _owed: Counter[str] = field(init=False, factory=Counter)
    """Places that were counted, and nobody has."""

    async def take(self, name: str) -> Place:
        """Ask for one place; what is asked for in the same turn of the loop is counted together."""
        place: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if name in self._waiting:
            self._waiting[name].append(place)
        else:
            self._waiting[name] = [place]
            serving = asyncio.create_task(self._serve(name), name="rationing")
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and not place.exception() and place.result().granted:
                self._owed[name] += 1
            raise

    async def total(self, name: str) -> int:
        """Return how much was counted; who asks while another is being told is told the same."""
        looking = self._looking.get(name)
        if looking is None:
            looking = asyncio.ensure_future(self.count([self._change(name, 0)]))
            self._looking[name] = looking
            looking.add_done_callback(lambda _: self._looking.pop(name))
        return (await asyncio.shield(looking))[0].total

    async def give_back(self, names: Sequence[str]) -> None:
        """Count back what was taken and not used, and what nobody has."""
        owed, self._owed = self._owed, Counter()
        owed.update(names)
        if owed:
            await self.count([self._change(name, -number) for name, number in owed.items()])

    async def _serve(self, name: str) -> None:
        await asyncio.sleep(0)  # the others of the same claim ask now
        waiting = self._waiting.pop(name)
        try:
            granted, total = await self._grant(name, len(waiting))
        except BaseException as error:
            for each in waiting:
                if not each.done():
                    each.set_exception(error) if isinstance(error, Exception) else each.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for each in waiting:
            if not each.done():  # one whose time was over is
                each.set_result(Place(granted > 0, total))
                granted = max(granted - 1, 0)
        if granted:
            self._owed[name] += granted

    async def _grant(self, name: str, wanted: int) -> tuple[int, int]:
        """Count as many places as there are, up to `wanted`; return how many, and the total."""
        while True:
            owed = self._owed.pop(name, 0)
            back = [self._change(name, -owed)] if owed else []
            told = (await self.count([*back, self._change(name, wanted, self.limit)]))[-1]
            if told.counted:
                return wanted, told.total
            wanted = min(wanted, self.limit - told.total)
            if wanted <= 0:
                return 0, told.total

    def _change(self, name: str, amount: int, at_most: int | None = None) -> Count:
        return Count(name=name, amount=amount, at_most=at_most, lifetime=self.lifetime)
