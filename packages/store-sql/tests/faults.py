"""What the tests of faults share: stores on real servers, through each driver, and a few calls to try them with."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve, frozen

from coatcheck.lifecycle import Settlement
from coatcheck.store import Claims, Settled, Started
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_store_sql import SqlSettings, SqlStore, create
from coatcheck_store_sql.claims import claim_turns
from coatcheck_store_sql.places import SUBMIT
from coatcheck_store_sql.step import Step
from servers.clients import MysqlClient, PostgresqlClient
from servers.urls import through

LEASE = timedelta(minutes=1)
WORKER = "worker-1"
DRIVERS = (
    ("postgresql", "asyncpg"),
    ("postgresql", "psycopg"),
    ("mariadb", "asyncmy"),
    ("mariadb", "aiomysql"),
)
Call = Callable[[SqlStore], Awaitable[object]]


def url_for(url: str, driver: str) -> str:
    """Return the URL of a server with a driver in it."""
    backend, _, rest = url.partition("://")
    return f"{backend}+{driver}://{rest}"


@frozen
class Place:
    """An empty database in a server, and the driver through which the store goes to it."""

    kind: str
    driver: str
    plain_url: str
    """Without the driver."""

    @property
    def url(self) -> str:
        """Where the store is."""
        return url_for(self.plain_url, self.driver)

    @property
    def client(self) -> PostgresqlClient | MysqlClient:
        """What talks to the server beside the store."""
        return PostgresqlClient(self.plain_url) if self.kind == "postgresql" else MysqlClient(self.plain_url)

    def through(self, port: int) -> str:
        """Return the store's URL by way of another port of this host."""
        return url_for(through(self.plain_url, "127.0.0.1", port), self.driver)

    def connect(self) -> Any:
        """Return a connection of the tests' own, in autocommit mode."""
        return self.client.connect()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own and return its rows."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def waits_for_lock(self) -> bool:
        """Whether a session in the database waits for a row that another has locked."""
        if self.kind == "postgresql":
            waiting = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        else:
            waiting = (
                "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist "
                "ON trx_mysql_thread_id = id WHERE trx_state = 'LOCK WAIT' AND db = database()"
            )
        return bool(self.ask(waiting)[0][0])


@pytest.fixture(params=DRIVERS, ids=lambda pair: pair[1])
def place(request: pytest.FixtureRequest) -> Place:
    """Give an empty database, once for each driver."""
    kind, driver = request.param
    return Place(kind, driver, request.getfixturevalue(f"{kind}_url"))


@pytest.fixture(params=(DRIVERS[0], DRIVERS[2]), ids=lambda pair: pair[0])
def server_place(request: pytest.FixtureRequest) -> Place:
    """Give an empty database, once for each server."""
    kind, driver = request.param
    return Place(kind, driver, request.getfixturevalue(f"{kind}_url"))


@asynccontextmanager
async def opened(
    url: str, *, set_up: bool = True, timeout: float = 5, **settings: Any
) -> AsyncIterator[SqlStore]:
    """Open a store, with its tables made."""
    if set_up:
        await create(url, **settings).setup()
    async with create(url, timeout=timedelta(seconds=timeout), **settings) as store:
        yield store


async def claim_one(store: SqlStore, worker: str = WORKER) -> Task:
    """Claim the one task that is there."""
    (task,) = (await claim(store, worker=worker)).tasks
    return task


async def claim(store: SqlStore, limit: int = 10, *, worker: str = WORKER) -> Claims:
    """Claim for submission until there is something, or certainly nothing."""
    while True:
        claims = await store.claim_submissions(worker, [HANDLER], limit, LEASE)
        if claims.tasks or not claims.again:
            return claims


async def start_one(store: SqlStore, task: Task) -> Task:
    """Start a claim."""
    (started,) = await store.start([task], LEASE)
    assert isinstance(started, Started), started
    return started.task


async def settle_one(store: SqlStore, task: Task) -> Settled:
    """Settle a claim: the provider has accepted it."""
    (settled,) = await store.settle([Settlement(task=task, event=accepted(delay=timedelta(hours=1)))])
    return settled


async def claimed_and_started(store: SqlStore, **draft: Any) -> Task:
    """Add a task and bring it to where its call is made."""
    await store.add([make_draft(**draft)])
    return await start_one(store, await claim_one(store))


async def seconds_of(work: Awaitable[object]) -> tuple[float, object]:
    """Return how long a call took, and its result or error."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    try:
        result: object = await work
    except Exception as error:  # noqa: BLE001 - the caller looks at it
        result = error
    return loop.time() - begun, result


async def until(seen: Callable[[], bool]) -> None:
    """Wait until another session shows that something has come about."""
    while not await asyncio.to_thread(seen):
        await asyncio.sleep(0.01)


def hurried(settings: SqlSettings) -> SqlSettings:
    """Return the settings with a timeout that a test can wait for."""
    return evolve(settings, timeout=timedelta(seconds=0.5))


def stop_inside_a_step(url: str) -> None:
    """Claim a task inside a step, and be stopped before the step is committed; for a process of its own."""

    def claim_and_stop(step: Step) -> None:
        claims = claim_turns(
            step, kind=SUBMIT, worker_id="stopped", handler_keys=[HANDLER], limit=1, lease=LEASE
        )
        assert claims.tasks
        os.kill(os.getpid(), signal.SIGSTOP)

    async def run() -> None:
        async with opened(url, set_up=False, timeout=2) as store:
            await store._write(claim_and_stop)

    asyncio.run(run())
