from pathlib import Path

import pytest
from mutants.damage import corrupt, previous

from coatcheck_conformance import StoreConformance, StoreSpec


class TestFileStore(StoreConformance):
    """What a third party writes in a hundred lines is durable, shared, and keeps every promise."""

    @pytest.fixture
    def store_spec(self, tmp_path: Path) -> StoreSpec:
        """A file of its own for each test."""
        return StoreSpec(
            "file_store:FileStore",
            url=str(tmp_path / "tasks"),
            clock="clock",
            corrupt=corrupt,
            previous=previous,
        )
