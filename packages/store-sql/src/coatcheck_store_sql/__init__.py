"""SQL stores for coatcheck: durable, exact, and joining your own transactions. See `create`.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coatcheck_store_sql.creating import create
    from coatcheck_store_sql.inserts import insert_statements
    from coatcheck_store_sql.migrations import schema_sql
    from coatcheck_store_sql.settings import SqlSettings
    from coatcheck_store_sql.store import SqlStore

__all__ = ["SqlSettings", "SqlStore", "create", "insert_statements", "schema_sql"]

_HOME_OF = {
    "SqlSettings": "coatcheck_store_sql.settings",
    "SqlStore": "coatcheck_store_sql.store",
    "create": "coatcheck_store_sql.creating",
    "insert_statements": "coatcheck_store_sql.inserts",
    "schema_sql": "coatcheck_store_sql.migrations",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
