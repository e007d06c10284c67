"""What coatcheck is told of this distribution; imports no driver."""

from __future__ import annotations

from collections.abc import Iterable

from coatcheck.hooks import StoreDescriptor, hookimpl
from coatcheck.store import Capability

__all__ = ["coatcheck_stores"]


@hookimpl
def coatcheck_stores() -> Iterable[StoreDescriptor]:
    """Describe the store."""
    return [
        StoreDescriptor(
            key="redis",
            schemes=(
                "redis",
                "rediss",
                "unix",
                "redis+sentinel",
                "rediss+sentinel",
                "redis+cluster",
                "rediss+cluster",
            ),
            factory="coatcheck_store_redis:create",
            settings="coatcheck_store_redis.settings:RedisSettings",
            capabilities=(Capability.DURABLE, Capability.SHARED, Capability.NOTIFIES),
            summary="tasks in Redis or Valkey, shared by a fleet: one server, Sentinel, or Cluster",
        )
    ]
