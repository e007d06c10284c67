"""The store contract on Redis or Valkey, as the kit tests it: on a clock that stands still, and on the server's."""

from datetime import timedelta

import pytest
import redis_hooks as hooks

from coatcheck_conformance import StoreConformance, StoreSpec
from servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def spec_at(url: str, server: Server, *, clock: bool, **settings: object) -> StoreSpec:
    """Return a spec for an empty database."""
    return StoreSpec(
        "coatcheck_store_redis:create",
        url,
        settings=settings,
        clock="clock" if clock else None,
        server=f"Redis {'.'.join(map(str, server.version))}",
        corrupt=hooks.corrupt,
        previous=hooks.previous,
        patience=timedelta(seconds=150),
    )


class TestRedis(StoreConformance):
    """Redis keeps the whole contract."""

    @pytest.fixture
    def store_spec(self, redis_url: str, redis_server: Server) -> StoreSpec:
        """Return an empty database for each rule."""
        return spec_at(redis_url, redis_server, clock=True)


class TestRedisClock(StoreConformance):
    """Redis keeps it by its own clock."""

    @pytest.fixture
    def store_spec(self, redis_url: str, redis_server: Server) -> StoreSpec:
        """Return an empty database for each rule."""
        return spec_at(redis_url, redis_server, clock=False)
