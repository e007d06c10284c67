"""Who may import whom: rooms inside core, private names, drivers, and the price of `import coatcheck`."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workspace import MEMBERS, ROOT, Member

ROOMS = (
    "lazy",
    "errors",
    "evolving",
    "task",
    "results",
    "events",
    "lifecycle",
    "retry",
    "tallies",
    "gates",
    "handler",
    "selector",
    "clock",
    "store",
    "hooks",
    "codec",
    "secret",
    "converter",
    "persistable",
    "remedies",
    "settings",
    "urls",
    "plugins",
    "listing",
    "builtin",
    "recipes",
    "registry",
    "catalog",
    "configuration",
    "locked",
    "memory",
    "loops",
    "verdicts",
    "calls",
    "leases",
    "standing",
    "fleet",
    "settling",
    "calling",
    "claiming",
    "observing",
    "manager",
    "worker",
    "app",
    "sync",
    "faulty",
    "testing",
)
"""The rooms of core, bottom to top: a module imports only what stands before it."""

PACKAGES = {member.package: member for member in MEMBERS}
CORE = PACKAGES["coatcheck"].source
IMPORT_BUDGET_SECONDS = 0.030


def imports(file: Path, package: str = "") -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything a file imports; relative ones start at `package`."""
    tree = ast.parse(file.read_text("utf-8"), file)
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but those that only a type checker reads: the annotations of errors name later rooms."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed(node)


def package_of(file: Path, member: Member) -> str:
    """Return the dotted name of the package that holds a module of a member."""
    return ".".join(file.parent.relative_to(member.source.parent).parts)


def places(uses: list[tuple[Path, int, str]]) -> list[str]:
    """Return them in a form that an editor can jump to."""
    return [f"{file.relative_to(ROOT)}:{line}: {what}" for file, line, what in uses]


def room_of(file: Path) -> str:
    """Return the room of core that a file belongs to."""
    return file.relative_to(CORE).with_suffix("").parts[0]


def test_every_module_of_core_has_a_room() -> None:
    """A new module of core is given its place in ROOMS."""
    found = {room_of(file) for file in CORE.rglob("*.py")} - {"__init__"}
    assert found <= set(ROOMS)


def test_core_imports_only_downwards() -> None:
    """A module of core imports only rooms that stand before its own, and never `coatcheck` as a whole."""
    order = {f"coatcheck.{room}": position for position, room in enumerate(ROOMS)}
    wrong = []
    for file in sorted(CORE.rglob("*.py")):
        own = f"coatcheck.{room_of(file)}"
        if own not in order:
            continue
        for line, name in imports(file, package_of(file, PACKAGES["coatcheck"])):
            room = ".".join(name.split(".")[:2])
            below = room == own or order.get(room, len(order)) < order[own]
            if name.split(".")[0] == "coatcheck" and not below:
                wrong.append((file, line, name))
    assert not places(wrong)


def is_private(name: str) -> bool:
    """Tell whether a dotted name has a part with a leading underscore."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def private_uses(file: Path, own: str | None) -> Iterator[tuple[Path, int, str]]:
    """Yield where a file imports, or reaches through an import for, a private name of another package."""
    foreign = PACKAGES.keys() - {own}
    for line, name in imports(file, own or ""):
        if name.split(".")[0] in foreign and is_private(name):
            yield file, line, name
    tree = ast.parse(file.read_text("utf-8"), file)
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] in foreign}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in foreign:
            bound |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = ast.unparse(node)
            if (
                chain.split(".")[0] in bound
                and chain.replace(".", "").isidentifier()
                and is_private(node.attr)
            ):
                yield file, node.lineno, chain


def test_packages_use_only_public_names_of_each_other() -> None:
    """What has a leading underscore is used by its own package alone."""
    wrong: list[tuple[Path, int, str]] = []
    for member in MEMBERS:
        for file in sorted([*member.folder.rglob("src/**/*.py"), *member.folder.rglob("tests/**/*.py")]):
            if "mutants" not in file.parts:  # which break what they reach into
                wrong += private_uses(file, member.package)
    for folder in ("tests", "benchmarks", "examples"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            wrong += private_uses(file, None)
    assert not places(wrong)


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("from coatcheck._x import y", True),
        ("from coatcheck.x import _y", True),
        ("from coatcheck import _x", True),
        ("import coatcheck.x\ncoatcheck.x._y", True),
        ("from coatcheck import x\nx._y()", True),
        ("from coatcheck import x\nx.__name__", False),
        ("from coatcheck.x import y\ny.z", False),
        ("from coatcheck_http import _x", False),
        ("self._y", False),
    ],
)
def test_private_names_are_noticed(tmp_path: Path, source: str, *, caught: bool) -> None:
    """The check above sees each way to reach for another package's private name, and nothing else."""
    file = tmp_path / "module.py"
    file.write_text(source)
    assert bool(list(private_uses(file, "coatcheck_http"))) is caught


def test_only_the_http_package_imports_httpx() -> None:
    """Wire discipline is kept in one place."""
    wrong = [
        (file, line, name)
        for member in MEMBERS
        if member.package != "coatcheck_http"
        for file in sorted(member.source.rglob("*.py"))
        for line, name in imports(file, package_of(file, member))
        if name.split(".")[0] == "httpx"
    ]
    assert not places(wrong)


def python(code: str, cache: Path) -> str:
    """Return what a fresh Python prints; byte code is kept in `cache`, as an installed package's would be."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON"))}
    environ["PYTHONPYCACHEPREFIX"] = str(cache)
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    ).stdout


def test_importing_core_loads_no_driver(tmp_path: Path) -> None:
    """`import coatcheck` brings in no HTTP client and no database driver."""
    loaded = json.loads(python("import coatcheck, json, sys; print(json.dumps([*sys.modules]))", tmp_path))
    assert not {"httpx", "sqlalchemy", "redis"} & set(loaded)


def test_importing_core_is_cheap(tmp_path: Path) -> None:
    """`import coatcheck` costs little more than attrs, cattrs and pluggy."""
    # The fastest of several alternating runs is what the import costs; the rest is noise.
    measure = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
    core, parts = [], []
    for _ in range(30):
        core.append(float(python(measure.format("coatcheck"), tmp_path)))
        parts.append(float(python(measure.format("attrs, cattrs, pluggy"), tmp_path)))
        if len(core) > 1 and min(core) - min(parts) <= IMPORT_BUDGET_SECONDS:
            return
    pytest.fail(f"import coatcheck: {min(core):.3f} s; attrs, cattrs, pluggy: {min(parts):.3f} s")
