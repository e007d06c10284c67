"""Which distribution is under test, and what it takes to make what it offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import attrs
from attrs import field, frozen

from coatcheck.catalog import STRICT_VARIABLE
from coatcheck.errors import ConfigurationError
from coatcheck.plugins import PluginState
from coatcheck_conformance.plugin.facts import Found, Light, Made, Request
from coatcheck_conformance.rules import Identity

__all__ = ["PluginSpec"]

_T = TypeVar("_T", Light, Found, Made)
_KIT = str(Path(__file__).parents[2])
_CODE = """\
import sys
sys.path.append(sys.argv[1])
from coatcheck_conformance.plugin.probe import main
main(sys.argv[2])
"""
"""What a process of its own runs: what a plugin imports is seen nowhere else."""
_PATIENCE_SECONDS = 120


def _folders(given: Sequence[str | Path]) -> tuple[str, ...]:
    return tuple(str(each) for each in given)


@frozen
class PluginSpec:
    """An installed distribution. What the kit finds out about it is found out once in a process."""

    distribution: str
    """Its name, as pip knows it."""
    path: Sequence[str] = field(default=(), converter=_folders, kw_only=True)
    """Folders that go in front of the path, for a distribution that is not installed."""
    urls: Mapping[str, str] = field(factory=dict, kw_only=True)
    """By scheme, a URL to make a store of, if none that the kit can think of will do; nothing is opened."""
    settings: Mapping[str, Mapping[str, object]] = field(factory=dict, kw_only=True)
    """By key, settings without which a thing cannot be made; as JSON, as in configuration."""
    samples: Mapping[str, Mapping[str, object]] = field(factory=dict, kw_only=True)
    """By ``package.module:Class``, what settings or an account of that class can be made from, if text won't do."""

    def offers(self) -> frozenset[str]:
        """Return the kinds of what it offers.

        Raises:
            ConfigurationError: it is not installed, or cannot be looked at; the message says why.
        """
        usable = (each for each in self.found().offers if each.state != PluginState.INCOMPATIBLE)
        return frozenset(each.kind for each in usable)

    def identity(self) -> Identity:
        """Return its name and version, and where its light module is."""
        found = self.found()
        modules = [value.partition(":")[0] for _, value in found.entries]
        return Identity(target=f"{self.distribution} {found.version}", modules=modules)

    def light(self, attempt: int = 0) -> Light:
        """Return what importing the light module comes to, with warnings as errors; each attempt anew."""
        return self._look("light", Light, attempt)

    def found(self) -> Found:
        """Return what discovery finds, and what the metadata says.

        Raises:
            ConfigurationError: it is not installed.
        """
        found = self._look("found", Found)
        if not found.installed:
            message = (
                f"the distribution {self.distribution!r} is not installed here; install it, "
                "or give the folder that has its .dist-info as path=[...]"
            )
            raise ConfigurationError(message)
        return found

    def made(self) -> Made:
        """Return what came of making what it offers."""
        return self._look("made", Made)

    def _look(self, what: str, kind: type[_T], attempt: int = 0) -> _T:
        path = [*self.path, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        request = Request(
            distribution=self.distribution,
            path=path,
            urls=self.urls,
            settings=self.settings,
            samples=self.samples,
        )
        told = _ask(what, json.dumps(attrs.asdict(request)), attempt)
        return kind(**json.loads(told))


@cache
def _ask(what: str, request: str, attempt: int) -> str:
    """Return the last line that the process prints."""
    del attempt  # part of the key alone
    environment = {name: value for name, value in os.environ.items() if name != STRICT_VARIABLE}
    ran = subprocess.run(  # noqa: S603 - Python itself, with code of our own
        [sys.executable, "-I", "-c", _CODE, _KIT, what],
        input=request,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    if ran.returncode:
        message = f"the plugin cannot be looked at: {ran.stderr.strip()[-2000:]}"
        raise ConfigurationError(message)
    return ran.stdout.strip().rpartition("\n")[2]
