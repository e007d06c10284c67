"""A program that runs one server: it passes signals on to it, and ends it when the tests are gone.

A child can be told to die with its parent, but that means the thread that started it, and only on Linux, and Python
warns of what it takes in a process with threads. A small process between the tests and the server has none of this:
its standard input ends when the tests end, in whatever way. `supervised.py` starts it and talks to it.

Arguments: the user that the server is to run as (or nothing), its folder, its log, then its command. It answers
with the server's process id. Each line that it reads, ``one NUMBER`` or ``all NUMBER``, is a signal for the server,
or for the server and its children; it answers each with ``done``. It ends after the server, and with its exit code.
"""

import contextlib
import ctypes
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

IPC_RMID = 0
PR_SET_PDEATHSIG = 1
SECONDS_BETWEEN_LOOKS = 1.0


def children_of(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    parents: dict[int, int] = {}
    if Path("/proc/self/stat").exists():
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # the name of the program, in parentheses, may hold anything
                parents[int(file.parent.name)] = int(file.read_text("latin-1").rpartition(")")[2].split()[1])
    else:
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        parents = {int(child): int(parent) for child, parent in map(str.split, table.stdout.splitlines())}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, where it can; for a supervisor that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def remove_shared_memory(folder: Path) -> None:
    """Remove the few bytes that mark a folder of PostgreSQL as in use, and that outlive a kill; its file names them."""
    with contextlib.suppress(OSError, LookupError, AttributeError):
        marker = (folder / "data/postmaster.pid").read_text("utf-8").splitlines()[6]
        ctypes.CDLL(None).shmctl(int(marker.split()[1]), IPC_RMID, None)


def signal_all(server: "subprocess.Popen[bytes]", number: int) -> None:
    """Send a signal to a server and to its children."""
    server.send_signal(signal.SIGSTOP)  # it starts no more of them, and buries none, meanwhile
    for child in children_of(server.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
    server.send_signal(number)


def obey(server: "subprocess.Popen[bytes]", tests: int, orphaned: threading.Event) -> None:
    """Send the signals that the tests order; kill the server when the tests are gone."""
    pending = b""
    while os.getppid() == tests:
        # a forked child of the tests may keep the pipe open, so the end of the input is not all there is to see
        if not select.select([0], [], [], SECONDS_BETWEEN_LOOKS)[0]:
            continue
        read = os.read(0, 4096)
        if not read:
            break
        *orders, pending = (pending + read).split(b"\n")
        for whom, number in map(bytes.split, orders):
            if whom == b"all":
                signal_all(server, int(number))
            else:
                server.send_signal(int(number))
            os.write(1, b"done\n")
    orphaned.set()
    signal_all(server, signal.SIGKILL)


def main(user: str, folder: str, log: str, command: list[str]) -> int:
    """Run the server and return its exit code; a signal that ended it counts from 128."""
    tests = os.getppid()
    group = pwd.getpwnam(user).pw_gid if user else None
    with Path(log).open("ab") as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
            user=user or None,
            group=group,
            extra_groups=[] if user else None,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads yet
        )
    os.write(1, b"%d\n" % server.pid)
    orphaned = threading.Event()
    threading.Thread(target=obey, args=(server, tests, orphaned), daemon=True).start()
    code = server.wait()
    if orphaned.is_set():
        remove_shared_memory(Path(folder))
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
