"""Admission policies for coatcheck: when a task may go to its provider, beyond fixed limits.

Each is made by a function of its own name, has a key for configuration, and has another policy inside, `inner`, which
it asks, too. Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_admissions.adaptive import AdaptiveRate, adaptive_rate
    from coatcheck_admissions.breaker import CircuitBreaker, circuit_breaker
    from coatcheck_admissions.budget import DailyBudget, daily_budget
    from coatcheck_admissions.hours import TimeWindow, time_window
    from coatcheck_admissions.shares import FairShare, fair_share
    from coatcheck_admissions.wrapping import Wrapping

__all__ = [
    "AdaptiveRate",
    "CircuitBreaker",
    "DailyBudget",
    "FairShare",
    "TimeWindow",
    "Wrapping",
    "adaptive_rate",
    "circuit_breaker",
    "daily_budget",
    "fair_share",
    "time_window",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".adaptive": ("AdaptiveRate", "adaptive_rate"),
        ".breaker": ("CircuitBreaker", "circuit_breaker"),
        ".budget": ("DailyBudget", "daily_budget"),
        ".hours": ("TimeWindow", "time_window"),
        ".shares": ("FairShare", "fair_share"),
        ".wrapping": ("Wrapping",),
    },
)
