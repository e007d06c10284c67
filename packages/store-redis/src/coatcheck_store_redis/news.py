"""News of work: what scripts publish, told to the waiting calls of this process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import ConnectionPool

from coatcheck.locked.bell import Bell
from coatcheck_store_redis.clients import Connected
from coatcheck_store_redis.troubles import FAULTS

__all__ = ["News"]

_NAP_SECONDS = (0.05, 1.0)
"""How long it takes to listen again after a connection was lost; doubled up to the second."""


class News:
    """Listens on one event loop."""

    def __init__(self, connected: Connected, prefix: str, bell: Bell) -> None:
        self._connected = connected
        self._channel = f"{prefix}news"
        self._bell = bell
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def listen(self, seconds: float) -> None:
        """Listen from now on; return when the server says so, or after `seconds`."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="coatcheck-redis-news")
        if not self._listening.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._listening.wait()

    async def close(self) -> None:
        """Listen no more."""
        task, self._task = self._task, None
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        while not task.done():
            task.cancel()  # which redis-py may swallow in Python 3.11
            await asyncio.wait([task], timeout=0.1)

    async def _run(self) -> None:
        nap = _NAP_SECONDS[0]
        while True:
            try:
                async for message in self._messages():
                    nap = _NAP_SECONDS[0]
                    self._take(message)
            except FAULTS:
                pass
            self._listening.clear()
            await asyncio.sleep(nap)
            nap = min(2 * nap, _NAP_SECONDS[1])

    def _take(self, message: bytes | None) -> None:
        """Wake whom a message concerns: "!" there may be work, "+" it may come sooner; None: anything may be missed."""
        if message is None:
            self._listening.set()
            self._bell.ring_all()
            return
        handler = message[1:].decode()
        if message[:1] == b"!":
            self._bell.ring((), (handler,))
        else:
            self._bell.ring((handler,))

    async def _messages(self) -> Any:  # noqa: ANN401 - an iterator of messages
        client, own = await self._subscriber()
        try:
            async with client.pubsub() as subscription:
                await subscription.subscribe(self._channel)
                async for message in subscription.listen():
                    if message["type"] == "subscribe":
                        yield None
                    elif message["type"] == "message":
                        yield message["data"]
        finally:
            if own:
                await client.aclose()

    async def _subscriber(self) -> tuple[Redis, bool]:
        client = self._connected.client
        if not isinstance(client, RedisCluster):
            return client, False
        # a Cluster passes messages on to all its nodes
        ready: Any = await client.initialize()
        node = ready.get_node_from_key(self._channel)
        pool = ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
        return Redis.from_pool(pool), True
