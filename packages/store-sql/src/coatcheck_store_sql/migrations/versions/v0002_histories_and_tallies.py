"""Histories of gates, and tallies. Frozen: what changes later is another migration."""

from __future__ import annotations

from coatcheck_store_sql.migrations.tables import Tables

revision = "0002"
down_revision = "0001"
readable_by = 1
"""Code of the first version goes on: it writes no histories, and counts nothing."""
makes = ("gate_history", "tally")


def upgrade() -> None:
    """Create both tables."""
    tables = Tables()
    tables.create("gate_history", tables.key("name", 255), tables.long("entries", required=True))
    tables.create(
        "tally",
        tables.key("name", 255),
        tables.number("total", required=True),
        tables.number("expires_at", required=True),
    )
    tables.index("tally_expires", "tally", ["expires_at"])
