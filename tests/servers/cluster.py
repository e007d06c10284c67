"""A Cluster of three masters."""

from collections.abc import Sequence
from pathlib import Path

from servers.errors import ServerFailed
from servers.redis import Redis
from servers.replicated import ask, in_step, runs, says_master, until
from servers.server import OwnServer

SLOTS = 16_384


class ClusterNode(Redis):
    """A node of a Cluster, or of one of Valkey."""

    kind = "cluster"

    def __init__(self, maker: type[Redis], *, durable: bool, options: Sequence[str] = ()) -> None:
        """Have a port for the nodes' own talk that is as free as the other."""
        self.programs, self.missing = maker.programs, maker.missing  # type: ignore[misc]  # as that one says
        lively = ("--cluster-node-timeout", "1500", "--repl-diskless-sync-delay", "0")
        super().__init__(durable=durable, options=("--cluster-enabled", "yes", *lively, *options))

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it with the one database that there is."""
        found = super().command(folder, port)
        found[found.index("--databases") + 1] = "1"
        return found


class Cluster:
    """Three masters, each with as many replicas as there are to be."""

    def __init__(self, maker: type[Redis], *, replicas: int = 0, durable: bool = False) -> None:
        """Start them; they agree on who holds what when this returns."""
        self.servers: list[OwnServer] = []
        try:
            for _ in range(3 + 3 * replicas):
                self.servers.append(OwnServer(ClusterNode(maker, durable=durable)))
            self.masters = self.servers[:3]
            self._join()
            for number, server in enumerate(self.servers[3:]):
                self._follow(server, self.masters[number % 3])
            until("the nodes agree", lambda: all(map(self._agrees, self.servers)))
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        for number, server in enumerate(self.masters):
            first, last = number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1
            ask(server, "CLUSTER", "ADDSLOTS", *map(str, range(first, last + 1)))
            ask(server, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for server in self.servers[1:]:
            ask(self.servers[0], "CLUSTER", "MEET", "127.0.0.1", str(server.port))
        until("the nodes know each other", lambda: all(map(self._knows_all, self.servers)))

    def _follow(self, server: OwnServer, master: OwnServer) -> None:
        ask(server, "CLUSTER", "REPLICATE", ask(master, "CLUSTER", "MYID"))
        until("a replica is in step", lambda: in_step(server))

    def _knows_all(self, server: OwnServer) -> bool:
        lines = ask(server, "CLUSTER", "NODES").splitlines()
        return len(lines) == len(self.servers) and all("handshake" not in line for line in lines)

    def _agrees(self, server: OwnServer) -> bool:
        fields = dict(line.split(":") for line in ask(server, "CLUSTER", "INFO").splitlines())
        slaves = sum("slave" in line for line in ask(server, "CLUSTER", "NODES").splitlines())
        agreed = fields["cluster_state"] == "ok" and fields["cluster_slots_ok"] == str(SLOTS)
        return agreed and slaves == len(self.servers) - 3

    @property
    def url(self) -> str:
        """Where a client finds all nodes: two of them."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:2])

    def holder(self, key: str) -> OwnServer:
        """The server that is the master of a key's slot."""
        slot = int(ask(self._any(), "CLUSTER", "KEYSLOT", key))
        for first, last, (_, port, *_), *_ in ask(self._any(), "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self._at(port)
        raise ServerFailed(f"no node serves slot {slot}")

    def replicas_of(self, master: OwnServer) -> list[OwnServer]:
        """The servers that follow a master."""
        name = ask(master, "CLUSTER", "MYID")
        lines = ask(master, "CLUSTER", "NODES").splitlines()
        ports = [
            int(line.split()[1].partition("@")[0].rpartition(":")[2])
            for line in lines
            if line.split()[3] == name
        ]
        return [self._at(port) for port in ports]

    def move(self, key: str) -> OwnServer:
        """Give the slot of a key, which has no data, to another master, and return it."""
        slot, old = ask(self._any(), "CLUSTER", "KEYSLOT", key), self.holder(key)
        new = next(server for server in self.masters if server is not old)
        name = ask(new, "CLUSTER", "MYID")
        for server in (new, *self.masters):
            ask(server, "CLUSTER", "SETSLOT", str(slot), "NODE", name)
        return new

    def empty(self) -> None:
        """Drop all data."""
        for server in self.servers:
            if says_master(server):
                ask(server, "FLUSHALL")

    def close(self) -> None:
        """End them all."""
        while self.servers:
            self.servers.pop().close()

    def _at(self, port: int) -> OwnServer:
        return next(server for server in self.servers if server.port == port)

    def _any(self) -> OwnServer:
        return next(server for server in self.servers if runs(server))
