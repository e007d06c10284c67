import json
import sqlite3
from contextlib import closing
from datetime import timedelta

from attrs import evolve

from coatcheck.clock import ManualClock
from coatcheck.events import Accepted, Finished, StillGoing
from coatcheck.lifecycle import Settlement
from coatcheck.task import JSON, QueryParams, Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.records import SPILL_CHARACTERS
from coatcheck_store_sql.rows import changed_columns

LEASE = timedelta(minutes=5)


def query(url: str, sql: str, *params: object) -> list[tuple[object, ...]]:
    """Run a statement on the file, beside the store."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        return connection.execute(sql, params).fetchall()


async def tracked(store: SqlStore, **draft: JSON) -> Task:
    """Bring one task to RUNNING."""
    await store.add([make_draft(**draft)])  # type: ignore[arg-type]  # examples
    (claimed,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    (begun,) = await store.start([claimed], LEASE)
    event = Accepted(query_params=QueryParams(external_task_id="e"), delay=timedelta(), status=Status.RUNNING)
    return await settled(store, begun.task, event)


async def settled(store: SqlStore, task: Task, event: Accepted | Finished | StillGoing) -> Task:
    """Settle one claim."""
    (answer,) = await store.settle([Settlement(task=task, event=event)])
    assert isinstance(answer, Task)
    return answer


async def asked_again(store: SqlStore) -> Task:
    """Query the one task that is due, which goes on."""
    (claimed,) = (await store.claim_queries("w", [HANDLER], 1, LEASE)).tasks
    (begun,) = await store.start([claimed], LEASE)
    return await settled(store, begun.task, StillGoing(delay=timedelta()))


async def test_many_queries_leave_the_row_as_small(store: SqlStore, url: str) -> None:
    """Hundreds of queries of one task: its row does not grow, but for the digits of its counters."""
    await tracked(store)
    columns = [str(name) for _, name, *_ in query(url, "PRAGMA table_info(coatcheck_task)")]
    size = "SELECT " + " + ".join(f"coalesce(length({name}), 0)" for name in columns) + " FROM coatcheck_task"
    for _ in range(10):
        await asked_again(store)
    ((before,),) = query(url, size)
    for _ in range(300):
        await asked_again(store)
    ((after,),) = query(url, size)
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert after - before <= 20
    assert query(url, "SELECT count(*) FROM coatcheck_body") == [(0,)]


async def test_fields_of_a_newer_version_are_kept(store: SqlStore, url: str) -> None:
    """What this version does not know is handed out in `extra`, and is still there after steps."""
    (added,) = await store.add([make_draft()])
    query(url, "UPDATE coatcheck_task SET extra = ?, rev = rev + 1", json.dumps({"later": {"x": [1]}}))
    (claimed,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    assert claimed.extra == {"later": {"x": [1]}}
    (begun,) = await store.start([claimed], LEASE)
    done = await settled(store, begun.task, Finished(status=Status.SUCCEEDED, result=1))
    assert done.extra == claimed.extra
    assert (await store.get(added.task.id)) == done
    assert query(url, "SELECT extra FROM coatcheck_task") == [('{"later": {"x": [1]}}',)]


async def test_long_parts_stand_apart_and_go_with_what_they_belong_to(store: SqlStore, url: str) -> None:
    """A megabyte of params is written once, goes when the provider has accepted, and a result comes in its place."""
    params = {"text": "\u0000ä" * 500_000}
    (added,) = await store.add([make_draft(params=params)])
    assert (await store.get(added.task.id)) == added.task
    assert query(url, "SELECT part, length(text) > 500000 FROM coatcheck_body") == [("params", 1)]
    (claimed,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    assert claimed.params == params
    (begun,) = await store.start([claimed], LEASE)
    await settled(
        store, begun.task, Accepted(query_params=QueryParams(external_task_id="e"), delay=timedelta())
    )
    assert query(url, "SELECT count(*) FROM coatcheck_body") == [(0,)]
    (again,) = (await store.claim_queries("w", [HANDLER], 1, LEASE)).tasks
    result: JSON = {"pages": ["x" * 1000] * 20_000, "big": 2**70}
    done = await settled(store, again, Finished(status=Status.SUCCEEDED, result=result))
    assert done.result == result
    assert (await store.get(done.id)) == done
    await store.purge(await store.now() + timedelta(days=1))
    assert query(url, "SELECT count(*) FROM coatcheck_body") == [(0,)]


async def test_a_part_of_the_greatest_length_stays_in_the_row(store: SqlStore, url: str) -> None:
    """The border between staying and moving loses nothing."""
    for extra in (0, 1):
        body = "x" * (SPILL_CHARACTERS - 2 + extra)
        (added,) = await store.add([make_draft(params=body)])
        assert (await store.get(added.task.id)) == added.task
        assert query(url, "SELECT count(*) FROM coatcheck_body") == [(extra,)]


async def test_what_a_caller_does_to_a_snapshot_stays_there(store: SqlStore) -> None:
    """Snapshots are isolated, also those that the store remembers between steps."""
    params: dict[str, JSON] = {"pages": [1]}
    (added,) = await store.add([make_draft(params=params)])
    params["pages"] = "changed"
    (claimed,) = (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
    assert claimed.params == {"pages": [1]}
    claimed.params["pages"] = "changed"  # type: ignore[index]  # what a careless caller does
    (begun,) = await store.start([claimed], LEASE)
    assert begun.task.params == {"pages": [1]}
    provider_params: dict[str, JSON] = {"region": "eu"}
    event = Accepted(
        query_params=QueryParams(external_task_id="e", provider_params=provider_params), delay=timedelta()
    )
    await settled(store, begun.task, event)
    provider_params["region"] = "changed"
    (again,) = (await store.claim_queries("w", [HANDLER], 1, LEASE)).tasks
    assert again.query_params is not None
    assert again.query_params.provider_params == {"region": "eu"}
    assert added.task.params == {"pages": [1]}


async def test_a_row_written_by_another_store_is_read_anew(url: str, clock: ManualClock) -> None:
    """What a process remembers of a task is not trusted once another has written it."""
    async with create(url, clock=clock) as one, create(url, clock=clock) as two:
        (added,) = await one.add([make_draft()])
        (claimed,) = (await one.claim_submissions("w", [HANDLER], 1, LEASE)).tasks
        assert await two.request_cancellation(added.task.id)
        (refused,) = await one.start([claimed], LEASE)
        assert refused.task.cancellation_requested_at is not None


async def test_only_what_changed_is_written(store: SqlStore) -> None:
    """A step writes the parts that it changed, so that it costs nothing to have a large one."""
    (added,) = await store.add([make_draft(metadata={"n": 1})])
    after = evolve(added.task, version=added.task.version + 1)
    assert changed_columns(added.task, after) == {"version": 1}


async def test_an_impossible_number_is_set_aside(store: SqlStore, url: str) -> None:
    """A row whose version is no number is no task."""
    (added,) = await store.add([make_draft()])
    query(url, "UPDATE coatcheck_task SET version = 'x', rev = rev + 1")
    assert (await store.claim_submissions("w", [HANDLER], 1, LEASE)).tasks == ()
    (aside,) = await store.set_aside()
    assert aside.task_id == added.task.id
    assert "version" in aside.reason
