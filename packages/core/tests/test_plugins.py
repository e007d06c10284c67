"""Finding plugins: each on its own, remembered with what is wrong with it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import coatcheck
from coatcheck.errors import ConfigurationError
from coatcheck.plugins import Plugin, PluginState, find_plugins, installed_version, normalized, told

if TYPE_CHECKING:
    from conftest import Site

FINE = (
    '@hookimpl\ndef coatcheck_stores():\n    return [StoreDescriptor(key="fine", factory="nowhere:create")]\n'
)


def find(**options: list[str]) -> dict[str, Plugin]:
    """Return the installed plugins by distribution."""
    found = find_plugins([], allow=options.get("allow"), block=options.get("block", []))
    return {plugin.distribution: plugin for plugin in found}


def test_a_plugin_is_known_by_its_distribution(site: "Site") -> None:
    """Name and version come from the head of the metadata, normalised, and the offers from the hooks."""
    site.install("Acme.Store_X", FINE, version="2.0rc1")
    (plugin,) = find().values()
    assert (plugin.name, plugin.distribution, plugin.version) == ("acme.store_x", "acme-store-x", "2.0rc1")
    assert (plugin.state, plugin.reason, plugin.traceback) == (PluginState.AVAILABLE, "", "")
    assert [offer.key for offer in plugin.offers] == ["fine"]
    assert str(plugin.offers[0]) == "store 'fine' of acme-store-x 2.0rc1"


def test_plugins_are_in_order_of_their_distributions(site: "Site") -> None:
    """The order of installation means nothing."""
    for name in ("c", "a", "b"):
        site.install(name, FINE)
    assert list(find()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("light", "reason"),
    [
        ("import driver_that_is_missing", "ModuleNotFoundError: No module named 'driver_that_is_missing'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("assert False", "AssertionError"),
        ("x = (", "SyntaxError"),
        (None, "ModuleNotFoundError"),
        ("", "implements no hook; mark its functions"),
        ("def coatcheck_stores():\n    return []", "implements no hook; mark its functions"),
        ("@hookimpl\ndef coatcheck_store():\n    return []", "unknown hook 'coatcheck_store'"),
        ("@hookimpl\ndef coatcheck_stores(more):\n    return []", "can not be found in the hookspec"),
        ("@hookimpl\nasync def coatcheck_stores():\n    return []", "is a coroutine or a wrapper"),
        (
            "@hookimpl(wrapper=True)\ndef coatcheck_stores():\n    return (yield)",
            "is a coroutine or a wrapper",
        ),
        ("@hookimpl\ndef coatcheck_tasks_changed(*, changes):\n    pass", "has keyword-only parameters"),
        ("@hookimpl\ndef coatcheck_stores(*, x=1):\n    return []", "has keyword-only parameters"),
        ("@hookimpl\ndef coatcheck_stores():\n    1 / 0", "coatcheck_stores: ZeroDivisionError"),
        ("@hookimpl\ndef coatcheck_stores():\n    return 7", "returned 7, not a list of StoreDescriptor"),
        ("@hookimpl\ndef coatcheck_stores():\n    return 'x'", "returned 'x', not a list of StoreDescriptor"),
        ("@hookimpl\ndef coatcheck_stores():\n    return [{'key': 'x'}]", "which is no StoreDescriptor"),
        (
            "@hookimpl\ndef coatcheck_stores():\n    return [RetryDescriptor(key='x', factory='a:b')]",
            "which is no StoreDescriptor",
        ),
        (
            "@hookimpl\ndef coatcheck_stores():\n    return [StoreDescriptor(key='x', factory='a')]",
            "must look like",
        ),
        ("@hookimpl\ndef coatcheck_stores():\n    raise SystemExit", "coatcheck_stores: SystemExit"),
    ],
)
def test_a_broken_plugin_breaks_nothing_else(site: "Site", light: str | None, reason: str) -> None:
    """Whatever a light module does wrong is remembered with it, and the next plugin is taken in."""
    site.install("a-broken", light)
    site.install("b-fine", FINE)
    found = find()
    broken = found["a-broken"]
    assert broken.state is PluginState.FAILED
    assert reason in broken.reason
    assert broken.reason.splitlines() == [broken.reason] or "hookspec" in broken.reason
    assert "Traceback" in broken.traceback
    assert broken.offers == []
    assert [offer.key for offer in found["b-fine"].offers] == ["fine"]


def test_one_broken_hook_loses_no_other(site: "Site") -> None:
    """Hooks of one plugin are called each on its own; what failed is told, what works is offered."""
    retry = '@hookimpl\ndef coatcheck_retry_policies():\n    return iter([RetryDescriptor(key="r", factory="a:b")])\n'
    broken = "@hookimpl\ndef coatcheck_selectors():\n    raise ValueError('bad')\n"
    also = "@hookimpl\ndef coatcheck_handlers():\n    raise KeyError('worse')\n"
    silent = "@hookimpl\ndef coatcheck_admission_policies():\n    return None\n"
    site.install("acme", FINE + broken + retry + also + silent)
    plugin = find()["acme"]
    assert plugin.state is PluginState.FAILED
    assert plugin.reason == "coatcheck_handlers: KeyError: 'worse'; coatcheck_selectors: ValueError: bad"
    assert isinstance(plugin.error, KeyError)
    assert [offer.key for offer in plugin.offers] == ["r", "fine"]


def test_a_hook_may_bear_another_name(site: "Site") -> None:
    """A hook's `specname` is honoured, and optional hooks that we don't know are left alone."""
    site.install(
        "acme",
        "@hookimpl(specname='coatcheck_stores')\ndef stores():\n"
        "    return [StoreDescriptor(key='x', factory='a:b')]\n"
        "@hookimpl(optionalhook=True)\ndef coatcheck_of_tomorrow():\n    return [1]\n",
    )
    plugin = find()["acme"]
    assert (plugin.state, [offer.key for offer in plugin.offers]) == (PluginState.AVAILABLE, ["x"])


def test_an_entry_point_may_name_an_object(site: "Site") -> None:
    """Hooks may be methods of an object that the entry point names."""
    site.install(
        "acme",
        "class Plugin:\n    @hookimpl\n    def coatcheck_stores(self):\n"
        "        return [StoreDescriptor(key='x', factory='a:b')]\nplugin = Plugin()\n",
        entry="acme_plugin:plugin",
    )
    assert [offer.key for offer in find()["acme"].offers] == ["x"]


def test_two_entry_points_may_name_one_module(site: "Site") -> None:
    """A module that is registered twice is no error of either."""
    site.install("a", FINE)
    site.install("b", entry="a_plugin")
    assert [plugin.state for plugin in find().values()] == [PluginState.AVAILABLE] * 2


def test_an_observer_is_offered_under_the_plugins_name(site: "Site") -> None:
    """A module with the observer's hook is an observer; it is not called by being found."""
    site.install("acme", "@hookimpl\ndef coatcheck_tasks_changed(changes):\n    raise ValueError\n")
    (offer,) = find()["acme"].offers
    assert (offer.kind, offer.key, offer.names, offer.descriptor) == ("observer", "acme", ("acme",), None)


@pytest.mark.parametrize(
    ("api", "advice"),
    [
        ("1.1", "pip install --upgrade coatcheck, or install an older acme"),
        ("2.0", "pip install --upgrade coatcheck, or install an older acme"),
        ("0.9", "pip install --upgrade acme, or install an older coatcheck"),
    ],
)
def test_another_api_is_incompatible(site: "Site", api: str, advice: str) -> None:
    """What was written for another plugin API is told with both numbers and what to install."""
    site.offer("acme", "Store", f'key="x", factory="a:b", api="{api}"')
    (offer,) = find()["acme"].offers
    assert offer.state is PluginState.INCOMPATIBLE
    assert f"plugin API {api}, and this coatcheck has 1.0" in offer.reason
    assert advice in offer.reason


def test_what_is_blocked_is_not_imported(site: "Site") -> None:
    """Block-list and allow-list work by normalised name, before anything is imported."""
    for name in ("Bad_One", "other", "good"):
        site.install(name, "raise ValueError('imported')" if name != "good" else FINE)
    found = find(allow=["GOOD", "bad.one"], block=["bad-ONE"])
    assert {name: plugin.state for name, plugin in found.items()} == {
        "bad-one": PluginState.BLOCKED,
        "good": PluginState.AVAILABLE,
        "other": PluginState.NOT_ALLOWED,
    }
    assert not {"bad_one_plugin", "other_plugin"} & set(sys.modules)
    assert "block-list" in found["bad-one"].reason
    assert "allow-list" in found["other"].reason
    assert found["other"].module is None


@pytest.mark.parametrize("option", ["allow", "block"])
def test_a_list_is_no_string(option: str) -> None:
    """A single name in place of a list is told, instead of being read letter by letter."""
    with pytest.raises(ConfigurationError, match=r"write \['acme'\]"):
        find(**{option: "acme"})  # type: ignore[arg-type] # that is the point


def test_metadata_may_be_missing(site: "Site") -> None:
    """A distribution without readable metadata is unknown, and no crash."""
    site.install("acme", FINE)
    next(site.folder.glob("*.dist-info")).joinpath("METADATA").unlink()
    (plugin,) = find().values()
    assert (plugin.distribution, plugin.version, plugin.state) == (
        "unknown",
        "unknown",
        PluginState.AVAILABLE,
    )


def test_versions_of_what_is_installed(site: "Site") -> None:
    """A distribution on the path that is not installed has an unknown version."""
    site.install("acme", FINE, version="3.1")
    assert installed_version("acme") == "3.1"
    assert installed_version("no-such-thing") == "unknown"


@pytest.mark.parametrize(("name", "wanted"), [("A__b", "a-b"), ("a.-_b", "a-b"), ("ab", "ab")])
def test_names_are_compared_as_indexes_do(name: str, wanted: str) -> None:
    """Case and kind of separator make no difference."""
    assert normalized(name) == wanted


def test_errors_are_told_in_one_line() -> None:
    """A reason fits into a table."""
    assert told(ValueError("a\n  b")) == "ValueError: a b"
    assert told(ValueError()) == "ValueError"


SCRIPT = """
import json, sys
from coatcheck.catalog import discover
rows = discover(allow=[f"acme-{number:03}" for number in range(200)]).listing()
json.dumps([row.as_json() for row in rows])
print(json.dumps({"rows": len(rows), "states": sorted({row.state for row in rows}), "modules": sorted(sys.modules)}))
"""


def test_listing_many_plugins_imports_no_driver(site: "Site") -> None:
    """Listing 200 plugins imports their light modules, and no factory, settings class or driver."""
    for number in range(200):
        site.write(f"heavy_{number}", "import sqlalchemy\n")
        site.offer(
            f"acme-{number:03}",
            "Store",
            f'key="k{number}", factory="heavy_{number}:create", settings="heavy_{number}:Settings"',
        )
    roots = [str(site.folder), str(Path(coatcheck.__file__).parent.parent)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=True,
    )
    told_by = json.loads(done.stdout)
    assert told_by["rows"] >= 203
    light = [name for name in told_by["modules"] if name.startswith("acme_")]
    assert len(light) == 200
    heavy = ("heavy_", "sqlalchemy", "httpx", "redis", "coatcheck.memory")
    assert not [name for name in told_by["modules"] if name.startswith(heavy)]
