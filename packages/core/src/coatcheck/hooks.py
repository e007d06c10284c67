"""What a plugin implements: pluggy hooks that return descriptors, made of strings.

A plugin's entry point, in the group ``coatcheck``, names a light module: it imports nothing but coatcheck
and the standard library, and marks its hooks with `hookimpl`::

    from coatcheck.hooks import StoreDescriptor, hookimpl


    @hookimpl
    def coatcheck_stores():
        return [
            StoreDescriptor(key="redis", factory="coatcheck_store_redis:create", schemes=("redis", "rediss"))
        ]

What `factory`, `settings`, `account` and `params` name is imported when the key is first used. Hooks are
plain functions with plain parameters: pluggy calls a keyword-only parameter without its argument, so such a
hook is refused, like a coroutine or a wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import pluggy
from attrs import field, fields, frozen

from coatcheck.errors import PluginError

if TYPE_CHECKING:  # listing plugins is to cost little, and needs none of it
    from coatcheck.gates import TaskChange

__all__ = [
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "AdmissionDescriptor",
    "Descriptor",
    "HandlerDescriptor",
    "Kind",
    "Observer",
    "RetryDescriptor",
    "SelectorDescriptor",
    "StoreDescriptor",
    "coatcheck_admission_policies",
    "coatcheck_handlers",
    "coatcheck_retry_policies",
    "coatcheck_selectors",
    "coatcheck_stores",
    "coatcheck_tasks_changed",
    "hookimpl",
    "is_reference",
]

API_VERSION = (1, 0)
"""The plugin API of this version of coatcheck: major, minor. A plugin fits if its major is the same and its
minor is not above."""

ENTRY_POINT_GROUP = "coatcheck"
"""Where distributions name their light modules; also pluggy's project name."""

hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)
"""Marks a function as the implementation of the hook that bears its name."""

_hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)


class Kind(StrEnum):
    """What a plugin can bring."""

    STORE = "store"
    HANDLER = "handler"
    SELECTOR = "selector"
    RETRY = "retry"
    ADMISSION = "admission"
    OBSERVER = "observer"


_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_API = re.compile(r"\d+\.\d+")


def is_reference(text: str) -> bool:
    """Whether `text` looks like ``package.module:attribute``."""
    return _REFERENCE.fullmatch(text) is not None


def _strings(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        message = f"a sequence of strings is wanted, not the string {value!r}; write ({value!r},)"
        raise PluginError(message)
    return tuple(value)


@frozen(kw_only=True)
class Descriptor:
    """What all descriptors tell. All of it is strings, so that a listing imports nothing."""

    kind: ClassVar[Kind]
    """What it describes."""

    key: str
    """What configuration names, unique within its kind."""
    factory: str
    """``package.module:attribute``; imported when the key is first used. The hook says how it is called."""
    api: str = "1.0"
    """The plugin API it was written for, ``major.minor``. The default stays 1.0 for ever."""
    capabilities: Sequence[str] = field(default=(), converter=_strings)
    """What it can do beyond the contract, for the listing."""
    settings: str | None = None
    """``package.module:attribute`` of the attrs class of its settings; None: it takes none."""
    summary: str = ""
    """One line for the listing."""

    def __attrs_post_init__(self) -> None:
        """Refuse what no listing or look-up could use."""
        for each in fields(type(self)):
            value = getattr(self, each.name)
            values = value if isinstance(value, tuple) else (value,)
            if not all(isinstance(one, str) or (one is None and each.default is None) for one in values):
                message = f"{self._title()}: {each.name} is made of strings, not {value!r}"
                raise PluginError(message)
        if not self.key or self.key != self.key.strip():
            message = f"{self._title()}: key must be a string without outer blanks, not {self.key!r}"
            raise PluginError(message)
        if not _API.fullmatch(self.api):
            message = f"{self._title()}: api must look like '1.0', not {self.api!r}"
            raise PluginError(message)
        for name in self._references():
            value = getattr(self, name)
            if value is not None and not is_reference(value):
                message = f"{self._title()}: {name} must look like 'package.module:attribute', not {value!r}"
                raise PluginError(message)

    @property
    def names(self) -> tuple[str, ...]:
        """What it is found by: the key."""
        return (self.key,)

    def _references(self) -> tuple[str, ...]:
        return ("factory", "settings")

    def _title(self) -> str:
        return f"{type(self).__name__}(key={self.key!r})"


@frozen(kw_only=True)
class StoreDescriptor(Descriptor):
    """A store, found by the scheme of its URL.

    Its factory is called with the URL, free of the query string, and, if it has a settings class, with
    `settings`: ``create(url, settings=Settings(...))``. It does no I/O and returns a closed `Store`.
    """

    kind: ClassVar[Kind] = Kind.STORE

    schemes: Sequence[str] = field(default=(), converter=_strings)
    """The URL schemes it serves, in lower case; by default its key."""

    def __attrs_post_init__(self) -> None:
        """Refuse schemes that no URL can have."""
        super().__attrs_post_init__()
        for scheme in self.names:
            if not _SCHEME.fullmatch(scheme):
                message = f"{self._title()}: {scheme!r} is no URL scheme in lower case; set `schemes`"
                raise PluginError(message)

    @property
    def names(self) -> tuple[str, ...]:
        """What it is found by: its schemes."""
        return tuple(self.schemes) or (self.key,)


@frozen(kw_only=True)
class HandlerDescriptor(Descriptor):
    """A handler. Its factory is called with ``key=``, ``accounts=`` and ``settings=``.

    `key` is what is persisted with the tasks. `accounts` is a mapping of account ids to objects of the
    `account` class, or None where there are none, as in a web process. `settings` is an object of the
    `settings` class, or None if there is no such class.
    """

    kind: ClassVar[Kind] = Kind.HANDLER

    account: str | None = None
    """``package.module:attribute`` of the attrs class of one account; None: it needs no credentials."""
    params: str | None = None
    """``package.module:attribute`` of the params class, for the listing."""

    def _references(self) -> tuple[str, ...]:
        return ("factory", "settings", "account", "params")


@frozen(kw_only=True)
class SelectorDescriptor(Descriptor):
    """A selector. Its factory is called with ``settings=``, or with nothing if it has no settings class.

    If `factory` and `settings` name the same class, the settings object itself is the product.
    """

    kind: ClassVar[Kind] = Kind.SELECTOR


@frozen(kw_only=True)
class RetryDescriptor(Descriptor):
    """A retry policy; its factory is called as a selector's is."""

    kind: ClassVar[Kind] = Kind.RETRY


@frozen(kw_only=True)
class AdmissionDescriptor(Descriptor):
    """An admission policy; its factory is called as a selector's is."""

    kind: ClassVar[Kind] = Kind.ADMISSION


class Observer(Protocol):
    """What gets the committed transitions: a plugin's module, or any object with this method."""

    def coatcheck_tasks_changed(self, changes: Sequence[TaskChange]) -> None:
        """Take in committed transitions; see the hook of this name."""


AnyDescriptor: TypeAlias = (
    StoreDescriptor | HandlerDescriptor | SelectorDescriptor | RetryDescriptor | AdmissionDescriptor
)


@_hookspec
def coatcheck_stores() -> Iterable[StoreDescriptor]:  # type: ignore[empty-body] # a specification
    """Return the descriptors of the stores that this plugin brings."""


@_hookspec
def coatcheck_handlers() -> Iterable[HandlerDescriptor]:  # type: ignore[empty-body] # a specification
    """Return the descriptors of the handlers that this plugin brings."""


@_hookspec
def coatcheck_selectors() -> Iterable[SelectorDescriptor]:  # type: ignore[empty-body] # a specification
    """Return the descriptors of the selectors that this plugin brings."""


@_hookspec
def coatcheck_retry_policies() -> Iterable[RetryDescriptor]:  # type: ignore[empty-body] # a specification
    """Return the descriptors of the retry policies that this plugin brings."""


@_hookspec
def coatcheck_admission_policies() -> Iterable[AdmissionDescriptor]:  # type: ignore[empty-body] # a specification
    """Return the descriptors of the admission policies that this plugin brings."""


@_hookspec
def coatcheck_tasks_changed(changes: Sequence[TaskChange]) -> None:
    """Take in committed transitions, in the order in which they were committed by one worker or manager.

    Called in batches, in a thread of its own behind a bounded queue: a slow observer loses batches, which is
    logged, and never slows the worker; one that raises is logged and called again with the next batch.
    """
