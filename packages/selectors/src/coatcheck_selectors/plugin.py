"""What coatcheck finds by the entry point: the selectors, by name."""

from coatcheck.hooks import SelectorDescriptor, hookimpl

__all__ = ["coatcheck_selectors"]


def _selector(key: str, where: str, settings: str | None, summary: str) -> SelectorDescriptor:
    module, _, factory = where.partition(":")
    return SelectorDescriptor(
        key=key,
        factory=f"coatcheck_selectors.{module}:{factory}",
        settings=None if settings is None else f"coatcheck_selectors.{module}:{settings}",
        summary=summary,
    )


@hookimpl
def coatcheck_selectors() -> list[SelectorDescriptor]:
    """Return the selectors of this distribution."""
    return [
        _selector("round-robin", "turns:RoundRobin", "RoundRobin", "one handler after the other"),
        _selector("random", "turns:AtRandom", "AtRandom", "any handler"),
        _selector("weighted", "weights:Weighted", "Weighted", "as often as weights say, smoothly"),
        _selector(
            "consistent-hash",
            "hashing:create_consistent_hash",
            "ConsistentHashSettings",
            "the same key, the same handler",
        ),
        _selector(
            "least-active",
            "activity:create_least_active",
            "LeastActiveSettings",
            "whoever has least to do, by the store's counts or others",
        ),
        _selector(
            "healthy", "health:Healthy", "Healthy", "another selector, among the handlers that are well"
        ),
        _selector(
            "first-available", "preference:FirstAvailable", "FirstAvailable", "the first that has room"
        ),
        _selector(
            "sticky-by-tenant", "hashing:StickyByTenant", "StickyByTenant", "a tenant stays with one handler"
        ),
    ]
