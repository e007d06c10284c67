"""Running a suite without pytest's help: one rule after the other, each on a spec of its own."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import TypeAlias

import pytest
from attrs import evolve

from coatcheck_conformance.report import Outcome, Report, Result
from coatcheck_conformance.rules import Rule, Spec, Suite
from coatcheck_conformance.rules import __file__ as judged_in

__all__ = ["SpecMaker", "validate"]

_WIDTH = 300
"""Characters of a variable's value that are shown."""

SpecMaker: TypeAlias = Callable[[Path], Spec]
"""Returns a spec of an empty place; called for each rule with an empty folder of its own."""


def validate(  # noqa: PLR0913 - what a run can be told, all of it optional
    suite: type[Suite],
    spec: Spec | SpecMaker,
    *,
    require: Collection[str] = (),
    expected_failures: Mapping[str, str] = MappingProxyType({}),
    only: Collection[str] | None = None,
    seed: int = 0,
    told: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Try the rules of a suite and return what came of it; a broken rule is an outcome, and raises nothing.

    Args:
        suite: the suite, or a subclass that gives no fixture.
        spec: the spec, if one serves all rules, as that of a handler does; what makes one for each rule, if not.
        require: capabilities and hooks that must be there.
        expected_failures: rules that are known to be broken, with the reason; strict.
        only: ids of the rules to try; None tries them all. What is left out makes the report partial.
        seed: what stochastic rules draw their chances from.
        told: called with each result as it comes.

    Raises:
        TypeError: the suite hides a rule, or `expected_failures` or `only` name a rule that there is not.
        ConfigurationError: what is to be tried cannot be found.
    """
    required = frozenset({*suite.require, *require})
    made = type(
        suite.__name__,
        (suite,),
        {
            "expected_failures": {**suite.expected_failures, **expected_failures},
            "require": required,
            "seed": seed,
        },
    )
    rules = suite.rules()
    unknown = sorted(set(only or ()) - {each.id for each in rules})
    if unknown:
        message = f"{suite.__name__} has no rules {', '.join(unknown)}"
        raise TypeError(message)
    results = []
    with tempfile.TemporaryDirectory(prefix="coatcheck-conformance-", ignore_cleanup_errors=True) as folder:
        first = _spec(spec, Path(folder), "first")
        identity, offers = first.identity(), first.offers()
        for number, each in enumerate(rules):
            if only is None or each.id in only:
                result = _tried(made, each, lambda n=number: _spec(spec, Path(folder), str(n)))  # type: ignore[misc]
            else:
                result = Result(rule=each, outcome=Outcome.NOT_RUN)
            results.append(result)
            told(result)
        target = identity.target.replace(str(Path(folder, "first")), "{folder}")
        return Report(
            suite=suite.__name__,
            identity=evolve(identity, target=target),
            offers=offers,
            results=results,
            seed=seed,
            missing=required - set(offers),
        )


def _spec(spec: Spec | SpecMaker, folder: Path, name: str) -> Spec:
    if not callable(spec):
        return spec
    place = folder / name
    place.mkdir()
    return spec(place)


def _tried(suite: type[Suite], tried: Rule, make: Callable[[], Spec]) -> Result:
    began = time.perf_counter()
    outcome, reason, details = Outcome.PASSED, "", ""
    spec: Spec | None = None
    try:
        spec = make()
        getattr(suite(), tried.test)(**{suite.fixture: spec})
    except pytest.skip.Exception as skip:
        outcome, reason = Outcome.SKIPPED, without_id(tried, str(skip.msg))
    except pytest.xfail.Exception as expected:
        outcome, reason = Outcome.EXPECTED, without_id(tried, str(expected.msg))
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a broken implementation raises
        reason = without_id(tried, _told_in_a_line(error))
        outcome, details = Outcome.FAILED, _details(error, getattr(spec, "all_secrets", ()))
    return Result(
        rule=tried, outcome=outcome, seconds=time.perf_counter() - began, reason=reason, details=details
    )


def without_id(tried: Rule, text: str) -> str:
    """Return what a rule says of itself without its id in front, which every report shows anyway."""
    return text.removeprefix(f"{tried.id}: ").removeprefix(f"{tried.id} ")


def _told_in_a_line(error: BaseException) -> str:
    """Return what an error says in one line; for a bare assertion, the line of code that did not hold."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if isinstance(error, AssertionError) and not text:
        frames = traceback.extract_tb(error.__traceback__)
        return f"this does not hold: {frames[-1].line}" if frames else "an assertion does not hold"
    known = isinstance(error, (AssertionError, pytest.fail.Exception))
    return text if known else f"{type(error).__name__}: {text}"


def _details(error: BaseException, secrets: Collection[str]) -> str:
    """Return the traceback of a failure, and the values of the rule's own variables where it failed."""
    try:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
    except Exception:  # noqa: BLE001 - a half-made object may not even have a repr
        told = traceback.TracebackException.from_exception(error)
    frames = [each for each in told.stack if f"{os.sep}coatcheck_conformance{os.sep}" in each.filename]
    values = {} if not frames else frames[-1].locals or {}
    machinery = [n for n, each in enumerate(told.stack) if each.filename == judged_in]
    del told.stack[: machinery[-1] + 1 if machinery else 0]
    for each in told.stack:
        each.locals = None
    lines = ["".join(told.format())]
    if values:
        lines.append(f"Where {frames[-1].name} failed:\n")
        lines += [
            f"    {name} = {shorten(value, _WIDTH)}\n" for name, value in values.items() if name != "self"
        ]
    text = "".join(lines)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
