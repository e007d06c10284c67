"""What the kit says of each policy."""

from datetime import timedelta

import pytest

from coatcheck_conformance import RetryConformance, RetrySpec

EVERYWHERE = ("jitter", "last look")
FLOOR = timedelta(milliseconds=500)
FIVE_MINUTES = timedelta(minutes=5)


class TestFullJitter(RetryConformance):
    """Left to chance as a whole."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it with a floor."""
        return RetrySpec(
            "full-jitter",
            settings={"floor": "500ms", "seed": 1},
            floor=FLOOR,
            maximum=timedelta(seconds=60),
            promises=EVERYWHERE,
        )


class TestEqualJitter(RetryConformance):
    """Left to chance by half."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it with other bounds."""
        settings = {"maximum": "2m", "ceiling": "1m", "factor": 3}
        return RetrySpec(
            "equal-jitter",
            settings=settings,
            ceiling=timedelta(minutes=1),
            maximum=timedelta(minutes=2),
            promises=EVERYWHERE,
        )


class TestFixed(RetryConformance):
    """Always the same."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it, with another interval."""
        return RetrySpec("fixed", settings={"initial": "3s"}, maximum=FIVE_MINUTES, promises=EVERYWHERE)


class TestProportional(RetryConformance):
    """By age."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it, with a floor."""
        return RetrySpec(
            "proportional",
            settings={"floor": "500ms", "max_consecutive_errors": 9},
            floor=FLOOR,
            maximum=FIVE_MINUTES,
            promises=["ages", *EVERYWHERE],
        )


class TestLearned(RetryConformance):
    """By what jobs take."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it, by its key."""
        return RetrySpec("learned", maximum=FIVE_MINUTES, promises=["ages", "learns", *EVERYWHERE])


class TestPerHandler(RetryConformance):
    """By handler."""

    @pytest.fixture
    def retry_spec(self) -> RetrySpec:
        """Return it, as configuration has it; what is asked about is not named."""
        policies = {"another": {"use": "fixed", "initial": "1m"}}
        return RetrySpec(
            "per-handler",
            settings={"policies": policies, "otherwise": "learned"},
            maximum=FIVE_MINUTES,
            promises=["ages", "learns", *EVERYWHERE],
        )
