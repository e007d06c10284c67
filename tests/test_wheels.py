"""The wheels that users install: complete, and sufficient on their own."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from workspace import MEMBERS, ROOT, Member

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

each_member = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)

LOOK = """
import importlib, importlib.metadata as metadata, json, sys
name, package = sys.argv[1:]
module = importlib.import_module(package)
points = metadata.distribution(name).entry_points
print(json.dumps({
    "file": module.__file__,
    "entry_points": sorted([p.group, p.name, p.value] for p in points),
    "broken": [p.value for p in points if p.load() is None],
}))
"""


def uv(*arguments: str | Path) -> None:
    """Run uv; its output is the message if it fails."""
    done = subprocess.run(["uv", "--quiet", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build every member as a release would: a source distribution, and from that a wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    for member in MEMBERS:
        uv("build", "--out-dir", folder, member.folder)
    return {member.name: next(folder.glob(f"{member.package}-*.whl")) for member in MEMBERS}


@pytest.fixture(scope="session")
def together(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all wheels into one clean environment; return its Python."""
    return install(tmp_path_factory.mktemp("together"), *wheels.values())


def install(folder: Path, *arguments: str | Path) -> Path:
    """Make a clean environment with these installed; return its Python."""
    python = folder / "bin" / "python"
    uv("venv", "--clear", "--python", sys.executable, folder)
    uv("pip", "install", "--python", python, *arguments)
    return python


def look(python: Path, member: Member) -> None:
    """Import a member in that environment, load its entry points, and check where they come from."""
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", LOOK, member.name, member.package],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert Path(seen["file"]).is_relative_to(python.parent.parent)
    assert {tuple(point) for point in seen["entry_points"]} == member.entry_points
    assert not seen["broken"]


@each_member
def test_wheel_holds_every_file_of_the_package(member: Member, wheels: dict[str, Path]) -> None:
    """Modules, migrations, data files, py.typed and the licence get into the wheel."""
    expected = {
        file.relative_to(member.source.parent).as_posix()
        for file in member.source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheels[member.name]) as wheel:
        names = set(wheel.namelist())
        (licence,) = (wheel.read(name) for name in names if name.endswith("/licenses/LICENSE"))
    assert f"{member.package}/py.typed" in names
    assert expected <= names
    assert {name for name in names if ".dist-info/" not in name} <= expected
    assert licence == (ROOT / "LICENSE").read_bytes()


@each_member
def test_wheels_work_together(member: Member, together: Path) -> None:
    """With all wheels installed, each imports and its entry points load."""
    look(together, member)


@each_member
def test_wheel_works_alone(member: Member, wheels: dict[str, Path], tmp_path: Path) -> None:
    """A wheel brings all it needs: installed alone, it imports and its entry points load."""
    # Members come from the wheels just built, whatever an index may hold under their names.
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{name} @ {wheel.as_uri()}\n" for name, wheel in wheels.items()))
    look(install(tmp_path / "alone", "--constraints", constraints, wheels[member.name]), member)
