"""Connections to a server: made by an engine, held by one event loop, thrown away when they fail.

Nothing here waits for a server without an end: at a time that the caller names, the connection is cut, and what waits
for it fails. Cancelling instead would make some drivers ask the server, which may not answer, to cancel.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only

from coatcheck_store_sql.drivers import Driver, driver_of
from coatcheck_store_sql.server_dialect import ServerDialect

if TYPE_CHECKING:
    from coatcheck_store_sql.statements import Statement

__all__ = ["Line", "Lines", "cut_at"]

_LAST_WORD_SECONDS = 0.2
"""How long a connection may take to close in good order, however late it is."""


@contextlib.contextmanager
def cut_at(ends: float, driver: Driver) -> Iterator[None]:
    """Cut the connection at `ends`, by the loop's clock, so that what waits for it fails."""
    cut = asyncio.get_running_loop().call_at(ends, driver.cut)
    try:
        yield
    finally:
        cut.cancel()


class Line:
    """One connection; runs the statements of a step from inside a greenlet."""

    def __init__(self, driver: Driver, dialect: ServerDialect) -> None:
        """Keep them."""
        self.driver = driver
        self._dialect = dialect
        self.broken = False
        self.used = False
        """Whether it has lain idle since its last use, and may have been lost meanwhile."""

    @classmethod
    async def open(cls, engine: AsyncEngine, dialect: ServerDialect, ends: float) -> Line:
        """Connect, until `ends`. It is no longer its engine's then: what is set on it must not come back to a pool."""
        async with asyncio.timeout_at(ends):
            connection = await engine.connect()
        raw = await connection.get_raw_connection()
        driver = driver_of(engine.dialect.driver, raw.driver_connection)
        try:
            with cut_at(ends, driver):
                connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
                raw.detach()
                await driver.session()
                for statement in dialect.preparation:
                    await driver.simple(statement)
                await dialect.meet(driver)
        except BaseException:
            raw.detach()
            await driver.discard()
            raise
        return cls(driver, dialect)

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows."""
        sql, values = self._dialect.text_of(statement, given)
        return await_only(self.driver.rows(sql, values))

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of `given`, in as few round trips as the dialect can."""
        for sql, values in statement.batches(given):
            await_only(self.driver.run(sql, values))

    async def close(self, ends: float) -> None:
        """Take leave of the server, if it listens until `ends`."""
        try:
            with cut_at(ends, self.driver), contextlib.suppress(Exception):
                await self.driver.close()
        finally:
            await self.drop()

    async def drop(self) -> None:
        """Throw it away: what it is in the middle of is rolled back by the server."""
        self.broken = True
        await self.driver.discard()


class Lines:
    """The connections of one event loop: at most `size`, kept for the next step."""

    def __init__(self, engine: AsyncEngine, dialect: ServerDialect, size: int) -> None:
        """Connect to nothing yet."""
        self._engine = engine
        self._dialect = dialect
        self._free: list[Line] = []
        self._room = asyncio.Semaphore(size)
        self._all: set[Line] = set()

    @contextlib.asynccontextmanager
    async def line(self, ends: float) -> AsyncIterator[Line]:
        """Give a connection, which is cut at `ends`; it is thrown away if it is left broken.

        Raises:
            TimeoutError: none was free, or could be made, until then.
        """
        await self._enter(ends)
        try:
            line = self._free.pop() if self._free else await self._open(ends)
            try:
                with cut_at(ends, line.driver):
                    yield line
            finally:
                line.used = True
                if line.broken:
                    self._all.discard(line)
                else:
                    self._free.append(line)
        finally:
            self._room.release()

    async def _enter(self, ends: float) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        async with asyncio.timeout_at(ends):
            await self._room.acquire()

    async def _open(self, ends: float) -> Line:
        line = await Line.open(self._engine, self._dialect, ends)
        self._all.add(line)
        return line

    async def forget_free(self) -> None:
        """Throw away what lies there unused: the server that it led to went away."""
        free, self._free = self._free, []
        for line in free:
            self._all.discard(line)
            await line.drop()

    async def close(self, ends: float) -> None:
        """Close all, until `ends`; whoever still uses one is cut off."""
        free, used = self._free, self._all.difference(self._free)
        self._free, self._all = [], set()
        for line in used:
            line.driver.cut()
        ends = max(ends, asyncio.get_running_loop().time() + _LAST_WORD_SECONDS)
        await asyncio.gather(*(line.close(ends) for line in free))

    def cut(self) -> None:
        """Cut all off, from a thread whose event loop is another."""
        for line in self._all:
            line.driver.cut()
