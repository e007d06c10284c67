"""The tries of one call to a server: what is repeated, and what the caller is told when nothing helps."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from sqlalchemy.util import greenlet_spawn

from coatcheck.errors import CoatcheckError, StoreUnavailable
from coatcheck.task import TaskDraft
from coatcheck_store_sql.adding import add, needs_answers
from coatcheck_store_sql.dialects import original
from coatcheck_store_sql.lines import Line, cut_at
from coatcheck_store_sql.script import NeedsAnswer, OneQuestion, Script
from coatcheck_store_sql.step import Memory, Outdated, Step

if TYPE_CHECKING:
    from coatcheck_store_sql.server import OneLoop, ServerRoom

__all__ = ["Adding", "Doing", "Reading", "Writing", "because", "said"]

_NAPS_SECONDS = (0.002, 0.02)
"""How long a step naps before it is repeated on a server that is there; doubled each time."""
_LONGEST_NAP_SECONDS = 1.0
_FIRST_ANSWER = 1 / 3
"""In which part of a call's time an idle connection has to answer, or another one is made."""


class Doing(ABC):
    """One call, with its tries."""

    def __init__(self, room: ServerRoom, here: OneLoop, work: Callable[[Step], Any]) -> None:
        self.room = room
        self.here = here
        self.work = work
        self.tries = 0
        self.committing = False
        self.why: BaseException | None = None
        """What kept the last try from being the last."""

    repeatable = True

    async def do(self) -> Any:  # noqa: ANN401 - what the work returns
        """Try until it is done, or its time is up.

        Raises:
            StoreUnavailable: the server could not be reached in time, or failed.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.room.timeout_seconds
        while True:
            error: BaseException
            try:
                return await self._try(ends)
            except CoatcheckError:
                raise
            except Exception as caught:  # noqa: BLE001 - judged below
                error = original(caught)
            nap = min(random.uniform(*_NAPS_SECONDS) * 2**self.tries, _LONGEST_NAP_SECONDS)  # noqa: S311 - a nap
            self.tries += 1
            left = ends - loop.time()
            fault = self._fault(error, late=left < _NAPS_SECONDS[1])
            if fault is not None:
                raise fault from error
            self.why = error
            await asyncio.sleep(min(nap, left / 2))

    def _fault(self, error: BaseException, *, late: bool) -> Exception | None:
        """Return what the caller is told; None to try again."""
        dialect = self.room.dialect
        if self.committing and not self.repeatable and dialect.is_lost(error):
            return StoreUnavailable(
                f"the connection was lost while the step was committed ({said(error)}); whether it was made is "
                "unknown, so look before repeating it"
            )
        if not dialect.is_busy(error) and not isinstance(error, Outdated):
            if not dialect.is_fault(error):
                return error if isinstance(error, Exception) else StoreUnavailable(str(error))
            return StoreUnavailable(f"the database failed: {said(error)}")
        if not late:
            return None
        if self.why is not None and dialect.is_lost(error):
            error = self.why  # what kept it until its connection was cut
        seconds = self.room.timeout_seconds
        unknown = "; whether the step was made is unknown, so look, or repeat it" if self.committing else ""
        return StoreUnavailable(
            f"the database at {self.room.url} did not carry out the step within {seconds:g} s "
            f"({said(error)}){unknown}"
        )

    async def _try(self, ends: float) -> Any:  # noqa: ANN401 - what the work returns
        lines = self.here.lines
        async with lines.line(ends) as line:
            self.committing = False
            try:
                return await self._transact(line)
            except BaseException as error:
                cause = original(error)
                if not isinstance(cause, asyncio.CancelledError) and not self.room.dialect.is_lost(cause):
                    await self._roll_back(line)
                    raise
                await line.drop()
                if asyncio.get_running_loop().time() < ends:
                    await lines.forget_free()
                raise

    async def _begin(self, line: Line, begin: str) -> None:
        """Begin a transaction."""
        with self._first_answer(line):
            await line.driver.simple(begin)

    def _first_answer(self, line: Line) -> AbstractContextManager[None]:
        """Wait for the first answer only so long that there is time for another connection.

        One that has been lost without a word shows here.
        """
        if not line.used:
            return nullcontext()
        soon = asyncio.get_running_loop().time() + self.room.timeout_seconds * _FIRST_ANSWER
        return cut_at(soon, line.driver)

    async def _roll_back(self, line: Line) -> None:
        try:
            await line.driver.simple("ROLLBACK")
        except Exception:  # noqa: BLE001 - then the connection is of no use
            await line.drop()

    @abstractmethod
    async def _transact(self, line: Line) -> Any:  # noqa: ANN401 - what the work returns
        """Do it in one transaction."""


class Writing(Doing):
    """A step that writes."""

    def __init__(
        self, room: ServerRoom, here: OneLoop, work: Callable[[Step], Any], *, shared: bool, repeatable: bool
    ) -> None:
        super().__init__(room, here, work)
        self.repeatable = repeatable
        self._begins = room.dialect.begin(shared=shared)

    async def _transact(self, line: Line) -> Any:  # noqa: ANN401 - what the work returns
        room = self.room
        await self._begin(line, self._begins)
        step = Step(line, room.sql, room.memory.draft(), room.time, hopeful=not self.tries)
        result = await greenlet_spawn(self.work, step)
        self.committing = True
        await line.driver.simple("COMMIT")
        room.committed(step, self.here.news)
        return result


class Adding(Writing):
    """A step that adds tasks. If it need not ask anything, it is one message, stamped by what is known of the clock."""

    def __init__(self, room: ServerRoom, here: OneLoop, drafts: Sequence[TaskDraft]) -> None:
        super().__init__(room, here, lambda step: add(step, drafts), shared=True, repeatable=True)
        self._asks = not room.dialect.takes_scripts or needs_answers(room.memory, drafts)

    async def _transact(self, line: Line) -> Any:  # noqa: ANN401 - what the work returns
        room = self.room
        if self.tries or self._asks:
            return await super()._transact(line)
        now = room.time_by_now()
        if now is None:
            with self._first_answer(line):
                now = await greenlet_spawn(room.time, line)
        script = Script(room.dialect)
        step = Step(script, room.sql, room.memory.draft(), lambda _: now, hopeful=True)
        try:
            result = self.work(step)
        except NeedsAnswer:
            return await super()._transact(line)
        self.committing = True
        with self._first_answer(line):
            await line.driver.simple(script.text())
        room.committed(step, self.here.news)
        return result


class Reading(Doing):
    """A look at one snapshot; `brief` if one statement is likely to do, which needs no transaction."""

    def __init__(
        self, room: ServerRoom, here: OneLoop, work: Callable[[Step], Any], *, brief: bool = False
    ) -> None:
        super().__init__(room, here, work)
        self._brief = brief

    async def _transact(self, line: Line) -> Any:  # noqa: ANN401 - what the work returns
        room = self.room
        if self._brief:
            try:
                with self._first_answer(line):
                    return await greenlet_spawn(
                        self.work, Step(OneQuestion(line), room.sql, Memory(capacity=1), room.time)
                    )
            except NeedsAnswer:
                self._brief = False
        await self._begin(line, room.dialect.begin_reading)
        step = Step(line, room.sql, Memory(capacity=1), room.time)
        result = await greenlet_spawn(self.work, step)
        await line.driver.simple("COMMIT")
        return result


def because(error: BaseException) -> str:
    """Return what stands behind an error, for a message."""
    cause = error.__cause__
    return "" if cause is None or isinstance(cause, asyncio.CancelledError) else f" ({said(original(cause))})"


def said(error: BaseException) -> str:
    """Return an error as a message quotes it."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
