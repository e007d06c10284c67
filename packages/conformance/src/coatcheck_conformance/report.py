"""What a run of a suite comes to: the outcome of each rule, the verdict, and both as JSON and as text."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from attrs import field, frozen

from coatcheck_conformance.rules import Identity, Level, Rule, sort_key

__all__ = ["NOTHING_TRIED", "REPORT_FORMAT", "Outcome", "Report", "Result", "Verdict"]

NOTHING_TRIED = "no MUST rule was tried, so nothing is known"
REPORT_FORMAT = 1
"""Of the JSON report; raised when its shape changes."""


class Outcome(StrEnum):
    """What trying a rule came to."""

    PASSED = "passed"
    "Kept."
    FAILED = "failed"
    "Broken."
    EXPECTED = "expected failure"
    "Broken, as `expected_failures` says."
    SKIPPED = "skipped"
    "Does not apply, or cannot be tried: a capability or a hook is not there."
    NOT_RUN = "not run"
    "Left out of this run."


class Verdict(StrEnum):
    """What the outcomes come to."""

    CONFORMANT = "conformant"
    "Each MUST rule that applies is kept."
    PARTIAL = "partial"
    "Each MUST rule that was tried is kept, apart from expected failures or rules left out."
    FAILED = "not conformant"
    "A MUST rule is broken, required but not to be tried, or none was tried at all."


EXIT_CODES = {Verdict.CONFORMANT: 0, Verdict.FAILED: 1, Verdict.PARTIAL: 3}
"""Of the command; 2 says that it could not be run."""


@frozen(kw_only=True)
class Result:
    """The outcome of one rule."""

    rule: Rule
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """In one line: what failed, why it was skipped, or why it is expected to fail."""
    details: str = field(default="", repr=False)
    """The traceback of a failure."""


def _sorted(names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(str(each) for each in names))


def _by_rule(results: Collection[Result]) -> tuple[Result, ...]:
    return tuple(sorted(results, key=lambda each: sort_key(each.rule.id)))


@frozen(kw_only=True)
class Report:
    """What a run of one suite against one implementation came to."""

    suite: str
    """The name of the suite's class."""
    identity: Identity
    """What was tried."""
    offers: Sequence[str] = field(converter=_sorted)
    """The capabilities and hooks that were there."""
    results: Sequence[Result] = field(converter=_by_rule)
    """One for each rule of the suite, by topic and number."""
    seed: int = 0
    """What stochastic rules drew their chances from."""
    missing: Sequence[str] = field(default=(), converter=_sorted)
    """What was required, and is not offered."""
    hidden: Sequence[str] = ()
    """Ids of rules that were replaced or deleted by the subclass."""
    began_at: datetime = field(factory=lambda: datetime.now(UTC))
    """When the run began, in UTC."""

    # ------------------------------------------------------------------ what it comes to

    @property
    def verdict(self) -> Verdict:
        """Whether it conforms."""
        if self.problems:
            return Verdict.FAILED
        return Verdict.PARTIAL if self.reservations else Verdict.CONFORMANT

    @property
    def exit_code(self) -> int:
        """0 if it conforms, 1 if not, 3 if partially."""
        return EXIT_CODES[self.verdict]

    @property
    def problems(self) -> list[str]:
        """What makes it not conformant, a line each."""
        problems = [f"{each.rule.id} failed: {each.reason}" for each in self._musts(Outcome.FAILED)]
        problems += [
            f"{each} was replaced or deleted; a suite's rules are as they are" for each in self.hidden
        ]
        problems += [f"{each} is required, and is not offered" for each in self.missing]
        if not self._musts(Outcome.PASSED, Outcome.FAILED, Outcome.EXPECTED):
            problems.append(NOTHING_TRIED)
        return problems

    @property
    def reservations(self) -> list[str]:
        """What makes it partial, a line each."""
        expected = [
            f"{each.rule.id} is expected to fail: {each.reason}" for each in self._musts(Outcome.EXPECTED)
        ]
        left_out = len(self._musts(Outcome.NOT_RUN))
        return expected + ([f"{left_out} MUST rules were not run"] if left_out else [])

    @property
    def remarks(self) -> list[str]:
        """What falls short of SHOULD and MAY rules, a line each; it decides nothing."""
        return [
            f"{each.rule.id} ({each.rule.level}) failed: {each.reason}"
            for each in self.results
            if each.rule.level is not Level.MUST and each.outcome is Outcome.FAILED
        ]

    @property
    def failed(self) -> set[str]:
        """The ids of the rules that failed, of any level."""
        return {each.rule.id for each in self.results if each.outcome is Outcome.FAILED}

    def _musts(self, *outcomes: Outcome) -> list[Result]:
        return [each for each in self.results if each.rule.level is Level.MUST and each.outcome in outcomes]

    # ------------------------------------------------------------------ as JSON

    def to_json(self) -> dict[str, object]:
        """Return it as JSON data: versions, offers, verdict, and the outcome of each rule."""
        return {
            "format": REPORT_FORMAT,
            "suite": self.suite,
            "target": self.identity.target,
            "verdict": str(self.verdict),
            "problems": self.problems,
            "reservations": self.reservations,
            "remarks": self.remarks,
            "versions": versions(self.identity.modules),
            "server": self.identity.server,
            "offers": list(self.offers),
            "seed": self.seed,
            "began_at": self.began_at.isoformat(),
            "seconds": round(sum(each.seconds for each in self.results), 3),
            "counts": {str(outcome): count for outcome, count in self._counts().items()},
            "rules": [_result_as_json(each) for each in self.results],
        }

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        beside = path.with_name(f"{path.name}.part")
        beside.write_text(json.dumps(self.to_json(), indent=2) + "\n", "utf-8")
        beside.replace(path)

    def _counts(self) -> Counter[Outcome]:
        return Counter(each.outcome for each in self.results)

    # ------------------------------------------------------------------ as text

    def summary(self) -> str:
        """Return it in a few lines: the verdict, why, and the counts."""
        counts = ", ".join(f"{self._counts()[each]} {each}" for each in Outcome if self._counts()[each])
        seconds = sum(each.seconds for each in self.results)
        lines = [f"{self.suite} of {self.identity.target}: {self.verdict}", f"  {counts}, in {seconds:.1f} s"]
        lines += [f"  {each}" for each in (*self.problems, *self.reservations, *self.remarks)]
        reasons = Counter(each.reason for each in self.results if each.outcome is Outcome.SKIPPED)
        lines += [f"  not tried: {count} ({reason})" for reason, count in sorted(reasons.items())]
        return "\n".join(lines)


def _result_as_json(result: Result) -> dict[str, object]:
    tried = result.rule
    return {
        "id": tried.id,
        "level": str(tried.level),
        "kind": str(tried.kind),
        "requires": sorted(str(each) for each in tried.requires),
        "promise": tried.promise,
        "outcome": str(result.outcome),
        "seconds": round(result.seconds, 4),
        "reason": result.reason,
        "details": result.details,
    }


def versions(modules: Collection[str]) -> dict[str, str]:
    """Return the versions of Python, core, the kit, and the distributions that `modules` come from."""
    owners = packages_distributions()
    names = {"coatcheck", "coatcheck-conformance"}
    for module in modules:
        names.update(owners.get(module.partition(".")[0], ()))
    found = {"python": platform.python_version()}
    for name in sorted(names):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
