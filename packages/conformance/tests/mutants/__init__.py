"""Broken implementations, at least one for each MUST rule, that this rule alone catches.

``python -m mutants`` in this folder's parent tries them all and prints a table; names of rules or mutants after it
try those alone. Modules of this package register mutants when they are imported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable

import pytest
from attrs import frozen

from coatcheck_conformance import Kind, Rule, Suite, validate
from coatcheck_conformance.running import SpecMaker

__all__ = ["Mutant", "Trial", "all_mutants", "register", "tried"]

SEEDS = range(20)
"""A stochastic rule catches its mutant with each of these."""

BULKY = frozenset(
    f"STORE-{each}"
    for each in (
        "ADD-20", "BLOCK-1", "BLOCK-2", "BLOCK-3", "BLOCK-4", "NUDGE-11", "QUERY-8", "RATE-4", "SETTLE-15",
        "STALE-12", "STALE-13",
    )
)  # fmt: skip
"""Rules about hundreds or thousands of tasks, which take two thirds of a run. Unless a run is thorough, they are tried
on the mutants of their own topics only."""


def _nothing(_: pytest.MonkeyPatch) -> None:
    """Break nothing: the spec makes what is broken."""


@frozen(kw_only=True)
class Mutant:
    """One way to break a promise."""

    name: str
    """Unique, in words joined by underscores, such as ``settle_ignores_expiry``."""
    rule: str
    """The id of the rule that catches it, and that no other deterministic rule does."""
    suite: type[Suite]
    spec: SpecMaker
    """Returns the spec of what is broken, or of what `breaks` will break."""
    breaks: Callable[[pytest.MonkeyPatch], None] = _nothing
    """Breaks the implementation while it is tried."""

    @property
    def target(self) -> Rule:
        """The rule that catches it."""
        return next(each for each in self.suite.rules() if each.id == self.rule)


_MUTANTS: dict[str, Mutant] = {}


def register(mutant: Mutant) -> None:
    """Add a mutant; its name and its rule must be right."""
    assert mutant.name not in _MUTANTS, f"there is a mutant {mutant.name!r} already"
    assert mutant.rule in {each.id for each in mutant.suite.rules()}, f"there is no rule {mutant.rule!r}"
    _MUTANTS[mutant.name] = mutant


def all_mutants() -> dict[str, Mutant]:
    """Import every module of mutants and return what they registered, by name."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(_MUTANTS)


@frozen(kw_only=True)
class Trial:
    """What trying a mutant came to."""

    name: str
    rule: str
    caught: int
    """In how many of `of` runs its rule caught it."""
    of: int
    others: tuple[str, ...]
    """Ids of the deterministic rules that failed on it, besides its own."""

    @property
    def good(self) -> bool:
        """Whether its rule caught it each time, and no other deterministic rule did."""
        return self.caught == self.of and not self.others


def tried(name: str, *, alone: bool = False, thorough: bool = False) -> Trial:
    """Try a mutant on every deterministic rule of its suite, and on its own; with `alone`, once on its own."""
    mutant = all_mutants()[name]
    by_chance = mutant.target.kind is Kind.STOCHASTIC
    seeds: Iterable[int] = SEEDS if by_chance and not alone else (0,)
    rules = {mutant.rule}
    if not alone:
        topic = mutant.rule.rpartition("-")[0]
        left_out = set[str]() if thorough else {each for each in BULKY if each.rpartition("-")[0] != topic}
        rules |= {each.id for each in mutant.suite.rules() if each.kind is Kind.DETERMINISTIC} - left_out
    caught, of, others = 0, 0, set[str]()
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            mutant.breaks(patch)
            failed = validate(mutant.suite, mutant.spec, only=rules, seed=seed).failed
        caught, of = caught + (mutant.rule in failed), of + 1
        others |= failed - {mutant.rule}
        rules = {mutant.rule}  # of deterministic rules, one run says all
    return Trial(name=name, rule=mutant.rule, caught=caught, of=of, others=tuple(sorted(others)))
