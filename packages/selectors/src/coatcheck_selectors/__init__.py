"""Selectors for coatcheck: which of several handlers gets a task.

Each is made by a function of its own name, has a key for configuration, and may be shared by threads, tasks and
event loops. Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".activity": ("ActiveCounts", "least_active"),
        ".hashing": ("Extractor", "consistent_hash", "sticky_by_tenant"),
        ".health": ("healthy",),
        ".preference": ("first_available",),
        ".turns": ("random", "round_robin"),
        ".weights": ("weighted",),
    },
)
