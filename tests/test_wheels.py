"""The wheels that users install: complete, and sufficient on their own."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from wheels import constraints_of, install
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


@pytest.fixture(scope="session")
def together(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all wheels into one clean environment, with the drivers of all databases; return its Python."""
    drivers = ("aiomysql", "asyncmy", "asyncpg", "psycopg[binary]")
    return install(tmp_path_factory.mktemp("together"), *wheels.values(), *drivers)


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
    constraints = constraints_of(wheels, tmp_path)
    look(install(tmp_path / "alone", "--constraints", constraints, wheels[member.name]), member)


# ------------------------------------------------------------------ the conformance kit, as its users install it

TRIED = {
    "memory": ["store", "memory://", "--clock", "clock"],
    "sqlite": [
        "store",
        "sqlite:///{folder}/jobs.db",
        "--clock",
        "clock",
        "--require",
        "durable",
        "--require",
        "shared",
    ],
    "retry": ["retry", "coatcheck:ExponentialRetry"],
    "admission": ["admission", "coatcheck:StandardAdmission"],
    "ocr-gitee": ["handler", "test_conformance:gitee_spec"],
    **{
        f"plugin-{member.name}": ["plugin", member.name]
        for member in MEMBERS
        if any(group == "coatcheck" for group, _, _ in member.entry_points)
    },
}
"""What this repository brings, and how its conformance is asked for."""

OWN_SPECS = ("admissions", "handler-ocr", "handler-video", "selectors", "retries")
"""Members some of whose offers need settings: their tests have a spec."""
for each in OWN_SPECS:
    TRIED[f"plugin-coatcheck-{each}"] = ["plugin", "test_plugin:plugin_spec"]


def test_every_plugin_is_tried() -> None:
    """A member with an entry point in the group `coatcheck` is a plugin package."""
    assert {"plugin-coatcheck-store-sql", "plugin-coatcheck-handler-ocr"} <= TRIED.keys()


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", TRIED)
def test_what_is_installed_conforms(name: str, together: Path, tmp_path: Path) -> None:
    """Every store, handler, policy and plugin of this repository conforms, each from its installed wheel."""
    report = tmp_path / "report.json"
    own = name.removeprefix("plugin-coatcheck-")
    folder = own if own in OWN_SPECS else "handler-ocr"  # where the script of its provider is
    done = subprocess.run(
        [together.parent / "coatcheck-conformance", *TRIED[name], "--report", report],
        cwd=ROOT / "packages" / folder / "tests",
        env={"PATH": str(together.parent)},
        capture_output=True,
        text=True,
        timeout=900,  # of which it needs a tenth on a quiet machine
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text("utf-8"))
    assert told["verdict"] == "conformant"
    assert told["counts"]["passed"] > 10
    assert "not installed" not in told["versions"].values()


MEASURED = """
import json, subprocess, sys
subprocess.run([sys.executable, "-m", "pytest", "-q", "--cov=tiny", "--cov-branch", "--cov-report=json"], check=True)
print(json.dumps(json.load(open("coverage.json"))["totals"]))
"""


def test_coverage_of_a_users_package_is_right_with_the_kit_installed(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """What the kit's pytest plugin imported before coverage began would look as if it were never run."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "__init__.py").write_text(
        "from coatcheck import Status\n\n\ndef even(n):\n    return n % 2 == 0\n"
    )
    (tmp_path / "test_tiny.py").write_text(
        "from tiny import even\n\n\ndef test_even():\n    assert even(2)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    measured = {}
    core = wheels["coatcheck"]
    for name, more in {"without": [], "with": [wheels["coatcheck-conformance"]]}.items():
        python = install(tmp_path / name, "pytest-cov", core, *more)
        done = subprocess.run(
            [python, "-c", MEASURED], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        measured[name] = json.loads(done.stdout.splitlines()[-1])
    assert measured["with"] == measured["without"]
    assert measured["with"]["percent_covered"] == 100


# ------------------------------------------------------------------ what others write

EXAMPLES = sorted(file.parent for file in ROOT.glob("examples/*/pyproject.toml"))
APPS = [folder for folder in EXAMPLES if folder.name.startswith("app-")]
PLUGINS = [folder for folder in EXAMPLES if folder not in APPS]


def test_there_are_examples() -> None:
    """A store and a handler, written from the docs alone, and an app for each of three web frameworks."""
    assert [folder.name.partition("-")[0] for folder in PLUGINS] == ["handler", "store"]
    assert [folder.name for folder in APPS] == ["app-django", "app-fastapi", "app-flask"]


def try_out(folder: Path, wheels: dict[str, Path], place: Path, *options: str | Path) -> None:
    """Install an example beside the wheels, and nothing else of the workspace; its tests have to pass."""
    constraints = constraints_of(wheels, place)
    copy = shutil.copytree(folder, place / folder.name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    python = install(place / "python", "--constraints", constraints, f"{copy}[test]")
    command = [
        "-m",
        "pytest",
        "-q",
        "-c",
        "pyproject.toml",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    done = subprocess.run(
        [python, *command],
        cwd=copy,
        env={"PATH": str(python.parent)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_an_example_conforms(folder: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    """With plain pytest an example's own tests pass, and its reports are good."""
    reports = tmp_path / "reports"
    try_out(folder, wheels, tmp_path, "--conformance-report", reports)
    verdicts = [json.loads(each.read_text("utf-8"))["verdict"] for each in reports.iterdir()]
    assert verdicts
    assert set(verdicts) == {"conformant"}


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("folder", APPS, ids=lambda folder: folder.name)
def test_an_example_of_an_app_works(folder: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    """Its endpoints, its worker and its callbacks, against a sandbox."""
    try_out(folder, wheels, tmp_path)
