import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import coatcheck_retries
from coatcheck import ConfigurationError, RetryPolicy, discover
from coatcheck_conformance import PluginConformance, PluginSpec
from coatcheck_retries.plugin import coatcheck_retry_policies as offered

SETTINGS: dict[str, dict[str, object]] = {
    "full-jitter": {"initial": "500ms", "maximum": "2m"},
    "per-handler": {
        "policies": {"video:a": "learned", "ocr:b": {"use": "fixed", "initial": "3s"}},
        "otherwise": {"use": "exponential", "maximum": "1m"},
    },
}


def plugin_spec(_folder: Path | None = None) -> PluginSpec:
    """Return the distribution with these settings; the command `coatcheck-conformance` takes it, too."""
    return PluginSpec("coatcheck-retries", settings=SETTINGS)


class TestRetriesPlugin(PluginConformance):
    """What the kit says of the distribution."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return it."""
        return plugin_spec()


@pytest.mark.parametrize("key", [each.key for each in offered()])
def test_each_can_be_had_by_name(key: str) -> None:
    """As configuration writes it, also one within another."""
    assert isinstance(discover().create_retry_policy(key, SETTINGS.get(key)), RetryPolicy)


@pytest.mark.parametrize(
    ("key", "settings", "told"),
    [
        ("proportional", {"share": 0}, "share must be above 0"),
        ("learned", {"likly": 0.2}, "did you mean 'likely'"),
        ("per-handler", {"policies": {"a": {"use": "fixed", "jitter": 3}}}, "jitter must be between 0 and 1"),
        ("per-handler", {"otherwise": "lerned"}, "did you mean 'learned'"),
    ],
)
def test_what_is_wrong_in_configuration_is_told(key: str, settings: dict[str, object], told: str) -> None:
    """With the setting, before any task comes."""
    with pytest.raises(ConfigurationError, match=told):
        discover().create_retry_policy(key, settings)


def test_the_plugin_module_is_light() -> None:
    """Finding the plugin imports no policy."""
    code = "import coatcheck_retries.plugin, json, sys; print(json.dumps([*sys.modules]))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert {name for name in loaded if name.startswith("coatcheck_retries")} == {
        "coatcheck_retries",
        "coatcheck_retries.plugin",
    }


def test_every_descriptor_leads_to_what_it_names() -> None:
    """Factory and settings are there."""
    for descriptor in offered():
        for reference in filter(None, (descriptor.factory, descriptor.settings)):
            module, _, attribute = reference.partition(":")
            assert getattr(import_module(module), attribute)


def test_public_names_are_there() -> None:
    """Each can be had from the package, and nothing else can."""
    for name in coatcheck_retries.__all__:
        assert getattr(coatcheck_retries, name)
        assert name in dir(coatcheck_retries)
    assert not hasattr(coatcheck_retries, "nothing")
