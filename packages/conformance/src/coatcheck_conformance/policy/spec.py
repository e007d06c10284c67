"""How to make the selector or policy under test: what configuration would name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import cache

from attrs import field, frozen

from coatcheck.catalog import Catalog, discover
from coatcheck.errors import ConfigurationError
from coatcheck.gates import AdmissionPolicy
from coatcheck.remedies import nearest
from coatcheck.retry import RetryPolicy
from coatcheck.selector import Selector
from coatcheck.task import JSON
from coatcheck_conformance.rules import Identity

__all__ = [
    "AGES",
    "ANY_PARAMS",
    "CLOSED",
    "CREDITS",
    "FLOOR",
    "HINTS",
    "JITTER",
    "KEYED",
    "LAST_LOOK",
    "LEARNS",
    "LOAD",
    "MAXIMUM",
    "OUTCOMES",
    "PAUSES",
    "ROOM",
    "SETTLES",
    "SHARES",
    "AdmissionSpec",
    "RetrySpec",
    "SelectorSpec",
    "candidate_names",
]

ANY_PARAMS = "any params"
"""What a selector's spec offers that names no params: it takes those of any handler."""
HINTS = "hints"
"""What a retry policy's spec offers unless its ceiling is zero: the policy heeds what providers ask for."""

SETTLES = "settles"
"""What an admission policy's spec offers whose policy has a `settled` of its own."""
CREDITS = "credits"
"""What an admission policy's spec offers whose policy has `credits` of its own."""

SHARES = "shares"
"""What a selector's spec offers that names shares: each candidate comes exactly as often as its share says."""
KEYED = "keyed"
"""What a selector's spec offers that tells how submissions have a key: the same key, the same handler."""
CLOSED = "closed"
"""Promised by a selector: a candidate that has no share is an error at once."""
PAUSES = "pauses"
"""Promised by a selector: who has a paused gate gets nothing while another has none."""
OUTCOMES = "outcomes"
"""Promised by a selector: whose tasks end badly gets nothing while those of another end well."""
ROOM = "room"
"""Promised by a selector: who has a full gate gets nothing while another has room."""
LOAD = "load"
"""Promised by a selector: who has least to do gets the task."""
FLOOR = "floor"
"""What a retry policy's spec offers that names a floor: no delay is shorter."""
MAXIMUM = "maximum"
"""What a retry policy's spec offers that names a maximum: no delay of its own making is longer."""
JITTER = "jitter"
"""Promised by a retry policy: delays differ, also the longest."""
LAST_LOOK = "last look"
"""Promised by a retry policy: a task is queried once more before its deadline, not at it."""
AGES = "ages"
"""Promised by a retry policy: the older the job, the longer it waits between queries."""
LEARNS = "learns"
"""Promised by a retry policy: it is an observer, and waits as long as jobs have lately taken."""


def candidate_names(count: int, first: int = 0) -> tuple[str, ...]:
    """Return keys of handlers as the kit's rules have them, sorted; no rule has one beyond the first 120."""
    return tuple(f"kit:provider-{number:03}" for number in range(first, first + count))


def _promised(given: Collection[str], known: Collection[str]) -> frozenset[str]:
    promises = frozenset({given} if isinstance(given, str) else given)
    for each in sorted(promises - frozenset(known)):
        message = f"the kit knows no promise {each!r}; {nearest(each, known)}"
        raise ConfigurationError(message)
    return promises


def _promised_by_selector(given: Collection[str]) -> frozenset[str]:
    return _promised(given, {CLOSED, LOAD, OUTCOMES, PAUSES, ROOM})


def _promised_by_retry(given: Collection[str]) -> frozenset[str]:
    return _promised(given, {AGES, JITTER, LAST_LOOK, LEARNS})


@cache
def _catalog() -> Catalog:
    return discover()


def _identity(factory: str) -> Identity:
    return Identity(target=factory, modules=[factory.partition(":")[0]])


@frozen
class SelectorSpec:
    """What the selector under test is made by, anew for each rule."""

    factory: str
    """``"package.module:attribute"`` of the selector, its class, its factory or its descriptor, or a plugin's key."""
    settings: Mapping[str, object] = field(factory=dict, kw_only=True)
    """As in configuration; text for durations will do."""
    params: Sequence[object] = field(default=(), kw_only=True)
    """Examples of the params that it is made for; none means that it takes those of any handler."""
    shares: Mapping[str, int] = field(factory=dict, kw_only=True)
    """How often each of `candidate_names(120)` comes, if that is promised: all 1 if one comes after the other."""
    keyed: Callable[[str], tuple[object, Mapping[str, JSON]]] | None = field(default=None, kw_only=True)
    """Returns params and options of a submission that has this key, if the key decides."""
    promises: Collection[str] = field(
        default=frozenset(),
        kw_only=True,
        converter=_promised_by_selector,
    )
    """What else it promises: `closed`, `load`, `outcomes`, `pauses`, `room`."""
    patience: timedelta = field(default=timedelta(seconds=30), kw_only=True)
    """How long a rule may take before it counts as hanging."""

    def create(self) -> Selector:
        """Return the selector.

        Raises:
            ConfigurationError: it cannot be found or made; the message names the factory.
        """
        return _catalog().create_selector(self.factory, self.settings)

    def offers(self) -> frozenset[str]:
        """Return whether it takes any params, and what it promises."""
        told = {ANY_PARAMS: not self.params, SHARES: self.shares, KEYED: self.keyed is not None}
        return frozenset(self.promises) | {name for name, is_so in told.items() if is_so}

    def identity(self) -> Identity:
        """Return the factory."""
        return _identity(self.factory)


@frozen
class RetrySpec:
    """What the retry policy under test is made by, anew for each rule."""

    factory: str
    """``"package.module:attribute"`` of the policy, its class, its factory or its descriptor, or a plugin's key."""
    settings: Mapping[str, object] = field(factory=dict, kw_only=True)
    """As in configuration; text for durations will do."""
    ceiling: timedelta = field(default=timedelta(minutes=15), kw_only=True)
    """Up to where it heeds what a provider asks for; zero says that it heeds no hints."""
    floor: timedelta = field(default=timedelta(), kw_only=True)
    """The shortest delay, if one is promised."""
    maximum: timedelta | None = field(default=None, kw_only=True)
    """The longest delay without a hint, if one is promised."""
    promises: Collection[str] = field(
        default=frozenset(),
        kw_only=True,
        converter=_promised_by_retry,
    )
    """What else it promises: `ages`, `jitter`, `last look`, `learns`."""

    def create(self) -> RetryPolicy:
        """Return the policy.

        Raises:
            ConfigurationError: it cannot be found or made; the message names the factory.
        """
        return _catalog().create_retry_policy(self.factory, self.settings)

    def offers(self) -> frozenset[str]:
        """Return whether it heeds hints, and what it promises."""
        told = {
            HINTS: self.ceiling > timedelta(),
            FLOOR: self.floor > timedelta(),
            MAXIMUM: self.maximum is not None,
        }
        return frozenset(self.promises) | {name for name, is_so in told.items() if is_so}

    def identity(self) -> Identity:
        """Return the factory."""
        return _identity(self.factory)


@frozen
class AdmissionSpec:
    """What the admission policy under test is made by, anew for each rule."""

    factory: str
    """``"package.module:attribute"`` of the policy, its class, its factory or its descriptor, or a plugin's key."""
    settings: Mapping[str, object] = field(factory=dict, kw_only=True)
    """As in configuration; text for durations and rates will do."""
    patience: timedelta = field(default=timedelta(seconds=30), kw_only=True)
    """How long a rule may take before it counts as hanging."""

    def create(self) -> AdmissionPolicy:
        """Return the policy.

        Raises:
            ConfigurationError: it cannot be found or made; the message names the factory.
        """
        return _catalog().create_admission_policy(self.factory, self.settings)

    def offers(self) -> frozenset[str]:
        """Return whether it answers what is settled together, and whether it credits drafts."""
        try:
            policy = type(self.create())
        except Exception:  # noqa: BLE001 - each rule will say so
            return frozenset()
        told = {
            SETTLES: policy.settled is not AdmissionPolicy.settled,
            CREDITS: policy.credits is not AdmissionPolicy.credits,
        }
        return frozenset(name for name, is_so in told.items() if is_so)

    def identity(self) -> Identity:
        """Return the factory."""
        return _identity(self.factory)
