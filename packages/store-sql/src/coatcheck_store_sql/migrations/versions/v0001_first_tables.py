"""The first tables. Frozen: what changes later is another migration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_PARTS = (
    "route", "schedule", "identity", "lease", "attempt", "progress", "outcome", "params", "query_params",
    "metadata", "history", "extra",
)  # fmt: skip
_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create all tables, and say which schema this is."""
    prefix = op.get_context().opts["table_prefix"]
    _create_task(prefix)
    _create_lanes(prefix)
    _create_gates(prefix)
    op.create_table(
        f"{prefix}nudge",
        sa.Column("external_key", sa.String(64), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index(f"{prefix}nudge_at", f"{prefix}nudge", ["at"])
    op.create_table(
        f"{prefix}attendance",
        sa.Column("handler_key", sa.String(255), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    meta = op.create_table(
        f"{prefix}meta",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger),
        sa.Column("text", sa.Text),
    )
    op.bulk_insert(
        meta,
        [
            {"name": "schema", "number": 1},
            {"name": "readable_by", "number": 1},
            {"name": "clock", "number": 0},
        ],
    )


def _create_task(prefix: str) -> None:
    def number(name: str, *, required: bool = False) -> sa.Column[int]:
        return sa.Column(name, sa.BigInteger, nullable=not required)

    def words(name: str) -> sa.Column[str]:
        return sa.Column(name, sa.Text)

    op.create_table(
        f"{prefix}task",
        sa.Column("seq", _KEY, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        number("rev", required=True),
        sa.Column("status", sa.String(24), nullable=False),
        number("version", required=True),
        number("token", required=True),
        sa.Column("handler_key", sa.String(255), nullable=False),
        words("tenant_id"),
        words("account_id"),
        number("submit_lane", required=True),
        number("query_lane", required=True),
        number("lane"),
        sa.Column("turn", sa.String(160)),
        number("asleep_until"),
        sa.Column("stale_for", sa.String(255)),
        number("stale_at"),
        number("expires_at"),
        sa.Column("rank", sa.String(160), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        number("created_at", required=True),
        number("due_at", required=True),
        number("lease_until"),
        number("status_since", required=True),
        number("finished_at"),
        words("dedup_key"),
        sa.Column("dedup_holder", sa.String(64)),
        sa.Column("external_key", sa.String(64)),
        number("cancellation_requested_at"),
        sa.Column("holds_slots", sa.SmallInteger, nullable=False),
        sa.Column("nudged", sa.SmallInteger, nullable=False),
        sa.Column("settled_by", sa.String(64)),
        number("set_aside_at"),
        words("set_aside_reason"),
        words("spilled"),
        *map(words, _PARTS),
    )
    op.create_index(f"{prefix}task_id", f"{prefix}task", ["id"], unique=True)
    op.create_index(f"{prefix}task_status", f"{prefix}task", ["status", "id", "handler_key"])
    _create_partial_index(prefix, "dedup", ["dedup_holder"], unique=True)
    _create_partial_index(prefix, "turn", ["lane", "turn"])
    _create_partial_index(prefix, "asleep", ["handler_key", "asleep_until"])
    _create_partial_index(prefix, "stale", ["stale_for", "stale_at"])
    _create_partial_index(prefix, "expires", ["expires_at"])
    _create_partial_index(prefix, "finished", ["status", "finished_at"])
    _create_partial_index(prefix, "external", ["external_key"])
    _create_partial_index(prefix, "set_aside", ["set_aside_at"])
    op.create_table(
        f"{prefix}body",
        sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("part", sa.String(16), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )


def _create_partial_index(prefix: str, name: str, columns: list[str], *, unique: bool = False) -> None:
    where = sa.column(columns[-1]).is_not(None)
    op.create_index(
        f"{prefix}task_{name}",
        f"{prefix}task",
        columns,
        unique=unique,
        sqlite_where=where,
        postgresql_where=where,
    )


def _create_lanes(prefix: str) -> None:
    op.create_table(
        f"{prefix}lane",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("handler_key", sa.String(255), nullable=False),
        sa.Column("gates", sa.Text, nullable=False),
        sa.Column("head", sa.String(160)),
        sa.Column("parked_by", sa.String(255)),
        sa.Column("holding", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index(f"{prefix}lane_digest", f"{prefix}lane", ["digest"], unique=True)
    op.create_index(f"{prefix}lane_head", f"{prefix}lane", ["kind", "handler_key", "parked_by", "head"])
    op.create_table(
        f"{prefix}lane_gate",
        sa.Column("gate", sa.String(255), primary_key=True),
        sa.Column("lane", sa.BigInteger, primary_key=True),
    )


def _create_gates(prefix: str) -> None:
    op.create_table(
        f"{prefix}gate",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("limited", sa.SmallInteger, nullable=False),
        sa.Column("concurrency", sa.BigInteger),
        sa.Column("rate_count", sa.BigInteger),
        sa.Column("rate_per", sa.BigInteger),
        sa.Column("pause_reason", sa.Text),
        sa.Column("pause_who", sa.Text),
        sa.Column("pause_since", sa.BigInteger),
        sa.Column("pause_until", sa.BigInteger),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("grants", sa.Text),
    )
    op.create_table(
        f"{prefix}parking",
        sa.Column("gate", sa.String(255), primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("handler_key", sa.String(255), primary_key=True),
        sa.Column("wake_at", sa.BigInteger),
    )
    op.create_index(f"{prefix}parking_wake", f"{prefix}parking", ["kind", "handler_key", "wake_at"])
