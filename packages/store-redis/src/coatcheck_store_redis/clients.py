"""Clients of Redis: made from a URL for each event loop, or given by the caller, who keeps his.

A client never repeats a command by itself: only the store knows what may be sent twice, and how long there is. So a
command fails as soon as its connection does, and the next one connects anew, to whoever is the master by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from coatcheck.errors import ConfigurationError
from coatcheck_store_redis.makers import Client, Maker, OneLoop, connection_to
from coatcheck_store_redis.packing import packed
from coatcheck_store_redis.urls import Place, Topology

__all__ = ["Client", "Command", "Connected", "connect"]

Command: TypeAlias = "tuple[str | bytes | int | float, ...]"

_REDIRECTIONS = 5
"""How often one call follows the keys to where a Cluster has moved them."""
_NOT_HERE = (ReadOnlyError, ClusterDownError, TryAgainError)
"""Answers of servers that do nothing now, though others may."""
_CLOSING_SECONDS = 1.0
"""How long another thread's event loop gets to close its client."""


class Connected:
    """Where a store sends its commands. Nothing is connected before a command is sent."""

    def __init__(self, topology: Topology, url: str, source: Maker | Client, timeout: float) -> None:
        """Use a maker of clients, or a client that was given; see `connect`."""
        self._timeout = timeout
        self.topology = topology
        self.url = url
        """Without a password."""
        self.own = isinstance(source, Maker)
        """Whether we make the clients, and close them."""
        self._source = source
        self._given_loop: asyncio.AbstractEventLoop | None = None
        self._loops: dict[asyncio.AbstractEventLoop, OneLoop] = {}
        self._free: dict[asyncio.AbstractEventLoop, dict[str, list[Any]]] = {}
        """Connections of each loop on which nothing is under way; by the name of a Cluster's node, else of none."""

    @property
    def client(self) -> Client:
        """The client of the running event loop: connections belong to the loop that made them.

        Of a URL, each loop gets one of its own, closed when the loop ends. A client that was given serves one.

        Raises:
            ConfigurationError: the client that was given already serves another loop.
        """
        loop = asyncio.get_running_loop()
        if not isinstance(self._source, Maker):
            return self._checked(self._source, loop)
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = self._source.make()
            found.keeper = self._keep(loop, found)
            with contextlib.suppress(StopIteration):  # so it begins, and the loop will see to its end
                found.keeper.__anext__().send(None)
        return found.client

    def _checked(self, given: Client, loop: asyncio.AbstractEventLoop) -> Client:
        if self._given_loop is None or self._given_loop.is_closed():
            self._given_loop = loop
        if self._given_loop is not loop:
            message = (
                f"the client for {self.url} serves the event loop in which the store first used it, and cannot serve "
                "another: give the store the URL instead of a client, or one store to each loop"
            )
            raise ConfigurationError(message)
        return given

    async def _keep(self, loop: asyncio.AbstractEventLoop, found: OneLoop) -> AsyncGenerator[None, None]:
        """Wait for the end of the loop, which closes all generators that wait in it, as `asyncio.run` does."""
        try:
            yield
        finally:
            if self._loops.get(loop) is found:
                del self._loops[loop]
                await _hang_up(self._free.pop(loop, {}))
            await found.close()

    async def close(self) -> None:
        """Close the clients that we made, those of other threads' loops, too. What is used later is made anew."""
        here = asyncio.get_running_loop()
        self._given_loop = None
        await _hang_up(self._free.pop(here, {}))
        while self._loops:
            loop, found = self._loops.popitem()
            if loop is here:
                await found.close()
            elif loop.is_running():
                there = asyncio.run_coroutine_threadsafe(self._close_there(loop, found), loop)
                await asyncio.wait([asyncio.wrap_future(there)], timeout=_CLOSING_SECONDS)

    async def _close_there(self, loop: asyncio.AbstractEventLoop, found: OneLoop) -> None:
        await _hang_up(self._free.pop(loop, {}))
        await found.close()

    async def send(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands together, on one connection to the server that holds `key`, and return its answers, in order.

        An answer that is an error stands in its place; the commands after it are carried out all the same. In a
        Cluster all their keys are in the slot of `key`; when it has moved, they are sent to where it is now, and
        while it moves they fail, provided that one of their keys does not exist.

        Raises:
            FAULTS: the server could not be reached, or the connection was lost, and the outcome is unknown; or it is a
                replica, or a node that has no keys now, and has done nothing. Of `troubles`.
        """
        async with asyncio.timeout(self._timeout):
            return await self._send(self.client, key, commands)

    async def _send(self, client: Client, key: str, commands: Sequence[Command]) -> list[Any]:
        if not isinstance(client, RedisCluster):
            return await self._talk("", client.connection_pool.make_connection, commands)
        for _ in range(_REDIRECTIONS):
            node = await _holder(client, key)
            try:
                answers = await self._talk(node.name, partial(connection_to, node), commands)
            except Exception:
                await client.aclose()  # another may be the master now: the next call asks the nodes
                raise
            # while keys move one by one, some are here and some there, and a script would find half of them. Its own
            # key, which never exists, keeps it from being run in either place: so it has to wait, rather than follow
            moving = next((each for each in answers if type(each) is AskError), None)
            if moving is not None:
                raise TryAgainError(f"TRYAGAIN the slot of {key} moves to another node") from moving
            if not any(isinstance(each, MovedError) for each in answers):
                return answers
            await client.aclose()
        raise ClusterDownError(f"CLUSTERDOWN the nodes do not agree on who holds the slot of {key}")

    async def _talk(self, name: str, make: Callable[[], Any], commands: Sequence[Command]) -> list[Any]:
        """Send commands on a connection that is free, or a new one, to the server of this name."""
        lines = self._free.setdefault(asyncio.get_running_loop(), {})
        free = lines.setdefault(name, [])
        # not by the pool's `get_connection`: it looks into the socket at each call, with a timeout of zero, in which
        # a cancellation of the caller's can get lost, and costs more than the command
        connection: Any = free.pop() if free else make()
        try:
            await _ready(connection)
            answers = await _talk(connection, commands)
        except BaseException:
            await connection.disconnect(nowait=True)
            # the others lead to the same server, which is gone, or is no master any more
            while free:
                await free.pop().disconnect(nowait=True)
            raise
        if self._free.get(asyncio.get_running_loop()) is lines:
            free.append(connection)
        else:
            await connection.disconnect(nowait=True)  # the store was closed meanwhile
        return answers


async def _hang_up(lines: Mapping[str, Sequence[Any]]) -> None:
    for connection in itertools.chain.from_iterable(lines.values()):
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect()


async def _ready(connection: Any) -> None:  # noqa: ANN401 - redis-py's is untyped
    """Connect, unless it is."""
    # redis-py keeps its time limit with `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation of the
    # caller's, and costs more than the command; `send` keeps the time
    connection.socket_timeout = None
    await connection.connect()


async def _talk(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    packs = packed(commands)
    try:
        await connection.send_packed_command(packs, check_health=False)
    except AttributeError as error:
        # asyncio stumbles over a transport that was closed meanwhile, in `writelines` of Python 3.12 and later
        raise RedisConnectionError("the connection was closed by the server") from error
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(await connection.read_response(disable_decoding=True))
        except ResponseError as error:
            answers.append(error)
    for answer in answers:
        if isinstance(answer, _NOT_HERE):
            raise answer
    return answers


async def _holder(client: RedisCluster, key: str) -> ClusterNode:
    ready = await client.initialize()
    try:
        node = ready.get_node_from_key(key)
    except SlotNotCoveredError as error:
        await client.aclose()
        raise ClusterDownError(f"CLUSTERDOWN no node serves the slot of {key}") from error
    assert node is not None  # noqa: S101 - only of replicas may there be none
    return node


def connect(
    place: str | Place | Client, *, timeout: float = 30.0, client_name: str = "coatcheck"
) -> Connected:
    """Return a way to Redis; nothing is sent yet.

    Args:
        place: a URL of one of `SCHEMES`, what it says, or a client of ``redis.asyncio``: `Redis`, one that a
            `Sentinel` made by `master_for`, or `RedisCluster`. Such a client stays its maker's, with his timeouts;
            it is never closed here, and serves one event loop. For a URL each event loop gets a client.
        timeout: how many seconds connecting and an answer may take.
        client_name: what ``CLIENT LIST`` shows.

    Raises:
        ConfigurationError: it is none of these, or cannot work; the message says what to write.
    """
    if isinstance(place, str):
        place = Place.parse(place)
    if isinstance(place, Place):
        maker = Maker(place=place, timeout=timeout, name=client_name)
        return Connected(place.topology, place.shown, maker, timeout)
    if not isinstance(place, (Redis, RedisCluster)):
        kind = f"{type(place).__module__}.{type(place).__qualname__}"
        hint = (
            "one of redis.asyncio instead"
            if kind.startswith("redis.")
            else "a URL, such as redis://host:6379/0"
        )
        message = f"a Redis store works asynchronously through redis.asyncio: give it {hint}, not {kind}"
        raise ConfigurationError(message)
    if _options_of(place).get("decode_responses"):
        message = (
            "the client decodes what it reads, and a store keeps bytes: make it without decode_responses=True"
        )
        raise ConfigurationError(message)
    return Connected(*_described(place), place, timeout)


def _options_of(client: Client) -> dict[str, Any]:
    if isinstance(client, RedisCluster):
        return client.connection_kwargs
    return client.connection_pool.connection_kwargs


def _described(client: Client) -> tuple[Topology, str]:
    """Return the topology behind a client that was given, and its URL for people."""
    if isinstance(client, RedisCluster):
        nodes = ",".join(f"{node.host}:{node.port}" for node in client.nodes_manager.startup_nodes.values())
        return Topology.CLUSTER, f"redis+cluster://{nodes}"
    options, pool = _options_of(client), client.connection_pool
    database = options.get("db") or 0
    if isinstance(pool, SentinelConnectionPool):
        known = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
        sentinels = ",".join(f"{each['host']}:{each['port']}" for each in known)
        return Topology.SENTINEL, f"redis+sentinel://{sentinels}/{pool.service_name}/{database}"
    if "path" in options:
        return Topology.SINGLE, f"unix://{options['path']}?db={database}"
    scheme = "rediss" if "SSL" in pool.connection_class.__name__ else "redis"
    return (
        Topology.SINGLE,
        f"{scheme}://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{database}",
    )
