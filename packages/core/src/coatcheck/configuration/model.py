"""What can be configured, as typed data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.gates import Gate, Rate

__all__ = [
    "Configuration",
    "GateConfiguration",
    "HandlerConfiguration",
    "PluginConfiguration",
    "RetentionConfiguration",
    "WorkerConfiguration",
]


@frozen(kw_only=True)
class HandlerConfiguration:
    """One handler, under the key that is persisted with its tasks."""

    use: str | None = None
    """What makes it: a plugin's key or ``module:attribute``; None is the plugin with the handler's own key."""
    accounts: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    """Credentials by account id, each as the handler's account class has it."""
    settings: Mapping[str, Any] = field(factory=dict)
    """Everything else, as the handler's settings class has it."""


@frozen(kw_only=True)
class GateConfiguration:
    """The limits of a gate; they reach the store when somebody applies them."""

    concurrency: int | None = None
    rate: Rate | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse limits that mean nothing."""
        if self.concurrency is None and self.rate is None:
            raise ConfigurationError("a gate needs a concurrency, a rate, or both")
        Gate(name="gate", concurrency=self.concurrency, rate=self.rate)


@frozen(kw_only=True)
class PluginConfiguration:
    """Which plugins may be used."""

    allow: tuple[str, ...] | None = None
    """Distributions; None allows all that are installed."""
    block: tuple[str, ...] = ()
    """Distributions that are never imported."""
    prefer: Mapping[str, str] = field(factory=dict)
    """Which distribution serves a key that several offer."""


@frozen(kw_only=True)
class WorkerConfiguration:
    """How workers work; see `coatcheck.WorkerSettings`."""

    processes: int = 1
    """How many worker processes the command starts."""
    submissions: int = 50
    queries: int = 200
    lease: timedelta = timedelta(seconds=60)
    call_timeout: timedelta = timedelta(seconds=30)
    poll_interval: timedelta = timedelta(seconds=1)
    stop_timeout: timedelta = timedelta(seconds=25)
    max_lost_leases: int = 10
    final_query: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse what can start nothing."""
        if self.processes < 1:
            message = f"processes must be at least 1, not {self.processes!r}"
            raise ConfigurationError(message)


@frozen(kw_only=True)
class RetentionConfiguration:
    """How long ended tasks are kept before `purge` may delete them; None keeps them."""

    succeeded: timedelta | None = None
    failed: timedelta | None = None
    canceled: timedelta | None = None
    unresolved: timedelta | None = None
    """Tasks in doubt and timed-out ones, which a person may still have to look at."""


@frozen(kw_only=True)
class Configuration:
    """All of it."""

    store: Mapping[str, Any]
    """``url`` and the settings of the store that the URL's scheme finds."""
    handlers: Mapping[str, HandlerConfiguration] = field(factory=dict)
    """By handler key."""
    selector: str | Mapping[str, Any] | None = None
    """A name, or a table with ``use`` and settings."""
    retry: str | Mapping[str, Any] | None = None
    admission: str | Mapping[str, Any] | None = None
    gates: Mapping[str, GateConfiguration] = field(factory=dict)
    """By gate name."""
    worker: WorkerConfiguration = field(factory=WorkerConfiguration)
    retention: RetentionConfiguration = field(factory=RetentionConfiguration)
    plugins: PluginConfiguration = field(factory=PluginConfiguration)
    callback_url: str | None = None
    """Where providers may send callbacks; ``{handler_key}`` in it is replaced."""
    priority_ageing: timedelta | None = None
    """How much waiting one point of priority is worth; None is strict priority."""
