"""What the tests of the SQL stores share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.clock import ManualClock
from coatcheck_store_sql import SqlStore, create


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Name a file that is not there yet."""
    return f"sqlite:///{tmp_path / 'tasks.db'}"


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that stands still."""
    return ManualClock()


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[SqlStore]:
    """Open a store on a new file, on a clock that stands still."""
    async with create(url, clock=clock) as store:
        yield store
