"""Packages whose public names are imported when they are first used, so that listing plugins stays quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return what a package is to have as its ``__getattr__`` and ``__dir__``.

    For type checkers import the same names under ``if TYPE_CHECKING:``.

    Args:
        package: its name.
        homes: public names by the module that has them; with a dot before it, as ``".app"``, one of the package's.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in home_of:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        found: object = getattr(import_module(home_of[name], package), name)
        vars(sys.modules[package])[name] = found
        return found

    def names() -> list[str]:
        """List the public names, imported or not."""
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names
