from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from coatcheck.errors import ConfigurationError
from coatcheck.store import Capability
from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import SqlSettings, create


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://jobs.db", "sqlite:///file:jobs?mode=memory"],
)
def test_what_names_no_file_is_refused(url: str) -> None:
    """The message says how a file is named, and where memory is."""
    with pytest.raises(ConfigurationError, match=r"sqlite:///relative.db|no database|has no"):
        create(url)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h/db", "sqlite+aiosqlite:///a.db", "not a url"])
def test_what_is_not_served_is_refused(url: str) -> None:
    """No message holds the password."""
    with pytest.raises(ConfigurationError) as caught:
        create(url)
    assert "secret" not in str(caught.value)


def test_the_query_string_holds_settings() -> None:
    """Query string and keywords are the same settings."""
    written = create("sqlite:///a.db?timeout=5s&synchronous=full&table_prefix=x_")
    given = create("sqlite:///a.db", timeout=timedelta(seconds=5), synchronous="full", table_prefix="x_")
    assert (
        written._settings
        == given._settings
        == SqlSettings(timeout=timedelta(seconds=5), synchronous="full", table_prefix="x_")
    )
    assert written.url == "sqlite:///a.db"


@pytest.mark.parametrize(
    "settings",
    [
        {"colour": 1},
        {"timeout": timedelta()},
        {"synchronous": "off"},
        {"table_prefix": "a b"},
        {"poll_interval": "x"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    """Unknown names and impossible values are errors when the store is made."""
    with pytest.raises(ConfigurationError):
        create("sqlite:///a.db", **settings)


def test_settings_come_one_way() -> None:
    """An object and keywords together are an error."""
    with pytest.raises(ConfigurationError, match="both"):
        create("sqlite:///a.db", settings=SqlSettings(), timeout=timedelta(seconds=1))


def test_making_a_store_touches_nothing(tmp_path: Path) -> None:
    """`create` does no I/O."""
    create(f"sqlite:///{tmp_path / 'a.db'}")
    assert list(tmp_path.iterdir()) == []


async def test_an_engine_stays_its_makers(url: str) -> None:
    """A passed engine serves the store, is not changed for its maker, and is not disposed of."""
    engine = create_engine(url, poolclass=QueuePool)
    async with create(engine) as store:
        await store.add([make_draft(id="a")])
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "SERIALIZABLE"
        assert connection.exec_driver_sql("SELECT count(*) FROM coatcheck_task").scalar() == 1
    engine.dispose()


def test_an_async_engine_is_refused() -> None:
    """The message says what to pass."""
    engine = create_async_engine("sqlite+aiosqlite:///a.db")
    with pytest.raises(ConfigurationError, match="synchronous engine"):
        create(engine)  # type: ignore[arg-type]  # the mistake to be caught


def test_only_full_synchronous_survives_the_host() -> None:
    """What "normal" can lose, capabilities do not promise."""
    assert Capability.SURVIVES_FAILOVER in create("sqlite:///a.db").capabilities
    assert Capability.SURVIVES_FAILOVER not in create("sqlite:///a.db", synchronous="normal").capabilities


async def test_synchronous_is_set(url: str) -> None:
    """The setting reaches the connection that writes."""
    for setting, pragma in (("full", 2), ("normal", 1)):
        async with create(url, synchronous=setting) as store:
            rows = await store._writer.do(lambda connection: connection.execute("PRAGMA synchronous"))
        assert rows == [(pragma,)]
