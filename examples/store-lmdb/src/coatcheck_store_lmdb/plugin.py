"""What coatcheck reads when it lists its plugins. It imports neither the store nor LMDB."""

from collections.abc import Iterable

from coatcheck.hooks import StoreDescriptor, hookimpl


@hookimpl
def coatcheck_stores() -> Iterable[StoreDescriptor]:
    """Offer the store under `lmdb://`."""
    return [
        StoreDescriptor(
            key="lmdb",
            factory="coatcheck_store_lmdb.store:create",
            settings="coatcheck_store_lmdb.store:LmdbSettings",
            capabilities=("durable", "shared", "survives_failover"),
            summary="tasks in an LMDB file",
        )
    ]
