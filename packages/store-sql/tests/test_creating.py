import ssl
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from coatcheck import create_store
from coatcheck.errors import ConfigurationError
from coatcheck.store import Capability
from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import SqlSettings, create
from coatcheck_store_sql.creating import _encryption
from coatcheck_store_sql.local import LocalRoom
from coatcheck_store_sql.server import ServerRoom


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://jobs.db", "sqlite:///file:jobs?mode=memory"],
)
def test_what_names_no_file_is_refused(url: str) -> None:
    """The message says how a file is named, and where memory is."""
    with pytest.raises(ConfigurationError, match=r"sqlite:///relative.db|no database|has no"):
        create(url)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://u:secret@h/db",
        "postgresql+psycopg2://u:secret@h/db",
        "mysql+pymysql://u:secret@h/db",
        "sqlite+asyncpg:///a.db",
        "postgresql://u:secret@h",
        "mysql://u:secret@h/",
        "not a url",
    ],
)
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
        written.room._settings  # type: ignore[attr-defined]  # every room has them
        == given.room._settings  # type: ignore[attr-defined]
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
        {"schema": "a-b"},
        {"pool_size": 0},
        {"sslmode": "maybe"},
        {"sslmode": "require", "sslrootcert": "ca.pem"},
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


def test_only_full_synchronous_survives_the_host() -> None:
    """What "normal" can lose, capabilities do not promise."""
    assert Capability.SURVIVES_FAILOVER in create("sqlite:///a.db").capabilities
    assert Capability.SURVIVES_FAILOVER not in create("sqlite:///a.db", synchronous="normal").capabilities


async def test_synchronous_is_set(url: str) -> None:
    """The setting reaches the connection that writes."""
    for setting, pragma in (("full", 2), ("normal", 1)):
        async with create(url, synchronous=setting) as store:
            assert isinstance(store.room, LocalRoom)
            rows = await store.room.writer.do(lambda connection: connection.execute("PRAGMA synchronous"))
        assert rows == [(pragma,)]


# ------------------------------------------------------------------ servers


@pytest.mark.parametrize(
    ("url", "installed", "driver"),
    [
        ("postgresql://u@h/db", {"asyncpg", "psycopg"}, "postgresql+asyncpg"),
        ("postgres://u@h/db", {"asyncpg"}, "postgresql+asyncpg"),
        ("postgresql://u@h/db", {"psycopg"}, "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/db", {"asyncpg", "psycopg"}, "postgresql+psycopg"),
        ("mysql://u@h/db", {"asyncmy", "aiomysql"}, "mysql+asyncmy"),
        ("mysql://u@h/db", {"aiomysql"}, "mysql+aiomysql"),
        ("mariadb+aiomysql://u@h/db", {"asyncmy", "aiomysql"}, "mariadb+aiomysql"),
    ],
)
def test_a_driver_is_chosen(
    url: str, installed: set[str], driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first that is installed serves; one that the URL names is respected."""
    monkeypatch.setattr("coatcheck_store_sql.creating.find_spec", lambda name: name in installed or None)
    store = create(url)
    assert isinstance(store.room, ServerRoom)
    assert store.room._engine.url.drivername == driver


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://u:secret@h/db", "pip install 'coatcheck-store-sql[postgresql]'"),
        ("postgresql+psycopg://u:secret@h/db", "pip install 'psycopg[binary]'"),
        ("mysql://u:secret@h/db", "pip install 'coatcheck-store-sql[mysql]'"),
        ("mariadb+aiomysql://u:secret@h/db", "pip install aiomysql"),
    ],
)
def test_a_missing_driver_gives_the_command(url: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is what to type, and holds no password."""
    monkeypatch.setattr("coatcheck_store_sql.creating.find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError) as caught:
        create(url)
    assert command in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_drivers_sqlite_works_and_servers_say_what_to_install() -> None:
    """Where nothing but the package is installed, nothing else is imported."""
    code = """
import sys
drivers = {"asyncpg", "psycopg", "asyncmy", "aiomysql", "pymysql", "aiosqlite"}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in drivers:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import importlib.util
importlib.util.find_spec = lambda name, package=None: None if name in drivers else 1
from coatcheck import create_store
from coatcheck.errors import ConfigurationError
create_store("sqlite:///a.db")
for url in ("postgresql://h/db", "mysql://h/db"):
    try:
        create_store(url)
    except ConfigurationError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "coatcheck-store-sql[postgresql]" in done.stdout
    assert "coatcheck-store-sql[mysql]" in done.stdout


async def test_the_catalog_makes_stores_of_servers(postgresql_url: str) -> None:
    """URLs with and without a driver, with settings in their query, lead to the store."""
    for scheme in ("postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"):
        url = postgresql_url.replace("postgresql", scheme, 1)
        store = create_store(f"{url}?table_prefix=jobs_&timeout=7s&sslmode=disable&pool_size=2")
        await store.setup()
        async with store:
            await store.add([make_draft()])


@pytest.mark.parametrize(
    "name", ["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy", "mysql+aiomysql"]
)
async def test_an_async_engine_of_a_server_serves(name: str, request: pytest.FixtureRequest) -> None:
    """The store works through an engine of the caller's, changes nothing of it, and does not dispose of it."""
    url = request.getfixturevalue("postgresql_url" if name.startswith("postgresql") else "mariadb_url")
    engine = create_async_engine(make_url(url).set(drivername=name), pool_size=2)
    store = create(engine)
    await store.setup()
    async with store:
        await store.add([make_draft(id="a")])
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM coatcheck_task")) == 1
        assert connection.get_transaction() is not None
    await engine.dispose()


def test_a_sync_engine_of_a_server_is_refused() -> None:
    """The message says what to pass."""
    with pytest.raises(ConfigurationError, match="create_async_engine"):
        create(create_engine("postgresql+psycopg://u:secret@h/db"))


def test_mysql_has_no_schema_in_a_database() -> None:
    """The message says where the name belongs."""
    with pytest.raises(ConfigurationError, match="name it in the URL"):
        create("mysql://h/db", schema="jobs")


async def test_an_async_engine_of_a_file_serves(tmp_path: Path) -> None:
    """Of an engine on aiosqlite the store takes the file."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
    async with create(engine) as store:
        await store.add([make_draft(id="a")])
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT count(*) FROM coatcheck_task")) == 1
    await engine.dispose()


@pytest.mark.parametrize(
    ("driver", "mode", "wanted"),
    [
        ("asyncpg", "disable", False),
        ("asyncpg", "require", ssl.CERT_NONE),
        ("asyncpg", "verify-full", ssl.CERT_REQUIRED),
        ("asyncmy", "require", ssl.CERT_NONE),
        ("aiomysql", "verify-ca", ssl.CERT_REQUIRED),
    ],
)
def test_encryption_is_passed_to_the_driver(driver: str, mode: Any, wanted: object) -> None:
    """Each driver is told in its own way."""
    told = _encryption(driver, SqlSettings(sslmode=mode))["ssl"]
    assert told is False or isinstance(told, ssl.SSLContext)
    assert wanted == (told and told.verify_mode)
    assert _encryption("psycopg", SqlSettings(sslmode=mode)) == {"sslmode": mode}
    assert _encryption(driver, SqlSettings()) == {}
