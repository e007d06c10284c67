"""Making a store from a URL or an engine; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from coatcheck.errors import ConfigurationError
from coatcheck.settings import structure_settings
from coatcheck.urls import StoreUrl
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.store import SqlStore

__all__ = ["create"]

_DRIVERS = {
    "postgresql": ("asyncpg", "psycopg"),
    "mysql": ("asyncmy", "aiomysql"),
    "mariadb": ("asyncmy", "aiomysql"),
    "sqlite": ("pysqlite", "aiosqlite"),
}
"""The drivers for each kind of database; the first that is installed is taken where the URL names none."""
_PACKAGES = {"psycopg": "'psycopg[binary]'"}


def create(
    place: str | Engine | AsyncEngine, *, settings: SqlSettings | None = None, **keywords: object
) -> SqlStore:
    """Return a closed store on a database; nothing is touched before it is opened.

    Args:
        place: a URL, whose query string holds settings: ``sqlite:///relative.db``, ``sqlite:////absolute/path.db``,
            ``postgresql://user:password@host/database``, ``mysql://...``, ``mariadb://...``, the last three also with a
            driver, as in ``postgresql+psycopg://``; or a SQLAlchemy engine, which stays its maker's: synchronous or
            asynchronous for SQLite, asynchronous for servers.
        settings: how to work, as one object.
        keywords: the same, one by one; see `SqlSettings`.

    Raises:
        ConfigurationError: the place is no database, its driver is not installed, or a setting is unknown or does
            not fit.
    """
    written: Mapping[str, object] = {}
    if isinstance(place, str):
        parsed = StoreUrl.parse(place)
        written, url = parsed.settings, _url_of(parsed.url)
    else:
        url = place.url
    if settings is not None and (written or keywords):
        message = "give settings as one object, or one by one, but not both"
        raise ConfigurationError(message)
    _check_kind(url)
    settings = settings or structure_settings({**written, **keywords}, SqlSettings, owner="the SQL store")
    if url.get_backend_name() == "sqlite":
        return _on_file(place, url, settings)
    return _on_server(place, url, settings)


def _url_of(text: str) -> URL:
    try:
        return make_url(
            f"postgresql://{text.removeprefix('postgres://')}" if text.startswith("postgres://") else text
        )
    except ArgumentError as error:
        message = (
            "this is no database URL; write sqlite:///jobs.db, sqlite:////absolute/path.db or "
            "postgresql://user:password@host/database"
        )
        raise ConfigurationError(message) from error


def _check_kind(url: URL) -> None:
    backend, _, driver = url.drivername.partition("+")
    if backend not in _DRIVERS or (driver and driver.removesuffix("_async") not in _DRIVERS[backend]):
        served = ", ".join(
            f"{name}://" if name == "sqlite" else f"{name}:// ({', '.join(drivers)})"
            for name, drivers in _DRIVERS.items()
        )
        message = f"{url.drivername}:// is not served; coatcheck-store-sql serves {served}"
        raise ConfigurationError(message)


def _on_file(place: object, url: URL, settings: SqlSettings) -> SqlStore:
    from coatcheck_store_sql.local import LocalRoom  # noqa: PLC0415 - what is used is loaded

    if url.host or not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        message = (
            f"{url.render_as_string(hide_password=True)} names no file: write sqlite:///relative.db (three slashes) "
            "or sqlite:////absolute/path.db (four); for a store in memory, use memory://"
        )
        raise ConfigurationError(message)
    if isinstance(place, Engine) and url.get_driver_name() == "pysqlite":
        return SqlStore(LocalRoom(place, settings))
    # the store has threads and connections of its own: of an asynchronous engine it needs to know the file only
    return SqlStore(LocalRoom(url.set(drivername="sqlite"), settings))


def _on_server(place: object, url: URL, settings: SqlSettings) -> SqlStore:
    from coatcheck_store_sql.server import ServerRoom  # noqa: PLC0415 - what is used is loaded

    if isinstance(place, Engine):
        message = (
            f"the store works asynchronously on servers: pass the URL, or an engine of create_async_engine(), not "
            f"{place!r}"
        )
        raise ConfigurationError(message)
    if not url.database:
        message = (
            f"{url.render_as_string(hide_password=True)} names no database: write .../database at its end"
        )
        raise ConfigurationError(message)
    engine = place if isinstance(place, AsyncEngine) else _engine(url, settings)
    if url.get_backend_name() == "postgresql":
        from coatcheck_store_sql import postgresql as kind  # noqa: PLC0415
    else:
        from coatcheck_store_sql import mysql as kind  # type: ignore[no-redef]  # noqa: PLC0415
    return SqlStore(ServerRoom(engine, kind.make_dialect(engine, settings), settings))


def _engine(url: URL, settings: SqlSettings) -> AsyncEngine:
    """Return an engine without a pool: the store keeps its connections itself, for each event loop."""
    backend, _, driver = url.drivername.partition("+")
    drivers = _DRIVERS[backend]
    wanted = driver.removesuffix("_async") or next((name for name in drivers if find_spec(name)), "")
    if not wanted or find_spec(wanted) is None:
        extra = "postgresql" if backend == "postgresql" else "mysql"
        install = (
            f"pip install 'coatcheck-store-sql[{extra}]'"
            if wanted in {"", drivers[0]}
            else f"pip install {_PACKAGES.get(wanted, wanted)}"
        )
        message = f"{backend}:// needs the driver {wanted or ' or '.join(drivers)}, which is not installed: {install}"
        raise ConfigurationError(message)
    return create_async_engine(
        url.set(drivername=f"{backend}+{wanted}"),
        poolclass=NullPool,
        connect_args={**_patience(wanted, settings), **_encryption(wanted, settings)},
    )


def _patience(driver: str, settings: SqlSettings) -> dict[str, object]:
    """Return how long to wait, and that what SQLAlchemy runs leaves no statement in a session, maybe of a pooler."""
    seconds = settings.timeout.total_seconds()
    if driver == "asyncpg":
        nameless = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
        return {"timeout": seconds, "statement_cache_size": 0, **nameless}
    if driver == "psycopg":
        return {"connect_timeout": max(2, int(seconds)), "prepare_threshold": None}
    return {"connect_timeout": max(1, int(seconds))}


def _encryption(driver: str, settings: SqlSettings) -> dict[str, object]:
    """Return what makes the driver encrypt as `sslmode` says, in the driver's own way."""
    mode, authority = settings.sslmode, settings.sslrootcert
    if mode is None:
        return {}
    if driver == "psycopg":
        return {"sslmode": mode, **({"sslrootcert": authority} if authority else {})}
    if mode == "disable":
        return {"ssl": False} if driver == "asyncpg" else {}
    import ssl  # noqa: PLC0415 - what is used is loaded

    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = mode == "verify-full"
    if mode == "require":
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}
