"""Adds that come while another is on its way to the server are gathered, and made as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from coatcheck.errors import CoatcheckError, StoreUnavailable
from coatcheck.store import Added
from coatcheck.task import TaskDraft

if TYPE_CHECKING:
    from coatcheck_store_sql.server import ServerRoom

__all__ = ["Gathering"]

_DRAFTS = 1_000
"""How many drafts are made one step, about."""
_AT_ONCE = 3
"""How many such steps are on their way at most."""
_GRACE_SECONDS = 0.2
"""How long a step may take to say why its time has not sufficed."""
_PATIENCE_SECONDS = 0.02
"""After how long another step may begin beside one that is not back: it may be waiting for a lock."""


@frozen(eq=False)
class _Call:
    drafts: Sequence[TaskDraft]
    answer: asyncio.Future[list[Added]]


class Gathering:
    """The adds of one event loop."""

    def __init__(self, room: ServerRoom) -> None:
        """Begin with none."""
        self._room = room
        self._waiting: list[_Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0
        """How many of them take what waits. One that has ended must not count: who was answered may come again before
        asyncio has told of its end."""

    async def add(self, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks, with what others add at this moment; each call is made as a whole or not at all."""
        loop = asyncio.get_running_loop()
        call = _Call(drafts, loop.create_future())
        self._waiting.append(call)
        if not self._running:
            self._begin()
        else:
            loop.call_later(_PATIENCE_SECONDS, self._hurry, call)
        seconds = self._room.timeout_seconds
        try:
            # those before it may take all the time there is
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await call.answer
        except TimeoutError as error:
            message = (
                f"the database at {self._room.url} did not carry out the step within {seconds:g} s; whether it "
                "will is unknown, so repeat it"
            )
            raise StoreUnavailable(message) from error

    def _hurry(self, call: _Call) -> None:
        if call in self._waiting and self._running < _AT_ONCE:
            self._begin()

    def _begin(self) -> None:
        self._running += 1
        task = asyncio.ensure_future(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        try:
            await self._take_turns()
        finally:
            self._running -= 1

    async def _take_turns(self) -> None:
        while self._waiting:
            calls = self._next()
            try:
                await self._make(calls)
            except BaseException as error:
                for call in calls:
                    if not call.answer.done():
                        call.answer.set_exception(error)
                if not isinstance(error, Exception):
                    raise

    def _next(self) -> list[_Call]:
        calls: list[_Call] = []
        count = 0
        for call in self._waiting:
            if calls and count + len(call.drafts) > _DRAFTS:
                break
            calls.append(call)
            count += len(call.drafts)
        del self._waiting[: len(calls)]
        return [call for call in calls if not call.answer.done()]

    async def _make(self, calls: Sequence[_Call]) -> None:
        drafts = [draft for call in calls for draft in call.drafts]
        if not drafts:
            for call in calls:
                call.answer.set_result([])
            return
        try:
            added = await self._room.write_adds(drafts)
        except StoreUnavailable:
            raise
        except CoatcheckError:
            if len(calls) == 1:
                raise
            # one caller's conflict is no other's
            for call in calls:
                await self._make_alone(call)
            return
        for call in calls:
            mine, added = added[: len(call.drafts)], added[len(call.drafts) :]
            if not call.answer.done():
                call.answer.set_result(mine)

    async def _make_alone(self, call: _Call) -> None:
        try:
            await self._make([call])
        except Exception as error:  # noqa: BLE001 - the caller's
            if not call.answer.done():
                call.answer.set_exception(error)
