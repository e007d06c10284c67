"""What a process finds out about a distribution, and what it is told to look at: data that can be sent as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

__all__ = ["Found", "Light", "Made", "Offered", "Request", "Topic"]


@frozen(kw_only=True)
class Request:
    """What is to be looked at."""

    distribution: str
    path: Sequence[str] = ()
    """Folders that go in front of the path."""
    urls: Mapping[str, str] = field(factory=dict)
    settings: Mapping[str, Mapping[str, object]] = field(factory=dict)
    samples: Mapping[str, Mapping[str, object]] = field(factory=dict)


@frozen(kw_only=True)
class Light:
    """What importing the light module came to, with warnings as errors."""

    error: str
    """What it raised, in one line; empty if nothing."""
    foreign: Sequence[str]
    """Modules that came with it, and are neither its own, coatcheck's, nor Python's."""
    seconds: float
    """How long it took."""
    printed: str
    """What it printed."""
    outside: Sequence[str]
    """What I/O it did, and whether it slept."""
    threads: int
    """How many threads it left running."""


@frozen(kw_only=True)
class Offered:
    """One thing that a distribution offers."""

    kind: str
    key: str
    names: Sequence[str]
    """What it is found by: its key, or a store's schemes."""
    api: str
    state: str
    reason: str
    summary: str
    names_params: bool
    """Of a handler: whether its descriptor says which params it takes."""


def _offers(given: Iterable[Offered | Mapping[str, Any]]) -> tuple[Offered, ...]:
    return tuple(each if isinstance(each, Offered) else Offered(**each) for each in given)


@frozen(kw_only=True)
class Found:
    """What discovery finds, and what the metadata says."""

    installed: bool
    version: str = ""
    entries: Sequence[tuple[str, str]] = ()
    """Its entry points in the group `coatcheck`: name and value."""
    states: Sequence[str] = ()
    """Of each of its plugins."""
    reasons: Sequence[str] = ()
    """Why one of its plugins, or a part of one, cannot be used."""
    offers: Sequence[Offered] = field(default=(), converter=_offers)
    observers: int = 0
    steady: bool = True
    """Whether its hooks say the same when they are called again."""
    conflicts: Sequence[str] = ()
    """Keys that another distribution offers, too."""
    requirements: Sequence[str] = ()
    licence: str = ""
    typed: bool = False
    """Whether it ships py.typed."""


class Topic:
    """What is looked at when things are made; each has a list of what is wrong."""

    REFERENCES = "references"
    CLASSES = "classes"
    SECRETS = "secrets"
    SECRETS_OF_MADE = "secrets of what is made"
    HANDLERS = "handlers"
    HANDLER_KEYS = "handlers' keys"
    HANDLER_PARAMS = "handlers' params"
    HANDLERS_OUTSIDE = "handlers reach outside"
    STORES = "stores"
    STORES_OUTSIDE = "stores reach outside"
    CAPABILITIES = "stores' capabilities"
    POLICIES = "policies"


@frozen(kw_only=True)
class Made:
    """What came of importing all that is named, and of making what is offered."""

    problems: Mapping[str, Sequence[str]]
    """By topic, a line each."""
    states: Sequence[str] = ()
    """Of each thing in the listing, after loading."""
