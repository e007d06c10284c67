"""What mutants of selectors and policies are made with: good ones, and decorators for what breaks them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from coatcheck.selector import Selection
from coatcheck_conformance import Suite
from coatcheck_conformance.policy.admission import AdmissionConformance
from coatcheck_conformance.policy.retry import RetryConformance
from coatcheck_conformance.policy.selector import SelectorConformance
from coatcheck_conformance.policy.spec import AdmissionSpec, RetrySpec, SelectorSpec
from mutants import Mutant, register

__all__ = ["Picker", "breaks_admission", "breaks_retry", "breaks_selector"]

_T = TypeVar("_T")


class Picker:
    """A good selector: takes one candidate after the other."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, selection: Selection) -> str:
        """Return the next one."""
        return self.pick(selection)

    def pick(self, selection: Selection) -> str:
        """Return the next one, for mutants to call."""
        self.calls += 1
        return selection.candidates[self.calls % len(selection.candidates)]


def _breaks(suite: type[Suite], spec: Callable[..., Any], rule: str) -> Callable[[_T], _T]:
    def decorate(broken: _T) -> _T:
        name, module = broken.__name__, broken.__module__  # type: ignore[attr-defined] # of a class or a function
        words = re.sub(r"(?=[A-Z])", "_", name).lower()
        register(
            Mutant(
                name=f"{rule.partition('-')[0].lower()}{words}",
                rule=rule,
                suite=suite,
                spec=lambda _: spec(f"{module}:{name}"),
            )
        )
        return broken

    return decorate


def breaks_selector(rule: str, **promised: Any) -> Callable[[_T], _T]:
    """Return a decorator for a broken selector that `rule` alone notices; it promises what is given."""
    return _breaks(
        SelectorConformance,
        lambda factory: SelectorSpec(factory, patience=timedelta(seconds=10), **promised),
        rule,
    )


def breaks_retry(rule: str, **promised: Any) -> Callable[[_T], _T]:
    """Return a decorator for a broken retry policy that `rule` alone notices; it promises what is given."""
    return _breaks(RetryConformance, lambda factory: RetrySpec(factory, **promised), rule)


def breaks_admission(rule: str) -> Callable[[_T], _T]:
    """Return a decorator for a broken admission policy that `rule` alone notices."""
    return _breaks(AdmissionConformance, AdmissionSpec, rule)
