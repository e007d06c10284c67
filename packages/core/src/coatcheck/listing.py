"""The listing of plugins, as data: for the command line, and for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from coatcheck.hooks import Kind
from coatcheck.plugins import Offer, Plugin, PluginState

if TYPE_CHECKING:  # listing plugins is to cost little, and needs none of it
    from coatcheck.task import JSON

__all__ = ["Row", "row_of", "row_of_plugin"]

_BROKEN = frozenset({PluginState.FAILED, PluginState.INCOMPATIBLE, PluginState.CONFLICT})


@frozen(kw_only=True)
class Row:
    """One line of the listing: something that is offered, or a plugin that offers nothing or has failed."""

    kind: str | None
    """None for a plugin as a whole."""
    key: str | None
    """None for a plugin as a whole."""
    distribution: str
    version: str
    api: str | None
    """The plugin API it was written for; None where nothing tells."""
    capabilities: tuple[str, ...]
    state: PluginState
    reason: str
    """Why it cannot be used; empty if it can."""
    summary: str = ""
    schemes: tuple[str, ...] = ()
    """Of a store: the URL schemes it serves."""

    @property
    def title(self) -> str:
        """What messages call it."""
        what = f"{self.kind} {self.key!r} of " if self.kind else "plugin "
        return f"{what}{self.distribution} {self.version}"

    @property
    def broken(self) -> bool:
        """Whether it is wanted and cannot be used; what is blocked or not allowed is not wanted."""
        return self.state in _BROKEN

    def as_json(self) -> dict[str, JSON]:
        """Return it as JSON, all fields by name."""
        return {
            "kind": self.kind,
            "key": self.key,
            "distribution": self.distribution,
            "version": self.version,
            "api": self.api,
            "capabilities": list(self.capabilities),
            "state": self.state.value,
            "reason": self.reason,
            "summary": self.summary,
            "schemes": list(self.schemes),
        }


def row_of(offer: Offer) -> Row:
    """Return the line of something that is offered."""
    told = offer.descriptor
    return Row(
        kind=offer.kind.value,
        key=offer.key,
        distribution=offer.plugin.distribution,
        version=offer.plugin.version,
        api=told.api if told else None,
        capabilities=tuple(told.capabilities) if told else (),
        state=offer.state,
        reason=offer.reason,
        summary=told.summary if told else "",
        schemes=offer.names if offer.kind is Kind.STORE else (),
    )


def row_of_plugin(plugin: Plugin) -> Row:
    """Return the line of a plugin as a whole."""
    return Row(
        kind=None,
        key=None,
        distribution=plugin.distribution,
        version=plugin.version,
        api=None,
        capabilities=(),
        state=plugin.state,
        reason=plugin.reason or "offers nothing",
    )
