"""Clients of redis-py, made for a place: none repeats a command, and each has limits of time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias, cast

from attrs import asdict, define, frozen
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, ConnectionPool, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from coatcheck_store_redis.urls import Place, Topology

__all__ = ["Client", "Maker", "OneLoop", "connection_to"]

Client: TypeAlias = Redis | RedisCluster

_HEALTH_CHECK_SECONDS = 30
"""How long a connection of the clients' own pools, for news, may lie idle before it is tried."""


@define(eq=False)
class OneLoop:
    """What belongs to one event loop."""

    client: Client
    sentinel: Sentinel | None = None
    keeper: AsyncGenerator[None, None] | None = None
    """Closes the client when it is closed, or its loop ends."""

    async def close(self) -> None:
        """Close the client, and what it asks for the master."""
        with contextlib.suppress(RedisError, OSError):
            await self.client.aclose()
        if self.sentinel is not None:
            for each in self.sentinel.sentinels:
                with contextlib.suppress(RedisError, OSError):
                    await each.aclose()


@frozen(kw_only=True)
class Maker:
    """Makes clients for a place."""

    place: Place
    timeout: float
    name: str

    def make(self) -> OneLoop:
        """Return a client for the running loop; it connects when it is first used."""
        place = self.place
        if place.topology is Topology.SENTINEL:
            return self._behind_sentinels()
        if place.topology is Topology.CLUSTER:
            nodes = [ClusterNode(host, port) for host, port in place.addresses]
            cluster = RedisCluster(startup_nodes=nodes, **self._options(), **self._tls())
            return OneLoop(cast("Client", cluster))
        options = {**self._options(), "db": place.database}
        if place.path is not None:
            pool = ConnectionPool(connection_class=UnixDomainSocketConnection, path=place.path, **options)
            return OneLoop(Redis.from_pool(pool))
        ((host, port),) = place.addresses
        return OneLoop(Redis(host=host, port=port, **options, **self._tls()))

    def _behind_sentinels(self) -> OneLoop:
        place = self.place
        patience = {
            "socket_timeout": self.timeout / 3,  # one that hangs must leave time for the others
            "socket_connect_timeout": self.timeout / 3,
            "retry": _no_retries(),
            "username": place.sentinel_username,
            "password": place.sentinel_password,
            **self._tls(),
        }
        sentinel: Sentinel = cast("Any", Sentinel)(place.addresses, sentinel_kwargs=patience)
        options = {**self._options(), "db": place.database, **self._tls()}
        return OneLoop(sentinel.master_for(str(place.service), **options), sentinel)

    def _options(self) -> dict[str, Any]:
        return {
            "username": self.place.username,
            "password": self.place.password,
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.timeout,
            "health_check_interval": _HEALTH_CHECK_SECONDS,
            "retry": _no_retries(),
            "client_name": self.name,
            "protocol": 2,
        }

    def _tls(self) -> dict[str, Any]:
        return {"ssl": True, **asdict(self.place.tls)} if self.place.tls is not None else {}


def _no_retries() -> Retry:
    return Retry(NoBackoff(), 0)


def connection_to(node: ClusterNode) -> AbstractConnection:
    """Return a connection to a node of a Cluster, which is not connected yet."""
    made: AbstractConnection = node.connection_class(**{**node.connection_kwargs, "retry": _no_retries()})
    return made
