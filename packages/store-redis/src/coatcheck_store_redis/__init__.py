"""A store for coatcheck on Redis and Valkey: as durable as the server, exact, and shared by a fleet. See `create`.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_store_redis.creating import create
    from coatcheck_store_redis.settings import RedisSettings
    from coatcheck_store_redis.store import RedisStore

__all__ = ["RedisSettings", "RedisStore", "create"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".creating": ("create",),
        ".settings": ("RedisSettings",),
        ".store": ("RedisStore",),
    },
)
