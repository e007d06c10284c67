"""Bringing configured and suggested limits into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.gate_names import check_name
from coatcheck_cli.gate_rows import applied_row

if TYPE_CHECKING:
    from coatcheck import App, Gate

__all__ = ["apply_gates"]


async def apply_gates(
    app: App, *, suggested: bool, dry_run: bool, who: str | None, reason: str
) -> list[dict[str, object]]:
    """Set the limits of the configured gates, and return a row for each with what changed.

    Args:
        app: whose configuration and handlers they are.
        suggested: also what handlers suggest, at gates without limits.
        dry_run: change nothing, and say what would change.
        who: for the history.
        reason: for the history.

    Raises:
        Failure: the app has no configuration and suggestions are not wanted, or a configured name is none.
    """
    configured = _configured(app, suggested=suggested)
    before = {usage.gate.name: usage.gate for usage in await app.manager.gates()}
    rows = []
    for gate in configured:
        old = before.get(gate.name)
        same = old is not None and (old.concurrency, old.rate) == (gate.concurrency, gate.rate)
        rows.append(applied_row(gate, old, "unchanged" if same else "set"))
        if not same and not dry_run:
            await app.manager.set_gate(
                gate.name, concurrency=gate.concurrency, rate=gate.rate, who=who, reason=reason
            )
    if suggested:
        names = {gate.name for gate in configured}
        new = _suggested(app, before, names) if dry_run else await app.manager.apply_suggested_gates(who=who)
        rows += [applied_row(gate, before.get(gate.name), "suggested") for gate in new]
    return rows


def _configured(app: App, *, suggested: bool) -> list[Gate]:
    from coatcheck.configuration.making import gates_of  # noqa: PLC0415 - help has no use for it

    if app.configuration is None:
        if suggested:
            return []
        message = "this app comes from code, which has no configured gates; --suggested applies those of its handlers"
        raise Failure(message, Exit.USAGE)
    found = gates_of(app.configuration)
    for gate in found:
        check_name(gate.name)
    return found


def _suggested(app: App, before: dict[str, Gate], configured: set[str]) -> list[Gate]:
    """Return what `apply_suggested_gates` would set."""
    limited = {name for name, gate in before.items() if (gate.concurrency, gate.rate) != (None, None)}
    handlers = [app.registry[key] for key in app.registry]
    found = {gate.name: gate for handler in handlers for gate in handler.suggested_gates()}
    return [gate for name, gate in sorted(found.items()) if name not in limited | configured]
