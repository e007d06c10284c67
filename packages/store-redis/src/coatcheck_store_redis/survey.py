"""What a server says of itself: how it stores, what it throws away, who follows it."""

from __future__ import annotations

import contextlib
import re
from typing import Any, cast

from attrs import frozen
from redis.asyncio import Redis
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import RedisError, ResponseError

from coatcheck_store_redis.clients import Command, Connected
from coatcheck_store_redis.urls import Topology

__all__ = ["Found", "survey"]

_OPTIONS = ("maxmemory-policy", "appendonly", "appendfsync", "save")


@frozen(kw_only=True)
class Found:
    """What is known of the server that holds the keys, as it is now."""

    version: tuple[int, ...]
    """Of Redis; Valkey says that of the Redis that it equals."""
    policy: str | None = None
    """What goes when the memory is full; None: unknown."""
    aof: bool | None = None
    """Whether it keeps an append-only file; None: unknown."""
    fsync: str | None = None
    """When that is flushed to the disk: "always", "everysec" or "no"; None: unknown."""
    saves: bool | None = None
    """Whether it makes snapshots by itself; None: unknown."""
    replicas: int = 0
    """How many may take its place, those that are away now included where somebody counts them."""
    refused: str | None = None
    """Why it does not show its configuration; None: it does."""


async def survey(connected: Connected, key: str) -> Found:
    """Ask the server that holds `key`.

    Raises:
        RedisError: it cannot be reached, or refuses ``INFO``.
    """
    asked: list[Command] = [("CONFIG", "GET", option) for option in _OPTIONS]
    info, *answers = await connected.send(key, [("INFO",), *asked])
    if isinstance(info, ResponseError):
        raise info
    said = _fields(info)
    config, refused = _config(answers)
    aof = config.get("appendonly", {"1": "yes", "0": "no"}.get(said.get("aof_enabled", "")))
    return Found(
        version=tuple(map(int, re.findall(r"\d+", said.get("redis_version", "0"))[:3])),
        policy=config.get("maxmemory-policy", said.get("maxmemory_policy")),
        aof=None if aof is None else aof == "yes",
        fsync=config.get("appendfsync"),
        saves=bool(config["save"]) if "save" in config else None,
        replicas=await _count_replicas(connected, key, said),
        refused=refused,
    )


def _fields(info: bytes) -> dict[str, str]:
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _config(answers: list[Any]) -> tuple[dict[str, str], str | None]:
    """Return the options that were shown, and why others were not."""
    config: dict[str, str] = {}
    refused = None
    for answer in answers:
        if isinstance(answer, ResponseError):
            refused = str(answer)
            continue
        pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
        config.update((name.decode(), value.decode()) for name, value in pairs)
    return config, refused


async def _count_replicas(connected: Connected, key: str, said: dict[str, str]) -> int:
    connected_now = int(said.get("connected_slaves", 0))
    with contextlib.suppress(RedisError, OSError):
        if connected.topology is Topology.SENTINEL:
            return max(connected_now, await _known_to_sentinels(cast("Redis", connected.client)))
        if connected.topology is Topology.CLUSTER:
            return max(connected_now, await _known_to_nodes(connected, key))
    return connected_now


async def _known_to_sentinels(client: Redis) -> int:
    pool = cast("SentinelConnectionPool", client.connection_pool)
    known: list[dict[str, Any]] = []
    for sentinel in pool.sentinel_manager.sentinels:
        with contextlib.suppress(RedisError, OSError):
            known = max(known, await sentinel.sentinel_slaves(pool.service_name), key=len)
    # one with priority 0 is never promoted
    return sum(str(each.get("slave-priority")) != "0" for each in known)


async def _known_to_nodes(connected: Connected, key: str) -> int:
    (listed,) = await connected.send(key, [("CLUSTER", "NODES")])
    if isinstance(listed, ResponseError):
        raise listed
    nodes = [line.split() for line in listed.decode().splitlines()]
    mine = next(node[0] for node in nodes if "myself" in node[2])
    return sum(node[3] == mine for node in nodes)
