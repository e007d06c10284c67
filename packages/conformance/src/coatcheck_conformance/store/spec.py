"""How to open the store under test: data that can be sent to another process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from enum import StrEnum
from importlib import import_module
from typing import TypeAlias, cast

from attrs import evolve, field, frozen

from coatcheck.clock import ManualClock
from coatcheck.errors import ConfigurationError
from coatcheck.store import Store
from coatcheck.task import Task
from coatcheck.urls import redacted_url
from coatcheck_conformance.rules import Identity

__all__ = ["Corrupt", "Hook", "Previous", "Repair", "StoreSpec", "Transaction"]

Repair: TypeAlias = Callable[[], Awaitable[None]]
"""Puts a damaged row back as it was, as an upgrade that can read it would."""
Corrupt: TypeAlias = Callable[[Store, str], Awaitable[Repair]]
"""Damages the stored row of a task so that it cannot be decoded."""
Previous: TypeAlias = Callable[[Store], Awaitable[Sequence[Task]]]
"""Writes tasks into the place of the open, empty store as other versions of it do, and returns them as this version
is to read them.

Some are as the previous released version wrote them, or one that did not know some field yet; some have fields that
only a newer version knows, which this one has in `Task.extra`. Of each sort there are PENDING_SUBMIT tasks and
SUBMITTED or RUNNING ones, all of them due, of `coatcheck_conformance.drafts.HANDLER`, without gates or leases.
"""
Transaction: TypeAlias = Callable[[Store], AbstractAsyncContextManager[object]]
"""Opens a transaction that `add` can join; leaving it by an error rolls it back."""


class Hook(StrEnum):
    """What a spec can offer beyond opening the store, named as its argument. Rules name what they need."""

    CLOCK = "clock"
    "The store takes a clock that stands still until it is told to go on."
    CORRUPT = "corrupt"
    "A stored row can be damaged."
    PREVIOUS = "previous"
    "Rows can be written as other versions of the store write them."
    TRANSACTION = "transaction"
    "A transaction can be opened for `add` to join."
    OWN_CLOCK = "clock of its own"
    "A server tells the time, or the clock that the store was given; not the clock of the process that calls."


def _shown(url: str | None) -> str:
    return repr(None if url is None else redacted_url(url))


@frozen
class StoreSpec:
    """Where the store under test is and how it is made. It names an empty place, a new one for each test."""

    factory: str
    """``"package.module:attribute"``, called with the url, if any, and the settings; returns a closed store."""
    url: str | None = field(default=None, repr=_shown)
    """The factory's only positional argument; None means that it takes none."""
    settings: Mapping[str, object] = field(factory=dict, kw_only=True, repr=False)
    """Keyword arguments of the factory; they must survive pickling."""
    clock: str | None = field(default=None, kw_only=True)
    """The keyword under which the factory takes a `coatcheck.clock.Clock`; None means that it has its own."""
    corrupt: Corrupt | None = field(default=None, kw_only=True)
    """See `Corrupt`; a function at the top of a module."""
    previous: Previous | None = field(default=None, kw_only=True)
    """See `Previous`; a function at the top of a module."""
    transaction: Transaction | None = field(default=None, kw_only=True)
    """See `Transaction`; a function at the top of a module."""
    server: str | None = field(default=None, kw_only=True)
    """What stands behind the store and tells it the time, with its version, for the report."""
    patience: timedelta = field(default=timedelta(seconds=50), kw_only=True)
    """How long a rule may take before it counts as hanging."""

    def create(self, clock: ManualClock | None = None) -> Store:
        """Return a closed store, on `clock` if one is given.

        Raises:
            ConfigurationError: the factory is not ``module:attribute``, cannot be found, or makes no store.
        """
        module, _, attribute = self.factory.partition(":")
        if "://" in self.factory:
            shown = redacted_url(self.factory)
            message = f"a URL is no factory; write StoreSpec('coatcheck:create_store', url={shown!r})"
            raise ConfigurationError(message)
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
        hooks = {
            Hook.CLOCK: self.clock,
            Hook.CORRUPT: self.corrupt,
            Hook.PREVIOUS: self.previous,
            Hook.TRANSACTION: self.transaction,
            Hook.OWN_CLOCK: self.clock or self.server,
        }
        return frozenset(self.create().capabilities) | {hook for hook, given in hooks.items() if given}

    def identity(self) -> Identity:
        """Return the factory, and the URL without its secrets."""
        where = [] if self.url is None else [redacted_url(self.url)]
        return Identity(
            target=" ".join([self.factory, *where]),
            modules=[self.factory.partition(":")[0], *self._home()],
            server=self.server,
        )

    def _home(self) -> list[str]:
        """Return where the store's class is: its factory may be somebody else's."""
        with suppress(Exception):  # what cannot be made is told by whoever makes it
            return [type(self.create()).__module__]
        return []

    def portable(self) -> StoreSpec:
        """Return what another process needs to open the same place, on the store's own clock."""
        return evolve(self, clock=None, corrupt=None, previous=None, transaction=None)
