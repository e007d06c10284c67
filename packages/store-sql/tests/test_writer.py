import asyncio
import sqlite3
import threading
from datetime import timedelta

import pytest
from hooks import local_of

from coatcheck.clock import ManualClock
from coatcheck.errors import ConfigurationError, DuplicateTask, StoreUnavailable
from coatcheck.store import Filter
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.step import Step


class Plug:
    """Keeps the writer busy, so that steps gather behind it."""

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._pulled = threading.Event()

    def __call__(self, step: Step) -> None:
        """Hold the writer."""
        self._begun.set()
        assert self._pulled.wait(20)

    async def plugged(self) -> None:
        """Wait until it holds the writer."""
        assert await asyncio.to_thread(self._begun.wait, 20)

    def pull(self) -> None:
        """Let the writer go on."""
        self._pulled.set()


async def gathered(store: SqlStore, count: int) -> list[asyncio.Task[object]]:
    """Let `count` adds gather behind a busy writer, and be done."""
    plug = Plug()
    busy = asyncio.create_task(store._write(plug))
    await plug.plugged()
    adds: list[asyncio.Task[object]] = [
        asyncio.create_task(store.add([make_draft(id=f"task-{n}")])) for n in range(count)
    ]
    await asyncio.sleep(0)
    plug.pull()
    await asyncio.wait([busy, *adds])
    return adds


async def test_what_waits_is_one_commit(store: SqlStore) -> None:
    """Steps that gathered while the writer was busy share one transaction."""
    commits: list[None] = []
    local_of(store).writer._on_commit = lambda: commits.append(None)
    adds = await gathered(store, 40)
    assert all(each.exception() is None for each in adds)
    assert len(await store.find(Filter())) == 40
    assert len(commits) == 1


async def test_a_step_that_fails_hurts_no_other_of_its_group(store: SqlStore) -> None:
    """The others of the transaction are kept, and each caller is told its own outcome."""
    await store.add([make_draft(id="task-3", params={"other": True})])
    adds = await gathered(store, 8)
    failed = [n for n, each in enumerate(adds) if each.exception() is not None]
    assert failed == [3]
    assert isinstance(adds[3].exception(), DuplicateTask)
    assert len(await store.find(Filter())) == 8


async def test_a_step_that_breaks_after_writing_leaves_nothing(store: SqlStore) -> None:
    """Whatever goes wrong inside a step, nothing of it is kept."""

    def write_and_break(step: Step) -> None:
        step.run(step.sql.set_rank_mode, text="broken")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._write(write_and_break)
    await store.add([make_draft()])


async def test_what_nobody_waits_for_is_not_begun(store: SqlStore) -> None:
    """A call that was cancelled while it queued writes nothing."""
    plug = Plug()
    busy = asyncio.create_task(store._write(plug))
    await plug.plugged()
    add = asyncio.create_task(store.add([make_draft(id="unwanted")]))
    await asyncio.sleep(0)
    add.cancel()
    await asyncio.wait([add])
    plug.pull()
    await busy
    assert await store.get("unwanted") is None


async def test_a_lock_held_too_long_is_store_unavailable(url: str) -> None:
    """A foreign lock is waited for, within the timeout; then the error says so, and the store goes on."""
    async with create(url, timeout=timedelta(milliseconds=300)) as store:
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await store.add([make_draft(id="late")])
        assert await store.get("late") is None
        other.execute("ROLLBACK")
        other.close()
        await store.add([make_draft(id="in time")])


async def test_a_lock_held_for_a_while_is_waited_for(url: str) -> None:
    """Nobody sees "database is locked"."""
    async with create(url) as store:
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        add = asyncio.create_task(store.add([make_draft(id="patient")]))
        await store.get("reads go on")
        await asyncio.sleep(0.1)
        assert not add.done()
        other.execute("ROLLBACK")
        other.close()
        assert [each.created for each in await add] == [True]


async def test_closing_finishes_what_was_asked_for(url: str) -> None:
    """Steps that were queued are made; later ones are refused; threads and connections are gone."""
    store = create(url)
    await store.open()
    threads = [thread._thread for thread in local_of(store)._threads]
    add = asyncio.create_task(store.add([make_draft(id="queued")]))
    waiting = asyncio.create_task(store.wait(["other:handler"], timedelta(seconds=30)))
    await asyncio.sleep(0)
    await store.close()
    assert [each.created for each in await add] == [True]
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.now()
    assert not any(thread.is_alive() for thread in threads)
    await store.close()
    async with create(url) as again:
        assert await again.get("queued") is not None


async def test_opening_twice_is_an_error(store: SqlStore) -> None:
    """Open it once, and share it."""
    with pytest.raises(ConfigurationError, match="already"):
        await store.open()


async def test_a_place_that_cannot_be_opened_is_store_unavailable() -> None:
    """The error comes when it is opened, and the store can be tried again."""
    store = create("sqlite:////nowhere/at/all/tasks.db")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.open()


async def test_work_of_another_store_wakes(url: str) -> None:
    """A change by another connection is seen at the next look, long before the timeout."""
    async with create(url) as store, create(url) as other:
        waiting = asyncio.create_task(store.wait([HANDLER], timedelta(seconds=30)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await other.add([make_draft()])
        assert await asyncio.wait_for(waiting, 10)


async def test_the_clock_never_goes_back_for_any_store(url: str) -> None:
    """The last stamp that any process stored is where time goes on when a clock was put back."""
    ahead, behind = ManualClock(), ManualClock()
    ahead.advance(timedelta(hours=1))
    async with create(url, clock=ahead) as one, create(url, clock=behind) as two:
        ((added),) = await one.add([make_draft()])
        assert await two.now() == added.task.schedule.created_at
