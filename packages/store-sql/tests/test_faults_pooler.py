import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.store.outcomes import accepted, succeeded
from coatcheck_store_sql import SqlStore
from servers import Server

sys.path.insert(0, str(Path(__file__).parent))
import faults

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]

DRIVERS = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
GATES = ["a", "b"]
POLL = timedelta(seconds=0.1)


async def live(store: SqlStore, worker: str, count: int) -> list[str]:
    """Bring tasks through their lives, together with others; return those that ended here."""
    ended: list[str] = []
    await store.add(make_drafts(count, gates=GATES))
    while True:
        claims = await store.claim_submissions(worker, [HANDLER], 4, faults.LEASE)
        begun = await store.start(claims.tasks, faults.LEASE)
        await store.settle(
            [
                Settlement(task=each.task, event=accepted(delay=timedelta()))
                for each in begun
                if isinstance(each, Started)
            ]
        )
        queries = await store.claim_queries(worker, [HANDLER], 4, faults.LEASE)
        done = await store.settle([Settlement(task=task, event=succeeded()) for task in queries.tasks])
        ended += [task.id for task in done if isinstance(task, Task)]
        if not (claims.tasks or claims.again or queries.tasks or queries.again):
            return ended


@DRIVERS
async def test_the_whole_life_of_tasks_behind_pgbouncer(
    pgbouncer_url: str, postgresql_server: Server, driver: str
) -> None:
    """Two stores do all that stores do, in transaction mode, and leave nothing behind in the sessions they met."""
    url = faults.url_for(pgbouncer_url, driver)
    database = url.rpartition("/")[2]
    async with (
        faults.opened(url, timeout=20, poll_interval=POLL) as one,
        faults.opened(url, timeout=20, poll_interval=POLL, set_up=False) as other,
    ):
        await one.set_gate("a", concurrency=6)
        await other.set_gate("b", concurrency=50)
        ended = await asyncio.gather(
            *(live(store, f"w{n}", 5) for n in range(3) for store in (one, other)),
        )
        while sum(map(len, ended)) < 30:
            ended.append(await live(one, "last", 0))
        assert len({task_id for ids in ended for task_id in ids}) == 30
        assert [usage.used for usage in await one.gates()] == [0, 0]
        await one.pause_gate("a", reason="test")
        await one.resume_gate("a")
        await one.nudge(HANDLER, "remote")
        assert (await other.stats()).handlers
        assert await other.purge(await other.now() + timedelta(days=1)) == 30
        await asyncio.to_thread(check_sessions, postgresql_server, database)


def check_sessions(server: Server, database: str) -> None:
    """See that PgBouncer's sessions hold no locks of ours, and nothing that a session can hold."""
    direct = faults.Place("postgresql", "psycopg", server.url)
    ((locks,),) = direct.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert locks == 0
    ((sessions,),) = direct.ask(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'")
    assert sessions > 0


@DRIVERS
async def test_no_session_state_is_left_behind_pgbouncer(pgbouncer_url: str, driver: str) -> None:
    """Who gets a session after the store finds it as new: no listening, no prepared statements, no settings."""
    url = faults.url_for(pgbouncer_url, driver)
    pooled = faults.Place("postgresql", driver, pgbouncer_url)
    async with faults.opened(url, timeout=20, poll_interval=POLL) as store:
        await live(store, "w", 3)
        await store.wait([HANDLER], timedelta(milliseconds=10))
        for _ in range(5):  # PgBouncer gives whichever session is free
            await asyncio.to_thread(check_session, pooled)


def check_session(pooled: faults.Place) -> None:
    """Look at the session that PgBouncer gives."""
    connection = pooled.connect()
    connection.prepare_threshold = None
    try:
        with connection.cursor() as cursor:

            def ask(statement: str) -> list[tuple[object, ...]]:
                cursor.execute(statement)
                return list(cursor.fetchall())

            assert ask("SELECT name, statement FROM pg_prepared_statements") == []
            assert ask("SELECT pg_listening_channels()") == []
            changed = ask(
                "SELECT name, setting FROM pg_settings WHERE source = 'session' AND setting <> reset_val "
                "AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone')"
            )
            assert changed == []
            assert ask(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            ) == [(0,)]
    finally:
        connection.close()


@DRIVERS
async def test_waiting_polls_behind_pgbouncer(pgbouncer_url: str, driver: str) -> None:
    """Nothing is announced through a pooler, so `wait` looks, and sees another store's task within a poll interval."""
    url = faults.url_for(pgbouncer_url, driver)
    async with (
        faults.opened(url, timeout=20, poll_interval=POLL) as one,
        faults.opened(url, timeout=20, poll_interval=POLL, set_up=False) as other,
    ):
        await one.now()
        waiting = asyncio.create_task(one.wait([HANDLER], timedelta(seconds=20)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await other.add([make_draft()])
        seconds, woken = await faults.seconds_of(waiting)
        assert woken is True
        assert seconds < 1
