"""Making a store from a URL or an engine; no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine

from coatcheck.errors import ConfigurationError
from coatcheck.settings import structure_settings
from coatcheck.urls import StoreUrl
from coatcheck_store_sql.settings import SqlSettings
from coatcheck_store_sql.store import SqlStore

__all__ = ["create"]


def create(place: str | Engine, *, settings: SqlSettings | None = None, **keywords: object) -> SqlStore:
    """Return a closed store on a database; nothing is touched before it is opened.

    Args:
        place: a URL, such as ``sqlite:///relative.db`` or ``sqlite:////absolute/path.db``, whose query string
            holds settings; or a synchronous SQLAlchemy engine, which stays its maker's.
        settings: how to work, as one object.
        keywords: the same, one by one; see `SqlSettings`.

    Raises:
        ConfigurationError: the place is no database on a file, or a setting is unknown or does not fit.
    """
    if isinstance(place, AsyncEngine):
        message = "the store works in threads of its own: pass the URL, or a synchronous engine"
        raise ConfigurationError(message)
    written: Mapping[str, object] = {}
    where: URL | Engine
    if isinstance(place, Engine):
        where, url = place, place.url
    else:
        parsed = StoreUrl.parse(place)
        written, where = parsed.settings, _url_of(parsed.url)
        url = where
    if settings is not None and (written or keywords):
        message = "give settings as one object, or one by one, but not both"
        raise ConfigurationError(message)
    _check(url)
    settings = settings or structure_settings({**written, **keywords}, SqlSettings, owner="the SQL store")
    return SqlStore(where, settings)


def _url_of(text: str) -> URL:
    try:
        return make_url(text)
    except ArgumentError as error:
        message = "this is no database URL; write sqlite:///jobs.db or sqlite:////absolute/path.db"
        raise ConfigurationError(message) from error


def _check(url: URL) -> None:
    if url.get_backend_name() != "sqlite" or url.get_driver_name() != "pysqlite":
        message = f"{url.drivername}:// is not served; this version of coatcheck-store-sql serves sqlite://"
        raise ConfigurationError(message)
    if url.host or not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        message = (
            f"{url.render_as_string(hide_password=True)} names no file: write sqlite:///relative.db (three slashes) "
            "or sqlite:////absolute/path.db (four); for a store in memory, use memory://"
        )
        raise ConfigurationError(message)
