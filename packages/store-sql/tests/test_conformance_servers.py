"""The store contract on servers, as the kit tests it: on PostgreSQL with a clock that stands still, too."""

import itertools
import os
from datetime import timedelta

import hooks
import pytest

from coatcheck_conformance import StoreConformance, StoreSpec
from servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_NUMBERS = itertools.count()


def spec_on(server: Server, name: str, *, clock: bool, **settings: object) -> StoreSpec:
    """Return a spec that names tables of their own in the server's database: making them is quicker than a database."""
    version = ".".join(map(str, server.version))
    return StoreSpec(
        "coatcheck_store_sql:create",
        server.url,
        settings={"table_prefix": f"kit_{os.getpid()}_{next(_NUMBERS)}_", **settings},
        clock="clock" if clock else None,
        server=f"{name} {version}",
        corrupt=hooks.corrupt,
        transaction=hooks.transaction,
        previous=hooks.previous,
        patience=timedelta(seconds=150),  # a rule makes thousands of steps, and servers run beside it
    )


class TestPostgresql(StoreConformance):
    """PostgreSQL keeps the whole contract."""

    @pytest.fixture
    def store_spec(self, postgresql_server: Server) -> StoreSpec:
        """Return new tables for each rule."""
        return spec_on(postgresql_server, "PostgreSQL", clock=True)


class TestPostgresqlClock(StoreConformance):
    """PostgreSQL keeps it by its own clock."""

    @pytest.fixture
    def store_spec(self, postgresql_server: Server) -> StoreSpec:
        """Return new tables for each rule."""
        return spec_on(postgresql_server, "PostgreSQL", clock=False)


class TestMariadb(StoreConformance):
    """MariaDB keeps the whole contract, by its own clock."""

    @pytest.fixture
    def store_spec(self, mariadb_server: Server) -> StoreSpec:
        """Return new tables for each rule."""
        return spec_on(mariadb_server, "MariaDB", clock=False)
