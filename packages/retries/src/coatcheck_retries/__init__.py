"""Retry policies for coatcheck: when to ask a provider again.

Each is made by a function of its own name, has a key for configuration, and may be shared by threads. Names are
imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".handlers": (
            "PerHandlerRetry",
            "per_handler",
        ),
        ".learning": (
            "LearnedRetry",
            "learned",
        ),
        ".paces": (
            "EqualJitterRetry",
            "FixedRetry",
            "FullJitterRetry",
            "ProportionalRetry",
            "equal_jitter",
            "fixed",
            "full_jitter",
            "proportional",
        ),
        ".pacing": ("PacedRetry",),
    },
)
