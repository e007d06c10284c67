"""The handlers of an app."""

import pytest
from attrs import frozen

from coatcheck.errors import ConfigurationError, NoHandler
from coatcheck.registry import Registry
from coatcheck.testing import ScriptedHandler


@frozen
class Page:
    """Params."""

    url: str


def handler(key: str) -> ScriptedHandler[Page]:
    """Return a handler."""
    return ScriptedHandler(key, Page)


def test_handlers_are_in_the_order_of_their_keys() -> None:
    """Whatever the order in which they were given."""
    registry = Registry([handler("b"), handler("a")])
    assert list(registry) == ["a", "b"]
    assert len(registry) == 2
    assert "a" in registry
    assert "c" not in registry
    assert registry.candidates(Page) == ("a", "b")
    assert registry.params_type("a") is Page


def test_a_missing_handler_is_none_or_an_error_with_a_hint() -> None:
    """`get` asks, indexing insists and names the nearest."""
    registry = Registry([handler("scan")])
    assert registry.get("scan") is registry["scan"]
    assert registry.get("other") is None
    with pytest.raises(NoHandler, match="did you mean 'scan'"):
        registry["scna"]
    with pytest.raises(NoHandler, match="registered: scan"):
        registry["film"]


def test_what_is_no_handler_is_refused() -> None:
    """With its own words."""
    with pytest.raises(ConfigurationError, match="Handler subclass"):
        Registry([Page("x")])  # type: ignore[list-item]
