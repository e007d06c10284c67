"""Retry policies for coatcheck: when to ask a provider again.

Each is made by a function of its own name, has a key for configuration, and may be shared by threads. Names are
imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coatcheck_retries.handlers import PerHandlerRetry, per_handler
    from coatcheck_retries.learning import LearnedRetry, learned
    from coatcheck_retries.paces import (
        EqualJitterRetry,
        FixedRetry,
        FullJitterRetry,
        ProportionalRetry,
        equal_jitter,
        fixed,
        full_jitter,
        proportional,
    )
    from coatcheck_retries.pacing import PacedRetry

__all__ = [
    "EqualJitterRetry",
    "FixedRetry",
    "FullJitterRetry",
    "LearnedRetry",
    "PacedRetry",
    "PerHandlerRetry",
    "ProportionalRetry",
    "equal_jitter",
    "fixed",
    "full_jitter",
    "learned",
    "per_handler",
    "proportional",
]

_HOMES = {
    "handlers": (
        "PerHandlerRetry",
        "per_handler",
    ),
    "learning": (
        "LearnedRetry",
        "learned",
    ),
    "paces": (
        "EqualJitterRetry",
        "FixedRetry",
        "FullJitterRetry",
        "ProportionalRetry",
        "equal_jitter",
        "fixed",
        "full_jitter",
        "proportional",
    ),
    "pacing": ("PacedRetry",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOME_OF:
        message = f"module 'coatcheck_retries' has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(f"coatcheck_retries.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too."""
    return sorted({*globals(), *__all__})
