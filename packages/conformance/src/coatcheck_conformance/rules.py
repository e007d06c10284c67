"""Rules: what a suite is made of, and the registry from which the table in the docs is generated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

import pytest
from attrs import frozen

__all__ = [
    "Identity",
    "Kind",
    "Level",
    "Rule",
    "Spec",
    "Suite",
    "registered",
    "rule",
    "rule_of",
    "spec_rule",
    "table",
]

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
_S = TypeVar("_S", bound="Suite")
_P = TypeVar("_P", bound="Spec")


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
    return sorted(_REGISTRY.values(), key=lambda each: sort_key(each.id))


def sort_key(identifier: str) -> tuple[str, int]:
    """Return what rule ids are sorted by: the topic, and the number as a number."""
    topic, _, number = identifier.rpartition("-")
    return topic, int(number) if number.isdigit() else 0


def table(rules: Iterable[Rule] | None = None) -> str:
    """Return rules as a Markdown table, for the docs; by default all that are registered."""
    lines = ["| rule | level | kind | needs | promise |", "|---|---|---|---|---|"]
    for each in registered() if rules is None else rules:
        needs = ", ".join(sorted(each.requires))
        promise = " ".join(each.promise.split()).replace("|", "\\|")
        lines.append(f"| `{each.id}` | {each.level} | {each.kind} | {needs} | {promise} |")
    return "\n".join(lines) + "\n"


class Spec(Protocol):
    """How to get at the thing under test; each suite has its own class of these."""

    def offers(self) -> Collection[str]:
        """Return what rules can require: capabilities of the thing under test, and hooks of the spec."""
        ...

    def identity(self) -> Identity:
        """Return what a report says of the thing under test."""
        ...


@frozen(kw_only=True)
class Identity:
    """What a report says of the thing under test."""

    target: str
    """Its factory, and where it is."""
    modules: Sequence[str] = ()
    """Where its code is: the report names the distributions of these, with their versions."""
    server: str | None = None
    """What stands behind it, with its version, as in ``PostgreSQL 17.2``."""


class Suite:
    """The root of the suites: a class whose test methods are rules, each a function of one fixture.

    A subclass gives the fixture, and may set what stands below. It cannot replace or remove a rule.
    """

    fixture: ClassVar[str] = ""
    """The name of the fixture that gives the spec of the thing under test."""
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Rules that the implementation is known to break, with the reason. Strict: passing one is a failure."""
    require: ClassVar[Collection[str]] = frozenset()
    """Capabilities and hooks that must be there: what would be skipped without them fails."""
    seed: ClassVar[int] = 0
    """What stochastic rules draw their chances from."""
    _declared: ClassVar[Mapping[str, Rule]] = MappingProxyType({})

    def __init_subclass__(cls, **arguments: Any) -> None:  # noqa: ANN401 - whatever the class statement passes
        """Refuse a subclass that hides a rule, or that expects a rule to fail which there is not."""
        super().__init_subclass__(**arguments)
        bases = [base for base in cls.__mro__[1:] if issubclass(base, Suite)]
        inherited = {name: each for base in bases for name, each in base._declared.items()}  # noqa: SLF001 - its own
        cls._declared = inherited | dict(_rules_of([cls]))
        hidden = cls.hidden()
        if hidden:
            message = (
                f"{cls.__name__} hides the rules {', '.join(hidden)}; name what is known to fail in "
                "expected_failures instead, with the reason"
            )
            raise TypeError(message)
        unknown = sorted(set(cls.expected_failures) - {each.id for each in cls.rules()})
        if unknown:
            message = f"{cls.__name__} expects failures of rules that there are not: {', '.join(unknown)}"
            raise TypeError(message)

    @classmethod
    def rules(cls) -> list[Rule]:
        """Return the rules of this suite, by topic and number, also those that were taken out of it since."""
        return sorted(cls._declared.values(), key=lambda each: sort_key(each.id))

    @classmethod
    def hidden(cls) -> list[str]:
        """Return the ids of rules that have been replaced or deleted."""
        return sorted(
            each.id for name, each in cls._declared.items() if rule_of(getattr(cls, name, None)) != each
        )

    def judge(self, tried: Rule, body: Callable[[], None]) -> None:
        """Run the body of a rule, and weigh a failure against `expected_failures`."""
        __tracebackhide__ = True
        reason = self.expected_failures.get(tried.id)
        if reason is None:
            body()
            return
        try:
            body()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any failure is the expected one
            pytest.xfail(f"{tried.id}: {reason} ({type(error).__name__})")
        pytest.fail(f"{tried.id} is expected to fail ({reason}) and passes; take it out of expected_failures")

    def try_(self, tried: Rule, spec: Spec, body: Callable[[], None]) -> None:
        """Run the body of a rule if it applies to what `spec` offers; else skip it, or fail if that is required."""
        __tracebackhide__ = True
        missing = sorted(tried.requires - set(spec.offers()))
        if not missing:
            self.judge(tried, body)
            return
        wanted = sorted(set(missing) & set(self.require))
        if wanted:
            pytest.fail(f"{tried.id} cannot be tried without {', '.join(wanted)}, which is required here")
        pytest.skip(f"{tried.id}: needs {', '.join(missing)}")


def spec_rule(
    fixture: str,
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[Callable[[_S, _P], None]], Callable[..., None]]:
    """Return a decorator that makes ``def (self, spec)`` a rule: a test method of the one fixture `fixture`."""

    def decorate(body: Callable[[_S, _P], None]) -> Callable[..., None]:
        def test(self: _S, **given: _P) -> None:
            __tracebackhide__ = True
            spec = given[fixture]
            self.try_(found[0], spec, lambda: body(self, spec))

        test.__name__, test.__qualname__ = body.__name__, body.__qualname__
        test.__module__, test.__doc__ = body.__module__, inspect.getdoc(body)
        kind_of = inspect.Parameter.POSITIONAL_OR_KEYWORD
        test.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # where pytest reads the fixture's name
            [inspect.Parameter("self", kind_of), inspect.Parameter(fixture, kind_of)]
        )
        made = rule(id, level=level, kind=kind, requires=requires)(test)
        found.extend(filter(None, [rule_of(made)]))
        return made

    found: list[Rule] = []
    return decorate


def _rules_of(classes: Iterable[type]) -> Iterator[tuple[str, Rule]]:
    for each in classes:
        for name, member in vars(each).items():
            found = rule_of(member)
            if found is not None:
                yield name, found
