"""A database server: steps are transactions on a few connections, and run beside each other.

Steps are plain functions; SQLAlchemy's greenlets let them wait for an asynchronous driver. A step that the
database rolls back for a passing reason, or whose connection is lost, is repeated, until the call's time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from attrs import define, field
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from coatcheck.clock import Clock
from coatcheck.errors import CoatcheckError, SchemaOutdated, StoreUnavailable
from coatcheck.store import Added, Capability
from coatcheck.task import TaskDraft, as_millis
from coatcheck_store_sql.bell import Bell
from coatcheck_store_sql.dialects import original
from coatcheck_store_sql.drivers import driver_of
from coatcheck_store_sql.gathering import Gathering
from coatcheck_store_sql.insert_dialects import insert_dialect
from coatcheck_store_sql.inserts import ParamStyle, Written, statements
from coatcheck_store_sql.joining import add_joined, make_ready
from coatcheck_store_sql.lines import Line, Lines, cut_at
from coatcheck_store_sql.migrations import schema_version, upgrade_server
from coatcheck_store_sql.news import News
from coatcheck_store_sql.rooms import Room
from coatcheck_store_sql.schema import SCHEMA_VERSION, Schema
from coatcheck_store_sql.server_dialect import ServerDialect
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.statements import Statements
from coatcheck_store_sql.step import Executor, Memory, Step, Time
from coatcheck_store_sql.transactions import join
from coatcheck_store_sql.tries import Adding, Doing, Reading, Writing, because, said
from coatcheck_store_sql.waiting import next_time
from coatcheck_store_sql.waiting_question import look
from coatcheck_store_sql.words import named

__all__ = ["ServerRoom"]

T = TypeVar("T")

_FIRST_NAP_SECONDS = 0.02
_LONGEST_NAP_SECONDS = 1.0
_GRACE_SECONDS = 0.3
_SEEN_MICROSECONDS = 1_000_000
"""How long a look at the server's clock tells the time: as long as clocks run alike to a fraction of a millisecond."""


@define(eq=False)
class OneLoop:
    """What belongs to one event loop."""

    lines: Lines
    news: News
    adds: Gathering
    running: set[asyncio.Task[Any]] = field(factory=set)
    keeper: AsyncGenerator[None, None] | None = None
    """Closes all this when it is closed, or its loop ends."""

    async def close(self, ends: float) -> None:
        """Let running steps end, until `ends`; then close the connections."""
        if self.running:
            await asyncio.wait(self.running, timeout=max(0.0, ends - asyncio.get_running_loop().time()))
        await self.news.close()
        await self.lines.close(ends)


class ServerRoom(Room):
    """PostgreSQL, MySQL or MariaDB."""

    def __init__(self, engine: AsyncEngine, dialect: ServerDialect, settings: SqlSettings) -> None:
        """Keep what is needed to open it; the engine is not disposed of, since its pool holds nothing of ours."""
        self._engine = engine
        self.dialect = dialect
        self.url = engine.url.render_as_string(hide_password=True)
        self._settings = settings
        self._schema: Schema = dialect.schema
        self.sql = Statements(self._schema, dialect)
        self.bell = Bell()
        self.memory = Memory()
        self._loops: dict[asyncio.AbstractEventLoop, OneLoop] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._closed = True
        self._seen = (0, -(10**18))
        """The server's clock when it was looked at last, in microseconds, and when that was by this process's."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Durable, shared, joining transactions; the rest is the dialect's."""
        always = {Capability.DURABLE, Capability.SHARED, Capability.TRANSACTIONAL_ADD}
        return frozenset(always | self.dialect.promises)

    # -------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Look at the schema. Later calls connect by themselves, and again when the server was away."""
        version = await self._on_connection(lambda connection: schema_version(connection, self._schema))
        if version < SCHEMA_VERSION:
            state = (
                "has no tables of coatcheck" if not version else f"has schema {version}, not {SCHEMA_VERSION}"
            )
            message = (
                f"the database {self.url} {state} under the prefix {self._schema.prefix!r}; create or upgrade "
                "them with `coatcheck store setup`, or with `await store.setup()` in a deployment step"
            )
            raise SchemaOutdated(message)
        self.memory.forget()
        self._closed = False
        subscribe = getattr(self._settings.clock, "on_advance", None)
        if subscribe is not None:
            self._unsubscribe = subscribe(self.bell.ring)

    async def _on_connection(self, work: Callable[[Connection], T]) -> T:
        seconds = self.timeout_seconds
        task = asyncio.ensure_future(self._patiently(work))
        task.add_done_callback(_look_away)
        try:
            # a connection that is being made cannot be cut, and may not let itself be cancelled soon
            await asyncio.wait([task], timeout=seconds + _GRACE_SECONDS)
        finally:
            task.cancel()
        try:
            if not task.done():
                raise TimeoutError  # noqa: TRY301 - told below
            return task.result()
        except CoatcheckError:
            raise
        except TimeoutError as error:
            message = f"the database {self.url} did not answer within {seconds:g} s{because(error)}"
            raise StoreUnavailable(message) from error
        except Exception as error:
            cause = original(error)
            how = "cannot be reached" if isinstance(error, (SQLAlchemyError, OSError)) else "failed"
            raise StoreUnavailable(f"the database {self.url} {how}: {said(cause)}") from error

    async def _patiently(self, work: Callable[[Connection], T]) -> T:
        """Do it, again and again while the server says that it is away for a moment."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.timeout_seconds
        nap = _FIRST_NAP_SECONDS
        while True:
            try:
                return await self._connected(work, ends)
            except Exception as error:
                late = loop.time() + nap > ends
                if late and self.dialect.is_lost(original(error)):
                    raise TimeoutError from error
                if late or not self.dialect.is_away(original(error)):
                    raise
            await asyncio.sleep(nap)
            nap = min(nap * 2, _LONGEST_NAP_SECONDS)

    async def _connected(self, work: Callable[[Connection], T], ends: float) -> T:
        async with asyncio.timeout_at(ends):
            connection = await self._engine.connect()
        try:
            raw = await connection.get_raw_connection()
            with cut_at(ends, driver_of(self._engine.dialect.driver, raw.driver_connection)):
                return await connection.run_sync(work)
        except BaseException:
            with contextlib.suppress(Exception):
                await connection.invalidate()
            raise
        finally:
            with contextlib.suppress(Exception):
                await connection.close()

    async def setup(self) -> None:
        """Create or upgrade the tables; several processes may do it at once."""
        await self._on_connection(lambda connection: upgrade_server(connection, self.dialect, self._schema))

    async def close(self) -> None:
        """Let running steps end, and close the connections."""
        self.leave()
        self._closed = True
        self.bell.ring()
        here = asyncio.get_running_loop()
        ends = here.time() + self.timeout_seconds
        for loop, found in list(self._loops.items()):
            if loop is here:
                await found.close(ends)
            elif loop.is_running():
                there = asyncio.run_coroutine_threadsafe(
                    found.close(loop.time() + self.timeout_seconds), loop
                )
                await asyncio.wait([asyncio.wrap_future(there)], timeout=self.timeout_seconds)
            else:
                found.lines.cut()
        self._loops.clear()

    def leave(self) -> None:
        """Let go of the clock."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _here(self) -> OneLoop:
        if self._closed:
            message = f"the store {self.url} is closed; open it, as in `async with store:`"
            raise StoreUnavailable(message)
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            lines = Lines(self._engine, self.dialect, self._settings.pool_size)
            news = News(lines, self.dialect, self.bell, self._open_line)
            found = OneLoop(lines, news, Gathering(self))
            self._loops[loop] = found
            found.keeper = self._keep(loop, found)
            with contextlib.suppress(StopIteration):  # so it begins, and the loop will see to its end
                found.keeper.__anext__().send(None)
        return found

    async def _keep(self, loop: asyncio.AbstractEventLoop, found: OneLoop) -> AsyncGenerator[None, None]:
        """Wait for the end of the loop, which closes all generators that wait in it, as `asyncio.run` does."""
        try:
            yield
        finally:
            if self._loops.get(loop) is found:
                del self._loops[loop]
            await found.close(loop.time())

    async def _open_line(self) -> Line:
        return await Line.open(
            self._engine, self.dialect, asyncio.get_running_loop().time() + self.timeout_seconds
        )

    # -------------------------------------------------------------- steps

    def time(self, executor: Executor) -> Time:
        """Return the server's time, or that of the clock that the settings give."""
        if self._settings.clock is not None:
            return _time_of(self._settings.clock)
        ((micros,),) = executor.rows(self.dialect.clock, {})
        self._seen = int(micros), time.monotonic_ns()
        return _time(int(micros))

    def time_by_now(self) -> Time | None:
        """Return the server's time as far as it is known without asking; None if that was too long ago.

        It is never ahead, unless the server's clock was set back meanwhile.
        """
        if self._settings.clock is not None:
            return _time_of(self._settings.clock)
        micros, seen_at = self._seen
        passed = (time.monotonic_ns() - seen_at) // 1000
        return _time(micros + passed) if passed < _SEEN_MICROSECONDS else None

    async def write(self, work: Callable[[Step], T], *, shared: bool = True, repeatable: bool = True) -> T:
        """Do it in a transaction of its own."""
        here = self._here()
        done: T = await self._unhurt(here, Writing(self, here, work, shared=shared, repeatable=repeatable))
        return done

    async def add(self, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks, with what others add at this moment."""
        return await self._here().adds.add(drafts)

    async def write_adds(self, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add tasks in a step of their own."""
        here = self._here()
        added: list[Added] = await self._unhurt(here, Adding(self, here, drafts))
        return added

    async def read(self, work: Callable[[Step], T], *, brief: bool = False) -> T:
        """Look at one snapshot; `brief` if one statement is likely to do."""
        here = self._here()
        seen: T = await self._unhurt(here, Reading(self, here, work, brief=brief))
        return seen

    async def _unhurt(self, here: OneLoop, doing: Doing) -> Any:  # noqa: ANN401 - what the work returns
        """Let it end even if the caller is cancelled: a connection in the middle of a step is of no use to others."""
        task = asyncio.ensure_future(doing.do())
        here.running.add(task)
        task.add_done_callback(here.running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_look_away)
            raise

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take."""
        return self._settings.timeout.total_seconds()

    def committed(self, step: Step, news: News) -> None:
        """Keep what a step has learnt, and tell of work that it has made."""
        with self._lock:  # there may be other event loops, in other threads
            self.memory.keep_draft(step.memory)
        if step.news:
            self.bell.ring()
            news.tell()

    def join(self, transaction: object, drafts: Sequence[TaskDraft]) -> list[Added]:
        """Add them on the caller's connection; see `joining`."""
        return join(
            transaction,
            lambda connection: add_joined(self, connection, drafts),
            place=self._engine.url,
            dialect=self.dialect,
            bell=self.bell,
        )

    def insert_statements(self, drafts: Sequence[TaskDraft], paramstyle: ParamStyle | None) -> Written:
        """Return SQL that adds tasks, whose lanes are there by then; see `joining`."""
        settings, dialect = self._settings, self.dialect.name
        written_for = insert_dialect(dialect, settings.table_prefix, settings.schema, paramstyle)
        ready = make_ready(self, drafts) if drafts else None
        return statements(written_for, drafts, ready.now, ready) if ready is not None else []

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return an event loop that the store is used in, and that runs."""
        return next((loop for loop in tuple(self._loops) if loop.is_running()), None)

    async def leave_loop(self) -> None:
        """Close the connections of the running loop, which ends."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.close(asyncio.get_running_loop().time())

    # -------------------------------------------------------------- waiting

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """Sleep until there may be work: until something is announced, or falls due, or it is time to look again."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout.total_seconds()
        keys = tuple(dict.fromkeys(map(named, handler_keys)))
        begun: int | None = None
        with self.bell.listening() as sleeper:
            news = self._here().news
            await news.hear()
            while True:
                now, due = await self.read(partial(self._look, keys=keys, since=begun), brief=True)
                begun = now if begun is None else begun
                if due is not None and due <= now:
                    return True
                left = min(ends - loop.time(), timeout.total_seconds() - (now - begun) / 1000)
                if left <= 0:
                    return False
                pause = min(left, self._poll_seconds(news))
                if due is not None and self._settings.clock is None:
                    pause = min(pause, (due - now) / 1000)
                await sleeper.sleep(pause)

    def _look(self, step: Step, keys: Sequence[str], since: int | None) -> tuple[int, int | None]:
        """Return the time, and from when on there may be work."""
        if not self.dialect.now_text:
            return step.now_ms, next_time(step, keys, since or step.now_ms)
        return look(step, keys, since, None if self._settings.clock is None else step.now_ms)

    def _poll_seconds(self, news: News) -> float:
        if self._settings.poll_interval is not None:
            return self._settings.poll_interval.total_seconds()
        return _POLL_HEARING_SECONDS if news.heard else _POLL_SECONDS


_POLL_HEARING_SECONDS = 1.0
"""How often `wait` looks although nothing was announced: an announcement may be lost."""
_POLL_SECONDS = 0.05
"""How often it looks where nothing is announced."""


def _time_of(clock: Clock) -> Time:
    now = clock.now()
    return as_millis(now), as_millis(now) + (now.microsecond % 1000 > 0)


def _time(micros: int) -> Time:
    return micros // 1000, -(-micros // 1000)


def _look_away(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for, so that asyncio does not complain about it."""
    if not task.cancelled():
        task.exception()
