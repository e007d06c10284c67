"""What the conformance kit says of the store, and of the package as it is installed."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from coatcheck_store_lmdb.store import LmdbStore

from coatcheck.locked import task_key
from coatcheck.store import Store
from coatcheck_conformance import PluginConformance, PluginSpec, StoreConformance, StoreSpec


async def corrupt(store: Store, task_id: str) -> Callable[[], Awaitable[None]]:
    """Damage the stored row of a task, and return what repairs it."""
    assert isinstance(store, LmdbStore)
    key = task_key(task_id)

    def overwrite(value: bytes) -> bytes:
        with store._section() as records:
            before = records.get_bytes(key)
            assert before is not None
            records.put_bytes(key, value)
            return before

    before = overwrite(b"not what any version has written")

    async def repair() -> None:
        overwrite(before)

    return repair


class TestLmdbStore(StoreConformance):
    """Every rule about stores that applies."""

    require = frozenset({"clock", "corrupt", "durable", "shared", "survives_failover"})

    @pytest.fixture
    def store_spec(self, tmp_path: Path) -> StoreSpec:
        """Give each rule a file of its own."""
        return StoreSpec(
            "coatcheck:create_store", url=f"lmdb://{tmp_path}/tasks.lmdb", clock="clock", corrupt=corrupt
        )


class TestPlugin(PluginConformance):
    """Every rule about plugins that applies."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Name the distribution."""
        return PluginSpec("coatcheck-store-lmdb")
