"""A store for coatcheck on Redis and Valkey: as durable as the server, exact, and shared by a fleet. See `create`.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coatcheck_store_redis.creating import create
    from coatcheck_store_redis.settings import RedisSettings
    from coatcheck_store_redis.store import RedisStore

__all__ = ["RedisSettings", "RedisStore", "create"]

_HOME_OF = {
    "RedisSettings": "coatcheck_store_redis.settings",
    "RedisStore": "coatcheck_store_redis.store",
    "create": "coatcheck_store_redis.creating",
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
