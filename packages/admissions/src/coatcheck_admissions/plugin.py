"""What coatcheck finds by the entry point: the admission policies, by name."""

from coatcheck.hooks import AdmissionDescriptor, hookimpl

__all__ = ["coatcheck_admission_policies"]


def _policy(key: str, where: str, summary: str) -> AdmissionDescriptor:
    reference = f"coatcheck_admissions.{where}"
    return AdmissionDescriptor(key=key, factory=reference, settings=reference, summary=summary)


@hookimpl
def coatcheck_admission_policies() -> list[AdmissionDescriptor]:
    """Return the policies of this distribution."""
    return [
        _policy("circuit-breaker", "breaker:CircuitBreaker", "stops submitting to a provider that fails"),
        _policy("adaptive-rate", "adaptive:AdaptiveRate", "finds the rate that a provider takes"),
        _policy("daily-budget", "budget:DailyBudget", "so many submissions, or so much money, a day"),
        _policy("time-window", "hours:TimeWindow", "submits certain tasks at certain hours only"),
        _policy("fair-share", "shares:FairShare", "lets tenants take turns, whoever has queued most"),
    ]
