"""Selectors for coatcheck: which of several handlers gets a task.

Each is made by a function of its own name, has a key for configuration, and may be shared by threads, tasks and
event loops. Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coatcheck_selectors.activity import ActiveCounts, least_active
    from coatcheck_selectors.hashing import Extractor, consistent_hash, sticky_by_tenant
    from coatcheck_selectors.health import healthy
    from coatcheck_selectors.preference import first_available
    from coatcheck_selectors.turns import random, round_robin
    from coatcheck_selectors.weights import weighted

__all__ = [
    "ActiveCounts",
    "Extractor",
    "consistent_hash",
    "first_available",
    "healthy",
    "least_active",
    "random",
    "round_robin",
    "sticky_by_tenant",
    "weighted",
]

_HOMES = {
    "activity": ("ActiveCounts", "least_active"),
    "hashing": ("Extractor", "consistent_hash", "sticky_by_tenant"),
    "health": ("healthy",),
    "preference": ("first_available",),
    "turns": ("random", "round_robin"),
    "weights": ("weighted",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOME_OF:
        message = f"module 'coatcheck_selectors' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"coatcheck_selectors.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too."""
    return sorted({*globals(), *__all__})
