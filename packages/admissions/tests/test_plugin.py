import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import coatcheck_admissions
from coatcheck import AdmissionPolicy, ConfigurationError, discover
from coatcheck_admissions import CircuitBreaker, DailyBudget, FairShare, TimeWindow
from coatcheck_admissions.plugin import coatcheck_admission_policies as offered
from coatcheck_conformance import PluginConformance, PluginSpec

SETTINGS: dict[str, dict[str, object]] = {
    "circuit-breaker": {"min_calls": 20, "open_for": "1m", "inner": "adaptive-rate"},
    "adaptive-rate": {"ceiling": 50, "per": "10s"},
    "daily-budget": {"limit": 1000, "zone": "Europe/Berlin", "per": "tenant"},
    "time-window": {"windows": ["mon-fri 22:00-06:00", "sat,sun 00:00-24:00"], "below_priority": 0},
    "fair-share": {"weights": {"acme": 2.5}, "inner": {"use": "daily-budget", "limit": 5}},
}


def plugin_spec(_folder: Path | None = None) -> PluginSpec:
    """Return the distribution with these settings; the command `coatcheck-conformance` takes it, too."""
    return PluginSpec("coatcheck-admissions", settings=SETTINGS)


class TestAdmissionsPlugin(PluginConformance):
    """What the kit says of the distribution."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return it."""
        return plugin_spec()


@pytest.mark.parametrize("key", [each.key for each in offered()])
def test_each_can_be_had_by_name(key: str) -> None:
    """As configuration writes it, also one within another."""
    assert isinstance(discover().create_admission_policy(key, SETTINGS[key]), AdmissionPolicy)


def test_all_five_can_be_nested_in_configuration() -> None:
    """From the outside in; what is inside is what was named."""
    inner: dict[str, Any] = {"use": "daily-budget", **SETTINGS["daily-budget"]}
    inner = {"use": "circuit-breaker", **SETTINGS["circuit-breaker"], "inner": inner}
    inner = {"use": "time-window", **SETTINGS["time-window"], "inner": inner}
    policy = discover().create_admission_policy("fair-share", {"spacing": "200ms", "inner": inner})
    assert isinstance(policy, FairShare)
    assert isinstance(policy.inner, TimeWindow)
    assert isinstance(policy.inner.inner, CircuitBreaker)
    assert isinstance(policy.inner.inner.inner, DailyBudget)
    assert policy.inner.inner.inner.per == "tenant"


@pytest.mark.parametrize(
    ("key", "settings", "told"),
    [
        ("circuit-breaker", {"failure_rate": 0}, "failure_rate must be above 0"),
        ("circuit-breaker", {"min_call": 5}, "did you mean 'min_calls'"),
        ("circuit-breaker", {"per": "planet"}, "per"),
        ("daily-budget", {}, "limit"),
        ("daily-budget", {"limit": 5, "zone": "Mars"}, "there is no time zone 'Mars'"),
        ("time-window", {"windows": ["at night"]}, "'at night' is no window"),
        ("time-window", {"windows": "22:00-06:00"}, "expected a list"),
        ("fair-share", {"inner": "fair-shar"}, "did you mean 'fair-share'"),
        ("fair-share", {"inner": {"use": "daily-budget", "limit": 0}}, "limit must be at least 1"),
    ],
)
def test_what_is_wrong_in_configuration_is_told(key: str, settings: dict[str, object], told: str) -> None:
    """With the setting, before any task comes."""
    with pytest.raises(ConfigurationError, match=told):
        discover().create_admission_policy(key, settings)


async def test_a_policy_that_belongs_to_no_app_says_what_to_do() -> None:
    """Before an app has attached it there is nothing to share."""
    policy = DailyBudget(limit=1)
    with pytest.raises(ConfigurationError, match=r"DailyBudget belongs to no app: pass it as App\("):
        await policy.fleet.now()


def test_the_plugin_module_is_light() -> None:
    """Finding the plugin imports no policy."""
    code = "import coatcheck_admissions.plugin, json, sys; print(json.dumps([*sys.modules]))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert {name for name in loaded if name.startswith("coatcheck_admissions")} == {
        "coatcheck_admissions",
        "coatcheck_admissions.plugin",
    }


def test_every_descriptor_leads_to_what_it_names() -> None:
    """Factory and settings are there."""
    for descriptor in offered():
        for reference in filter(None, (descriptor.factory, descriptor.settings)):
            module, _, attribute = reference.partition(":")
            assert getattr(import_module(module), attribute)


def test_public_names_are_there() -> None:
    """Each can be had from the package, and nothing else can."""
    for name in coatcheck_admissions.__all__:
        assert getattr(coatcheck_admissions, name)
        assert name in dir(coatcheck_admissions)
    assert not hasattr(coatcheck_admissions, "nothing")
