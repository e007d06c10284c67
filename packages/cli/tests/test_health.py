import asyncio
import contextlib
import logging
import os
import re
import time
from pathlib import Path

import pytest

from coatcheck import StoreUnavailable
from coatcheck.memory import MemoryStore
from coatcheck.task import Task
from coatcheck_cli.failing import Failure
from coatcheck_cli.health import FRESH_SECONDS, HealthOrders, Pulse, is_fresh, watched

pytestmark = pytest.mark.timeout(120)


class Moody(MemoryStore):
    """A store that can be away."""

    away = False

    async def get(self, task_id: str) -> Task | None:
        """Answer, unless it is away."""
        if self.away:
            raise StoreUnavailable("nobody is here")
        return await super().get(task_id)


async def ask(port: int, text: str) -> str:
    """Send a request and return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    await writer.drain()
    answer = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return answer.decode()


async def test_a_worker_is_ready_while_its_store_answers() -> None:
    """Before the first answer and while the store is away it is not, and says why."""
    async with Moody() as store:
        pulse = Pulse(store)
        assert pulse.unready() == "the store has not answered yet"
        await pulse.beat()
        assert pulse.unready() is None
        store.away = True
        await pulse.beat()
        assert pulse.unready() == "the store does not answer: StoreUnavailable"
        store.away = False
        await pulse.beat()
        assert pulse.unready() is None


async def test_readiness_and_liveness_are_told_apart(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """/live answers as long as the loop goes round; /ready and the file follow the store."""
    caplog.set_level(logging.INFO, "coatcheck_cli.health")
    file = tmp_path / "alive"
    async with Moody() as store:
        store.away = True
        pulse = Pulse(store)
        async with watched(HealthOrders(file=file, port=0), pulse.unready, pulse.beat):
            port = int(re.findall(r"127\.0\.0\.1:(\d+)", caplog.text)[0])
            assert (await ask(port, "GET /live HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 200 OK\r\n")
            answer = await ask(port, "GET /ready HTTP/1.1\r\n\r\n")
            assert answer.startswith("HTTP/1.1 503 ")
            assert not file.exists()
            store.away = False
            while not file.exists():
                await asyncio.sleep(0.05)
            assert (await ask(port, "GET /ready?x=1 HTTP/1.1\r\n\r\n")).endswith("\r\n\r\nyes\n")
            assert (await ask(port, "HEAD /ready HTTP/1.1\r\n\r\n")).endswith("\r\n\r\n")
            assert (await ask(port, "nonsense\r\n\r\n")).startswith("HTTP/1.1 405 ")
            assert await ask(port, "GET /" + "x" * 20_000 + " HTTP/1.1\r\n\r\n") == ""
    assert not file.exists()


async def test_a_port_that_is_taken_is_told() -> None:
    """Whoever wants health gets it, or a failure: never silence."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Failure, match=f"127.0.0.1:{port} cannot be listened at"):
        async with watched(HealthOrders(port=port), lambda: None):
            pass
    server.close()
    await server.wait_closed()


def test_a_file_grows_stale(tmp_path: Path) -> None:
    """A file that nobody touches any more counts for nothing, like one that is not there."""
    file = tmp_path / "alive"
    assert not is_fresh(file)
    file.touch()
    assert is_fresh(file)
    long_ago = time.time() - FRESH_SECONDS - 5
    os.utime(file, (long_ago, long_ago))
    assert not is_fresh(file)
