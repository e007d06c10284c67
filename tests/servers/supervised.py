"""A server process as the tests see it, behind its `supervisor.py`."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servers.errors import ServerFailed

SUPERVISOR = Path(__file__).with_name("supervisor.py")
LOG_LINES = 30
KEPT_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "PATH", "TZ")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment for a server: nothing in it, such as PGDATA, points to another one.

    Its temporary files are in `folder`: MariaDB's first steps use names there that another server's may be, too.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {"LC_ALL": "C", "TMPDIR": str(folder)}


class Supervised:
    """One run of a server, from its start to its end."""

    def __init__(self, command: Sequence[str], *, folder: Path, log: Path, user: str) -> None:
        """Start it, as `user` if that is not empty.

        Raises:
            ServerFailed: the program could not be started.
        """
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SUPERVISOR), user, str(folder), str(log), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment(folder),
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )
        answer = self._answer()
        if not answer:
            self._close()
            raise ServerFailed(f"{command[0]} could not be started:\n{self.log}")
        self.pid = int(answer)

    @property
    def log(self) -> str:
        """The last that the server has said."""
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:])

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send(self, number: signal.Signals, *, everyone: bool = False) -> None:
        """Send it a signal, or to it and all its children, and return when that is done."""
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        try:
            self._process.stdin.write(b"%s %d\n" % (b"all" if everyone else b"one", number))
            self._process.stdin.flush()
        except BrokenPipeError:  # it has ended
            return
        self._answer()

    def wait(self, seconds: float) -> None:
        """Wait for its end.

        Raises:
            ServerFailed: it has not ended within that time.
        """
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired as late:
            raise ServerFailed(f"the server has not ended within {seconds:g} s:\n{self.log}") from late
        self._close()

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
