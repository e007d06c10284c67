import asyncio
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from coatcheck.errors import StoreUnavailable
from coatcheck.store import Filter
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.server import ServerRoom

sys.path.insert(0, str(Path(__file__).parent))
import faults

place = faults.place
server_place = faults.server_place
pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]

SPAWN = multiprocessing.get_context("spawn")
CALLS: tuple[faults.Call, ...] = (
    lambda store: store.add([make_draft(gates=["g"])]),
    lambda store: store.now(),
    lambda store: store.claim_submissions("w", [HANDLER], 1, faults.LEASE),
    lambda store: store.stats(),
    lambda store: store.set_gate("g", concurrency=1000),
    lambda store: store.wait([HANDLER], timedelta(seconds=10)),
    lambda store: store.request_cancellation("none"),
)


def room_of(store: SqlStore) -> ServerRoom:
    """Return the room of a store on a server."""
    assert isinstance(store.room, ServerRoom)
    return store.room


@pytest.fixture
def complaints() -> Iterator[list[dict[str, Any]]]:
    """Collect what asyncio complains about: exceptions never retrieved, tasks destroyed."""
    heard: list[dict[str, Any]] = []
    yield heard
    gc.collect()
    assert heard == []


async def test_cancelled_callers_break_nothing(place: faults.Place, complaints: list[dict[str, Any]]) -> None:
    """Callers that are cancelled at any point leave no connection behind, and later calls find all in order."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    dice = random.Random(7)
    async with faults.opened(place.url, timeout=10, pool_size=3) as store:

        async def call_and_cancel() -> None:
            task = asyncio.ensure_future(dice.choice(CALLS)(store))
            await asyncio.sleep(dice.choice((0, dice.uniform(0, 0.004), dice.uniform(0, 0.02))))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        async def caller() -> None:
            for _ in range(60):
                await call_and_cancel()

        await asyncio.gather(*(caller() for _ in range(5)))
        lines = room_of(store)._here().lines
        for _ in range(3):
            await asyncio.gather(*(store.add([make_draft()]) for _ in range(4)), store.stats(), store.now())
        while lines._room._value < 3:  # steps whose callers left, and announcements
            await asyncio.sleep(0.01)
        assert len(lines._free) == len(lines._all) <= 3
        (usage,) = await store.gates(["g"])
        assert usage.used == sum(task.holds_slots for task in await store.find(Filter(), limit=1000))
        await asyncio.to_thread(check_sessions, place, 3)


def check_sessions(place: faults.Place, most: int) -> None:
    """See that the server knows of no more sessions than there may be: one more listens, one more asks."""
    if place.kind == "postgresql":
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    else:
        query = "SELECT count(*) FROM information_schema.processlist WHERE db = database()"
    ((sessions,),) = place.ask(query)
    assert sessions <= most + 2


async def test_a_store_serves_several_event_loops(place: faults.Place) -> None:
    """Threads with loops of their own use one store at once; each loop's end closes its connections."""
    async with faults.opened(place.url, timeout=15) as store:
        failed: list[BaseException] = []

        async def work() -> None:
            for _ in range(5):
                await asyncio.gather(*(store.add([make_draft()]) for _ in range(3)))
                await store.claim_submissions("w", [HANDLER], 2, faults.LEASE)
                await store.wait([HANDLER], timedelta(milliseconds=1))

        def run() -> None:
            try:
                asyncio.run(work())
            except BaseException as error:  # noqa: BLE001 - looked at below
                failed.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        await work()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert failed == []
        assert len(room_of(store)._loops) == 1
        assert len(await store.find(Filter(), limit=1000)) == 45
    gc.collect()
    await asyncio.to_thread(check_sessions, place, 0)


async def test_closing_reaches_loops_that_still_run(place: faults.Place) -> None:
    """`close` closes the connections that another loop holds, and calls there end with a clear error."""
    store = create(place.url, timeout=timedelta(seconds=10))
    await store.setup()
    await store.open()
    ready = threading.Event()
    results: list[object] = []

    async def work() -> None:
        await store.add([make_draft(handler="another")])
        ready.set()
        results.append((await faults.seconds_of(store.wait([HANDLER], timedelta(seconds=20))))[1])

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    await asyncio.to_thread(ready.wait)
    await asyncio.sleep(0.3)
    await store.close()
    await asyncio.to_thread(thread.join)
    assert isinstance(results[0], StoreUnavailable)
    gc.collect()
    await asyncio.to_thread(check_sessions, place, 0)


@pytest.mark.slow
async def test_a_stopped_process_holds_up_nobody_for_long(
    server_place: faults.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the transaction of a process that hangs in it, and others go on with its tasks and gates."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    async with faults.opened(server_place.url, timeout=20) as store:
        await store.set_gate("g", concurrency=1)
        await store.add([make_draft(id="a", gates=["g"])])
        process = SPAWN.Process(target=faults.stop_inside_a_step, args=(server_place.url,))
        await asyncio.to_thread(process.start)
        try:
            await faults.until(lambda: is_stopped(process.pid))
            seconds, claimed = await faults.seconds_of(_claim(store))
            assert 0.1 < seconds < 5  # it was held up
            assert claimed == ["a"]
            await store.set_gate("g", concurrency=2)
        finally:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.join)


async def _claim(store: SqlStore) -> list[str]:
    while not (claims := await store.claim_submissions("w", [HANDLER], 1, faults.LEASE)).tasks:
        await asyncio.sleep(0.05)
    return [task.id for task in claims.tasks]


def is_stopped(pid: int | None) -> bool:
    """Whether a process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[0] == "T"


async def test_an_engine_with_a_pool_gets_nothing_back(place: faults.Place) -> None:
    """A caller's engine lends the store fresh connections, and none with the store's settings comes into its pool."""
    engine = create_async_engine(place.url, pool_size=1, max_overflow=0)
    store = create(engine, timeout=timedelta(seconds=10))
    await store.setup()
    async with store:
        await asyncio.gather(*(store.add([make_draft()]) for _ in range(5)), store.stats(), store.now())
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a queue's
        async with engine.connect() as connection:
            if place.kind == "mariadb":
                zone = await connection.scalar(text("SELECT @@time_zone"))
                assert zone == "SYSTEM"
            assert await connection.scalar(text("SELECT count(*) FROM coatcheck_task")) == 5
    await engine.dispose()
    gc.collect()
