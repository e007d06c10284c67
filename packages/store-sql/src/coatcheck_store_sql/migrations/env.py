"""Where Alembic learns which connection and which table prefix to use. Run by `upgrade_schema` only."""

from __future__ import annotations

from alembic import context

_attributes = context.config.attributes
context.configure(
    connection=_attributes["connection"],
    version_table=f"{_attributes['table_prefix']}migration",
    table_prefix=_attributes["table_prefix"],
)
context.run_migrations()
