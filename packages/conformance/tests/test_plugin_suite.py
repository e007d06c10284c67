import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from mutants.plugins import FILES, NAME, write_distribution

from coatcheck.errors import ConfigurationError
from coatcheck.hooks import ENTRY_POINT_GROUP
from coatcheck_conformance import PluginConformance, PluginSpec, Verdict, validate

URLS = {"acme": "acme://host/x", "acmes": "acmes://host/x"}


def acme(
    site: Path, changed: str = "", piece: tuple[str, str] = ("", ""), *, urls: Mapping[str, str] = URLS
) -> PluginSpec:
    """Write the example distribution, with a piece of one file replaced, and return how to find it."""
    write_distribution(site, {each: (piece,) for each in FILES if changed and each.endswith(f"/{changed}")})
    return PluginSpec(NAME, path=[site], urls=urls)


def reason(spec: PluginSpec, rule: str) -> str:
    """Return why a distribution fails a rule; empty if it keeps it."""
    (result,) = (
        each for each in validate(PluginConformance, spec, only=[rule]).results if each.rule.id == rule
    )
    return result.reason


class TestStoreSql(PluginConformance):
    """The distribution with the SQL stores."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return its name."""
        return PluginSpec("coatcheck-store-sql")


def test_each_plugin_of_the_workspace_is_tried() -> None:
    """A new distribution with the entry point gets a class of its own here, or where its settings are."""
    elsewhere = {
        "coatcheck-admissions",
        "coatcheck-handler-ocr",
        "coatcheck-handler-video",
        "coatcheck-retries",
        "coatcheck-selectors",
        "coatcheck-store-redis",
    }  # in their tests/test_plugin.py
    files = Path(__file__).parents[2].glob("*/pyproject.toml")
    projects = [tomllib.loads(file.read_text("utf-8"))["project"] for file in files]
    found = {each["name"] for each in projects if ENTRY_POINT_GROUP in each.get("entry-points", {})}
    assert found - elsewhere == {"coatcheck-store-sql"}


def test_a_good_distribution_conforms(tmp_path: Path) -> None:
    """The example that the mutants are made of keeps every rule, of every level, and none is left out."""
    report = validate(PluginConformance, acme(tmp_path))
    assert report.verdict is Verdict.CONFORMANT, report.summary()
    assert not report.remarks
    assert {each.outcome.value for each in report.results} == {"passed"}
    assert report.identity.target == "coatcheck-acme 1.0"


# ------------------------------------------------------------------ the spec


def test_a_distribution_that_is_not_there_is_told() -> None:
    """The message says what to do."""
    with pytest.raises(
        ConfigurationError, match="'coatcheck-nowhere' is not installed here; install it, or give"
    ):
        PluginSpec("coatcheck-nowhere").offers()


def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    """What a plugin does to the process that looks at it is shown, and hides nothing."""
    spec = acme(tmp_path, "plugin.py", ("from coatcheck.hooks import *", "import os\n\nos._exit(3)"))
    with pytest.raises(ConfigurationError, match="the plugin cannot be looked at"):
        spec.light()


def test_a_suite_without_its_fixture_says_so() -> None:
    """Who forgets the fixture is told its name and what it returns."""
    with pytest.raises(
        pytest.fail.Exception, match="needs a fixture `plugin_spec` that returns a PluginSpec"
    ):
        PluginConformance.plugin_spec.__wrapped__(PluginConformance())  # type: ignore[attr-defined] # the function


def test_a_store_of_a_special_url_is_told(tmp_path: Path) -> None:
    """Where no URL that the kit can think of will do, the message says what the spec has to give."""
    site = tmp_path / "site"
    picky = '    if "?" in url or "//host" not in url:\n        raise ConfigurationError(url)\n    return MemoryStore()'
    spec = acme(site, "things.py", ("    return MemoryStore()", picky), urls={"acme": "acme://host/x"})
    assert "give PluginSpec(urls={'acmes': ...})" in reason(spec, "PLUGIN-STORE-1")
    assert reason(PluginSpec(NAME, path=[site], urls=URLS), "PLUGIN-STORE-1") == ""


def test_an_account_that_cannot_be_made_of_text_is_told(tmp_path: Path) -> None:
    """Where the kit cannot make one up, a sample does."""
    site = tmp_path / "site"
    spec = acme(site, "things.py", ("    user: str\n", "    user: int\n"))
    assert "give PluginSpec(samples={'coatcheck_acme.things:Account': {...}})" in reason(
        spec, "PLUGIN-SECRET-1"
    )
    given = PluginSpec(NAME, path=[site], samples={"coatcheck_acme.things:Account": {"user": 7}})
    assert reason(given, "PLUGIN-SECRET-1") == ""


def test_required_settings_are_told(tmp_path: Path) -> None:
    """What cannot be made without settings is made with those of the spec."""
    site = tmp_path / "site"
    spec = acme(site, "things.py", ('base_url: str = "https://api.acme.example"', "base_url: str"))
    assert "give PluginSpec(settings={'acme:press': {...}})" in reason(spec, "PLUGIN-HANDLER-1")
    given = PluginSpec(NAME, path=[site], settings={"acme:press": {"base_url": "https://example.com"}})
    assert reason(given, "PLUGIN-HANDLER-1") == ""


# ------------------------------------------------------------------ what is no MUST


@pytest.mark.parametrize(
    ("rule", "file", "piece", "told"),
    [
        ("PLUGIN-METADATA-1", "METADATA", ("coatcheck>=0.1,<1", "coatcheck>=0.1"), "write an upper bound"),
        ("PLUGIN-METADATA-1", "METADATA", ("coatcheck>=0.1,<1", "coatcheck>=7"), "leaves out coatcheck 0.1"),
        ("PLUGIN-METADATA-1", "METADATA", ("coatcheck>=0.1,<1", "attrs"), "does not depend on coatcheck"),
        ("PLUGIN-METADATA-3", "METADATA", ("License-Expression: MIT\n", ""), "it says none"),
        ("PLUGIN-HOOK-4", "plugin.py", ('summary="patient"', 'summary=""'), "retry 'acme' has none"),
        ("PLUGIN-HANDLER-5", "plugin.py", ('params="coatcheck_acme.things:Poster",', ""), "acme:press"),
        ("PLUGIN-STORE-3", "plugin.py", ('("notifies",)', '("durable",)'), "it has ['notifies']"),
        (
            "PLUGIN-HOOK-3",
            "plugin.py",
            ('key="first", factory=', "key=str(__import__('time').time_ns()), factory="),
            "called again, they say something else",
        ),
        (
            "PLUGIN-KEY-2",
            "plugin.py",
            (
                'key="acme",\n            schemes=("acme", "acmes")',
                'key="sqlite", schemes=("acme", "acmes", "sqlite")',
            ),
            "coatcheck-store-sql",
        ),
    ],
)
def test_what_falls_short_of_should_is_told(
    tmp_path: Path, rule: str, file: str, piece: tuple[str, str], told: str
) -> None:
    """Rules that are no MUST are tried, and say what is missing."""
    assert told in reason(acme(tmp_path, file, piece), rule)


def test_a_distribution_without_types_is_told(tmp_path: Path) -> None:
    """Its py.typed is looked for beside its code."""
    spec = acme(tmp_path)
    (tmp_path / "coatcheck_acme" / "py.typed").unlink()
    shutil.rmtree(tmp_path / "coatcheck_acme" / "__pycache__", ignore_errors=True)
    assert "no py.typed" in reason(spec, "PLUGIN-METADATA-2")
