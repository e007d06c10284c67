"""Plugins: found through entry points, each taken in on its own, so that a broken one breaks nothing else."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from inspect import iscoroutinefunction
from types import FunctionType, ModuleType
from typing import Protocol

import importlib_metadata
import pluggy
from attrs import define, field

from coatcheck import hooks
from coatcheck.errors import ConfigurationError, PluginError
from coatcheck.hooks import API_VERSION, ENTRY_POINT_GROUP, Descriptor, Kind

__all__ = ["Offer", "Plugin", "PluginState", "find_plugins", "installed_version", "normalized", "told"]


class PluginState(StrEnum):
    """How a plugin, or one thing that it offers, stands."""

    AVAILABLE = "available"
    "Can be used; nothing of it but its light module is imported."
    LOADED = "loaded"
    "Its factory is imported."
    INCOMPATIBLE = "incompatible"
    "Written for another plugin API."
    FAILED = "failed"
    "Raised, or is not what a plugin has to be; the reason and the traceback say how."
    CONFLICT = "conflict"
    "Another distribution offers the same key; `prefer` decides."
    BLOCKED = "blocked"
    "On the block-list, or set aside by `prefer`; nothing of a blocked distribution was imported."
    NOT_ALLOWED = "not-allowed"
    "Not on the allow-list; nothing of it was imported."


@define(kw_only=True, eq=False)
class Offer:
    """One thing that a plugin offers."""

    descriptor: Descriptor | None
    """What it is; None for an observer, which is the plugin's module itself."""
    kind: Kind
    key: str
    """Unique within the kind, unless in conflict."""
    plugin: Plugin = field(repr=False)
    state: PluginState = PluginState.AVAILABLE
    reason: str = ""
    """Why it cannot be used; empty if it can."""
    error: BaseException | None = field(default=None, repr=False)
    """What its factory's import raised."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it is found by: its key, or a store's schemes."""
        return self.descriptor.names if self.descriptor else (self.key,)

    def fail(self, error: BaseException) -> None:
        """Remember that its factory cannot be used."""
        self.state, self.reason, self.error = PluginState.FAILED, told(error), error

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"{self.kind} {self.key!r} of {self.plugin}"


@define(kw_only=True, eq=False)
class Plugin:
    """One light module, and what it offers."""

    name: str
    """The name of its entry point."""
    distribution: str
    """The normalised name of its distribution."""
    version: str
    state: PluginState = PluginState.AVAILABLE
    reason: str = ""
    """Why it, or a part of it, cannot be used; empty if all can."""
    error: BaseException | None = field(default=None, repr=False)
    """What its import, or the first of its hooks that failed, raised."""
    offers: list[Offer] = field(factory=list, repr=False)
    """What it offers, in the order of its hooks; also if one of its hooks failed."""
    module: object = field(default=None, repr=False)
    """The light module; None if it was not imported."""

    @property
    def traceback(self) -> str:
        """Where it failed; empty if it did not."""
        return "".join(traceback.format_exception(self.error)) if self.error else ""

    def fail(self, error: BaseException, where: str = "") -> None:
        """Remember a failure; the first one gives the error."""
        reason = f"{where}: {told(error)}" if where else told(error)
        self.reason = f"{self.reason}; {reason}" if self.reason else reason
        self.state, self.error = PluginState.FAILED, self.error or error

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"{self.distribution} {self.version}"


def told(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, PluginError):
        return str(error)
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def normalized(distribution: str) -> str:
    """Return the name of a distribution as package indexes compare it: lower case, with single hyphens."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


# ------------------------------------------------------------------ discovery


def find_plugins(
    builtins: Iterable[tuple[str, str, object]], *, allow: Collection[str] | None, block: Collection[str]
) -> tuple[Plugin, ...]:
    """Return every plugin, in order of distribution and name: those of `builtins`, and those installed.

    Args:
        builtins: distribution, version and light module of what is registered in code.
        allow: names of the distributions that may be imported; None allows all.
        block: names of those that may not.

    Raises:
        ConfigurationError: `allow` or `block` is a single string.
    """
    allowed, blocked = _names("allow", allow), _names("block", block) or frozenset()
    found: list[tuple[Plugin, Callable[[], object]]] = [
        (Plugin(name=distribution, distribution=distribution, version=version), lambda module=module: module)  # type: ignore[misc] # a default binds the present module
        for distribution, version, module in builtins
    ]
    for entry in importlib_metadata.entry_points(group=ENTRY_POINT_GROUP):
        plugin = _described(entry)
        if plugin.distribution in blocked:
            plugin.state, plugin.reason = PluginState.BLOCKED, "its distribution is on the block-list"
        elif allowed is not None and plugin.distribution not in allowed:
            plugin.state, plugin.reason = PluginState.NOT_ALLOWED, "its distribution is not on the allow-list"
        found.append((plugin, entry.load))
    found.sort(key=lambda each: (each[0].distribution, each[0].name))
    manager = _Manager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hooks)
    for plugin, load in found:
        if plugin.state is PluginState.AVAILABLE:
            _take_in(manager, plugin, load)
    return tuple(plugin for plugin, _ in found)


def _names(option: str, given: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(given, str):
        message = (
            f"{option} is a collection of distribution names, not the string {given!r}; write [{given!r}]"
        )
        raise ConfigurationError(message)
    return None if given is None else frozenset(map(normalized, given))


_HEADER = re.compile(r"^(Name|Version):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def _described(entry: importlib_metadata.EntryPoint) -> Plugin:
    name, version = _head_of(entry.dist)
    return Plugin(name=entry.name, distribution=normalized(name), version=version)


class _Metadata(Protocol):
    def read_text(self, filename: str) -> str | None:
        """Return a file of the metadata."""


def _head_of(distribution: _Metadata | None) -> tuple[str, str]:
    """Return name and version from the head of the metadata; parsing it all takes a hundred times longer."""
    text = (
        (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")) if distribution else None
    )
    head = dict(_HEADER.findall((text or "").partition("\n\n")[0]))
    return head.get("Name", "unknown"), head.get("Version", "unknown")


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; "unknown" if it is not installed, but on the path."""
    try:
        return _head_of(importlib_metadata.distribution(distribution))[1]
    except importlib_metadata.PackageNotFoundError:
        return "unknown"


# ------------------------------------------------------------------ taking in

_KINDS: Mapping[str, type[Descriptor]] = {
    "coatcheck_stores": hooks.StoreDescriptor,
    "coatcheck_handlers": hooks.HandlerDescriptor,
    "coatcheck_selectors": hooks.SelectorDescriptor,
    "coatcheck_retry_policies": hooks.RetryDescriptor,
    "coatcheck_admission_policies": hooks.AdmissionDescriptor,
}
"""What each hook returns; the observers' hook returns nothing."""


class _Manager(pluggy.PluginManager):
    """Looks for hooks in a module's functions only; looking closely at every name in it takes ten times longer."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a hook; None for anything else."""
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), FunctionType):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def _take_in(manager: pluggy.PluginManager, plugin: Plugin, load: Callable[[], object]) -> None:
    """Import the light module and ask each of its hooks. Whatever it does wrong ends up in `plugin`."""
    try:
        plugin.module = load()
        implementations = _registered(manager, plugin.module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything
        plugin.fail(error)
        return
    for name, implementation in sorted(implementations, key=lambda each: each[0]):
        try:
            plugin.offers += _asked(name, implementation, plugin)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a hook may raise anything
            plugin.fail(error, name)


def _registered(manager: pluggy.PluginManager, module: object) -> list[tuple[str, pluggy.HookImpl]]:
    """Let pluggy check the hooks of `module`, and return them by name, in no order."""
    manager.register(module)
    try:
        manager.check_pending()
        callers = manager.get_hookcallers(module) or []
        found = [(caller.name, each) for caller in callers for each in caller.get_hookimpls()]
    finally:
        # what stays registered would be checked again with every later plugin
        manager.unregister(module)
    if not found:
        message = f"{module!r} implements no hook; mark its functions with @coatcheck.hookimpl"
        raise PluginError(message)
    return found


def _asked(name: str, implementation: pluggy.HookImpl, plugin: Plugin) -> list[Offer]:
    """Call one hook, and return what it offers."""
    function = implementation.function
    keyword_only = getattr(getattr(function, "__code__", None), "co_kwonlyargcount", 0)
    if keyword_only:
        message = "has keyword-only parameters, which pluggy leaves out of its calls; make them plain"
        raise PluginError(message)
    if iscoroutinefunction(function) or implementation.wrapper or implementation.hookwrapper:
        message = "is a coroutine or a wrapper; hooks are plain functions, and await in what they create"
        raise PluginError(message)
    if name == "coatcheck_tasks_changed":
        return [Offer(descriptor=None, kind=Kind.OBSERVER, key=plugin.name, plugin=plugin)]
    wanted = _KINDS.get(name)
    answer = function() if wanted else None  # an optional hook that only another version knows
    if wanted is None or answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        message = f"returned {answer!r}, not a list of {wanted.__name__}"
        raise PluginError(message)
    descriptors = list(answer)
    for each in descriptors:
        if not isinstance(each, wanted):
            message = f"returned a list with {each!r} in it, which is no {wanted.__name__}"
            raise PluginError(message)
    return [_offer(each, plugin) for each in descriptors]


def _offer(descriptor: Descriptor, plugin: Plugin) -> Offer:
    offer = Offer(descriptor=descriptor, kind=descriptor.kind, key=descriptor.key, plugin=plugin)
    major, minor = map(int, descriptor.api.split("."))
    if (major, minor) > API_VERSION or major != API_VERSION[0]:
        host = ".".join(map(str, API_VERSION))
        newer, older = (
            ("coatcheck", plugin.distribution)
            if major >= API_VERSION[0]
            else (plugin.distribution, "coatcheck")
        )
        offer.state = PluginState.INCOMPATIBLE
        offer.reason = (
            f"it was written for plugin API {descriptor.api}, and this coatcheck has {host}; "
            f"upgrade {newer}: pip install --upgrade {newer}, or install an older {older}"
        )
    return offer
