"""Redis of the tests' own, or Valkey."""

import signal
from pathlib import Path

from servers.clients import Client, RedisClient
from servers.errors import NoServer
from servers.search import find_program
from servers.server import Recipe


class Redis(Recipe):
    """A Redis server with a thousand databases."""

    kind = "redis"
    stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool) -> None:
        """Find the program; `durable` makes an answer wait for the disk."""
        self._flush = "always" if durable else "everysec"
        program = find_program("redis-server", "valkey-server")
        if program is None:
            raise NoServer("no Redis: set COATCHECK_TEST_REDIS_URL or install Redis or Valkey")
        self._program = program

    def prepare(self, folder: Path) -> None:
        """Need nothing."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it with a log of all writes, which a kill doesn't lose."""
        return [
            *(str(self._program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
            *("--databases", "1000", "--save", "", "--appendonly", "yes", "--appendfsync", self._flush),
        ]

    def client(self, port: int) -> Client:
        """Talk to its first database, which no test gets."""
        return RedisClient(f"redis://127.0.0.1:{port}/0")
