"""A master of Redis with replicas, and what tests ask of the servers of a group."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from servers.clients import RedisClient
from servers.errors import ServerFailed
from servers.redis import Redis
from servers.server import OwnServer

PATIENCE_SECONDS = 40.0


def until(what: str, check: Callable[[], Any]) -> Any:
    """Wait until `check` returns something true, which may fail meanwhile, and return it.

    Raises:
        ServerFailed: it has not within 40 seconds.
    """
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError, ServerFailed, ValueError):
            if found := check():
                return found
        if time.monotonic() > ends:
            raise ServerFailed(f"not within {PATIENCE_SECONDS:g} s: {what}")
        time.sleep(0.02)


def ask(server: OwnServer, *command: str) -> Any:
    """Send a command to a server and return its answer."""
    return RedisClient(server.url).ask(None, *command)


def info(server: OwnServer, section: str) -> dict[str, str]:
    """Return what a server says of itself."""
    lines = ask(server, "INFO", section).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


class Replicated:
    """A master and replicas of it. `maker` is Redis or Valkey."""

    def __init__(
        self, maker: type[Redis], *, replicas: int, durable: bool = False, options: Sequence[str] = ()
    ) -> None:
        """Start them; they are in step when this returns."""
        at_once = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", *options)
        self.servers: list[OwnServer] = []
        try:
            master = OwnServer(maker(durable=durable, options=at_once))
            self.servers.append(master)
            for _ in range(replicas):
                after = ("--replicaof", f"127.0.0.1 {master.port}")
                follower = maker(durable=durable, options=(*at_once, *after))
                self.servers.append(OwnServer(follower))
            until("the replicas are in step", lambda: all(map(in_step, self.servers[1:])))
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> OwnServer:
        """The server that says that it is the master; the first, if several do."""
        return next(server for server in self.servers if says_master(server))

    @property
    def replicas(self) -> list[OwnServer]:
        """The servers that say that they are not."""
        return [server for server in self.servers if runs(server) and not says_master(server)]

    def close(self) -> None:
        """End them all."""
        while self.servers:
            self.servers.pop().close()


def runs(server: OwnServer) -> bool:
    """Tell whether it answers."""
    with contextlib.suppress(OSError, ServerFailed):
        return bool(ask(server, "PING") == "PONG")
    return False


def says_master(server: OwnServer) -> bool:
    """Tell whether it answers, and takes itself for the master."""
    with contextlib.suppress(OSError, ServerFailed):
        return info(server, "replication")["role"] == "master"
    return False


def in_step(server: OwnServer) -> bool:
    """Tell whether a replica has its master's data, and goes on with them."""
    return info(server, "replication").get("master_link_status") == "up"
