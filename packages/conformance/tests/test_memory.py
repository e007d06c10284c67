import pytest

from coatcheck_conformance import StoreConformance, StoreSpec


class TestMemoryStore(StoreConformance):
    """The memory store keeps every promise."""

    @pytest.fixture
    def store_spec(self) -> StoreSpec:
        """A store on a clock that the kit can move."""
        return StoreSpec("coatcheck.memory:MemoryStore", clock="clock")
