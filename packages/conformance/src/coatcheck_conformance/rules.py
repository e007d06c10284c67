"""Rules: what a suite is made of, and the registry from which the table in the docs is generated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import pytest
from attrs import frozen

__all__ = ["Kind", "Level", "Rule", "Suite", "registered", "rule", "rule_of", "table"]

_MARK = "__coatcheck_rule__"


class Level(StrEnum):
    """How binding a rule is."""

    MUST = "MUST"
    "Whoever fails it does not conform."
    SHOULD = "SHOULD"
    "Users expect it."
    MAY = "MAY"
    "Good to have."


class Kind(StrEnum):
    """Whether a rule gives the same answer every time."""

    DETERMINISTIC = "deterministic"
    "The same answer every time."
    STOCHASTIC = "stochastic"
    "Tries interleavings: one pass proves little, one failure proves all."


@frozen(kw_only=True)
class Rule:
    """One promise of a contract, as something that can be tried."""

    id: str
    """Stable, as in ``STORE-SETTLE-3``."""
    level: Level
    kind: Kind
    requires: frozenset[str]
    """The capabilities and hooks without which it does not apply."""
    promise: str
    """The docstring of the test: what is promised."""
    test: str
    """The name of the test."""


_REGISTRY: dict[str, Rule] = {}

_F = TypeVar("_F", bound=Callable[..., object])


def rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[_F], _F]:
    """Return a decorator that makes a test method the rule `id`; its docstring is the promise.

    Raises:
        TypeError: the method has no docstring, or the id is taken.
    """

    def decorate(test: _F) -> _F:
        promise = inspect.cleandoc(test.__doc__ or "")
        if not promise:
            message = f"rule {id} has no docstring; quote the promise that it checks"
            raise TypeError(message)
        made = Rule(
            id=id,
            level=level,
            kind=kind,
            requires=frozenset(requires),
            promise=promise,
            test=test.__name__,
        )
        if _REGISTRY.setdefault(id, made) != made:
            message = f"rule {id} is both {_REGISTRY[id].test} and {made.test}; give one another id"
            raise TypeError(message)
        setattr(test, _MARK, made)
        return test

    return decorate


def rule_of(test: object) -> Rule | None:
    """Return the rule that a test method is, or None if it is none."""
    found = getattr(test, _MARK, None)
    return found if isinstance(found, Rule) else None


def registered() -> list[Rule]:
    """Return every rule of the suites that have been imported, by topic and number."""
    return sorted(_REGISTRY.values(), key=lambda each: _sort_key(each.id))


def _sort_key(identifier: str) -> tuple[str, int]:
    topic, _, number = identifier.rpartition("-")
    return topic, int(number) if number.isdigit() else 0


def table() -> str:
    """Return the registered rules as a Markdown table, for the docs."""
    lines = ["| rule | level | kind | needs | promise |", "|---|---|---|---|---|"]
    for each in registered():
        needs = ", ".join(sorted(each.requires))
        promise = " ".join(each.promise.split()).replace("|", "\\|")
        lines.append(f"| `{each.id}` | {each.level} | {each.kind} | {needs} | {promise} |")
    return "\n".join(lines) + "\n"


class Suite:
    """The root of the suites: a class whose test methods are rules.

    A subclass gives fixtures and may give `expected_failures`. It cannot replace or remove a rule.
    """

    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Rules that the implementation is known to break, with the reason. Strict: passing one is a failure."""

    def __init_subclass__(cls, **arguments: Any) -> None:  # noqa: ANN401 - whatever the class statement passes
        """Refuse a subclass that hides a rule, or that expects a rule to fail which there is not."""
        super().__init_subclass__(**arguments)
        inherited = list(_rules_of(cls.__mro__[1:]))
        hidden = sorted(each.id for name, each in inherited if rule_of(getattr(cls, name, None)) != each)
        if hidden:
            message = (
                f"{cls.__name__} hides the rules {', '.join(hidden)}; name what is known to fail in "
                "expected_failures instead, with the reason"
            )
            raise TypeError(message)
        unknown = sorted(set(cls.expected_failures) - {each.id for _, each in inherited})
        if unknown:
            message = f"{cls.__name__} expects failures of rules that there are not: {', '.join(unknown)}"
            raise TypeError(message)

    @classmethod
    def rules(cls) -> list[Rule]:
        """Return the rules of this suite, by topic and number."""
        return sorted(dict(_rules_of(cls.__mro__)).values(), key=lambda each: _sort_key(each.id))

    def judge(self, tried: Rule, body: Callable[[], None]) -> None:
        """Run the body of a rule, and weigh a failure against `expected_failures`."""
        reason = self.expected_failures.get(tried.id)
        if reason is None:
            body()
            return
        try:
            body()
        except Exception as error:  # noqa: BLE001 - any failure is the expected one
            pytest.xfail(f"{tried.id}: {reason} ({type(error).__name__})")
        pytest.fail(f"{tried.id} is expected to fail ({reason}) and passes; take it out of expected_failures")


def _rules_of(classes: Collection[type]) -> Iterator[tuple[str, Rule]]:
    for each in reversed(tuple(classes)):
        for name, member in vars(each).items():
            found = rule_of(member)
            if found is not None:
                yield name, found
