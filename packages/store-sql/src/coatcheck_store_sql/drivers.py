"""The asynchronous drivers, called directly: SQLAlchemy makes and keeps the connection, and compiles the SQL.

Its own way through `execute` costs several times what the call does, and gives nothing that steps need.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["AsyncpgDriver", "Driver", "MysqlDriver", "PsycopgDriver", "driver_of"]

Rows = list[tuple[Any, ...]]
_ARRAYS = (
    "SELECT $1::varchar[], $2::text[], $3::bigint[], $4::integer[], $5::smallint[], $6::float8[], $7::bool[]"
)
_KEPT_STATEMENTS = 1000
"""How many statements are kept prepared on a connection, before all are prepared anew."""


class Driver(ABC):
    """One connection, as its driver gives it."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - drivers share no base class
        self._connection = connection

    @abstractmethod
    async def rows(self, sql: str, values: Sequence[Any]) -> Rows:
        """Run a statement, and return its rows."""

    @abstractmethod
    async def run(self, sql: str, values: Sequence[Any]) -> None:
        """Run a statement that returns nothing."""

    @abstractmethod
    async def simple(self, sql: str) -> None:
        """Run statements without parameters, several in one round trip where the driver can."""

    @abstractmethod
    def cut(self) -> None:
        """Break the connection at once, without a word to the server: what waits for an answer fails."""

    @abstractmethod
    async def close(self) -> None:
        """Take leave of the server; may wait for it."""

    @abstractmethod
    async def discard(self) -> None:
        """Release the connection, which nobody waits for; never waits for the server."""

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands in between, so that the session may be another one in the next transaction."""
        return False

    async def session(self) -> None:  # noqa: B027 - most are
        """Make a fresh connection fit for steps."""

    async def listen(  # noqa: B027 - most servers announce nothing
        self, channel: str, ring: Callable[[], None], hears: Callable[[], None]
    ) -> None:
        """Call `hears` once, then `ring` for each announcement on `channel`, until the connection is lost."""


class AsyncpgDriver(Driver):
    """asyncpg. Its own cache of statements does not know of poolers, so there is one here."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(connection)
        self._statements: dict[str, Any] = {}

    async def rows(self, sql: str, values: Sequence[Any]) -> Rows:
        """Prepare once, and fetch."""
        with self._cut_told():
            statement = self._statements.get(sql) or await self._prepare(sql)
            return await statement.fetch(*values)  # type: ignore[no-any-return]  # records are tuples enough

    @contextmanager
    def _cut_told(self) -> Iterator[None]:
        """Tell of a connection that ends while asyncpg is at work, where it stumbles over what it has taken away."""
        try:
            yield
        except AttributeError as error:
            if self._connection._protocol is not None:  # noqa: SLF001 - that is what it stumbles over
                raise
            message = "the connection ended while it was in use"
            raise ConnectionResetError(message) from error

    async def _prepare(self, sql: str) -> Any:  # noqa: ANN401 - asyncpg's statement
        if self._pooled:  # what has a name would be left in a session that is another's next
            return await self._connection.prepare(sql, name="")
        if len(self._statements) >= _KEPT_STATEMENTS:
            self._statements.clear()
        made = self._statements[sql] = await self._connection.prepare(sql)
        return made

    async def run(self, sql: str, values: Sequence[Any]) -> None:
        """Execute."""
        await self.rows(sql, values)

    async def simple(self, sql: str) -> None:
        """Execute by the simple protocol."""
        with self._cut_told():
            await self._connection.execute(sql)

    def cut(self) -> None:
        """Terminate."""
        self._connection.terminate()

    async def close(self) -> None:
        """Close, and wait for the server to close its side."""
        self._statements.clear()
        await self._connection.close()

    async def discard(self) -> None:
        """Terminate, and let the transport see it."""
        self._statements.clear()
        self._connection.terminate()
        await asyncio.sleep(0)

    async def session(self) -> None:
        """Find out whether there is a pooler: the process that answers is not the one that the greeting named.

        It is asked without preparing a statement, which would stay in a session that is another's next. So would a
        setting that asyncpg changes while it learns about types of arrays; so it learns them now, and it is undone.
        """
        with self._cut_told():
            pid = self._connection.get_server_pid()
            status = await self._connection.execute(f"SELECT 1 WHERE pg_backend_pid() = {pid:d}")
            self._pooled = status != "SELECT 1"
            await self._connection.execute("BEGIN")
            await self._connection.prepare(_ARRAYS, name="")
            await self._connection.execute("ROLLBACK")

    _pooled = False

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands in between."""
        return self._pooled

    async def listen(self, channel: str, ring: Callable[[], None], hears: Callable[[], None]) -> None:
        """Listen until the connection ends."""
        ended = asyncio.Event()
        with self._cut_told():
            self._connection.add_termination_listener(lambda _connection: ended.set())
            await self._connection.add_listener(channel, lambda *_: ring())
        hears()
        await ended.wait()


class PsycopgDriver(Driver):
    """psycopg 3, asynchronous."""

    async def rows(self, sql: str, values: Sequence[Any]) -> Rows:
        """Execute and fetch."""
        cursor = await self._connection.execute(sql, values)
        return await cursor.fetchall() if cursor.description is not None else []

    async def run(self, sql: str, values: Sequence[Any]) -> None:
        """Execute."""
        await self._connection.execute(sql, values)

    async def simple(self, sql: str) -> None:
        """Execute without parameters: then several statements go in one message."""
        await self._connection.execute(sql, prepare=False)

    def cut(self) -> None:
        """Shut the socket down; closing it would take its number away from who waits for it."""
        with suppress(Exception):
            wire = socket.socket(fileno=self._connection.pgconn.socket)
            try:
                wire.shutdown(socket.SHUT_RDWR)
            finally:
                wire.detach()

    async def close(self) -> None:
        """Close."""
        await self._connection.close()

    async def discard(self) -> None:
        """Close the socket."""
        self.cut()
        with suppress(Exception):
            await self._connection.close()

    async def session(self) -> None:
        """Find out whether there is a pooler, where prepared statements would be lost."""
        await self._connection.set_autocommit(True)
        cursor = await self._connection.execute("SELECT pg_backend_pid()")
        ((pid,),) = await cursor.fetchall()
        self._pooled = pid != self._connection.info.backend_pid
        self._connection.prepare_threshold = None if self._pooled else 2

    _pooled = False

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands in between."""
        return self._pooled

    async def listen(self, channel: str, ring: Callable[[], None], hears: Callable[[], None]) -> None:
        """Listen until the connection ends."""
        await self._connection.execute(f'LISTEN "{channel}"')
        hears()
        notices: AsyncIterator[Any] = self._connection.notifies()
        async for _ in notices:
            ring()


class MysqlDriver(Driver):
    """aiomysql and asyncmy, which take the same calls."""

    async def rows(self, sql: str, values: Sequence[Any]) -> Rows:
        """Execute and fetch."""
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql, values or None)
            return list(await cursor.fetchall()) if cursor.description else []

    async def run(self, sql: str, values: Sequence[Any]) -> None:
        """Execute."""
        async with self._connection.cursor() as cursor:
            await cursor.execute(sql, values or None)

    async def simple(self, sql: str) -> None:
        """Execute one after the other."""
        async with self._connection.cursor() as cursor:
            for statement in sql.split("; "):
                await cursor.execute(statement)

    def cut(self) -> None:
        """Abort the transport, which the two keep in different places."""
        with suppress(Exception):
            writer = getattr(self._connection, "_writer", None)
            transport = writer.transport if writer is not None else self._connection._transport  # noqa: SLF001
            if transport is not None:
                transport.abort()

    async def close(self) -> None:
        """Say good-bye, and close."""
        await self._connection.ensure_closed()

    async def discard(self) -> None:
        """Close the socket, and let the transport see it."""
        self.cut()
        with suppress(Exception):
            self._connection.close()
        await asyncio.sleep(0)


_DRIVERS: dict[str, type[Driver]] = {
    "asyncpg": AsyncpgDriver,
    "psycopg": PsycopgDriver,
    "psycopg_async": PsycopgDriver,
    "aiomysql": MysqlDriver,
    "asyncmy": MysqlDriver,
}


def driver_of(name: str, connection: Any) -> Driver:  # noqa: ANN401 - as above
    """Return the driver of that name, as SQLAlchemy calls it, on one of its connections."""
    return _DRIVERS[name](connection)
