"""The databases that tests of tables go through one by one: each empty, with a connection of somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.pool import NullPool

KINDS = ["postgresql", "mariadb", "sqlite"]
SYNC = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql", "sqlite": "sqlite"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name a kind of database."""
    found: str = request.param
    return found


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, url: str) -> str:
    """Return the URL of an empty database."""
    if kind == "sqlite":
        return url
    found: str = request.getfixturevalue(f"{kind}_url")
    return found


@pytest.fixture
def engine(kind: str, place: str) -> Iterator[Engine]:
    """Give a connection of somebody else's."""
    made = create_engine(make_url(place).set(drivername=SYNC[kind]), poolclass=NullPool)
    yield made
    made.dispose()
