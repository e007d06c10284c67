"""The suite of plugin distributions."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from packaging.requirements import Requirement

from coatcheck.hooks import Kind
from coatcheck.plugins import PluginState, installed_version, normalized
from coatcheck_conformance.plugin.facts import Topic
from coatcheck_conformance.plugin.spec import PluginSpec
from coatcheck_conformance.rules import Level, Suite, spec_rule

__all__ = ["PluginConformance"]

_PREFIX = "coatcheck-"
_LIGHT_SECONDS = 0.1
_HANDLER, _STORE = str(Kind.HANDLER), str(Kind.STORE)


def _require_none(spec: PluginSpec, topic: str) -> None:
    problems = spec.made().problems.get(topic, ())
    assert not problems, "; ".join(problems)


class PluginConformance(Suite):
    """Every promise of a plugin distribution. Subclass it, and give the fixture `plugin_spec`."""

    fixture = "plugin_spec"

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return which distribution is under test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `plugin_spec` that returns a PluginSpec")

    # ------------------------------------------------------------------ the entry point

    @spec_rule("plugin_spec", "PLUGIN-ENTRY-1")
    def test_there_is_one_entry_point(self, spec: PluginSpec) -> None:
        """One entry point per distribution in the group `coatcheck`."""
        entries = spec.found().entries
        assert len(entries) == 1, f"it has {len(entries)}: {', '.join(name for name, _ in entries) or 'none'}"

    @spec_rule("plugin_spec", "PLUGIN-ENTRY-2")
    def test_the_entry_point_bears_the_name_of_the_distribution(self, spec: PluginSpec) -> None:
        """The entry point is named after the distribution, with or without `coatcheck-` before it."""
        whole = normalized(spec.distribution)
        wanted = {whole, whole.removeprefix(_PREFIX)}
        for name, _ in spec.found().entries[:1]:
            assert normalized(name) in wanted, f"it is called {name!r}, and not {' or '.join(sorted(wanted))}"

    # ------------------------------------------------------------------ the light module

    @spec_rule("plugin_spec", "PLUGIN-LIGHT-1")
    def test_the_module_is_light(self, spec: PluginSpec) -> None:
        """The light module imports nothing but `coatcheck` and the standard library: no driver, no HTTP client."""
        foreign = spec.light().foreign
        assert not foreign, f"with it come {', '.join(foreign)}; import them where the factory is"

    @spec_rule("plugin_spec", "PLUGIN-LIGHT-2")
    def test_the_module_is_quick(self, spec: PluginSpec) -> None:
        """Listing two hundred plugins is a matter of a moment: importing one light module takes 100 ms at most."""
        seconds = spec.light().seconds
        for attempt in (1, 2):  # the first writes byte code, and another process may take the processor away
            if seconds >= _LIGHT_SECONDS:
                seconds = min(seconds, spec.light(attempt).seconds)
        assert seconds < _LIGHT_SECONDS, f"it takes {seconds * 1000:.0f} ms"

    @spec_rule("plugin_spec", "PLUGIN-LIGHT-3")
    def test_the_module_is_quiet(self, spec: PluginSpec) -> None:
        """Importing the light module prints nothing and warns of nothing, also with warnings as errors."""
        light, found = spec.light(), spec.found()
        fails_anyway = PluginState.FAILED in found.states and not found.offers  # which another rule is about
        assert fails_anyway or not light.error, f"with warnings as errors it raises {light.error}"
        assert not light.printed.strip(), f"it prints {light.printed.strip()[:200]!r}"

    @spec_rule("plugin_spec", "PLUGIN-LIGHT-4")
    def test_the_module_does_nothing(self, spec: PluginSpec) -> None:
        """Installing activates nothing: importing the light module does no I/O, and starts no thread."""
        light = spec.light()
        assert not light.outside, f"it does {'; '.join(light.outside[:3])}"
        assert not light.threads, f"it starts {light.threads} threads"

    # ------------------------------------------------------------------ hooks and descriptors

    @spec_rule("plugin_spec", "PLUGIN-HOOK-1")
    def test_discovery_takes_it_in(self, spec: PluginSpec) -> None:
        """It is listed as available: hooks are plain functions that pluggy takes, and return valid descriptors."""
        found = spec.found()
        assert set(found.states) <= {PluginState.AVAILABLE}, "; ".join(found.reasons)

    @spec_rule("plugin_spec", "PLUGIN-HOOK-2")
    def test_it_offers_something(self, spec: PluginSpec) -> None:
        """Its hooks return at least one descriptor, or it is an observer."""
        found = spec.found()
        failed = PluginState.FAILED in found.states  # then nothing is to be seen of what it would offer
        assert failed or found.offers or found.observers, "it offers nothing"

    @spec_rule("plugin_spec", "PLUGIN-HOOK-3", level=Level.SHOULD)
    def test_hooks_say_the_same_again(self, spec: PluginSpec) -> None:
        """Hooks may be called any number of times, and say the same each time."""
        assert spec.found().steady, "called again, they say something else"

    @spec_rule("plugin_spec", "PLUGIN-HOOK-4", level=Level.SHOULD)
    def test_each_thing_has_a_summary(self, spec: PluginSpec) -> None:
        """Each descriptor has a summary, of one line, for the listing."""
        for each in spec.found().offers:
            assert each.summary.strip(), f"{each.kind} {each.key!r} has none"
            assert len(each.summary.splitlines()) == 1, f"that of {each.kind} {each.key!r} has several lines"

    @spec_rule("plugin_spec", "PLUGIN-API-1")
    def test_its_api_version_fits(self, spec: PluginSpec) -> None:
        """The descriptors' `api` has the major of the host, and a minor not above it."""
        for each in spec.found().offers:
            assert each.state != PluginState.INCOMPATIBLE, f"{each.kind} {each.key!r}: {each.reason}"

    @spec_rule("plugin_spec", "PLUGIN-KEY-1")
    def test_keys_are_unique(self, spec: PluginSpec) -> None:
        """A key, or a store's scheme, is offered once in its kind."""
        names = Counter((each.kind, name) for each in spec.found().offers for name in each.names)
        doubles = [f"{kind} {name!r}" for (kind, name), count in names.items() if count > 1]
        assert not doubles, f"offered more than once: {', '.join(doubles)}"

    @spec_rule("plugin_spec", "PLUGIN-KEY-2", level=Level.SHOULD)
    def test_no_other_distribution_has_its_keys(self, spec: PluginSpec) -> None:
        """No other installed distribution offers the same: users would have to say which they prefer."""
        assert not spec.found().conflicts, "; ".join(spec.found().conflicts)

    # ------------------------------------------------------------------ what descriptors name

    @spec_rule("plugin_spec", "PLUGIN-REF-1")
    def test_references_lead_somewhere(self, spec: PluginSpec) -> None:
        """`factory`, `settings`, `account` and `params` can be imported; once they are, it is listed as loaded."""
        _require_none(spec, Topic.REFERENCES)
        doubtful = {PluginState.CONFLICT, PluginState.INCOMPATIBLE}  # which other rules are about
        states = [each for each in spec.made().states if each not in doubtful]
        assert set(states) <= {PluginState.LOADED, PluginState.AVAILABLE}, (
            f"after loading: {', '.join(states)}"
        )

    @spec_rule("plugin_spec", "PLUGIN-SETTINGS-1")
    def test_settings_and_accounts_are_attrs_classes(self, spec: PluginSpec) -> None:
        """Settings and accounts are attrs classes: configuration is read into them, and unknown keys are told."""
        _require_none(spec, Topic.CLASSES)

    @spec_rule("plugin_spec", "PLUGIN-SECRET-1")
    def test_secrets_do_not_show(self, spec: PluginSpec) -> None:
        """Keys, tokens and passwords never appear in the `repr` of settings and accounts."""
        _require_none(spec, Topic.SECRETS)

    @spec_rule("plugin_spec", "PLUGIN-SECRET-2", requires=[_HANDLER])
    def test_a_handler_does_not_show_its_accounts(self, spec: PluginSpec) -> None:
        """Secrets never appear in the `repr` of a handler, which logs show."""
        _require_none(spec, Topic.SECRETS_OF_MADE)

    # ------------------------------------------------------------------ what factories make

    @spec_rule("plugin_spec", "PLUGIN-HANDLER-1", requires=[_HANDLER])
    def test_a_handler_can_be_made_without_credentials(self, spec: PluginSpec) -> None:
        """A handler's factory takes `key`, `accounts` and `settings`; a web process has no accounts and gives None."""
        _require_none(spec, Topic.HANDLERS)

    @spec_rule("plugin_spec", "PLUGIN-HANDLER-2", requires=[_HANDLER])
    def test_a_handler_has_the_key_that_it_was_asked_for(self, spec: PluginSpec) -> None:
        """The key that is persisted and the plugin's key are two things: a handler has the key it is given."""
        _require_none(spec, Topic.HANDLER_KEYS)

    @spec_rule("plugin_spec", "PLUGIN-HANDLER-3", requires=[_HANDLER])
    def test_a_handler_takes_the_params_that_its_descriptor_says(self, spec: PluginSpec) -> None:
        """The params class in the descriptor is that of the handler."""
        _require_none(spec, Topic.HANDLER_PARAMS)

    @spec_rule("plugin_spec", "PLUGIN-HANDLER-4", requires=[_HANDLER])
    def test_making_a_handler_does_nothing_outside(self, spec: PluginSpec) -> None:
        """Constructors do no I/O."""
        _require_none(spec, Topic.HANDLERS_OUTSIDE)

    @spec_rule("plugin_spec", "PLUGIN-HANDLER-5", level=Level.SHOULD, requires=[_HANDLER])
    def test_a_handler_says_which_params_it_takes(self, spec: PluginSpec) -> None:
        """A handler's descriptor names its params class, for the listing."""
        silent = [each.key for each in spec.found().offers if each.kind == _HANDLER and not each.names_params]
        assert not silent, f"these don't: {', '.join(silent)}"

    @spec_rule("plugin_spec", "PLUGIN-STORE-1", requires=[_STORE])
    def test_a_store_can_be_made_for_each_of_its_schemes(self, spec: PluginSpec) -> None:
        """A store's factory takes a URL of any of its schemes, and `settings`, and returns a store."""
        _require_none(spec, Topic.STORES)

    @spec_rule("plugin_spec", "PLUGIN-STORE-2", requires=[_STORE])
    def test_making_a_store_does_nothing_outside(self, spec: PluginSpec) -> None:
        """It returns a closed store that can stand at module level: no I/O."""
        _require_none(spec, Topic.STORES_OUTSIDE)

    @spec_rule("plugin_spec", "PLUGIN-STORE-3", level=Level.SHOULD, requires=[_STORE])
    def test_the_listing_has_the_stores_capabilities(self, spec: PluginSpec) -> None:
        """A store's descriptor lists the capabilities that the store declares."""
        _require_none(spec, Topic.CAPABILITIES)

    @spec_rule("plugin_spec", "PLUGIN-POLICY-1")
    def test_selectors_and_policies_can_be_made(self, spec: PluginSpec) -> None:
        """The factory of a selector or policy takes `settings`, if it has any, and does no I/O."""
        _require_none(spec, Topic.POLICIES)

    # ------------------------------------------------------------------ the distribution

    @spec_rule("plugin_spec", "PLUGIN-METADATA-1", level=Level.SHOULD)
    def test_it_depends_on_a_range_of_coatcheck(self, spec: PluginSpec) -> None:
        """Its dependencies have a range of coatcheck that takes in this one and leaves out the next major."""
        wanted = [Requirement(each) for each in spec.found().requirements]
        ranges = [each.specifier for each in wanted if normalized(each.name) == "coatcheck"]
        assert ranges, "it does not depend on coatcheck"
        present = installed_version("coatcheck")
        major = re.match(r"\d+", present)
        after = f"{int(major[0]) + 1 if major else 1}.0.0"
        for each in ranges:
            assert each.contains(present, prereleases=True), f"{each} leaves out coatcheck {present}"
            assert not each.contains(after), f"{each} takes in coatcheck {after}; write an upper bound"

    @spec_rule("plugin_spec", "PLUGIN-METADATA-2", level=Level.SHOULD)
    def test_it_is_typed(self, spec: PluginSpec) -> None:
        """It ships py.typed, so that its users' type checkers see its types."""
        assert spec.found().typed, "there is no py.typed in its package"

    @spec_rule("plugin_spec", "PLUGIN-METADATA-3", level=Level.MAY)
    def test_it_has_a_licence(self, spec: PluginSpec) -> None:
        """Its metadata says under which licence it may be used."""
        assert spec.found().licence, "it says none"
