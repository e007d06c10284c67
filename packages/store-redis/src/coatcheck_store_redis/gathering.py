"""Adds that wait for the server together go there together: a script costs more than the task that it adds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import define, field

from coatcheck.errors import CoatcheckError, StoreUnavailable
from coatcheck.store import Added
from coatcheck.task import TaskDraft
from coatcheck_store_redis.adding import add
from coatcheck_store_redis.calls import Calls

__all__ = ["Gathering"]

_AT_ONCE = 100
"""How many drafts of several callers go together; more of one caller's always do."""


@define(eq=False)
class _Waiting:
    """One caller's drafts."""

    drafts: Sequence[TaskDraft]
    answer: asyncio.Future[list[Added]]


@define(eq=False)
class _OneLoop:
    """The callers of one event loop."""

    busy: bool = False
    """Whether an add is on its way to the server; others wait until it is back, and go together."""
    waiting: list[_Waiting] = field(factory=list)
    sender: asyncio.Task[None] | None = None


class Gathering:
    """Adds for all callers of a process. Each still gets all or nothing."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._loops: dict[asyncio.AbstractEventLoop, _OneLoop] = {}

    async def add(self, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks, together with those of others that wait at the same time."""
        if len(drafts) > _AT_ONCE:
            return await add(self._calls, drafts)
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            self._loops = {each: one for each, one in self._loops.items() if not each.is_closed()}
            here = self._loops[loop] = _OneLoop()
        if here.busy:
            mine = _Waiting(drafts, loop.create_future())
            here.waiting.append(mine)
            return await mine.answer
        here.busy = True
        try:
            return await add(self._calls, drafts)
        finally:
            if here.waiting:
                here.sender = loop.create_task(self._send(here), name="coatcheck-redis-adds")
            else:
                here.busy = False

    async def _send(self, here: _OneLoop) -> None:
        try:
            while here.waiting:
                batch, count = list[_Waiting](), 0
                while here.waiting and (not batch or count + len(here.waiting[0].drafts) <= _AT_ONCE):
                    batch.append(here.waiting.pop(0))
                    count += len(batch[-1].drafts)
                await self._send_batch([each for each in batch if not each.answer.done()])
                await asyncio.sleep(0)  # who got an answer may have more to add
        finally:
            here.busy, here.sender = False, None
            for each in here.waiting:
                each.answer.cancel()
            here.waiting.clear()

    async def _send_batch(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        try:
            added = await add(self._calls, [draft for each in batch for draft in each.drafts])
        except Exception as error:  # noqa: BLE001 - told to those whom it concerns
            await self._tell(batch, error)
            return
        first = 0
        for each in batch:
            if not each.answer.done():
                each.answer.set_result(added[first : first + len(each.drafts)])
            first += len(each.drafts)

    async def _tell(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """Tell one caller what went wrong; of several, try for each alone, unless the server is away."""
        alone = (
            len(batch) == 1 or isinstance(error, StoreUnavailable) or not isinstance(error, CoatcheckError)
        )
        for each in batch:
            if alone and not each.answer.done():
                each.answer.set_exception(error)
            elif not each.answer.done():
                await self._send_batch([each])
