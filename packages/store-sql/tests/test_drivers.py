"""The drivers, called directly: what they say of a connection that ends while they are at work."""

import asyncio

import asyncpg  # type: ignore[import-untyped]  # it has no types
import pytest

from coatcheck_store_sql.drivers import AsyncpgDriver


@pytest.mark.parametrize("turns", range(12))
async def test_a_cut_is_told_as_a_lost_connection(postgresql_url: str, turns: int) -> None:
    """At whatever point it comes, asyncpg's own trouble with it is not taken for a fault of ours."""
    driver = AsyncpgDriver(await asyncpg.connect(postgresql_url))
    beginning = asyncio.ensure_future(driver.session())
    for _ in range(turns):
        await asyncio.sleep(0 if turns % 2 else 0.0005)
    driver.cut()
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await beginning
        await driver.session()
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await driver.rows("SELECT 1", ())
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await driver.simple("SELECT 1")
