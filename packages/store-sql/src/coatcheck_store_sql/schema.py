"""The tables. Migrations in `migrations/versions` create them; a test compares the two.

Times are milliseconds since 1970. A row of `task` is narrow enough to be rewritten at every step: what is
long moves to `body`. Indexes hold only rows that can still be asked for through them; where a database has
no partial indexes, the nulls in their columns do the same.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    literal_column,
)
from sqlalchemy.dialects.mysql import LONGTEXT

__all__ = ["PARTS", "SCHEMA_VERSION", "Schema"]

SCHEMA_VERSION = 2
"""What the migrations of this code lead to; counts them."""

PARTS = (
    "route", "schedule", "identity", "lease", "attempt", "progress", "outcome", "params", "query_params",
    "metadata", "history", "extra",
)  # fmt: skip
"""Columns of `task` that hold JSON texts, and that move to `body` when they are long."""

_KEY = BigInteger().with_variant(Integer, "sqlite")
_LONG = Text().with_variant(LONGTEXT, "mysql", "mariadb")


class Schema:
    """The tables of one store, under its prefix."""

    def __init__(self, prefix: str, schema: str | None = None) -> None:
        self.prefix = prefix
        self.metadata = MetaData(schema=schema)
        self.meta = self._meta()
        self.task = self._task()
        self.body = self._body()
        self.lane = self._lane()
        self.lane_gate = self._lane_gate()
        self.gate = self._gate()
        self.parking = self._parking()
        self.nudge = self._nudge()
        self.attendance = self._attendance()
        self.gate_history = self._gate_history()
        self.tally = self._tally()

    def _meta(self) -> Table:
        """What holds for the whole store: `schema`, `readable_by`, `clock` (numbers), `rank_mode` (text)."""
        return Table(
            f"{self.prefix}meta",
            self.metadata,
            Column("name", String(32), primary_key=True),
            Column("number", BigInteger),
            Column("text", Text),
        )

    def _task(self) -> Table:
        """One row per task. `rev` rises with every write to the snapshot; edits by hand must raise it too.

        A task stands in at most one place: in a `lane` at its `turn` (while it waits to be submitted, its `rank`),
        or `asleep_until` it is due.
        `stale_at` is when workers that have `stale_for` ('' is any) may decide about it, `expires_at` its
        deadline; both are null once it has ended.
        """
        task = Table(
            f"{self.prefix}task",
            self.metadata,
            Column("seq", _KEY, primary_key=True, autoincrement=True),
            Column("id", String(64), nullable=False),
            Column("rev", BigInteger, nullable=False),
            Column("status", String(24), nullable=False),
            Column("version", BigInteger, nullable=False),
            Column("token", BigInteger, nullable=False),
            Column("handler_key", String(255), nullable=False),
            Column("tenant_id", Text),
            Column("account_id", Text),
            Column("submit_lane", BigInteger, nullable=False),
            Column("query_lane", BigInteger, nullable=False),
            Column("lane", BigInteger),
            Column("turn", String(160)),
            Column("asleep_until", BigInteger),
            Column("stale_for", String(255)),
            Column("stale_at", BigInteger),
            Column("expires_at", BigInteger),
            Column("rank", String(160), nullable=False),
            Column("priority", Integer, nullable=False),
            Column("created_at", BigInteger, nullable=False),
            Column("due_at", BigInteger, nullable=False),
            Column("lease_until", BigInteger),
            Column("status_since", BigInteger, nullable=False),
            Column("finished_at", BigInteger),
            Column("dedup_key", Text),
            Column("dedup_holder", String(64)),
            Column("external_key", String(64)),
            Column("cancellation_requested_at", BigInteger),
            Column("holds_slots", SmallInteger, nullable=False),
            Column("nudged", SmallInteger, nullable=False),
            Column("settled_by", String(64)),
            Column("set_aside_at", BigInteger),
            Column("set_aside_reason", _LONG),
            Column("spilled", Text),
            *(Column(name, _LONG) for name in PARTS),
        )
        self._index("task_id", task, "id", unique=True)
        self._index("task_dedup", task, "dedup_holder", unique=True, partly=True)
        self._index("task_turn", task, "lane", "turn", partly=True)
        self._index("task_asleep", task, "handler_key", "asleep_until", partly=True)
        self._index("task_stale", task, "stale_for", "stale_at", partly=True)
        self._index("task_expires", task, "expires_at", partly=True)
        self._index("task_finished", task, "status", "finished_at", partly=True)
        self._index("task_external", task, "external_key", partly=True)
        self._index("task_set_aside", task, "set_aside_at", partly=True)
        held = task.c.holds_slots == literal_column("1")
        Index(f"{self.prefix}task_held", task.c.submit_lane, sqlite_where=held, postgresql_where=held)
        return task

    def _body(self) -> Table:
        """Texts too long for the row of their task."""
        return Table(
            f"{self.prefix}body",
            self.metadata,
            Column("task", BigInteger, primary_key=True, autoincrement=False),
            Column("part", String(16), primary_key=True),
            Column("text", _LONG, nullable=False),
        )

    def _lane(self) -> Table:
        """A handler and an exact set of gates. Lanes are never deleted; all but the last two columns are fixed.

        `head` is at or before the first turn in the lane, null if it is empty; `parked_by` the gate that was
        closed when the lane was looked at last.
        """
        lane = Table(
            f"{self.prefix}lane",
            self.metadata,
            Column("id", _KEY, primary_key=True, autoincrement=True),
            Column("digest", String(64), nullable=False),
            Column("kind", String(8), nullable=False),
            Column("handler_key", String(255), nullable=False),
            Column("gates", _LONG, nullable=False),
            Column("head", String(160)),
            Column("parked_by", String(255)),
        )
        self._index("lane_digest", lane, "digest", unique=True)
        self._index("lane_head", lane, "kind", "handler_key", "parked_by", "head")
        return lane

    def _lane_gate(self) -> Table:
        """Which lanes a gate stands before, for counting the slots of a gate that is being defined."""
        return Table(
            f"{self.prefix}lane_gate",
            self.metadata,
            Column("gate", String(255), primary_key=True),
            Column("lane", BigInteger, primary_key=True, autoincrement=False),
        )

    def _gate(self) -> Table:
        """Gates that are defined. `used` counts slots held, `grants` is JSON: [[time, count], ...]."""
        return Table(
            f"{self.prefix}gate",
            self.metadata,
            Column("name", String(255), primary_key=True),
            Column("limited", SmallInteger, nullable=False),
            Column("concurrency", BigInteger),
            Column("rate_count", BigInteger),
            Column("rate_per", BigInteger),
            Column("rate_since", BigInteger),
            Column("pause_reason", Text),
            Column("pause_who", Text),
            Column("pause_since", BigInteger),
            Column("pause_until", BigInteger),
            Column("used", BigInteger, nullable=False),
            Column("grants", Text),
        )

    def _parking(self) -> Table:
        """One row per gate, kind and handler with lanes parked under the gate.

        `wake_at` is when to look at them again; null: when a slot is released or the gate is changed.
        """
        parking = Table(
            f"{self.prefix}parking",
            self.metadata,
            Column("gate", String(255), primary_key=True),
            Column("kind", String(8), primary_key=True),
            Column("handler_key", String(255), primary_key=True),
            Column("wake_at", BigInteger),
        )
        self._index("parking_wake", parking, "kind", "handler_key", "wake_at")
        return parking

    def _nudge(self) -> Table:
        """Callbacks for external ids that no task has yet, numbered as they came."""
        nudge = Table(
            f"{self.prefix}nudge",
            self.metadata,
            Column("external_key", String(64), primary_key=True),
            Column("at", BigInteger, nullable=False),
            Column("number", BigInteger, nullable=False),
        )
        self._index("nudge_at", nudge, "at")
        self._index("nudge_number", nudge, "number")
        return nudge

    def _attendance(self) -> Table:
        """Every handler that has lanes, and about when a worker last claimed for it; 0: never."""
        return Table(
            f"{self.prefix}attendance",
            self.metadata,
            Column("handler_key", String(255), primary_key=True),
            Column("at", BigInteger, nullable=False),
        )

    def _gate_history(self) -> Table:
        """What was done to a gate, also to one that is no longer defined. `entries` is JSON, the oldest first."""
        return Table(
            f"{self.prefix}gate_history",
            self.metadata,
            Column("name", String(255), primary_key=True),
            Column("entries", _LONG, nullable=False),
        )

    def _tally(self) -> Table:
        """What the fleet counts. From `expires_at` on a row says nothing, and is deleted some time."""
        tally = Table(
            f"{self.prefix}tally",
            self.metadata,
            Column("name", String(255), primary_key=True),
            Column("total", BigInteger, nullable=False),
            Column("expires_at", BigInteger, nullable=False),
        )
        self._index("tally_expires", tally, "expires_at")
        return tally

    def _index(
        self, name: str, table: Table, *columns: str, unique: bool = False, partly: bool = False
    ) -> None:
        where = table.c[columns[-1]].is_not(None) if partly else None
        Index(
            f"{self.prefix}{name}",
            *(table.c[column] for column in columns),
            unique=unique,
            sqlite_where=where,
            postgresql_where=where,
        )
