"""What the kit says of each selector."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from coatcheck.task import JSON
from coatcheck_conformance import SelectorConformance, SelectorSpec
from coatcheck_conformance.policy.spec import candidate_names

CANDIDATES = candidate_names(120)
WEIGHTS = {key: 1 + number % 3 for number, key in enumerate(CANDIDATES)}


def of_tenant(key: str) -> tuple[object, Mapping[str, JSON]]:
    """Return a submission of the tenant `key`."""
    return None, MappingProxyType({"tenant_id": key, "metadata": {}})


def of_url(key: str) -> tuple[object, Mapping[str, JSON]]:
    """Return a submission whose params have the URL `key`."""
    return {"url": key}, MappingProxyType({"metadata": {}})


class TestRoundRobin(SelectorConformance):
    """One after the other."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, by its key."""
        return SelectorSpec("round-robin", shares=dict.fromkeys(CANDIDATES, 1))


class TestRandom(SelectorConformance):
    """Any."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, by its key."""
        return SelectorSpec("random", settings={"seed": 7})


class TestWeighted(SelectorConformance):
    """By weight."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, with a table of everybody."""
        return SelectorSpec("weighted", settings={"weights": WEIGHTS}, shares=WEIGHTS, promises=["closed"])


class TestConsistentHash(SelectorConformance):
    """By a key."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, by a field of the params."""
        urls = [{"url": f"https://files.example.com/{number}"} for number in range(5)]
        return SelectorSpec(
            "consistent-hash", settings={"extractor": "params.url"}, params=urls, keyed=of_url
        )


class TestLeastActive(SelectorConformance):
    """By what there is to do, as the store counts it."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, by its key."""
        return SelectorSpec("least-active", promises=["load"])


class TestHealthy(SelectorConformance):
    """Those who are well, in turns."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it around another, as configuration has it."""
        return SelectorSpec(
            "healthy",
            settings={"inner": {"use": "weighted", "weights": WEIGHTS}, "within": "10m"},
            shares=WEIGHTS,
            promises=["closed", "outcomes", "pauses"],
        )


class TestFirstAvailable(SelectorConformance):
    """By preference."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, with an order that is not that of the keys."""
        return SelectorSpec(
            "first-available",
            settings={"order": [*CANDIDATES[1:3], *CANDIDATES[:1]]},
            promises=["pauses", "room"],
        )


class TestStickyByTenant(SelectorConformance):
    """By tenant."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return it, by its key."""
        return SelectorSpec("sticky-by-tenant", keyed=of_tenant)


class TestAllTogether(SelectorConformance):
    """The preferred ones while they have room, and then whoever has least to do of those that are well."""

    @pytest.fixture
    def selector_spec(self) -> SelectorSpec:
        """Return one within the other."""
        overflow = {"use": "first-available", "order": list(CANDIDATES[:2]), "otherwise": "least-active"}
        return SelectorSpec("healthy", settings={"inner": overflow}, promises=["outcomes", "pauses", "room"])
