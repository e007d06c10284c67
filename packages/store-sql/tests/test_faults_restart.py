import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_store_sql import SqlStore
from coatcheck_store_sql.server import ServerRoom
from servers import Kind, OwnServer
from servers.fixtures import Own
from servers.postgresql import Postgresql

sys.path.insert(0, str(Path(__file__).parent))
import faults

pytestmark = [pytest.mark.timeout(90), pytest.mark.slow]

T = TypeVar("T")
KINDS = pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
SHORT = timedelta(seconds=1)


def drivers_of(kind: str) -> list[str]:
    """Return the drivers for a kind of server."""
    return [driver for each, driver in faults.DRIVERS if each == kind]


class Fleet:
    """Workers that bring tasks through their lives, and note what was acknowledged to them."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self.added: list[str] = []
        self.settled: list[str] = []
        self.longest = 0.0
        self.ends = False

    async def work(self, store: SqlStore, name: str) -> None:
        """Add, claim, start and settle until it ends."""
        while not self.ends:
            draft = make_draft(gates=["g"])
            await self._timed(store.add([draft]))
            self.added.append(draft.id)
            claims = await self._timed(store.claim_submissions(name, [HANDLER], 2, SHORT))
            for begun in await self._timed(store.start(claims.tasks, SHORT)):
                if isinstance(begun, Started):
                    settling = store.settle([Settlement(task=begun.task, event=succeeded())])
                    (done,) = await self._timed(settling)
                    if isinstance(done, Task):
                        self.settled.append(done.id)

    async def _timed(self, call: Coroutine[Any, Any, T]) -> T:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        result = await call
        self.longest = max(self.longest, loop.time() - begun)
        return result


async def restart(server: OwnServer, end: Callable[[], None]) -> None:
    """End a server, and start it again where it was."""
    await asyncio.to_thread(end)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(server.start)


@KINDS
async def test_a_fleet_outlives_restarts(own_server: Own, kind: Kind) -> None:
    """Nothing acknowledged is lost, nothing is done twice, and no call fails or hangs."""
    server = await asyncio.to_thread(own_server, kind, durable=True)
    url = server.new_database()
    fleet = Fleet()
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                faults.opened(faults.url_for(url, driver), set_up=not number, timeout=30)
            )
            for number, driver in enumerate(drivers_of(kind))
        ]
        await stores[0].set_gate("g", concurrency=20)
        working = [
            asyncio.create_task(fleet.work(store, f"{store.url}-{n}")) for store in stores for n in range(2)
        ]
        for end in (server.stop, server.kill):
            before = len(fleet.settled)
            while len(fleet.settled) < before + 10:
                await asyncio.sleep(0.02)
            await restart(server, end)
        before = len(fleet.settled)
        while len(fleet.settled) < before + 10:
            await asyncio.sleep(0.02)
        fleet.ends = True
        await asyncio.gather(*working)
        assert len(set(fleet.settled)) == len(fleet.settled)
        assert fleet.longest < 30
        found = await stores[0].find(Filter(), limit=100_000)
        assert {task.id for task in found} == set(fleet.added)
        assert {task.id for task in found if task.status is Status.SUCCEEDED} == set(fleet.settled)
        (usage,) = await stores[0].gates(["g"])
        assert usage.used == sum(task.holds_slots for task in found)


@KINDS
async def test_connections_that_died_idle_fail_no_call(own_server: Own, kind: Kind) -> None:
    """After a restart, calls get connections that work, even those that are not repeated when in doubt."""
    server = await asyncio.to_thread(own_server, kind)
    url = server.new_database()
    for number, driver in enumerate(drivers_of(kind)):
        async with faults.opened(faults.url_for(url, driver), set_up=not number, timeout=20) as store:
            added = await asyncio.gather(*(store.add([make_draft()]) for _ in range(4)))
            await asyncio.gather(*(store.now() for _ in range(5)))
            await restart(server, server.stop)
            ids = [each.task.id for (each,) in added]
            answers = await asyncio.gather(
                *(store.request_cancellation(task_id) for task_id in ids),
                store.add([make_draft()]),
                store.stats(),
                store.wait([HANDLER], timedelta(milliseconds=1)),
            )
            assert answers[:4] == [True] * 4


class Replicating(Postgresql):
    """A PostgreSQL that can be a standby."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Write what a standby reads."""
        self.folder = folder
        return [*super().command(folder, port), "-c", "wal_level=replica", "-c", "hot_standby=on"]


@pytest.mark.usefixtures("postgresql_server")  # which skips where there is none
async def test_a_failover_of_postgresql_is_waited_out() -> None:
    """On a standby, reads go on, and steps that write wait until it is promoted, or their timeout ends."""
    recipe = Replicating(durable=False)
    server = await asyncio.to_thread(OwnServer, recipe)
    with server:
        url = server.new_database()
        place = faults.Place("postgresql", "asyncpg", url)
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(
                    faults.opened(faults.url_for(url, driver), set_up=not number, timeout=20)
                )
                for number, driver in enumerate(drivers_of("postgresql"))
            ]
            await stores[0].add([make_draft(id="there")])
            await asyncio.to_thread(server.stop)
            (recipe.folder / "data/standby.signal").touch()
            await asyncio.to_thread(server.start)
            await _fails_over(stores, lambda: place.ask("SELECT pg_promote()"))
            # what managed services do when the disk is nearly full
            database = url.rpartition("/")[2]
            place.ask(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            await asyncio.to_thread(end_sessions, place)
            await _fails_over(
                stores,
                lambda: server_ask(server, f"ALTER DATABASE {database} RESET default_transaction_read_only"),
            )


def end_sessions(place: faults.Place) -> None:
    """End all other sessions in the database."""
    place.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def server_ask(server: OwnServer, statement: str) -> None:
    """Run a statement in the database that always exists."""
    faults.Place("postgresql", "asyncpg", server.url).ask(statement)


async def _fails_over(stores: list[SqlStore], promote: Callable[[], object]) -> None:
    """Try writes on a server that cannot be written to, and wait for it to be promoted."""
    for store in stores:
        assert await store.get("there") is not None
        room = store.room
        assert isinstance(room, ServerRoom)
        settings, room._settings = room._settings, faults.hurried(room._settings)
        with pytest.raises(StoreUnavailable, match="read.only"):
            await store.add([make_draft()])
        room._settings = settings
    adding = [asyncio.create_task(store.add([make_draft()])) for store in stores]
    done, _ = await asyncio.wait(adding, timeout=0.3)
    assert not done
    await asyncio.to_thread(promote)
    for added in await asyncio.gather(*adding):
        assert added[0].created


async def test_a_read_only_mariadb_is_waited_out(own_server: Own) -> None:
    """Steps that write wait until the server can be written to, or their timeout ends."""
    server = await asyncio.to_thread(own_server, "mariadb")
    url = server.new_database()
    place = faults.Place("mariadb", "asyncmy", url)
    # who has all privileges may write all the same
    place.ask("CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'plain'")
    place.ask(f"GRANT ALL ON {url.rpartition('/')[2]}.* TO plain@'127.0.0.1'")
    plain = url.replace("coatcheck:umbrella@", "plain:plain@")
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                faults.opened(faults.url_for(plain, driver), set_up=not number, timeout=20)
            )
            for number, driver in enumerate(drivers_of("mariadb"))
        ]
        await stores[0].add([make_draft(id="there")])
        place.ask("SET GLOBAL read_only = 1")
        await _fails_over(stores, lambda: place.ask("SET GLOBAL read_only = 0"))
