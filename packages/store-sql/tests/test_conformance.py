"""The store contract on a file, as the conformance kit tests it."""

from datetime import timedelta
from pathlib import Path

import hooks
import pytest

from coatcheck_conformance import StoreConformance, StoreSpec

pytestmark = pytest.mark.timeout(300)  # the state machine, on a machine that does other things, too


class TestSqlite(StoreConformance):
    """SQLite keeps the whole contract."""

    @pytest.fixture
    def store_spec(self, tmp_path: Path) -> StoreSpec:
        """Return a new file for each rule."""
        return StoreSpec(
            "coatcheck_store_sql:create",
            f"sqlite:///{tmp_path / 'tasks.db'}",
            clock="clock",
            corrupt=hooks.corrupt,
            transaction=hooks.transaction,
            previous=hooks.previous,
            patience=timedelta(seconds=150),
        )
