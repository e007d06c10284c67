import json
from pathlib import Path

import pytest
from attrs import evolve, frozen
from small_suite import NumberConformance, NumberSpec, even, numbered

from coatcheck.memory import MemoryStore
from coatcheck_conformance import (
    Level,
    Outcome,
    Result,
    StoreConformance,
    StoreSpec,
    Verdict,
    validate,
)
from coatcheck_conformance.running import SpecMaker


def outcomes(number: int) -> dict[str, Outcome]:
    """Return the outcome of each rule on a number."""
    return {each.rule.id: each.outcome for each in validate(NumberConformance, NumberSpec(number)).results}


def test_each_rule_has_an_outcome() -> None:
    """Passed, failed, or skipped because something is not there."""
    assert outcomes(102) == {
        "NUMBER-EVEN-1": Outcome.PASSED,
        "NUMBER-EVEN-2": Outcome.FAILED,
        "NUMBER-SIGN-1": Outcome.PASSED,
    }
    assert outcomes(-1) == {
        "NUMBER-EVEN-1": Outcome.FAILED,
        "NUMBER-EVEN-2": Outcome.SKIPPED,
        "NUMBER-SIGN-1": Outcome.FAILED,
    }


@pytest.mark.parametrize(
    ("number", "verdict", "code"),
    [
        (2, Verdict.CONFORMANT, 0),
        (-2, Verdict.CONFORMANT, 0),
        (3, Verdict.FAILED, 1),
        (102, Verdict.FAILED, 1),
    ],
)
def test_only_must_rules_decide(number: int, verdict: Verdict, code: int) -> None:
    """A broken SHOULD is a remark."""
    report = validate(NumberConformance, NumberSpec(number))
    assert (report.verdict, report.exit_code) == (verdict, code)
    assert bool(report.remarks) == (number < 0)


def test_a_failure_says_what_did_not_hold() -> None:
    """The line of the rule that failed, its own words, or the error; and where, with the values of its variables."""
    results = {each.rule.id: each for each in validate(NumberConformance, NumberSpec(-3)).results}
    assert results["NUMBER-EVEN-1"].reason == "this does not hold: assert spec.number % 2 == 0"
    assert "number=-3" in results["NUMBER-EVEN-1"].details
    assert results["NUMBER-SIGN-1"].reason == "ValueError: too small"
    (half,) = [each for each in validate(NumberConformance, NumberSpec(102)).results if each.reason]
    assert half.reason == "half of 102 is odd"


@frozen
class KeyedSpec(NumberSpec):
    """A number with a key."""

    all_secrets: tuple[str, ...] = ("3-is-the-key",)


def test_a_failure_tells_no_secret() -> None:
    """What a spec says is secret shows in no report, wherever the rule had it in hand."""
    (failed, *_) = validate(NumberConformance, KeyedSpec(3)).results
    assert "spec = KeyedSpec(number=3, all_secrets=('***',))" in failed.details
    assert "3-is-the-key" not in failed.details


def test_an_expected_failure_makes_the_report_partial() -> None:
    """Honest, but not conformant: exit code 3."""
    report = validate(NumberConformance, NumberSpec(3), expected_failures={"NUMBER-EVEN-1": "it is three"})
    assert (report.verdict, report.exit_code) == (Verdict.PARTIAL, 3)
    assert report.reservations == ["NUMBER-EVEN-1 is expected to fail: it is three (AssertionError)"]


def test_an_expected_failure_that_passes_is_a_failure() -> None:
    """Expected failures are strict."""
    report = validate(NumberConformance, NumberSpec(2), expected_failures={"NUMBER-EVEN-1": "it is three"})
    assert report.failed == {"NUMBER-EVEN-1"}
    assert report.verdict is Verdict.FAILED


def test_what_is_required_must_be_there() -> None:
    """A rule that would be skipped fails if what it lacks is required."""
    report = validate(NumberConformance, NumberSpec(2), require=["halves"])
    assert report.problems == [
        "NUMBER-EVEN-2 failed: cannot be tried without halves, which is required here",
        "halves is required, and is not offered",
    ]


def test_a_misspelt_requirement_is_no_silent_pass() -> None:
    """What is required has to be offered, whether a rule needs it or not."""
    report = validate(NumberConformance, NumberSpec(102), require=["halfs"])
    assert "halfs is required, and is not offered" in report.problems
    assert report.verdict is Verdict.FAILED


def test_what_was_left_out_makes_the_report_partial() -> None:
    """A run of some rules says little."""
    report = validate(NumberConformance, NumberSpec(2), only=["NUMBER-EVEN-1"])
    assert report.verdict is Verdict.PARTIAL
    assert report.reservations == ["1 MUST rules were not run"]


def test_nothing_tried_is_a_failure() -> None:
    """No MUST rule tried: nothing is known."""
    report = validate(NumberConformance, NumberSpec(2), only=["NUMBER-SIGN-1"])
    assert report.verdict is Verdict.FAILED
    assert report.problems == ["no MUST rule was tried, so nothing is known"]


def test_rules_that_there_are_not_are_refused() -> None:
    """A misspelt id is no silent pass."""
    with pytest.raises(TypeError, match="NUMBER-ODD-1"):
        validate(NumberConformance, NumberSpec(2), only=["NUMBER-ODD-1"])
    with pytest.raises(TypeError, match="NUMBER-ODD-1"):
        validate(NumberConformance, NumberSpec(2), expected_failures={"NUMBER-ODD-1": ""})


def test_a_rule_that_was_deleted_is_missed() -> None:
    """What a class loses after it was made shows in its verdict."""

    class Mine(NumberConformance):
        pass

    Mine.test_even = None  # type: ignore[assignment]
    assert Mine.hidden() == ["NUMBER-EVEN-1"]
    with pytest.raises(TypeError, match="hides the rules NUMBER-EVEN-1"):
        validate(Mine, NumberSpec(2))
    report = evolve(validate(NumberConformance, NumberSpec(2)), hidden=Mine.hidden())
    assert report.verdict is Verdict.FAILED


def test_each_rule_has_a_place_of_its_own() -> None:
    """What makes specs is called for each rule, with an empty folder that is gone afterwards."""
    places: list[Path] = []

    def make(folder: Path) -> NumberSpec:
        places.append(folder)
        (folder / "file").write_text("", "utf-8")
        return NumberSpec(2)

    maker: SpecMaker = make
    assert validate(NumberConformance, maker).verdict is Verdict.CONFORMANT
    assert len(set(places)) == len(places) == 1 + len(NumberConformance.rules())
    assert not any(each.exists() for each in places)


def test_results_are_told_as_they_come() -> None:
    """A long run shows where it is."""
    told: list[Result] = []
    validate(NumberConformance, even, told=told.append)
    assert [each.rule.id for each in told] == ["NUMBER-EVEN-1", "NUMBER-EVEN-2", "NUMBER-SIGN-1"]


def test_the_report_as_json(tmp_path: Path) -> None:
    """Versions, server, offers, seed, verdict, and the outcome of each rule."""
    path = tmp_path / "out.json"
    validate(NumberConformance, NumberSpec(102), seed=7).write(path)
    told = json.loads(path.read_text("utf-8"))
    assert told["format"] == 1
    assert (told["suite"], told["target"], told["verdict"]) == (
        "NumberConformance",
        "the number 102",
        "not conformant",
    )
    assert (told["server"], told["offers"], told["seed"]) == ("Peano 1.0", ["halves"], 7)
    assert {"python", "coatcheck", "coatcheck-conformance"} <= told["versions"].keys()
    assert told["counts"] == {"passed": 2, "failed": 1}
    assert [(each["id"], each["level"], each["kind"], each["outcome"]) for each in told["rules"]] == [
        ("NUMBER-EVEN-1", "MUST", "deterministic", "passed"),
        ("NUMBER-EVEN-2", "MUST", "deterministic", "failed"),
        ("NUMBER-SIGN-1", "SHOULD", "stochastic", "passed"),
    ]
    assert told["rules"][1]["reason"] == "half of 102 is odd"
    assert list(tmp_path.iterdir()) == [path]


def test_the_summary_tells_the_verdict_and_why() -> None:
    """In a few lines, for a terminal."""
    lines = validate(NumberConformance, numbered(-3)).summary().splitlines()
    assert lines[0] == "NumberConformance of the number -3: not conformant"
    assert lines[1].startswith("  2 failed, 1 skipped, in ")
    assert lines[2:] == [
        "  NUMBER-EVEN-1 failed: this does not hold: assert spec.number % 2 == 0",
        "  NUMBER-SIGN-1 (SHOULD) failed: ValueError: too small",
        "  not tried: 1 (needs halves)",
    ]


class Slow(MemoryStore):
    """An honest store that wakes nobody early."""

    async def wait(self, *_: object, **__: object) -> bool:
        """Return at once: there may be work."""
        return True


def test_a_good_store_conforms_and_an_honest_one_partially(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory store keeps every MUST rule; a store that says what it breaks is partial, and no more."""
    some = [
        each.id for each in StoreConformance.rules() if each.id.startswith(("STORE-WAIT", "STORE-SETTLE"))
    ]
    good = validate(StoreConformance, StoreSpec("coatcheck.memory:MemoryStore", clock="clock"), only=some)
    assert (good.failed, good.problems) == (set(), [])
    monkeypatch.setattr(MemoryStore, "wait", Slow.wait)
    honest = StoreSpec("coatcheck.memory:MemoryStore", clock="clock")
    broken = validate(StoreConformance, honest, only=some)
    assert broken.verdict is Verdict.FAILED
    assert all(each.startswith("STORE-WAIT") for each in broken.failed)
    partial = validate(
        StoreConformance, honest, only=some, expected_failures=dict.fromkeys(broken.failed, "wakes nobody")
    )
    assert partial.verdict is Verdict.PARTIAL
    assert {each.rule.level for each in partial.results if each.outcome is Outcome.EXPECTED} == {Level.MUST}
