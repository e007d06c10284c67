"""How to make the selector or policy under test: what configuration would name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache

from attrs import field, frozen

from coatcheck.catalog import Catalog, discover
from coatcheck.gates import AdmissionPolicy
from coatcheck.retry import RetryPolicy
from coatcheck.selector import Selector
from coatcheck_conformance.rules import Identity

__all__ = ["ANY_PARAMS", "HINTS", "AdmissionSpec", "RetrySpec", "SelectorSpec"]

ANY_PARAMS = "any params"
"""What a selector's spec offers that names no params: it takes those of any handler."""
HINTS = "hints"
"""What a retry policy's spec offers unless its ceiling is zero: the policy heeds what providers ask for."""


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
    patience: timedelta = field(default=timedelta(seconds=30), kw_only=True)
    """How long a rule may take before it counts as hanging."""

    def create(self) -> Selector:
        """Return the selector.

        Raises:
            ConfigurationError: it cannot be found or made; the message names the factory.
        """
        return _catalog().create_selector(self.factory, self.settings)

    def offers(self) -> frozenset[str]:
        """Return whether it takes any params."""
        return frozenset() if self.params else frozenset({ANY_PARAMS})

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

    def create(self) -> RetryPolicy:
        """Return the policy.

        Raises:
            ConfigurationError: it cannot be found or made; the message names the factory.
        """
        return _catalog().create_retry_policy(self.factory, self.settings)

    def offers(self) -> frozenset[str]:
        """Return whether it heeds hints."""
        return frozenset({HINTS}) if self.ceiling > timedelta() else frozenset()

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
        """Return nothing: every rule applies."""
        return frozenset()

    def identity(self) -> Identity:
        """Return the factory."""
        return _identity(self.factory)
