"""What to tell who asks for what is not there: the nearest name, and what to install for a well-known one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from coatcheck.hooks import Kind

__all__ = ["distribution_of", "nearest"]

_SCHEMES: Mapping[str, str] = {
    "sqlite": "coatcheck-store-sql",
    "postgresql": "coatcheck-store-sql[postgresql]",
    "postgres": "coatcheck-store-sql[postgresql]",
    "mysql": "coatcheck-store-sql[mysql]",
    "mariadb": "coatcheck-store-sql[mysql]",
    "redis": "coatcheck-store-redis",
    "rediss": "coatcheck-store-redis",
    "unix": "coatcheck-store-redis",
}
_HANDLER_PREFIXES: Mapping[str, str] = {
    "ocr": "coatcheck-handler-ocr",
    "docs": "coatcheck-handler-ocr",
    "video": "coatcheck-handler-video",
}
_SELECTORS = frozenset(
    {
        "consistent-hash",
        "first-available",
        "healthy",
        "least-active",
        "random",
        "round-robin",
        "sticky-by-tenant",
        "weighted",
    }
)
_RETRY_POLICIES = frozenset(
    {"equal-jitter", "fixed", "full-jitter", "learned", "per-handler", "proportional"}
)


_ADMISSION_POLICIES = frozenset(
    {"adaptive-rate", "circuit-breaker", "daily-budget", "fair-share", "time-window"}
)


def distribution_of(kind: Kind, name: str) -> str | None:
    """Return the requirement that brings `name`, as pip takes it; None for a name that is not known."""
    if kind is Kind.STORE:
        return _SCHEMES.get(name.partition("+")[0])  # postgresql+asyncpg, redis+cluster
    if kind is Kind.HANDLER:
        prefix, colon, _ = name.partition(":")
        return _HANDLER_PREFIXES.get(prefix) if colon else None
    if kind is Kind.SELECTOR and name in _SELECTORS:
        return "coatcheck-selectors"
    if kind is Kind.RETRY and name in _RETRY_POLICIES:
        return "coatcheck-retries"
    if kind is Kind.ADMISSION and name in _ADMISSION_POLICIES:
        return "coatcheck-admissions"
    return None


def nearest(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence: the known name that `name` may have meant, and all there are."""
    close = difflib.get_close_matches(name, known, n=1)
    known_names = ", ".join(sorted(known)) or "none"
    return f"did you mean {close[0]!r}? There are: {known_names}" if close else f"there are: {known_names}"
