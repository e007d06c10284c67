"""A Sentinel that sees to it that there is a master."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers.clients import Client, RedisClient, numbers_of
from servers.redis import Redis
from servers.replicated import Replicated, ask, says_master, until
from servers.server import OwnServer, Recipe
from servers.urls import address_of

SERVICE = "orders"
"""The name under which the Sentinel knows the master."""
DOWN_AFTER_MILLISECONDS = 1500


class SentinelClient(RedisClient):
    """Asks a Sentinel, which has no databases."""

    def version(self) -> tuple[int, ...]:
        """Ask for it."""
        return numbers_of(self.ask(None, "INFO", "server").partition("redis_version:")[2])


class SentinelRecipe(Recipe):
    """A Sentinel, the only one, and so the majority."""

    kind = "sentinel"
    stop_signal = signal.SIGTERM

    def __init__(self, program: Path, master: OwnServer) -> None:
        """Watch the master."""
        self._program = program
        self._master = master

    def prepare(self, folder: Path) -> None:
        """Write the file that it wants, and keeps up to date."""
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} 1",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MILLISECONDS}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n", "utf-8")

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it."""
        file = str(folder / "sentinel.conf")
        return [str(self._program), file, "--sentinel", "--bind", "127.0.0.1", "--port", str(port)]

    def client(self, port: int) -> Client:
        """Ask it."""
        return SentinelClient(f"redis://127.0.0.1:{port}")


class Guarded(Replicated):
    """A master, its replicas, and a Sentinel."""

    def __init__(
        self, maker: type[Redis], *, replicas: int = 1, durable: bool = False, options: Sequence[str] = ()
    ) -> None:
        """Start them; the Sentinel knows all when this returns."""
        super().__init__(maker, replicas=replicas, durable=durable, options=options)
        try:
            program = maker(durable=durable).program
            self.sentinel = OwnServer(SentinelRecipe(program, self.servers[0]))
            until("the Sentinel knows the replicas", lambda: len(self._known()) == replicas)
        except BaseException:
            self.close()
            raise

    def _known(self) -> list[Any]:
        found: list[Any] = ask(self.sentinel, "SENTINEL", "REPLICAS", SERVICE)
        return found

    @property
    def chosen(self) -> OwnServer:
        """The master, as the Sentinel has it."""
        _, port = ask(self.sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    def url(self, database: int = 0) -> str:
        """Where a client finds the master."""
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{SERVICE}/{database}"

    def new_database(self) -> str:
        """Take an empty database of the master and return its URL."""
        return self.url(int(address_of(self.servers[0].new_database(), port=0).database))

    def drop_database(self, url: str) -> None:
        """Empty it."""
        number = url.rpartition("/")[2]
        RedisClient(self.chosen.url).ask(int(number), "FLUSHDB")

    def wait_for_successor(self, old: OwnServer) -> OwnServer:
        """Wait until another server has taken the place of `old`, and return it."""
        chosen: OwnServer = until(
            "another master",
            lambda: self.chosen if self.chosen is not old and says_master(self.chosen) else None,
        )
        return chosen

    def close(self) -> None:
        """End them all, first the one that would act on it."""
        if hasattr(self, "sentinel"):
            self.sentinel.close()
        super().close()
