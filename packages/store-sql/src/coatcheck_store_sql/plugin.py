"""What coatcheck is told of this distribution; imports neither SQLAlchemy nor a driver."""

from __future__ import annotations

from collections.abc import Iterable

from coatcheck.hooks import StoreDescriptor, hookimpl
from coatcheck.store import Capability

__all__ = ["coatcheck_stores"]


@hookimpl
def coatcheck_stores() -> Iterable[StoreDescriptor]:
    """Describe the stores."""
    return [
        StoreDescriptor(
            key="sqlite",
            schemes=("sqlite",),
            factory="coatcheck_store_sql:create",
            settings="coatcheck_store_sql.settings:SqlSettings",
            capabilities=(
                Capability.DURABLE,
                Capability.SHARED,
                Capability.SURVIVES_FAILOVER,
                Capability.TRANSACTIONAL_ADD,
            ),
            summary="tasks in an SQLite file, shared by the processes of one host",
        )
    ]
