"""The first tables. Frozen: what changes later is another migration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from coatcheck_store_sql.migrations.tables import Tables

revision = "0001"
down_revision = None

_PARTS = (
    "route", "schedule", "identity", "lease", "attempt", "progress", "outcome", "params", "query_params",
    "metadata", "history", "extra",
)  # fmt: skip
_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_LONG = sa.Text().with_variant(mysql.LONGTEXT, "mysql", "mariadb")


def upgrade() -> None:
    """Create all tables, and say which schema this is."""
    tables = Tables()
    _create_task(tables)
    _create_lanes(tables)
    _create_gates(tables)
    tables.create(
        "nudge",
        tables.key("external_key", 64),
        tables.number("at", required=True),
        tables.number("number", required=True),
    )
    tables.index("nudge_at", "nudge", ["at"])
    tables.index("nudge_number", "nudge", ["number"])
    tables.create("attendance", tables.key("handler_key", 255), tables.number("at", required=True))
    meta = tables.create("meta", tables.key("name", 32), tables.number("number"), tables.text("text"))
    numbers = {"schema": 1, "readable_by": 1, "clock": 0, "guard_0": 0, "guard_1": 0}
    op.bulk_insert(meta, [{"name": name, "number": number} for name, number in numbers.items()])


def _create_task(tables: Tables) -> None:
    number, word, text = tables.number, tables.word, tables.text
    tables.create(
        "task",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=True),
        word("id", 64, required=True),
        number("rev", required=True),
        word("status", 24, required=True),
        number("version", required=True),
        number("token", required=True),
        word("handler_key", 255, required=True),
        text("tenant_id"),
        text("account_id"),
        number("submit_lane", required=True),
        number("query_lane", required=True),
        number("lane"),
        word("turn", 160),
        number("asleep_until"),
        word("stale_for", 255),
        number("stale_at"),
        number("expires_at"),
        word("rank", 160, required=True),
        sa.Column("priority", sa.Integer, nullable=False),
        number("created_at", required=True),
        number("due_at", required=True),
        number("lease_until"),
        number("status_since", required=True),
        number("finished_at"),
        text("dedup_key"),
        word("dedup_holder", 64),
        word("external_key", 64),
        number("cancellation_requested_at"),
        tables.flag("holds_slots"),
        tables.flag("nudged"),
        word("settled_by", 64),
        number("set_aside_at"),
        tables.long("set_aside_reason"),
        text("spilled"),
        *map(tables.long, _PARTS),
    )
    tables.index("task_id", "task", ["id"], unique=True)
    for name, columns in (
        ("dedup", ["dedup_holder"]),
        ("turn", ["lane", "turn"]),
        ("asleep", ["handler_key", "asleep_until"]),
        ("stale", ["stale_for", "stale_at"]),
        ("expires", ["expires_at"]),
        ("finished", ["status", "finished_at"]),
        ("external", ["external_key"]),
        ("set_aside", ["set_aside_at"]),
    ):
        where = sa.column(columns[-1]).is_not(None)
        tables.index(f"task_{name}", "task", columns, unique=name == "dedup", where=where)
    tables.index(
        "task_held", "task", ["submit_lane"], where=sa.column("holds_slots") == sa.literal_column("1")
    )
    tables.create(
        "body",
        sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
        tables.key("part", 16),
        tables.long("text", required=True),
    )


def _create_lanes(tables: Tables) -> None:
    tables.create(
        "lane",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        tables.word("digest", 64, required=True),
        tables.word("kind", 8, required=True),
        tables.word("handler_key", 255, required=True),
        sa.Column("gates", _LONG, nullable=False),
        tables.word("head", 160),
        tables.word("parked_by", 255),
    )
    tables.index("lane_digest", "lane", ["digest"], unique=True)
    tables.index("lane_head", "lane", ["kind", "handler_key", "parked_by", "head"])
    tables.create(
        "lane_gate",
        tables.key("gate", 255),
        sa.Column("lane", sa.BigInteger, primary_key=True, autoincrement=False),
    )


def _create_gates(tables: Tables) -> None:
    number, text = tables.number, tables.text
    tables.create(
        "gate",
        tables.key("name", 255),
        tables.flag("limited"),
        number("concurrency"),
        number("rate_count"),
        number("rate_per"),
        number("rate_since"),
        text("pause_reason"),
        text("pause_who"),
        number("pause_since"),
        number("pause_until"),
        number("used", required=True),
        text("grants"),
    )
    tables.create(
        "parking",
        tables.key("gate", 255),
        tables.key("kind", 8),
        tables.key("handler_key", 255),
        number("wake_at"),
    )
    tables.index("parking_wake", "parking", ["kind", "handler_key", "wake_at"])
