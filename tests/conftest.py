"""The stores and the provider that the tests across packages run on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coatcheck import Store, create_store
from coatcheck.testing import ManualClock
from coatcheck_sandbox import SandboxServer, describe
from wheels import wheels  # noqa: F401 - a fixture

STORES = ("memory", "sqlite")


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the store under test."""
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Store:
    """A closed store with a manual clock."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    return create_store(url, clock=clock)


@pytest.fixture(params=STORES)
def real_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """What makes closed stores, all on the same tasks where the store can, with the host's clock."""
    if request.param == "sqlite":
        return lambda: create_store(f"sqlite:///{tmp_path / 'tasks.db'}")
    one = create_store("memory://")
    return lambda: one


@pytest.fixture(params=("sqlite", "postgresql", "mariadb", "redis"))
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the tasks of processes that share a store are: a file, or a database on a server, set up."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tasks.db'}"
    found: str = request.getfixturevalue(f"{request.param}_url")
    await create_store(found).setup()
    return found


@pytest.fixture
def sandbox(clock: ManualClock) -> Iterator[SandboxServer]:
    """A provider on a socket, without OCR, whose jobs move by the manual clock."""
    with SandboxServer(recognizer=describe, clock=lambda: clock.now().timestamp()) as server:
        yield server
