"""A server that tests may use, and one that they may also stop and kill."""

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from servers.clients import Client
from servers.errors import ServerError, ServerFailed
from servers.supervised import Supervised

START_SECONDS = 120.0
STOP_SECONDS = 45.0
KILL_SECONDS = 20.0
PORTS = range(15_000, 32_000)
"""Below those that connections of other programs take for themselves: a stopped server finds its own again."""
PORT_ATTEMPTS = 3


class Server:
    """A server that is shared: tests create databases in it and leave all else alone."""

    def __init__(self, client: Client) -> None:
        """Serve through this client."""
        self._client = client
        self._databases: set[str] = set()
        self._version: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it is, with a database that always exists, as a user who may create others."""
        return self._client.url

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers of its version; asked for once, since it is the same after a restart."""
        if not self._version:
            self._version = self._client.version()
        return self._version

    def new_database(self) -> str:
        """Create an empty database and return its URL."""
        url = self._client.create()
        self._databases.add(url)
        return url

    def drop_database(self, url: str) -> None:
        """Drop what `new_database` has made, though others may be connected to it."""
        self._client.drop(url)
        self._databases.discard(url)

    def close(self) -> None:
        """Drop what is left of its databases."""
        for url in list(self._databases):
            self.drop_database(url)


class Recipe(ABC):
    """How to run a server of one kind."""

    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    """What makes it end in good order, whoever is connected."""
    user: str = ""
    """Who is to run it, if not the user of the tests."""

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make, in an empty folder, what it needs for its first start."""

    @abstractmethod
    def command(self, folder: Path, port: int) -> list[str]:
        """Return the command that runs it, in the foreground and with its log on standard output or error."""

    @abstractmethod
    def client(self, port: int) -> Client:
        """Return what talks to it."""

    def clean(self, folder: Path) -> None:  # noqa: B027 - most leave nothing
        """Remove what it leaves outside its folder if it is killed."""


class OwnServer(Server):
    """A server of the tests' own: on a free port of the loopback interface, with its data in a temporary folder.

    It never outlives the process that made it.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Set it up and start it.

        Raises:
            ServerFailed: it could not be set up, or does not answer in time.
        """
        self._recipe = recipe
        self._run: Supervised | None = None
        self._folder = Path(tempfile.mkdtemp(prefix=f"coatcheck-{recipe.kind}-"))
        _open.append(self)
        try:
            if recipe.user:
                shutil.chown(self._folder, recipe.user)
            recipe.prepare(self._folder)
            self._start_somewhere()
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        """The last that it has said."""
        return self._run.log if self._run else ""

    def start(self) -> None:
        """Start it, if it doesn't run, and wait until it answers: on its port, with the data that it had.

        Raises:
            ServerFailed: it has ended, or does not answer within 45 seconds.
        """
        if self._run and self._run.runs:
            return
        if self._run:
            self._run.wait(STOP_SECONDS)  # it has ended by itself, maybe: this closes its pipes
        self._run = Supervised(
            self._recipe.command(self._folder, self.port),
            folder=self._folder,
            log=self._folder / "server.log",
            user=self._recipe.user,
        )
        ends = time.monotonic() + START_SECONDS
        while True:
            if not self._run.runs:
                raise ServerFailed(f"the {self._recipe.kind} server has ended:\n{self.log}")
            try:
                self._client.version()
            except self._client.errors as error:
                if time.monotonic() > ends:
                    message = f"the {self._recipe.kind} server does not answer: {error}\n{self.log}"
                    raise ServerFailed(message) from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Let it end in good order, whoever is connected, and wait for that.

        Raises:
            ServerFailed: it has not ended within 45 seconds.
        """
        if self._run:
            self.resume()
            self._run.send(self._recipe.stop_signal)
            self._run.wait(STOP_SECONDS)

    def kill(self) -> None:
        """Kill it with all its children, as a machine that fails would."""
        if self._run:
            self._run.send(signal.SIGKILL, everyone=True)
            self._run.wait(KILL_SECONDS)

    def pause(self) -> None:
        """Make it hang, with all its children: connections stay open and are accepted, and nothing answers."""
        if self._run:
            self._run.send(signal.SIGSTOP, everyone=True)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self._run:
            self._run.send(signal.SIGCONT, everyone=True)

    def close(self) -> None:
        """Kill it and remove its data."""
        if self in _open:
            _open.remove(self)
            try:
                self.kill()
                self._recipe.clean(self._folder)
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _start_somewhere(self) -> None:
        for attempt in range(PORT_ATTEMPTS):
            self.port = _free_port()
            super().__init__(self._recipe.client(self.port))
            try:
                self.start()
            except ServerFailed:
                # another program may have taken the port since it was free
                if attempt + 1 == PORT_ATTEMPTS or "in use" not in self.log:
                    raise
            else:
                return


_open: list[OwnServer] = []
_process = os.getpid()


@atexit.register
def close_all() -> None:
    """Close all servers that this process has started."""
    if os.getpid() != _process:  # a forked child ends, and the servers are not its own
        return
    while _open:
        with contextlib.suppress(ServerError):
            _open[-1].close()


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
