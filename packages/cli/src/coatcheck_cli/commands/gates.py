"""`coatcheck gates`: limit, pause and resume providers, accounts and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.gate_applying import apply_gates
from coatcheck_cli.gate_names import build_name, check_name, missing_gate
from coatcheck_cli.gate_rows import (
    APPLIED,
    HISTORY,
    LIST,
    change_row,
    gate_row,
    limits_of,
    limits_text,
    state_of,
)
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.output import Output, json_option, time_text
from coatcheck_cli.session import DURATION, RATE, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App
    from coatcheck.gates import Gate, GateRecord, GateUsage, Rate

__all__ = ["gates"]

MOMENT = timedelta(seconds=5)
"""How much later than asked for a pause may end that began a moment after the question."""
_EPILOG = """\b
Examples:
  coatcheck gates list
  coatcheck gates pause "$(coatcheck gates name provider ocr:azure)" --reason maintenance --for 30m
  coatcheck gates set account/ocr%3Agitee/eu --concurrency 8 --rate 5/s --reason "new contract"
  coatcheck gates apply --suggested

A gate is a limit that a task has to pass to be claimed. What is changed here holds for all workers, from their next
claim on. Names are built, not typed: `coatcheck gates name` prints them.
"""


def _who() -> str | None:
    """Return who sits here, as far as this machine knows."""
    import getpass  # noqa: PLC0415 - help has no use for it

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without names of users
        return None


def _signed(command: Any) -> Any:  # noqa: ANN401 - a decorator of click's
    """Add ``--who``."""
    option = click.option(
        "--who", metavar="NAME", default=_who, show_default="you", help="Who does it, for the history."
    )
    return option(command)


@click.group(name="gates", cls=LazyGroup, epilog=_EPILOG)
def gates() -> None:
    """Limit, pause and resume providers, accounts and tenants."""


# ------------------------------------------------------------------ looking


@gates.command(name="list")
@json_option
@pass_session
def list_(session: Session, *, as_json: bool) -> None:
    """List the gates with their limits, and how they stand."""

    async def work(app: App) -> tuple[list[GateUsage], datetime]:
        return await app.manager.gates(), await app.store.now()

    found, now = session.run(work)
    rows = [gate_row(usage, now) for usage in found]
    Output(as_json=as_json).table(rows, LIST, empty="there are no gates: nothing is limited")


@gates.command(name="show")
@click.argument("name")
@json_option
@pass_session
def show(session: Session, *, name: str, as_json: bool) -> None:
    """Show one gate, and who changed it when and why."""

    async def work(app: App) -> tuple[GateUsage | None, Sequence[GateRecord], datetime]:
        history = await app.manager.gate_history(name)
        usage = await _gate(app, name)
        if usage is None and not history:
            raise missing_gate(name, [each.gate.name for each in await app.manager.gates()])
        return usage, history, await app.store.now()

    usage, history, now = session.run(work)
    row = {"name": name} if usage is None else gate_row(usage, now)
    changes = [change_row(record) for record in history]
    out = Output(as_json=as_json)
    if as_json:
        out.print_json({**dict.fromkeys(LIST), **row, "defined": usage is not None, "history": changes})
        return
    out.pairs({**row, "defined": usage is not None})
    click.echo()
    out.table(changes, HISTORY, empty="nobody has changed it")


@gates.command(name="name", epilog="\b\nExamples:\n  coatcheck gates name account ocr:gitee eu/west\n")
@click.argument("kind")
@click.argument("parts", metavar="PART...", nargs=-1)
@pass_session
def name_(session: Session, *, kind: str, parts: tuple[str, ...]) -> None:
    """Print the name of a gate.

    KIND and PARTs are: provider PROVIDER; account PROVIDER ACCOUNT; tenant TENANT; query PROVIDER, which limits how
    often a provider is asked; or a kind of an admission policy with its parts.
    """
    click.echo(session.guarded(lambda: build_name(kind, parts)))


# ------------------------------------------------------------------ changing


@gates.command(
    name="set",
    epilog="\b\nExamples:\n  coatcheck gates set provider/ocr%3Agitee --rate 5/s --concurrency 20\n",
)
@click.argument("name")
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", help="How many tasks may be under way."
)
@click.option("--no-concurrency", is_flag=True, help="No limit of that kind.")
@click.option("--rate", type=RATE, help="How many submissions (or queries) in a time, such as 5/s or 100/m.")
@click.option("--no-rate", is_flag=True, help="No limit of that kind.")
@click.option("--reason", metavar="TEXT", help="Why, for the history.")
@_signed
@pass_session
def set_(  # noqa: PLR0913 - the options
    session: Session,
    *,
    name: str,
    concurrency: int | None,
    no_concurrency: bool,
    rate: Rate | None,
    no_rate: bool,
    reason: str | None,
    who: str | None,
) -> None:
    """Set a gate's limits; what is not mentioned stays, and so does a pause."""
    if (concurrency is not None and no_concurrency) or (rate is not None and no_rate):
        raise click.UsageError("give a limit, or say that there is none, not both")
    if concurrency is None and rate is None and not no_concurrency and not no_rate:
        raise click.UsageError("nothing to set: give --concurrency, --rate, --no-concurrency or --no-rate")

    async def work(app: App) -> tuple[str, str]:
        before = await _found(app, name)
        old = None if before is None else before.gate
        new_concurrency = None if no_concurrency else concurrency or (old.concurrency if old else None)
        new_rate = None if no_rate else rate or (old.rate if old else None)
        await app.manager.set_gate(name, concurrency=new_concurrency, rate=new_rate, who=who, reason=reason)
        return limits_of(old), limits_text(new_concurrency, new_rate)

    old, new = session.run(work)
    Output().say(f"{name}: {new} (before: {old})")


@gates.command(name="delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--reason", metavar="TEXT", help="Why, for the history.")
@_signed
@pass_session
def delete(session: Session, *, name: str, yes: bool, reason: str | None, who: str | None) -> None:
    """Forget a gate's limits and its pause; its history stays."""

    async def look(app: App) -> str:
        usage = await _gate(app, name)
        if usage is None:
            raise missing_gate(name, [each.gate.name for each in await app.manager.gates()])
        return state_of(usage.gate, await app.store.now())

    state = session.run(look)
    _confirm(f"delete gate {name} ({state})? Its tasks are then limited by nothing", yes=yes)
    session.run(lambda app: app.manager.delete_gate(name, who=who, reason=reason))
    Output().say(f"{name} is deleted (it had: {state})")


def _confirm(question: str, *, yes: bool) -> None:
    import sys  # noqa: PLC0415 - for this only

    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure("this needs --yes where nobody can be asked", Exit.USAGE)
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed")


@gates.command(
    name="pause",
    epilog="\b\nExamples:\n"
    "  coatcheck gates pause provider/ocr%3Aazure --reason maintenance --for 30m\n"
    "  coatcheck gates pause tenant/acme --reason 'unpaid bill' --until 2026-07-01T08:00\n",
)
@click.argument("name")
@click.option("--reason", required=True, metavar="TEXT", help="Why; everybody who looks at the gate sees it.")
@click.option("--for", "duration", type=DURATION, help="For how long, such as 30m; else until it is resumed.")
@click.option(
    "--until", metavar="TIME", help="Until when, ISO 8601; of this machine's zone if it names none."
)
@_signed
@pass_session
def pause(
    session: Session,
    *,
    name: str,
    reason: str,
    duration: timedelta | None,
    until: str | None,
    who: str | None,
) -> None:
    """Let a gate grant nothing, from the next claim on. What is under way goes on."""
    if duration is not None and until is not None:
        raise click.UsageError("give --for or --until, not both")
    if duration is not None and duration <= timedelta():
        raise click.UsageError("--for is longer than nothing")
    if not reason.strip():
        raise click.UsageError("--reason says why; it is empty")
    instant = None if until is None else _instant(until)

    async def work(app: App) -> tuple[Gate, datetime]:
        await _found(app, name)
        now = await app.store.now()
        if instant is not None and instant <= now:
            raise Failure(f"--until {until!r} is past: the store's time is {time_text(now)}", Exit.USAGE)
        await app.manager.pause(name, reason=reason, who=who, until=instant, duration=duration)
        usage = await _gate(app, name)
        if usage is None:
            raise Failure(f"{name} was deleted by somebody else in this moment")
        return usage.gate, now

    gate, now = session.run(work)
    Output().say(f"{name}: {state_of(gate, now)}")
    wanted = instant if duration is None else now + duration
    if wanted is not None and gate.pause and (gate.pause.until is None or gate.pause.until > wanted + MOMENT):
        Output().say(
            "the pause that was in force lasts longer, and stands; to shorten it, resume the gate first"
        )


@gates.command(name="resume")
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="Why, for the history.")
@_signed
@pass_session
def resume(session: Session, *, name: str, reason: str | None, who: str | None) -> None:
    """Let a paused gate grant again. Resuming one that is not paused does nothing."""

    async def work(app: App) -> str:
        usage = await _gate(app, name)
        if usage is None:
            raise missing_gate(name, [each.gate.name for each in await app.manager.gates()])
        if not usage.gate.paused_at(await app.store.now()):
            return f"{name} is not paused"
        await app.manager.resume(name, who=who, reason=reason)
        return f"{name} is open again: {limits_of(usage.gate)}"

    Output().say(session.run(work))


@gates.command(name="apply", epilog="\b\nExamples:\n  coatcheck gates apply --dry-run\n")
@click.option("--suggested", is_flag=True, help="Also what handlers suggest, at gates without limits.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option(
    "--reason", metavar="TEXT", default="applied from the configuration", help="Why, for the history."
)
@_signed
@json_option
@pass_session
def apply(
    session: Session, *, suggested: bool, dry_run: bool, reason: str, who: str | None, as_json: bool
) -> None:
    """Bring the configured gates into the store, and show what changes.

    A worker never does that by itself, since it would undo what an operator has set. Pauses stay, and so do gates that
    are not configured.
    """
    rows = session.run(
        lambda app: apply_gates(app, suggested=suggested, dry_run=dry_run, who=who, reason=reason)
    )
    out = Output(as_json=as_json)
    out.table(rows, APPLIED, empty="there is nothing to apply: no gates are configured")
    changed = sum(row["change"] != "unchanged" for row in rows)
    out.say(f"{changed} of {len(rows)} gates {'would change' if dry_run else 'changed'}")


# ------------------------------------------------------------------ finding


async def _gate(app: App, name: str) -> GateUsage | None:
    found = await app.manager.gates([name])
    return found[0] if found else None


async def _found(app: App, name: str) -> GateUsage | None:
    """Return the gate if it is defined; refuse a name that can be none."""
    usage = await _gate(app, name)
    if usage is None:
        check_name(name)
    return usage


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        message = f"--until {text!r} is no time; write one such as 2026-07-01T08:00 or 2026-07-01T06:00:00Z"
        raise click.UsageError(message) from None
