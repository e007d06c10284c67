import re
import sqlite3
from contextlib import closing
from functools import cached_property

import pytest

from coatcheck_store_sql import SqlStore
from coatcheck_store_sql.statements import Statement, Statements

SMALL = {"meta", "gate", "attendance"}
"""Tables that are read whole where a statement says so: they have as many rows as there are names."""

INDEXES = {
    "marks_by_id": ["task_id"],
    "marks_by_seq": ["INTEGER PRIMARY KEY"],
    "tasks_by_id": ["task_id"],
    "tasks_by_seq": ["INTEGER PRIMARY KEY"],
    "dedup_holders": ["task_dedup"],
    "tasks_by_external_key": ["task_external"],
    "set_aside": ["INTEGER PRIMARY KEY"],
    "asleep": ["task_asleep"],
    "wake": ["INTEGER PRIMARY KEY"],
    "turns": ["task_turn"],
    "leave_lane": ["INTEGER PRIMARY KEY"],
    "stale": ["task_stale"],
    "expired": ["task_expires"],
    "finished": ["task_finished"],
    "open_lanes": ["lane_head"],
    "parked_lanes": ["lane_head"],
    "lower_head": ["INTEGER PRIMARY KEY"],
    "park_lane": ["INTEGER PRIMARY KEY"],
    "raise_head": ["INTEGER PRIMARY KEY", "task_turn"],
    "follow_lane": ["INTEGER PRIMARY KEY", "task_turn"],
    "slots_of_gate": ["lane_gate", "task_held"],
    "awake": ["parking_wake"],
    "first_open_lane": ["lane_head"],
    "first_asleep": ["task_asleep"],
    "first_wake": ["parking_wake"],
    "next_stale": ["task_stale"],
    "next_expiry": ["task_expires"],
    "gate_history": ["gate_history"],
    "tallies_by_name": ["tally"],
    "tallies_seen": ["tally"],
    "tallies_between": ["tally"],
    "forgotten_tallies": ["tally_expires"],
    "drop_tally": ["tally"],
}
"""Which index a hot statement must use."""


def plan_of(url: str, statement: Statement) -> str:
    """Return SQLite's plan for a statement."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        rows = connection.execute(
            f"EXPLAIN QUERY PLAN {statement.sql}", [0] * len(statement.names)
        ).fetchall()
    return "\n".join(detail for *_, detail in rows)


@pytest.mark.parametrize("name", INDEXES)
async def test_hot_statements_use_their_index(store: SqlStore, url: str, name: str) -> None:
    """The plan of each hot statement searches through the index that was made for it, and sorts nothing."""
    plan = plan_of(url, getattr(store.room.sql, name))
    for index in INDEXES[name]:
        assert index in plan, plan
    assert "TEMP B-TREE" not in plan, plan


async def test_no_statement_scans_tasks(store: SqlStore, url: str) -> None:
    """No step of the store reads all tasks, whatever it is for."""
    names = [name for name in dir(Statements) if isinstance(getattr(Statements, name), cached_property)]
    assert len(names) > len(INDEXES)
    for name in names:
        plan = plan_of(url, getattr(store.room.sql, name))
        scanned = set(re.findall(r"SCAN coatcheck_(\w+)\b(?! USING)", plan))
        assert scanned <= SMALL, f"{name}: {plan}"
