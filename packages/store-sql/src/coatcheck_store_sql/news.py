"""Announcements: processes tell each other that there is work, where the server passes that on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from coatcheck_store_sql.bell import Bell
from coatcheck_store_sql.lines import Line, Lines
from coatcheck_store_sql.server_dialect import ServerDialect

__all__ = ["News"]

_GATHER_SECONDS = 0.002
"""For how long announcements gather before they are made as one: each takes a lock that all of them share."""
_QUIET_SECONDS = 0.02
"""After how long without one an announcement is made at once."""
_RETRY_SECONDS = 1.0
_BEGIN_SECONDS = 0.2
"""How long a call that waits is held up by the listener that it begins."""
_END_SECONDS = 0.5
"""How long a connection that was cut may take to be noticed."""


class News:
    """Tells others of work, and rings the bell when they tell; for one event loop."""

    def __init__(
        self, lines: Lines, dialect: ServerDialect, bell: Bell, open_line: Callable[[], Awaitable[Line]]
    ) -> None:
        """Do nothing yet; `open_line` makes the connection that listens."""
        self._lines = lines
        self._dialect = dialect
        self._bell = bell
        self._open_line = open_line
        self._line: Line | None = None
        self._telling: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._again = False
        self._told_at = float("-inf")
        self._closed = False
        self.heard = False
        """Whether announcements arrive here."""

    # -------------------------------------------------------------- telling

    def tell(self) -> None:
        """Announce that there is work, soon, once for all who ask for it until then."""
        if not self._dialect.announces:
            return
        if self._telling is not None and not self._telling.done():
            self._again = True
            return
        self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            if now() - self._told_at < _QUIET_SECONDS:
                await asyncio.sleep(_GATHER_SECONDS)
            self._again = False
            self._told_at = now()
            with contextlib.suppress(Exception):  # a lost announcement costs others one poll interval
                async with self._lines.line(now() + _RETRY_SECONDS) as line:
                    await self._announce(line)
            if not self._again:
                return

    async def _announce(self, line: Line) -> None:
        announce: Any = self._dialect.announcement
        try:
            await line.driver.rows(announce.sql, announce.ordered({}))
        except BaseException:
            await line.drop()
            raise

    # -------------------------------------------------------------- hearing

    async def hear(self) -> None:
        """See that announcements ring the bell from now on, if the server can do that."""
        if not self._dialect.announces or self._closed:
            return
        if self._listening is None or self._listening.done():
            begun = asyncio.Event()
            self._listening = asyncio.ensure_future(self._listen(begun))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEGIN_SECONDS):
                    await begun.wait()

    async def _listen(self, begun: asyncio.Event) -> None:
        def hears() -> None:
            self.heard = True
            begun.set()
            self._bell.ring()  # what was announced since it was heard last is lost

        while not self._closed:
            with contextlib.suppress(Exception):  # `wait` polls meanwhile
                self._line = await self._open_line()
            if self._line is not None:
                try:
                    if self._line.driver.pooled:  # sessions are not ours there
                        return
                    with contextlib.suppress(Exception):
                        await self._line.driver.listen(self._dialect.channel, self._bell.ring, hears)
                finally:
                    line, self._line, self.heard = self._line, None, False
                    begun.set()
                    await line.drop()
            if not self._closed:
                self._bell.ring()
                await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Stop hearing; what is to be told is told first."""
        self._closed = True
        if self._telling is not None:
            await asyncio.wait([self._telling])
        listening = self._listening
        if listening is None:
            return
        if self._line is not None:
            self._line.driver.cut()
            await asyncio.wait([listening], timeout=_END_SECONDS)
        listening.cancel()
        await asyncio.wait([listening])
