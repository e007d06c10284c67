import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import coatcheck_selectors
from coatcheck import ConfigurationError, Selection, Standing, discover
from coatcheck_conformance import PluginConformance, PluginSpec
from coatcheck_selectors.plugin import coatcheck_selectors as offered

SETTINGS: dict[str, dict[str, object]] = {
    "weighted": {"weights": {"a": 3, "b": "1"}},
    "consistent-hash": {"extractor": "tenant_id"},
    "healthy": {"inner": {"use": "first-available", "order": ["b", "a"], "otherwise": "least-active"}},
    "first-available": {"order": ["a"]},
    "sticky-by-tenant": {"otherwise": "random"},
}


def plugin_spec(_folder: Path | None = None) -> PluginSpec:
    """Return the distribution with these settings; the command `coatcheck-conformance` takes it, too."""
    return PluginSpec("coatcheck-selectors", settings=SETTINGS)


class TestSelectorsPlugin(PluginConformance):
    """What the kit says of the distribution."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return it."""
        return plugin_spec()


@pytest.mark.parametrize("key", [each.key for each in offered()])
async def test_each_can_be_had_by_name(key: str) -> None:
    """As configuration writes it, also one within another."""
    choose = discover().create_selector(key, SETTINGS.get(key))
    selection = Selection(params=None, options={"tenant_id": "t"}, candidates=("a", "b"), standing=Standing())
    assert await choose(selection) in {"a", "b"}


@pytest.mark.parametrize(
    ("key", "settings", "told"),
    [
        ("weighted", {}, "weights"),
        ("weighted", {"weights": {"a": 0}}, "the weight of 'a' is a positive integer, not 0"),
        ("consistent-hash", {"extractor": "tenant"}, "'tenant' is no place of a key"),
        ("healthy", {"inner": "weightd"}, "did you mean 'weighted'"),
        ("healthy", {"inner": {"use": "weighted", "weights": {"a": -1}}}, "positive integer, not -1"),
        ("healthy", {"bad_share": 2}, "bad_share must be above 0 and at most 1"),
        ("least-active", {"provider": "nowhere:count"}, "'nowhere:count' cannot be imported"),
    ],
)
def test_what_is_wrong_in_configuration_is_told(key: str, settings: dict[str, object], told: str) -> None:
    """With the value, before any task comes."""
    with pytest.raises((ConfigurationError, ValueError), match=told):
        discover().create_selector(key, settings)


def test_the_plugin_module_is_light() -> None:
    """Finding the plugin imports no selector."""
    code = "import coatcheck_selectors.plugin, json, sys; print(json.dumps([*sys.modules]))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert {name for name in loaded if name.startswith("coatcheck_selectors")} == {
        "coatcheck_selectors",
        "coatcheck_selectors.plugin",
    }


def test_every_descriptor_leads_to_what_it_names() -> None:
    """Factory and settings are there."""
    for descriptor in offered():
        for reference in filter(None, (descriptor.factory, descriptor.settings)):
            module, _, attribute = reference.partition(":")
            assert getattr(import_module(module), attribute)


def test_public_names_are_there() -> None:
    """Each can be had from the package, and nothing else can."""
    for name in coatcheck_selectors.__all__:
        assert getattr(coatcheck_selectors, name)
        assert name in dir(coatcheck_selectors)
    assert not hasattr(coatcheck_selectors, "nothing")
