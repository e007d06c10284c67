"""What the kit says of each policy."""

import pytest

from coatcheck_conformance import AdmissionConformance, AdmissionSpec


class TestCircuitBreaker(AdmissionConformance):
    """Stops submitting to a provider that fails."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return it, for each account."""
        return AdmissionSpec("circuit-breaker", settings={"per": "account"})


class TestAdaptiveRate(AdmissionConformance):
    """Finds the rate that a provider takes."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return it."""
        return AdmissionSpec("adaptive-rate")


class TestDailyBudget(AdmissionConformance):
    """So much a day."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return one that is soon spent."""
        return AdmissionSpec("daily-budget", settings={"limit": 3, "per": "account", "zone": "Asia/Tokyo"})


class TestDailyCost(AdmissionConformance):
    """So much money a day."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return it."""
        return AdmissionSpec("daily-budget", settings={"limit": 3, "by": "cost"})


class TestTimeWindow(AdmissionConformance):
    """At certain hours only."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return one for the night."""
        settings = {"windows": ["22:00-06:00"], "zone": "America/New_York", "below_priority": 1}
        return AdmissionSpec("time-window", settings=settings)


class TestFairShare(AdmissionConformance):
    """Turns for tenants, around all the others."""

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return it with all the others inside."""
        rate = {"use": "adaptive-rate", "inner": "circuit-breaker"}
        budget = {"use": "daily-budget", "limit": 100, "inner": rate}
        inner = {"use": "time-window", "windows": ["08:00-18:00"], "inner": budget}
        return AdmissionSpec("fair-share", settings={"inner": inner})
