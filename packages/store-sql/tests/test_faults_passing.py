import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.lifecycle import Settlement
from coatcheck.task import Status, Task
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_store_sql import SqlStore

sys.path.insert(0, str(Path(__file__).parent))
import faults

place = faults.place
server_place = faults.server_place
pytestmark = [pytest.mark.timeout(30), pytest.mark.slow]

PASSING = {"postgresql": ("40001", "40P01", "55P03", "57014"), "mariadb": (1213, 1205, 1020)}
"""Serialization failure, deadlock, lock not available, statement too slow."""
FULL = {"postgresql": "53100", "mariadb": 1021}
"""The disk of the server is full."""
FOR_EVER = 10**6


def fail_updates(place: faults.Place, code: object, times: int) -> None:
    """Let the server answer the next updates of tasks with an error."""
    if place.kind == "postgresql":
        statements = [
            "DROP SEQUENCE IF EXISTS failures; CREATE SEQUENCE failures",
            (
                "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"IF nextval('failures') <= {times} THEN RAISE EXCEPTION 'made up' USING ERRCODE = '{code}'; "
                "END IF; RETURN NEW; END $$"
            ),
            "CREATE OR REPLACE TRIGGER fail BEFORE UPDATE ON coatcheck_task FOR EACH ROW EXECUTE FUNCTION fail()",
        ]
    else:
        statements = [
            "CREATE OR REPLACE SEQUENCE failures",
            (
                "CREATE OR REPLACE TRIGGER fail BEFORE UPDATE ON coatcheck_task FOR EACH ROW "
                f"IF NEXTVAL(failures) <= {times} THEN "
                f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'made up'; END IF"
            ),
        ]
    for statement in statements:
        place.ask(statement)


async def test_what_passes_is_repeated(place: faults.Place) -> None:
    """A step that the server rolls back for a passing reason is repeated, and its caller notices nothing."""
    async with faults.opened(place.url) as store:
        for code in PASSING[place.kind]:
            task = await faults.claimed_and_started(store)
            await asyncio.to_thread(fail_updates, place, code, 2)
            settled = await faults.settle_one(store, task)
            assert isinstance(settled, Task), code
            assert (settled.version, settled.status) == (task.version + 1, Status.SUBMITTED)


async def test_what_does_not_pass_is_told_in_time(place: faults.Place) -> None:
    """If it does not pass, the caller is told within the timeout, and nothing is left of the step."""
    async with faults.opened(place.url, timeout=1) as store:
        task = await faults.claimed_and_started(store)
        await asyncio.to_thread(fail_updates, place, PASSING[place.kind][0], FOR_EVER)
        seconds, result = await faults.seconds_of(faults.settle_one(store, task))
        assert isinstance(result, StoreUnavailable)
        assert "made up" in str(result)
        assert 0.5 < seconds < 1.6
        await asyncio.to_thread(fail_updates, place, FULL[place.kind], FOR_EVER)
        seconds, result = await faults.seconds_of(faults.settle_one(store, task))
        assert isinstance(result, StoreUnavailable)
        assert seconds < 0.5  # nothing says that it would pass
        await asyncio.to_thread(fail_updates, place, FULL[place.kind], 0)
        assert isinstance(await faults.settle_one(store, task), Task)


def lock(connection: Any, task_id: str) -> None:
    """Lock a task's row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM coatcheck_task WHERE id = %s FOR UPDATE", (task_id,))


async def settle_both(store: SqlStore, tasks: list[Task]) -> list[object]:
    """Settle two tasks in one step."""
    return list(await store.settle([Settlement(task=task, event=accepted()) for task in tasks]))


async def test_a_deadlock_is_repeated(place: faults.Place) -> None:
    """A step that the server picks as the victim of a deadlock is repeated when the other side has ended."""
    if place.kind == "postgresql":
        place.ask(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 50', current_database()); END $$"
        )
    async with faults.opened(place.url) as store:
        tasks = sorted([await faults.claimed_and_started(store) for _ in range(2)], key=lambda task: task.id)
        place.ask("CREATE TABLE ballast (number INTEGER)")
        other = place.connect()
        try:
            with other.cursor() as cursor:
                cursor.execute("BEGIN")
                # who has written more is not the victim
                cursor.execute("INSERT INTO ballast VALUES " + ", ".join(["(1)"] * 500))
            lock(other, tasks[1].id)
            settling = asyncio.create_task(settle_both(store, tasks))
            await faults.until(place.waits_for_lock)
            # the step holds this row, and gives it up only when it is rolled back
            await asyncio.to_thread(lock, other, tasks[0].id)
            assert not settling.done()
            with other.cursor() as cursor:
                cursor.execute("COMMIT")
            assert all(isinstance(each, Task) for each in await settling)
        finally:
            other.close()


async def test_a_lock_that_is_never_released_is_told_in_time(place: faults.Place) -> None:
    """A call waits for others' locks no longer than its timeout; then nothing is left of it."""
    async with faults.opened(place.url, timeout=1) as store:
        task = await faults.claimed_and_started(store)
        other = place.connect()
        try:
            with other.cursor() as cursor:
                cursor.execute("BEGIN")
            lock(other, task.id)
            seconds, result = await faults.seconds_of(faults.settle_one(store, task))
            assert isinstance(result, StoreUnavailable)
            assert seconds < 1.6
            assert await store.get(task.id) == task
        finally:
            other.close()
        assert isinstance(await faults.settle_one(store, task), Task)
