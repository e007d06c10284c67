"""One statement for many rows on MariaDB: what it writes, and what it locks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hooks
import pytest
from sqlalchemy import Connection, Engine, Table, create_engine, insert, select
from sqlalchemy.pool import NullPool

from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.places import SUBMIT
from coatcheck_store_sql.statement import Statement

pytestmark = pytest.mark.slow
ALIKE = ["a", "A", "\u00e4", "a ", "a\u0000"]
"""Names that some collations take for one and the same."""
GATES = [f"gate-{number}" for number in range(8)]
LANES = range(1, 9)


@pytest.fixture
async def store(mariadb_url: str) -> AsyncIterator[SqlStore]:
    """Open a store with a few gates, a lane behind each, and parking under each."""
    store = create(mariadb_url)
    await store.setup()
    async with store:
        await store.add([make_draft(gates=[gate]) for gate in GATES for _ in range(3)])
        for gate in GATES:
            await store.set_gate(gate, concurrency=5)
        schema = store.room.sql.schema
        with connected(store) as engine, engine.begin() as connection:
            connection.execute(
                insert(schema.parking),
                [{"gate": g, "kind": SUBMIT, "handler_key": "one", "wake_at": None} for g in GATES],
            )
        yield store


@contextmanager
def connected(store: SqlStore) -> Iterator[Engine]:
    """Give an engine that works as the store's connections do."""
    url = hooks.url_of(store)
    engine = create_engine(
        url.set(drivername=hooks.BLOCKING[url.get_backend_name()]),
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
        connect_args={"init_command": "SET SESSION innodb_lock_wait_timeout = 1"},
    )
    yield engine
    engine.dispose()


def write(connection: Connection, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
    """Run a statement for many sets of parameters, as one."""
    ((sql, values),) = statement.batches(given)
    connection.exec_driver_sql(sql, values)


def free_rows(connection: Connection, table: Table, column: str) -> list[Any]:
    """Return the rows of a table that nobody has locked."""
    asked = select(table.c[column]).order_by(table.c[column]).with_for_update(skip_locked=True)
    return list(connection.scalars(asked))


async def test_names_that_look_alike_are_told_apart(store: SqlStore) -> None:
    """Each of many gates counts its own slots, however alike their names are."""
    schema, sql = store.room.sql.schema, store.room.sql
    with connected(store) as engine, engine.begin() as connection:
        connection.execute(
            insert(schema.gate), [{"name": name, "limited": 1, "used": 0} for name in [*ALIKE, "b"]]
        )
        write(connection, sql.use_gate, [{"_name": name, "count": n + 1} for n, name in enumerate(ALIKE)])
        found = dict(connection.execute(select(schema.gate.c.name, schema.gate.c.used)).all())
    assert {name: found[name] for name in [*ALIKE, "b"]} == {
        "a": 1,
        "A": 2,
        "\u00e4": 3,
        "a ": 4,
        "a\u0000": 5,
        "b": 0,
    }


async def test_writing_gates_locks_only_them(store: SqlStore) -> None:
    """Counting slots, writing grants and waking what is parked under some gates holds no other gate."""
    schema, sql = store.room.sql.schema, store.room.sql
    some, others = GATES[2:5], [*GATES[:2], *GATES[5:]]
    with connected(store) as engine, engine.connect() as mine, engine.connect() as other:
        write(mine, sql.use_gate, [{"_name": name, "count": 1} for name in some])
        assert free_rows(other, schema.gate, "name") == others
        mine.rollback()
        other.rollback()
        write(mine, sql.set_grants, [{"_name": name, "grants": "[]"} for name in some])
        assert free_rows(other, schema.gate, "name") == others
        write(mine, sql.wake_parking, [{"_gate": name, "now": 7} for name in some])
        assert free_rows(other, schema.parking, "gate") == others
        write(
            mine,
            sql.clear_parking,
            [{"_gate": name, "_kind": SUBMIT, "_handler_key": "one", "_wake_at": 7} for name in some],
        )
        assert free_rows(other, schema.parking, "gate") == others
        mine.commit()
        other.rollback()
        assert free_rows(other, schema.parking, "gate") == others
        assert len(free_rows(other, schema.lane, "id")) == len(heads_of(other, store))


def heads_of(connection: Connection, store: SqlStore) -> dict[int, str | None]:
    """Return where each lane begins."""
    lane = store.room.sql.schema.lane
    return dict(connection.execute(select(lane.c.id, lane.c.head)).all())


async def test_lanes_follow_without_a_look_at_locks(store: SqlStore) -> None:
    """Many lanes follow what was taken, or begin at who came before; tasks that others write are not waited for."""
    schema, sql = store.room.sql.schema, store.room.sql
    with connected(store) as engine, engine.connect() as mine, engine.connect() as other:
        task = schema.task
        turns: dict[int, list[str]] = {}
        for lane, turn in mine.execute(select(task.c.lane, task.c.turn).order_by(task.c.turn)):
            turns.setdefault(lane, []).append(turn)
        one, two, three, four = sorted(turns)[:4]
        heads = heads_of(mine, store)
        other.execute(task.update().values(priority=9))  # everything is locked now
        write(mine, sql.follow_lane, [
            {"_id": one, "_after": heads[one], "turn": turns[one][1]},  # its first task still stands there
            {"_id": two, "_after": turns[two][0] + "x", "turn": "z"},  # somebody has moved the head meanwhile
            {"_id": three, "_after": heads[three], "turn": turns[three][0]},
        ])  # fmt: skip
        write(mine, sql.raise_head, [
            {"_id": one, "_after": "x"},
            {"_id": four, "_after": heads[four]},
        ])  # fmt: skip
        assert heads_of(mine, store) == heads
        write(mine, sql.lower_head, [
            {"_id": one, "head": "0"},
            {"_id": two, "head": "~"},
        ])  # fmt: skip
        other.rollback()
        locked = set(heads) - set(free_rows(other, schema.lane, "id"))
        assert locked <= {one, two, three, four}
        assert len(free_rows(other, task, "seq")) == len(GATES) * 3
        other.rollback()
        after = heads_of(mine, store)
        assert (after[one], after[two]) == ("0", heads[two])
        write(mine, sql.follow_lane, [
            {"_id": one, "_after": "0", "turn": turns[one][1]},
            {"_id": two, "_after": heads[two], "turn": turns[two][0]},
            {"_id": three, "_after": turns[three][0], "turn": "~"},
        ])  # fmt: skip
        after = heads_of(mine, store)
        assert [after[lane] for lane in (one, two, three)] == [turns[lane][0] for lane in (one, two, three)]
        mine.execute(task.update().where(task.c.lane.in_([one, two])).values(lane=None, turn=None))
        write(mine, sql.follow_lane, [
            {"_id": one, "_after": turns[one][0], "turn": "5"},
            {"_id": three, "_after": turns[three][0], "turn": turns[three][1]},
        ])  # fmt: skip
        write(mine, sql.raise_head, [
            {"_id": two, "_after": turns[two][0]},
            {"_id": four, "_after": turns[four][0]},
        ])  # fmt: skip
        after = heads_of(mine, store)
        assert [after[lane] for lane in (one, two, three)] == ["5", None, turns[three][0]]
        mine.rollback()


async def test_very_many_rows_are_taken_apart(store: SqlStore) -> None:
    """A batch of thousands is several statements, none of which opens a table very many times."""
    sql = store.room.sql
    lanes = [{"_id": number, "_after": "0", "turn": "1"} for number in range(120)]
    texts = [text for text, _ in sql.follow_lane.batches(lanes)]
    assert len(texts) == 3
    assert sum(text.count("coalesce(") for text in texts) == len(lanes)
    gates = [{"_name": f"g-{number}", "count": 1} for number in range(1200)]
    values = [value for _, values in sql.use_gate.batches(gates) for value in values]
    assert values == [value for gate in gates for value in (gate["_name"], gate["count"])]
