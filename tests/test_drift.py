"""What is written down twice must agree: metadata, environments, supported Pythons."""

import importlib.metadata
import re
import tomllib

import pytest

from workspace import MEMBERS, ROOT, Member

REMEDY = "run ./dev prune (or `hatch env prune`), then try again"


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_installed_metadata_is_that_of_the_pyproject(member: Member) -> None:
    """The environment knows each member's present version and entry points."""
    try:
        installed = importlib.metadata.distribution(member.name)
    except importlib.metadata.PackageNotFoundError:
        pytest.fail(f"{member.name} is not installed in this environment: {REMEDY}")
    assert installed.version == member.project["version"], REMEDY
    assert {(p.group, p.name, p.value) for p in installed.entry_points} == member.entry_points, REMEDY


def test_hatch_environments_hold_every_member() -> None:
    """A folder in packages/ is a member of the workspace in hatch.toml."""
    environments = tomllib.loads((ROOT / "hatch.toml").read_text("utf-8"))["envs"]
    listed = [
        entry if isinstance(entry, str) else entry["path"]
        for entry in environments["default"]["workspace"]["members"]
    ]
    assert listed == [str(member.folder.relative_to(ROOT)) for member in MEMBERS]


def test_entry_points_are_named_after_their_distribution() -> None:
    """A plugin's one entry point bears its distribution's name, without the prefix."""
    for member in MEMBERS:
        names = {name for group, name, _ in member.entry_points if group == "coatcheck"}
        assert names <= {member.name.removeprefix("coatcheck-")}


def test_supported_pythons_are_the_same_everywhere() -> None:
    """./dev, the test matrix and every member's classifiers name the same Pythons."""
    environments = tomllib.loads((ROOT / "hatch.toml").read_text("utf-8"))["envs"]
    (matrix,) = environments["hatch-test"]["matrix"]
    found = re.search(r"^SUPPORTED = \((.*)\)$", (ROOT / "dev").read_text("utf-8"), re.MULTILINE)
    assert found
    assert re.findall(r'"(.*?)"', found[1]) == matrix["python"]
    for member in MEMBERS:
        classifiers = re.findall(r":: (3\.\d+)", "\n".join(member.project["classifiers"]))
        assert classifiers == matrix["python"], member.name
        assert member.project["requires-python"] == f">={matrix['python'][0]}", member.name
