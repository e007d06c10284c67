"""Wheels of the members, and clean environments to install them into."""

import subprocess
import sys
from pathlib import Path

import pytest

from workspace import MEMBERS


def uv(*arguments: str | Path) -> None:
    """Run uv; its output is the message if it fails."""
    done = subprocess.run(["uv", "--quiet", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def install(folder: Path, *arguments: str | Path) -> Path:
    """Make a clean environment with these installed; return its Python."""
    python = folder / "bin" / "python"
    uv("venv", "--clear", "--python", sys.executable, folder)
    uv("pip", "install", "--python", python, *arguments)
    return python


def constraints_of(wheels: dict[str, Path], folder: Path) -> Path:
    """Write a file by which members come from the wheels just built, whatever an index may hold under their names."""
    file = folder / "constraints.txt"
    file.write_text("".join(f"{name} @ {wheel.as_uri()}\n" for name, wheel in wheels.items()))
    return file


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build every member as a release would: a source distribution, and from that a wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    for member in MEMBERS:
        uv("build", "--out-dir", folder, member.folder)
    return {member.name: next(folder.glob(f"{member.package}-*.whl")) for member in MEMBERS}
