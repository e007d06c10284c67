"""Redis is killed under load, again and again: what was lost is counted, and nothing is sent twice."""

import asyncio
import logging
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from coatcheck import App, Status, Task
from coatcheck.errors import StoreUnavailable
from coatcheck_sandbox import SandboxServer, describe
from coatcheck_store_redis import create
from provider import HOUR, QUICK, document, handler_of
from servers import Kind, OwnServer
from servers.fixtures import Own
from waits import until

pytestmark = [pytest.mark.crowd, pytest.mark.slow, pytest.mark.timeout(240)]

TASKS = 80
KILLS = 4
SEED = 20261130
SECOND = timedelta(seconds=1)
LEASE = 10 * SECOND
LOG = logging.getLogger(__name__)
LONGEST_LOSS_SECONDS = 3.0
"""What `appendfsync everysec` may lose: a second, or two while the disk is busy, and how late we look."""


@pytest.fixture
def provider() -> Iterator[SandboxServer]:
    """A provider whose jobs take a moment."""
    with SandboxServer(recognizer=describe, delay=timedelta(milliseconds=100), seed=SEED) as server:
        yield server


class Load:
    """Tasks that are submitted one after the other, while the server is killed."""

    def __init__(self, app: App, provider: SandboxServer) -> None:
        """Have submitted nothing."""
        self._app = app
        self._provider = provider
        self.acknowledged: dict[str, tuple[str, float]] = {}
        """By task id: the document, and when it was acknowledged."""

    async def submit_all(self) -> None:
        """Submit them, each once; one of unknown outcome counts as not submitted."""
        for number in range(TASKS):
            name = f"{number}.png"
            try:
                request = document(self._provider.url, name)
                task = await self._app.manager.submit(request, tracking_timeout=HOUR)
            except StoreUnavailable:
                continue
            self.acknowledged[task.id] = (name, asyncio.get_running_loop().time())
            await asyncio.sleep(0.005)

    async def kill_again_and_again(self, server: OwnServer) -> list[float]:
        """Kill the server at moments of work, start it again, and return when it was killed."""
        chance, killed = random.Random(SEED), []
        for _ in range(KILLS):
            goal = len(self._provider.requests) + chance.randrange(5, 30)
            await until(lambda goal=goal: len(self._provider.requests) >= goal, "more requests")  # type: ignore[misc]
            killed.append(asyncio.get_running_loop().time())
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        return killed

    async def ended(self) -> dict[str, Task]:
        """Wait until what is there has ended, and return it."""

        async def all_ended() -> bool:
            found = await self._app.store.get_many(list(self.acknowledged))
            return all(task.status.terminal for task in found.values())

        await until(all_ended, "the end of all tasks", seconds=150)
        return await self._app.store.get_many(list(self.acknowledged))


async def run(
    server: OwnServer, provider: SandboxServer, **settings: Any
) -> tuple[Load, list[float], dict[str, Task]]:
    """Submit and kill; return what came of it."""
    store = create(server.url, timeout=timedelta(seconds=30), **settings)
    async with App(store, [handler_of(provider.url)], retry=QUICK) as app:
        load = Load(app, provider)
        # the provider is in this process: more calls at once would only wait for each other
        async with app.worker(lease=LEASE, call_timeout=LEASE - SECOND, submissions=8, queries=8):
            submitting = asyncio.ensure_future(load.submit_all())
            killed = await load.kill_again_and_again(server)
            await submitting
            ended = await load.ended()
    return load, killed, ended


@pytest.mark.parametrize(
    ("kind", "durable", "settings"),
    [
        ("redis", True, {}),
        ("valkey", True, {}),
        ("valkey", False, {"acknowledge": "all", "ack_disk": True}),
    ],
    ids=["redis-always", "valkey-always", "valkey-everysec-acknowledged"],
)
async def test_a_killed_server_that_flushes_loses_nothing(
    kind: Kind,
    durable: bool,  # noqa: FBT001 - a parameter of the test
    settings: dict[str, Any],
    own_server: Own,
    provider: SandboxServer,
) -> None:
    """Every task that was acknowledged ends, and no job is created twice; what is in doubt is named."""
    load, killed, ended = await run(own_server(kind, durable=durable), provider, **settings)
    doubts = sum(task.status is Status.SUBMIT_UNKNOWN for task in ended.values())
    LOG.info("%d acknowledged, %d in doubt", len(load.acknowledged), doubts)
    assert len(killed) == KILLS
    assert ended.keys() == load.acknowledged.keys()
    assert {task.status for task in ended.values()} <= {Status.SUCCEEDED, Status.SUBMIT_UNKNOWN}
    assert doubts < TASKS / 2
    assert max(provider.creating_requests(name) for name, _ in load.acknowledged.values()) == 1


async def test_a_killed_server_that_flushes_every_second_loses_that_at_most(
    own_server: Own, provider: SandboxServer
) -> None:
    """What is lost was acknowledged shortly before a kill; the rest ends, and the store goes on."""
    load, killed, ended = await run(own_server("redis"), provider)
    lost = {task_id: at for task_id, (_, at) in load.acknowledged.items() if task_id not in ended}
    twice = [name for name, _ in load.acknowledged.values() if provider.creating_requests(name) > 1]
    doubts = sum(task.status is Status.SUBMIT_UNKNOWN for task in ended.values())
    counts = (len(load.acknowledged), len(lost), len(twice), doubts)
    LOG.info("%d acknowledged, %d lost, %d created twice, %d in doubt", *counts)
    assert all(any(0 <= kill - at < LONGEST_LOSS_SECONDS for kill in killed) for at in lost.values())
    assert {task.status for task in ended.values()} <= {Status.SUCCEEDED, Status.SUBMIT_UNKNOWN}
