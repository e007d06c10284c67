"""The command ``coatcheck-conformance``: try an implementation, print what came of it, write the report."""

from __future__ import annotations

import argparse
import faulthandler
import inspect
import logging
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import cast
from uuid import uuid4

from attrs import evolve, frozen

from coatcheck.errors import CoatcheckError, ConfigurationError
from coatcheck.store import Capability
from coatcheck_conformance.report import Outcome, Result
from coatcheck_conformance.rules import Spec, Suite, table
from coatcheck_conformance.running import SpecMaker, validate
from coatcheck_conformance.store.spec import StoreSpec

__all__ = ["main"]

CANNOT_RUN = 2
"""The exit code of a command that could not be carried out. The others are those of `Report.exit_code`."""
_STDERR = 2
RULE_TIMEOUT_SECONDS = 300.0

DESCRIPTION = """\
Try an implementation against the promises of coatcheck's contracts.

exit codes: 0 conformant, 1 not conformant, 3 partial (some rules are expected to fail or were left out),
2 the command could not be carried out.
"""
STORE_TARGET = """\
the URL of a store whose plugin is installed, or module:attribute, which names the store's factory, a StoreSpec, or
a function (folder: Path) -> StoreSpec. Each rule needs an empty place: in URLs and settings {folder} becomes an empty
folder of the rule's own, and {name} a word of its own
"""


@frozen
class Kit:
    """One kind of thing that can be tried."""

    help: str
    suite: str
    spec: str
    target: str

    def load(self) -> tuple[type[Suite], type]:
        """Import the suite and the class of its specs."""
        home = import_module("coatcheck_conformance")
        return cast("type[Suite]", getattr(home, self.suite)), cast("type", getattr(home, self.spec))


_POLICY = (
    "the key of an installed one, or module:attribute, which names the factory, a {spec}, or a function "
    "(folder: Path) -> {spec}"
)
KITS = {
    "store": Kit("try a store", "StoreConformance", "StoreSpec", STORE_TARGET),
    "handler": Kit(
        "try a handler",
        "HandlerConformance",
        "HandlerSpec",
        "module:attribute, which names a HandlerSpec, or a function (folder: Path) -> HandlerSpec",
    ),
    "selector": Kit(
        "try a selector", "SelectorConformance", "SelectorSpec", _POLICY.format(spec="SelectorSpec")
    ),
    "retry": Kit("try a retry policy", "RetryConformance", "RetrySpec", _POLICY.format(spec="RetrySpec")),
    "admission": Kit(
        "try an admission policy",
        "AdmissionConformance",
        "AdmissionSpec",
        _POLICY.format(spec="AdmissionSpec"),
    ),
    "plugin": Kit(
        "try an installed plugin package",
        "PluginConformance",
        "PluginSpec",
        "the name of an installed distribution, or module:attribute, which names a PluginSpec",
    ),
}

POLICIES = ("selector", "retry", "admission")
"""What can be named by the key of a plugin."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the command out and return its exit code."""
    given = _parser().parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))  # modules are named as `python -m` would find them
    try:
        return _print_rules(given.suite) if given.kind == "rules" else _run(given)
    except (CoatcheckError, TypeError, OSError) as error:
        print(f"coatcheck-conformance: {error}", file=sys.stderr)
        return CANNOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "coatcheck-conformance", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, kit in KITS.items():
        sub = kinds.add_parser(kind, help=kit.help)
        sub.add_argument("target", help=kit.target.replace("%", "%%"))
        if kind != "plugin":
            sub.add_argument(
                "--setting",
                metavar="NAME=VALUE",
                action="append",
                default=[],
                help="a setting of the factory",
            )
        if kind == "store":
            sub.add_argument("--url", help="the argument of a factory that is given as module:attribute")
            sub.add_argument(
                "--clock", metavar="KEYWORD", help="the keyword under which the factory takes a clock"
            )
        _add_common(sub)
    rules = kinds.add_parser("rules", help="print the table of rules")
    rules.add_argument("suite", nargs="?", choices=list(KITS), help="of this suite only")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--report", type=Path, metavar="FILE", help="write the report here, as JSON")
    add(
        "--require",
        metavar="CAPABILITY",
        action="append",
        default=[],
        help="fail instead of skipping without it",
    )
    add(
        "--expect-failure",
        metavar="RULE=REASON",
        action="append",
        default=[],
        help="a rule that is known to be broken",
    )
    add(
        "--only",
        metavar="RULE",
        action="append",
        help="try this rule, and no others but those named likewise",
    )
    add("--seed", type=int, default=0, help="what stochastic rules draw their chances from")
    add(
        "--timeout",
        type=float,
        default=RULE_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="when a rule that hangs ends the run",
    )
    add("-v", "--verbose", action="store_true", help="show each rule, and the traceback of each failure")


# ------------------------------------------------------------------ running


def _run(given: argparse.Namespace) -> int:
    logging.getLogger().addHandler(logging.NullHandler())  # what rules provoke is no news
    suite, kind = KITS[given.kind].load()
    spec = _spec(given, kind)

    def told(result: Result) -> None:
        faulthandler.dump_traceback_later(given.timeout, exit=True, file=_STDERR)
        shown = result.outcome is not Outcome.NOT_RUN if given.verbose else result.outcome is Outcome.FAILED
        if shown:
            _print_result(result, verbose=given.verbose)

    faulthandler.dump_traceback_later(given.timeout, exit=True, file=_STDERR)
    try:
        report = validate(
            suite,
            spec,
            require=given.require,
            expected_failures=_pairs(given.expect_failure),
            only=given.only,
            seed=given.seed,
            told=told,
        )
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(report.summary())
    if given.report is not None:
        report.write(given.report)
    return report.exit_code


def _print_result(result: Result, *, verbose: bool) -> None:
    rule = result.rule
    print(f"{result.outcome.upper():<16} {rule.id} {' '.join(rule.promise.split())}")
    if result.reason:
        print(f"{'':<16} {result.reason}")
    if verbose and result.details:
        print(result.details)


def _print_rules(kind: str | None) -> int:
    kits = KITS if kind is None else {kind: KITS[kind]}
    for each in kits.values():
        suite, _ = each.load()
        print(table(suite.rules()))
    return 0


# ------------------------------------------------------------------ what is to be tried


def _spec(given: argparse.Namespace, kind: type) -> Spec | SpecMaker:
    """Return the spec that the target names, or what makes it for each rule."""
    target: str = given.target
    if given.kind == "plugin" and ":" not in target:
        return cast("Spec", kind(target))
    settings = {} if given.kind == "plugin" else _pairs(given.setting)
    if given.kind == "store" and "://" in target:
        return _store_maker(
            StoreSpec("coatcheck:create_store", url=target, settings=settings, clock=given.clock)
        )
    if given.kind not in POLICIES or ":" in target:
        found = named(target)
        if isinstance(found, StoreSpec) and found.url is not None:
            message = f"{target} is one place, and each rule needs an empty one; name a function of a folder instead"
            raise ConfigurationError(message)
        if isinstance(found, kind) or (inspect.isfunction(found) and _returns(found, kind)):
            return cast("Spec | SpecMaker", found)
    return _spec_of_factory(given, kind, settings)


def _spec_of_factory(given: argparse.Namespace, kind: type, settings: Mapping[str, str]) -> Spec | SpecMaker:
    if given.kind == "store":
        return _store_maker(StoreSpec(given.target, url=given.url, settings=settings, clock=given.clock))
    if given.kind not in POLICIES:
        name = kind.__name__
        message = (
            f"{given.target} is neither a {name} nor a function that says it returns one, as in "
            f"def spec(folder: Path) -> {name}"
        )
        raise ConfigurationError(message)
    spec = kind(given.target, settings=settings)
    spec.create()  # what cannot be made is told once, rather than by each rule
    return cast("Spec", spec)


def _returns(function: FunctionType, kind: type) -> bool:
    """Whether a function says that it returns a `kind`, be it by name."""
    told = function.__annotations__.get("return")
    return told is kind or (isinstance(told, str) and told.rpartition(".")[2] == kind.__name__)


def _store_maker(spec: StoreSpec) -> SpecMaker:
    """Return what makes specs like `spec`, with the placeholders of its URL and settings filled in."""
    texts = [spec.url or "", *map(str, spec.settings.values())]
    somewhere = any("{folder}" in each or "{name}" in each for each in texts)
    if not somewhere and spec.offers() & {Capability.DURABLE, Capability.SHARED}:
        message = (
            f"{spec.identity().target} is one place, and each rule needs an empty one; write {{folder}} or {{name}} "
            "where the places are to differ, such as sqlite:///{folder}/jobs.db"
        )
        raise ConfigurationError(message)

    def make(folder: Path) -> StoreSpec:
        name = f"kit_{uuid4().hex[:8]}"

        def filled(text: str) -> str:
            return text.replace("{folder}", str(folder)).replace("{name}", name)

        settings = {
            key: filled(value) if isinstance(value, str) else value for key, value in spec.settings.items()
        }
        return evolve(spec, url=None if spec.url is None else filled(spec.url), settings=settings)

    return make


def named(reference: str) -> object:
    """Return what ``module:attribute`` names.

    Raises:
        ConfigurationError: it is not written so, or there is no such thing.
    """
    module, _, attribute = reference.partition(":")
    if not attribute:
        message = f"write module:attribute, not {reference!r}"
        raise ConfigurationError(message)
    try:
        return cast("object", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        message = f"there is no {reference!r} here: {error}"
        raise ConfigurationError(message) from error


def _pairs(given: Sequence[str]) -> Mapping[str, str]:
    """Return NAME=VALUE arguments as a mapping."""
    pairs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            message = f"write NAME=VALUE, not {each!r}"
            raise ConfigurationError(message)
        pairs[name] = value
    return pairs


if __name__ == "__main__":
    sys.exit(main())
