"""What plugins implement: the hooks, and descriptors that say what is wrong with them."""

import inspect
from collections.abc import Callable
from typing import Any

import pluggy
import pytest

import coatcheck
from coatcheck import hooks
from coatcheck.errors import PluginError
from coatcheck.hooks import (
    AdmissionDescriptor,
    Descriptor,
    HandlerDescriptor,
    Kind,
    RetryDescriptor,
    SelectorDescriptor,
    StoreDescriptor,
    hookimpl,
)

HOOKS = {
    "coatcheck_stores": [],
    "coatcheck_handlers": [],
    "coatcheck_selectors": [],
    "coatcheck_retry_policies": [],
    "coatcheck_admission_policies": [],
    "coatcheck_tasks_changed": ["changes"],
}
"""Each hook, and its parameters."""


def test_the_hooks_are_plain_functions() -> None:
    """Hooks are synchronous, with parameters that pluggy can pass, and documented."""
    manager = pluggy.PluginManager("coatcheck")
    manager.add_hookspecs(hooks)
    specified = {name: caller.spec for name, caller in vars(manager.hook).items() if not name.startswith("_")}
    assert set(specified) == set(HOOKS)
    for name, parameters in HOOKS.items():
        function: Callable[..., Any] = getattr(hooks, name)
        assert list(inspect.signature(function).parameters) == parameters
        assert not inspect.iscoroutinefunction(function)
        assert all(
            each.kind is each.POSITIONAL_OR_KEYWORD
            for each in inspect.signature(function).parameters.values()
        )
        assert function.__doc__


def test_the_marker_is_public() -> None:
    """A light module needs `coatcheck.hookimpl` and nothing else to mark its hooks."""
    assert coatcheck.hookimpl is hookimpl
    manager = pluggy.PluginManager("coatcheck")
    manager.add_hookspecs(hooks)

    class Plugin:
        @hookimpl
        def coatcheck_stores(self) -> list[StoreDescriptor]:
            return [StoreDescriptor(key="x", factory="a:b")]

    manager.register(Plugin())
    manager.check_pending()
    assert [each.key for found in manager.hook.coatcheck_stores() for each in found] == ["x"]


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (StoreDescriptor, Kind.STORE),
        (HandlerDescriptor, Kind.HANDLER),
        (SelectorDescriptor, Kind.SELECTOR),
        (RetryDescriptor, Kind.RETRY),
        (AdmissionDescriptor, Kind.ADMISSION),
    ],
)
def test_each_kind_has_a_descriptor(cls: type[Descriptor], kind: Kind) -> None:
    """A descriptor knows what it describes, and needs a key and a factory only."""
    made = cls(key="x", factory="package.module:Class.method")
    assert (made.kind, made.names, made.api, made.capabilities) == (kind, ("x",), "1.0", ())


def test_a_store_is_found_by_its_schemes() -> None:
    """A store serves the schemes it names, else its key."""
    assert StoreDescriptor(key="x", factory="a:b", schemes=["redis", "redis+cluster"]).names == (
        "redis",
        "redis+cluster",
    )


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (StoreDescriptor, {"key": ""}, "key must be"),
        (StoreDescriptor, {"key": " x"}, "key must be"),
        (StoreDescriptor, {"key": None}, "key is made of strings"),
        (StoreDescriptor, {"factory": len}, "factory is made of strings"),
        (StoreDescriptor, {"factory": "module"}, "package.module:attribute"),
        (StoreDescriptor, {"factory": "a.b:c:d"}, "package.module:attribute"),
        (StoreDescriptor, {"settings": "Settings"}, "settings must look like"),
        (StoreDescriptor, {"api": "1"}, "api must look like"),
        (StoreDescriptor, {"api": 1.0}, "api is made of strings"),
        (StoreDescriptor, {"capabilities": (1,)}, "capabilities is made of strings"),
        (StoreDescriptor, {"capabilities": "durable"}, r"write \('durable',\)"),
        (StoreDescriptor, {"schemes": "redis"}, r"write \('redis',\)"),
        (StoreDescriptor, {"schemes": ("Redis",)}, "no URL scheme"),
        (StoreDescriptor, {"key": "My Store"}, "no URL scheme"),
        (HandlerDescriptor, {"account": "Account"}, "account must look like"),
        (HandlerDescriptor, {"params": 7}, "params is made of strings"),
        (RetryDescriptor, {"summary": None}, "summary is made of strings"),
    ],
)
def test_a_descriptor_says_what_is_wrong_with_it(
    cls: type[Descriptor], fields: dict[str, Any], message: str
) -> None:
    """A mistake in a light module is told when it is imported, with the descriptor's name."""
    with pytest.raises(PluginError, match=message):
        cls(**{"key": "x", "factory": "a:b", **fields})
