"""What coatcheck is told of this distribution; imports neither SQLAlchemy nor a driver."""

from __future__ import annotations

from collections.abc import Iterable

from coatcheck.hooks import StoreDescriptor, hookimpl
from coatcheck.store import Capability

__all__ = ["coatcheck_stores"]


_FACTORY = "coatcheck_store_sql:create"
_SETTINGS = "coatcheck_store_sql.settings:SqlSettings"
_SERVER = (Capability.DURABLE, Capability.SHARED, Capability.TRANSACTIONAL_ADD)


@hookimpl
def coatcheck_stores() -> Iterable[StoreDescriptor]:
    """Describe the stores."""
    return [
        StoreDescriptor(
            key="sqlite",
            schemes=("sqlite",),
            factory=_FACTORY,
            settings=_SETTINGS,
            capabilities=(
                Capability.DURABLE,
                Capability.SHARED,
                Capability.SURVIVES_FAILOVER,
                Capability.TRANSACTIONAL_ADD,
            ),
            summary="tasks in an SQLite file, shared by the processes of one host",
        ),
        StoreDescriptor(
            key="postgresql",
            schemes=("postgresql", "postgresql+asyncpg", "postgresql+psycopg", "postgres"),
            factory=_FACTORY,
            settings=_SETTINGS,
            capabilities=(*_SERVER, Capability.NOTIFIES),
            summary="tasks in PostgreSQL, shared by a fleet",
        ),
        StoreDescriptor(
            key="mysql",
            schemes=("mysql", "mysql+asyncmy", "mysql+aiomysql"),
            factory=_FACTORY,
            settings=_SETTINGS,
            capabilities=_SERVER,
            summary="tasks in MySQL, shared by a fleet",
        ),
        StoreDescriptor(
            key="mariadb",
            schemes=("mariadb", "mariadb+asyncmy", "mariadb+aiomysql"),
            factory=_FACTORY,
            settings=_SETTINGS,
            capabilities=_SERVER,
            summary="tasks in MariaDB, shared by a fleet",
        ),
    ]
