from collections.abc import Callable

import pytest

from coatcheck_conformance import Kind, Level, Rule, StoreConformance, Suite, registered, rule, table
from coatcheck_conformance.rules import rule_of


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rule]:
    """A registry of the test's own, so that made-up rules don't reach the docs."""
    rules: dict[str, Rule] = {}
    monkeypatch.setattr("coatcheck_conformance.rules._REGISTRY", rules)
    return rules


@pytest.fixture
def suite(registry: dict[str, Rule]) -> type[Suite]:
    """A suite of one rule."""
    assert not registry

    class Small(Suite):
        @rule("SMALL-1")
        def test_one(self) -> None:
            """One is one."""

    return Small


def test_every_rule_of_the_store_suite_has_an_id_and_a_promise() -> None:
    """Ids are STORE-TOPIC-NUMBER, promises are sentences, and none is hidden by another of its name."""
    rules = StoreConformance.rules()
    assert {each.id for each in rules} == {each.id for each in registered() if each.id.startswith("STORE-")}
    for each in rules:
        assert len(each.id.split("-")) == 3
        assert each.promise.endswith(".")


@pytest.mark.usefixtures("suite")
def test_the_table_has_a_line_for_each_rule() -> None:
    """The table of the docs is generated from the rules."""
    assert table().splitlines()[2:] == ["| `SMALL-1` | MUST | deterministic |  | One is one. |"]


@pytest.mark.usefixtures("registry")
def test_rules_are_sorted_by_number() -> None:
    """STORE-ADD-10 comes after STORE-ADD-9."""
    for number in (10, 9, 1):
        rule(f"X-{number}", level=Level.MAY, kind=Kind.STOCHASTIC)(_documented())
    assert [each.id for each in registered()] == ["X-1", "X-9", "X-10"]


def _documented() -> Callable[[], None]:
    def test() -> None:
        """A promise."""

    return test


@pytest.mark.usefixtures("registry")
def test_a_rule_without_a_promise_is_refused() -> None:
    """A rule quotes what it checks."""

    def test() -> None:
        pass

    with pytest.raises(TypeError, match="docstring"):
        rule("X-1")(test)


@pytest.mark.usefixtures("suite")
def test_an_id_is_one_rules() -> None:
    """Two rules can't share an id."""
    with pytest.raises(TypeError, match="SMALL-1 is both"):
        rule("SMALL-1")(_documented())


def test_hiding_a_rule_is_detected(suite: type[Suite]) -> None:
    """A subclass can neither override nor remove a rule."""
    for hidden in (None, _documented()):
        with pytest.raises(TypeError, match="hides the rules SMALL-1"):
            type("Mine", (suite,), {"test_one": hidden})


def test_expecting_the_failure_of_no_rule_is_detected(suite: type[Suite]) -> None:
    """A misspelt id in `expected_failures` is no silent pass."""
    with pytest.raises(TypeError, match="SMALL-9"):
        type("Mine", (suite,), {"expected_failures": {"SMALL-9": "not yet"}})


def test_an_expected_failure_is_an_xfail(suite: type[Suite]) -> None:
    """What is known to fail is reported so, with its reason."""
    mine = type("Mine", (suite,), {"expected_failures": {"SMALL-1": "not yet"}})()
    tried = rule_of(mine.test_one)
    assert tried is not None

    def fail() -> None:
        raise AssertionError

    with pytest.raises(pytest.xfail.Exception, match="SMALL-1: not yet"):
        mine.judge(tried, fail)


def test_an_expected_failure_that_passes_is_a_failure(suite: type[Suite]) -> None:
    """Expected failures are strict."""
    mine = type("Mine", (suite,), {"expected_failures": {"SMALL-1": "not yet"}})()
    tried = rule_of(mine.test_one)
    assert tried is not None
    with pytest.raises(pytest.fail.Exception, match="expected to fail"):
        mine.judge(tried, lambda: None)
