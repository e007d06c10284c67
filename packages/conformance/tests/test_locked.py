from pathlib import Path

import pytest

from coatcheck.locked import ByteRecords, LockedStore
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import pack
from coatcheck.store import Store
from coatcheck_conformance import StoreConformance, StoreSpec
from coatcheck_conformance.store.spec import Repair


async def corrupt(store: Store, task_id: str) -> Repair:
    """Overwrite a stored row with what no version has written."""
    assert isinstance(store, LockedStore)
    key = pack(("task", task_id))

    def swap(ledger: Ledger, value: bytes) -> bytes:
        assert isinstance(ledger.records, ByteRecords)
        before = ledger.records.get_bytes(key)
        ledger.records.put_bytes(key, value)
        assert before is not None
        return before

    before = await store._do(lambda ledger: swap(ledger, b"T{}"))

    async def repair() -> None:
        await store._do(lambda ledger: swap(ledger, before))

    return repair


class TestFileStore(StoreConformance):
    """What a third party writes in a hundred lines is durable, shared, and keeps every promise."""

    @pytest.fixture
    def store_spec(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreSpec:
        """A file of its own for each test."""
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        return StoreSpec("file_store:FileStore", url=str(tmp_path / "tasks"), clock="clock", corrupt=corrupt)
