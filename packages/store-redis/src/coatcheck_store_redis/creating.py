"""Making a store from a URL or a client; no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.errors import ConfigurationError
from coatcheck.settings import structure_settings
from coatcheck_store_redis.clients import Client, connect
from coatcheck_store_redis.settings import RedisSettings
from coatcheck_store_redis.store import RedisStore
from coatcheck_store_redis.urls import Place

__all__ = ["create"]


def create(place: str | Client, *, settings: RedisSettings | None = None, **keywords: object) -> RedisStore:
    """Return a closed store on Redis or Valkey; nothing is touched before it is opened.

    Args:
        place: a URL, whose query string holds settings: ``redis://:password@host:6379/0``, ``rediss://``, ``unix://``,
            ``redis+sentinel://host1,host2,host3/service/0`` or ``redis+cluster://host1,host2``; or a client of
            ``redis.asyncio``, which stays its maker's and is never closed here.
        settings: how to work, as one object.
        keywords: the same, one by one; see `RedisSettings`.

    Raises:
        ConfigurationError: the place is no Redis, or a setting is unknown or does not fit.
    """
    where = Place.parse(place) if isinstance(place, str) else place
    said: Mapping[str, object] = where.settings if isinstance(where, Place) else {}
    if settings is not None and (said or keywords):
        message = "give settings as one object, or one by one, but not both"
        raise ConfigurationError(message)
    settings = settings or structure_settings({**said, **keywords}, RedisSettings, owner="the Redis store")
    # a connection that was lost without a word is found out early enough for another one
    connected = connect(where, timeout=settings.timeout.total_seconds() / 3)
    return RedisStore(connected, settings)
