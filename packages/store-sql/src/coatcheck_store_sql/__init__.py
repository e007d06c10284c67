"""SQL stores for coatcheck: durable, exact, and joining your own transactions. See `create`.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_store_sql.creating import create
    from coatcheck_store_sql.inserts import insert_statements
    from coatcheck_store_sql.migrations import schema_sql
    from coatcheck_store_sql.settings import SqlSettings
    from coatcheck_store_sql.store import SqlStore

__all__ = ["SqlSettings", "SqlStore", "create", "insert_statements", "schema_sql"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".creating": ("create",),
        ".inserts": ("insert_statements",),
        ".migrations": ("schema_sql",),
        ".settings": ("SqlSettings",),
        ".store": ("SqlStore",),
    },
)
