"""How to open the store under test: data that can be sent to another process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from importlib import import_module
from typing import TypeAlias, cast

from attrs import evolve, field, frozen

from coatcheck.clock import ManualClock
from coatcheck.errors import ConfigurationError
from coatcheck.store import Store

__all__ = ["Corrupt", "Hook", "Repair", "StoreSpec", "Transaction"]

Repair: TypeAlias = Callable[[], Awaitable[None]]
"""Puts a damaged row back as it was, as an upgrade that can read it would."""
Corrupt: TypeAlias = Callable[[Store, str], Awaitable[Repair]]
"""Damages the stored row of a task so that it cannot be decoded."""
Transaction: TypeAlias = Callable[[Store], AbstractAsyncContextManager[object]]
"""Opens a transaction that `add` can join; leaving it by an error rolls it back."""


class Hook(StrEnum):
    """What a spec can offer beyond opening the store. Rules name what they cannot do without."""

    CLOCK = "manual clock"
    "The store takes a clock that stands still until it is told to go on."
    CORRUPT = "corrupt hook"
    "A stored row can be damaged."
    TRANSACTION = "transaction hook"
    "A transaction can be opened for `add` to join."


@frozen
class StoreSpec:
    """Where the store under test is and how it is made. It names an empty place, a new one for each test."""

    factory: str
    """``"package.module:attribute"``, called with the url, if any, and the settings; returns a closed store."""
    url: str | None = None
    """The factory's only positional argument; None means that it takes none."""
    settings: Mapping[str, object] = field(factory=dict, kw_only=True)
    """Keyword arguments of the factory; they must survive pickling."""
    clock: str | None = field(default=None, kw_only=True)
    """The keyword under which the factory takes a `coatcheck.clock.Clock`; None means that it has its own."""
    corrupt: Corrupt | None = field(default=None, kw_only=True)
    """See `Corrupt`; a function at the top of a module."""
    transaction: Transaction | None = field(default=None, kw_only=True)
    """See `Transaction`; a function at the top of a module."""

    def create(self, clock: ManualClock | None = None) -> Store:
        """Return a closed store, on `clock` if one is given.

        Raises:
            ConfigurationError: the factory is not ``module:attribute``, cannot be found, or makes no store.
        """
        module, _, attribute = self.factory.partition(":")
        if not attribute:
            message = f"a store's factory is written 'package.module:attribute', not {self.factory!r}"
            raise ConfigurationError(message)
        try:
            make = cast("Callable[..., object]", getattr(import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            message = f"there is no {self.factory!r} here: {error}"
            raise ConfigurationError(message) from error
        settings = dict(self.settings)
        if clock is not None and self.clock is not None:
            settings[self.clock] = clock
        store = make(*([] if self.url is None else [self.url]), **settings)
        if not isinstance(store, Store):
            message = f"{self.factory!r} made {store!r}, which is no coatcheck.store.Store"
            raise ConfigurationError(message)
        return store

    def offers(self) -> frozenset[str]:
        """Return the store's capabilities and this spec's hooks."""
        hooks = {Hook.CLOCK: self.clock, Hook.CORRUPT: self.corrupt, Hook.TRANSACTION: self.transaction}
        return frozenset(self.create().capabilities) | {hook for hook, given in hooks.items() if given}

    def portable(self) -> StoreSpec:
        """Return what another process needs to open the same place, on the store's own clock."""
        return evolve(self, clock=None, corrupt=None, transaction=None)
