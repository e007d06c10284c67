"""The plans of hot statements on servers: with many tasks in every place, each goes by the index made for it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import cached_property
from typing import Any, cast

import hooks
import pytest
from sqlalchemy import Connection, String, create_engine, func, insert, select, text
from sqlalchemy.pool import NullPool

from coatcheck.events import Accepted, Finished
from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import QueryParams, Status
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.mysql import MysqlDialect
from coatcheck_store_sql.postgresql import PostgresqlDialect
from coatcheck_store_sql.server_dialect import ServerDialect
from coatcheck_store_sql.statement import Statement, parameters_of
from coatcheck_store_sql.statements import Statements
from coatcheck_store_sql.waiting_question import question

pytestmark = pytest.mark.slow
LEASE = timedelta(minutes=5)
COPIES = 3_000
"""How many copies of each task lie in the tables: enough for a planner to care."""

PLACES = {
    "lock_by_id": "task_id",
    "marks_by_id": "task_id",
    "marks_by_seq": "PRIMARY",
    "tasks_by_seq": "PRIMARY",
    "dedup_holders": "task_dedup",
    "tasks_by_external_key": "task_external",
    "asleep": "task_asleep",
    "turns": "task_turn",
    "any_turn": "task_turn",
    "stale": "task_stale",
    "expired": "task_expires",
    "finished": "task_finished",
    "first_asleep": "task_asleep",
    "next_stale": "task_stale",
    "next_expiry": "task_expires",
    "wake": "PRIMARY",
    "leave_lane": "PRIMARY",
    "drop_task": "PRIMARY",
}
"""Which index of the tasks a statement must go by."""

WRITTEN = {
    "use_gate": {"gate": "PRIMARY"},
    "set_grants": {"gate": "PRIMARY"},
    "wake_parking": {"parking": "PRIMARY"},
    "clear_parking": {"parking": "PRIMARY", "lane": "lane_head"},
    "park_lane": {"lane": "PRIMARY"},
    "lower_head": {"lane": "PRIMARY"},
    "raise_head": {"lane": "PRIMARY", "task": "task_turn"},
    "follow_lane": {"lane": "PRIMARY", "task": "task_turn"},
    "set_aside": {"task": "PRIMARY"},
    "unset_aside": {"task": "PRIMARY"},
    "wake": {"task": "PRIMARY"},
    "leave_lane": {"task": "PRIMARY"},
    "drop_task": {"task": "PRIMARY"},
    "drop_body": {"body": "PRIMARY"},
    "drop_bodies": {"body": "PRIMARY"},
    "drop_tally": {"tally": "PRIMARY"},
}
"""Which index of which table MariaDB must go by for many sets of parameters at once."""

SETS = {"ids", "seqs", "digests", "lanes", "names"}
"""Parameters that are sets."""


@pytest.fixture(params=["postgresql", "mariadb"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SqlStore]:
    """Open a store with thousands of tasks in every place."""
    store = create(request.getfixturevalue(f"{request.param}_url"))
    await store.setup()
    async with store:
        await fill(store)
        yield store


async def fill(store: SqlStore) -> None:
    """Put a task into every place, and copy each many times."""
    await store.add([make_draft(gates=["g"], dedup_key=f"key-{n}") for n in range(6)])
    await store.add([make_draft(delay=timedelta(hours=1))])
    claimed = (await store.claim_submissions("w", [HANDLER], 5, LEASE)).tasks
    started = [each.task for each in await store.start(claimed[:4], LEASE) if isinstance(each, Started)]
    params = [QueryParams(external_task_id=f"remote-{task.id}") for task in started]
    accepted = [Accepted(query_params=each, delay=timedelta()) for each in params]
    await store.settle(
        [Settlement(task=task, event=event) for task, event in zip(started[:3], accepted, strict=False)]
    )
    queries = (await store.claim_queries("w", [HANDLER], 2, LEASE)).tasks
    done = Finished(status=Status.SUCCEEDED, result=1)
    await store.settle([Settlement(task=queries[0], event=done)])
    url = hooks.url_of(store)
    engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
    with engine.begin() as connection:
        copy(connection, store)
    engine.dispose()


def copy(connection: Connection, store: SqlStore) -> None:
    """Copy every task many times, as other tasks at other turns."""
    table = store.room.sql.schema.task
    rows = [dict(row._mapping) for row in connection.execute(select(table))]
    for row in rows:
        copies = []
        for number in range(COPIES):
            ending = f"{number:06d}"
            made = {
                **row,
                "id": f"{row['id'][:-6]}{ending}",
                "dedup_holder": None,
                "rank": row["rank"] + ending,
            }
            del made["seq"]
            if row["turn"] is not None:
                made["turn"] = row["turn"] + ending
            if row["external_key"] is not None:
                made["external_key"] = row["external_key"][:-6] + ending
            copies.append(made)
        connection.execute(insert(table), copies)
    analyse = "ANALYZE" if connection.dialect.name == "postgresql" else f"ANALYZE TABLE {table.name}"
    connection.execute(text(analyse))
    assert connection.scalar(select(func.count()).select_from(table)) == len(rows) * (COPIES + 1)


def plan_of(connection: Connection, store: SqlStore, statement: Statement) -> str:
    """Return the plan that a statement has for any parameters."""
    dialect = cast("ServerDialect", store.room.sql.dialect)
    if isinstance(dialect, PostgresqlDialect):
        sql, names = statement.sql, len(set(statement.names))
        values = ", ".join(["NULL"] * names)
        connection.exec_driver_sql(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"
        )
        connection.exec_driver_sql(f"PREPARE hot AS {sql}".replace("%", "%%"))
        rows = connection.exec_driver_sql(f"EXPLAIN EXECUTE hot{f'({values})' if names else ''}").all()
        connection.exec_driver_sql("DEALLOCATE hot")
        return "\n".join(row[0] for row in rows)
    kinds = parameters_of(statement.construct)
    given = {name: "5" if isinstance(kind, String) else 5 for name, kind in kinds.items()}
    sets = {name: dialect.as_set([given[name], type(given[name])("6")]) for name in SETS & given.keys()}
    asked, values_of = dialect.text_of(statement, {**given, **sets})
    rows = connection.exec_driver_sql("EXPLAIN " + asked, tuple(values_of)).all()
    return "\n".join(
        f"{row._mapping['table']} key={row._mapping['key']} {row._mapping['Extra']}" for row in rows
    )


def plans_for_many(connection: Connection, statement: Statement) -> list[Any]:
    """Return how MariaDB reads each table for two sets of parameters, which one text must serve."""
    kinds = parameters_of(statement.construct)
    given: list[dict[str, Any]] = [
        {name: f"{n}" if isinstance(kind, String) else n for name, kind in kinds.items()} for n in (5, 6)
    ]
    for each in given:  # later than the turn after which a lane begins
        each["turn"] = "~"
    ((sql, values),) = statement.batches(given)
    return list(connection.exec_driver_sql(f"EXPLAIN {sql}", values).mappings())


def fill_beside(connection: Connection, store: SqlStore) -> None:
    """Let there be many lanes and gates, and parking under each."""
    schema, numbers = store.room.sql.schema, range(COPIES)
    lane = {"kind": "submit", "handler_key": "other", "gates": "[]", "head": "7", "parked_by": "g"}
    connection.execute(insert(schema.lane), [{**lane, "digest": f"digest-{n}"} for n in numbers])
    connection.execute(insert(schema.gate), [{"name": f"g-{n}", "limited": 1, "used": 0} for n in numbers])
    parking = {"kind": "submit", "handler_key": "other", "wake_at": 5}
    connection.execute(insert(schema.parking), [{**parking, "gate": f"g-{n}"} for n in numbers])
    analyse = "ANALYZE" if connection.dialect.name == "postgresql" else "ANALYZE TABLE"
    for table in (schema.lane, schema.gate, schema.parking):
        connection.execute(text(f"{analyse} {table.name}"))


def index_of(store: SqlStore, name: str) -> str:
    """Return how the plan names an index of the tasks."""
    prefix = store.room.sql.schema.prefix
    if name != "PRIMARY":
        return f"{prefix}{name}"
    return f"{prefix}task_pkey" if isinstance(store.room.sql.dialect, PostgresqlDialect) else "key=PRIMARY"


async def test_hot_statements_use_their_index(store: SqlStore) -> None:
    """The plan of each hot statement goes through the index that was made for it; none reads all tasks."""
    url = hooks.url_of(store)
    engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
    faults = []
    with engine.connect() as connection:
        for name, index in PLACES.items():
            statement = cast("Statement", getattr(store.room.sql, name))
            plan = plan_of(connection, store, statement)
            if index_of(store, index) not in plan or re.search(r"Seq Scan on \w+task\b|key=None", plan):
                faults.append(f"{name} does not go by {index}:\n{plan}")
    engine.dispose()
    assert not faults, "\n\n".join(faults)


async def test_no_statement_reads_all_tasks(store: SqlStore) -> None:
    """No step of the store reads all tasks, whatever it is for, for one set of parameters and for many."""
    dialect = store.room.sql.dialect
    if not isinstance(dialect, PostgresqlDialect):
        return  # MariaDB's plan does not tell a scan of the tasks from one of a small table beside them
    url = hooks.url_of(store)
    engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
    names = [name for name in dir(Statements) if isinstance(getattr(Statements, name), cached_property)]
    with engine.connect() as connection:
        for name in names:
            statement: Any = getattr(store.room.sql, name)
            plan = plan_of(connection, store, statement)
            assert not re.search(r"Seq Scan on \w+_task\b", plan), f"{name}: {plan}"
        plan = plan_of(connection, store, question(store.room.sql, 2))
        assert not re.search(r"Seq Scan on \w+_(task|lane|parking)\b", plan), plan
    engine.dispose()


@pytest.mark.parametrize("beside", ["few", "many"])
async def test_writing_for_many_goes_by_keys(mariadb_url: str, beside: str) -> None:
    """On MariaDB one statement writes many rows, and finds each by its key in small tables and in large ones.

    One that scanned would lock rows that are none of its business.
    """
    store = create(mariadb_url)
    await store.setup()
    async with store:
        await fill(store)
        url, prefix = hooks.url_of(store), store.room.sql.schema.prefix
        engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
        wanted = {getattr(store.room.sql, name): places for name, places in WRITTEN.items()}
        wanted[store.room.sql.update_tasks(("status", "lane", "turn"))] = {"task": "PRIMARY"}
        with engine.begin() as connection:
            if beside == "many":
                fill_beside(connection, store)
            for statement, places in wanted.items():
                plans = plans_for_many(connection, statement)
                found = {(row["table"].removeprefix(prefix), row["key"]) for row in plans if row["key"]}
                kinds = {row["type"] for row in plans if (row["table"] or "<").startswith(prefix)}
                expected = {(t, key if key == "PRIMARY" else f"{prefix}{key}") for t, key in places.items()}
                assert found == expected, f"{statement.sql}: {plans}"
                assert kinds <= {"const", "eq_ref", "ref", "range"}, f"{statement.sql}: {plans}"
        engine.dispose()


async def test_many_lanes_are_asked_in_the_order_of_their_turns(mariadb_url: str) -> None:
    """MariaDB reads where many lanes begin off the index of turns, without a sort that would lock a whole lane."""
    store = create(mariadb_url)
    await store.setup()
    async with store:
        await fill(store)
        dialect = cast("MysqlDialect", store.room.sql.dialect)
        sql, values = dialect._first_turns.asked([{"lane": n, "turn": "0", "limit": 4} for n in (1, 2)])
        url = hooks.url_of(store)
        engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(f"EXPLAIN {sql}", values).mappings().all()
        engine.dispose()
        plans = [row for row in rows if row["table"] and not row["table"].startswith("<")]
        assert len(plans) == 2
        for plan in plans:
            assert plan["key"] == index_of(store, "task_turn")
            assert plan["type"] in {"range", "ref"}
            assert "filesort" not in plan["Extra"]


LOOKED_AT = {
    "submit": {"lane_head", "parking_wake", "task_asleep", "task_turn", "gate_pkey"},
    "query": {"lane_head", "parking_wake", "task_turn", "gate_pkey"},
}
"""Which indexes PostgreSQL goes by where a claim looks around."""


@pytest.mark.parametrize("beside", ["few", "many"])
async def test_a_claim_looks_through_indexes(postgresql_url: str, beside: str) -> None:
    """On PostgreSQL what a claim sees, locks and reads on it finds by indexes, in small tables and in large ones."""
    store = create(postgresql_url)
    await store.setup()
    async with store:
        await fill(store)
        claims = cast("PostgresqlDialect", store.room.sql.dialect).claims
        url, prefix = hooks.url_of(store), store.room.sql.schema.prefix
        engine = create_engine(url.set(drivername=hooks.BLOCKING[url.get_backend_name()]), poolclass=NullPool)
        wanted = {claims.looks[kind]: places for kind, places in LOOKED_AT.items()}
        wanted |= {claims.next_turns: {"task_turn"}, claims.gates_and_time: {"gate_pkey"}}
        with engine.begin() as connection:
            if beside == "many":
                fill_beside(connection, store)
            for statement, places in wanted.items():
                plan = plan_of(connection, store, statement)
                found = set(re.findall(rf"using {prefix}(\w+)|on {prefix}(\w+)_pkey", plan))
                indexes = {name or f"{table}_pkey" for name, table in found}
                assert indexes == places, f"{statement.sql}: {plan}"
                assert f"Seq Scan on {prefix}" not in plan, f"{statement.sql}: {plan}"
        engine.dispose()
