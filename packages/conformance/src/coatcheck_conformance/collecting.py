"""From pytest's reports of rules to a report of each suite."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, evolve, field

from coatcheck_conformance.report import NOTHING_TRIED, Outcome, Report, Result, Verdict
from coatcheck_conformance.rules import Identity, Rule, Spec, Suite
from coatcheck_conformance.running import without_id

__all__ = ["Trials", "described"]


def described(item: pytest.Item, tried: Rule) -> dict[str, object]:
    """Return which rule of which suite a test is, and what it was tried on, as JSON data."""
    suite = cast("type[Suite]", cast("pytest.Function", item).cls)
    root = next(each for each in suite.__mro__ if "fixture" in vars(each))
    spec = cast("Spec | None", cast("pytest.Function", item).funcargs.get(suite.fixture))
    identity, offers = Identity(target="unknown"), list[str]()
    if spec is not None:
        identity = spec.identity()
        place = str(cast("pytest.Function", item).funcargs.get("tmp_path", "")) or None
        if place is not None:
            identity = evolve(identity, target=identity.target.replace(place, "{folder}"))
        with suppress(Exception):  # what cannot even be made offers nothing; the rule itself has said so
            offers = sorted(str(each) for each in spec.offers())
    return {
        "class": suite.__name__,
        "suite": f"{root.__module__}:{root.__qualname__}",
        "rule": tried.id,
        "hidden": suite.hidden(),
        "missing": sorted(set(suite.require) - set(offers)),
        "seed": suite.seed,
        "target": identity.target,
        "modules": list(identity.modules),
        "server": identity.server,
        "offers": offers,
    }


@define
class Trials:
    """The outcomes of rules, by the class that they were tried in."""

    _by_class: dict[str, dict[str, Result]] = field(factory=dict)
    _about: dict[str, dict[str, Any]] = field(factory=dict)

    def add(self, about: dict[str, Any], report: pytest.TestReport) -> None:
        """Keep the outcome of a rule; the worst of a rule that was tried several times."""
        name = about["class"]
        known = self._about.setdefault(name, about)
        if known["target"] == "unknown":
            self._about[name] = about
        results = self._by_class.setdefault(name, {})
        rule = next(each for each in _suite(about).rules() if each.id == about["rule"])
        result = Result(
            rule=rule,
            outcome=_outcome(report),
            seconds=report.duration,
            reason=without_id(rule, _reason(report)),
            details=report.longreprtext if report.failed else "",
        )
        before = results.get(rule.id)
        if before is None or before.outcome is not Outcome.FAILED:
            results[rule.id] = result

    def reports(self) -> Mapping[str, Report]:
        """Return a report of each class; rules that were not selected are in it as not run."""
        return {name: self._report(name, about) for name, about in sorted(self._about.items())}

    def _report(self, name: str, about: dict[str, Any]) -> Report:
        results = self._by_class[name]
        return Report(
            suite=name,
            identity=Identity(target=about["target"], modules=about["modules"], server=about["server"]),
            offers=about["offers"],
            results=[
                results.get(each.id, Result(rule=each, outcome=Outcome.NOT_RUN))
                for each in _suite(about).rules()
            ],
            seed=about["seed"],
            hidden=about["hidden"],
            missing=about["missing"],
        )

    def not_conformant(self, *, again: bool = False) -> list[str]:
        """Return the classes whose verdict is so.

        Args:
            again: what failed before is tried again: which rules are tried is no choice, and a single one may be a
                SHOULD.
        """
        failed = {name: each for name, each in self.reports().items() if each.verdict is Verdict.FAILED}
        return [name for name, each in failed.items() if not (again and _only_lacks_musts(each))]

    def write(self, folder: str) -> None:
        """Write a report of each class into `folder`, which is made if it is not there."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, report in self.reports().items():
            report.write(Path(folder, f"{name}.json"))

    def summary(self) -> str:
        """Return the summaries of all."""
        return "\n".join(report.summary() for report in self.reports().values())


def _suite(about: dict[str, Any]) -> type[Suite]:
    module, _, name = about["suite"].partition(":")
    return cast("type[Suite]", getattr(import_module(module), name))


def _only_lacks_musts(report: Report) -> bool:
    passed = any(each.outcome is Outcome.PASSED for each in report.results)
    return passed and report.problems == [NOTHING_TRIED]


def _outcome(report: pytest.TestReport) -> Outcome:
    if report.skipped:
        return Outcome.EXPECTED if hasattr(report, "wasxfail") else Outcome.SKIPPED
    return Outcome.PASSED if report.passed else Outcome.FAILED


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    if report.skipped:
        told = report.longrepr
        return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.passed or crash is None:
        return "" if report.passed else "failed"
    lines = str(crash.message).splitlines()
    return lines[0].removeprefix("AssertionError: ").removeprefix("Failed: ") if lines else "failed"
