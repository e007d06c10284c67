"""The members of the workspace, as their pyproject files describe them."""

import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import define

ROOT = Path(__file__).parent.parent


@define(kw_only=True, slots=False)
class Member:
    """One distribution of the workspace."""

    folder: Path
    """Its folder under `packages/`."""

    @cached_property
    def project(self) -> dict[str, Any]:
        """The table `[project]` of its pyproject.toml."""
        table: dict[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text("utf-8"))["project"]
        return table

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self.project["name"])

    @property
    def package(self) -> str:
        """The name under which it is imported."""
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of its import package."""
        return self.folder / "src" / self.package

    @property
    def entry_points(self) -> set[tuple[str, str, str]]:
        """Its entry points: group, name, value."""
        groups = self.project.get("entry-points", {}) | {"console_scripts": self.project.get("scripts", {})}
        return {(group, name, value) for group, points in groups.items() for name, value in points.items()}


MEMBERS = [Member(folder=file.parent) for file in sorted(ROOT.glob("packages/*/pyproject.toml"))]
