"""`coatcheck store`: set up, check and migrate the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coatcheck_cli.failing import Exit, Failure, explain
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.output import Output, duration_text, json_option
from coatcheck_cli.session import Session, pass_session

if TYPE_CHECKING:
    from coatcheck import Store

__all__ = ["store"]

T = TypeVar("T")

_EPILOG = """\b
Examples:
  coatcheck store check
  coatcheck store setup
  coatcheck store setup --sql > V7__coatcheck.sql
  coatcheck store migrate

A server's tables are made by a step of your deployment, not by workers: `store setup`. When a new version of coatcheck
needs other tables, `store migrate` before the workers are upgraded; those of the version before go on meanwhile.
"""


@click.group(name="store", cls=LazyGroup, epilog=_EPILOG)
def store() -> None:
    """Set up, check and migrate the store.

    It takes no handlers: what is configured of them need not be installed where tables are made.
    """


def _store(session: Session) -> Store:
    """Return the store alone, closed; with a configuration, whatever is wrong with handlers does not matter."""
    if session.app_reference is not None:
        return session.app().store
    from coatcheck.configuration.making import catalog_of  # noqa: PLC0415 - help has no use for it

    configuration = session.configuration()
    settings = dict(configuration.store)
    return catalog_of(configuration).create_store(settings.pop("url"), **settings)


def _run(session: Session, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    return session.guarded(lambda: asyncio.run(work(_store(session))))


# ------------------------------------------------------------------ set up, migrate


@store.command(
    name="setup", epilog="\b\nExamples:\n  coatcheck store setup --sql | psql --single-transaction shop\n"
)
@click.option("--sql", is_flag=True, help="Print the SQL that would do it, and do nothing.")
@pass_session
def setup(session: Session, *, sql: bool) -> None:
    """Create what the store needs; does nothing if it is there. Several processes may do it at once."""
    if sql:
        click.echo(session.guarded(lambda: _sql(_store(session), since=0)).rstrip())
        return

    async def work(found: Store) -> str:
        await found.setup()
        return found.url

    Output().say(f"{_run(session, work)} is set up")


@store.command(name="migrate", epilog="\b\nExamples:\n  coatcheck store migrate --sql --since 1\n")
@click.option("--sql", is_flag=True, help="Print the SQL that would do it, and do nothing; with --since.")
@click.option("--since", type=click.IntRange(min=1), metavar="N", help="The schema that is there now.")
@pass_session
def migrate(session: Session, *, sql: bool, since: int | None) -> None:
    """Bring the store to what this version needs, and let tasks take part again that older code could not read."""
    if sql != (since is not None):
        raise click.UsageError("--sql and --since N go together: the SQL depends on what is there")
    if since is not None:
        click.echo(session.guarded(lambda: _sql(_store(session), since=since)).rstrip())
        return

    async def work(found: Store) -> tuple[str, int]:
        await found.setup()
        async with found:
            return found.url, await found.release_set_aside()

    url, released = _run(session, work)
    Output().say(f"{url} is as this version needs it; {released} tasks that were set aside take part again")


def _sql(found: Store, *, since: int) -> str:
    """Return the SQL that makes or upgrades the tables, of a store that has a method `schema_sql`.

    Raises:
        Failure: it has none.
    """
    written = getattr(found, "schema_sql", None)
    if not callable(written):
        message = f"{found.url} has no SQL to print; `coatcheck store setup` makes what it needs"
        raise Failure(message, Exit.USAGE)
    return str(written(since=since))


# ------------------------------------------------------------------ check


@store.command(name="check")
@json_option
@pass_session
def check(session: Session, *, as_json: bool) -> None:
    """Say whether the store can be reached and used, how far its clock is off, and what it can lose.

    Exits with 0 if it can be used, with 1 if it can be reached and not be used, and with 6 if it cannot be reached.
    Only the store's clock counts: a difference from this machine's harms nothing.
    """
    found = session.guarded(lambda: _store(session))
    out = Output(as_json=as_json)
    with _warnings() as warnings:
        told, failure = session.guarded(lambda: asyncio.run(_checked(found)))
    if as_json:
        why = failure.message if failure else None
        out.print_json({"ok": failure is None, **told, "warnings": warnings, "error": why})
    else:
        out.pairs({name: _text(value) for name, value in told.items()})
        for warning in warnings:
            out.say(f"warning: {warning}")
    if failure is not None:
        if as_json:
            raise click.exceptions.Exit(failure.exit_code)
        raise failure
    out.say("the store can be used")


async def _checked(found: Store) -> tuple[dict[str, object], Failure | None]:
    """Return what was seen of the store, and why it cannot be used."""
    from coatcheck import CoatcheckError, StoreUnavailable  # noqa: PLC0415 - help has no use for it

    told: dict[str, object] = {"url": found.url, "reachable": False}
    try:
        async with found:
            told["reachable"] = True
            told.update(await _seen(found))
    except StoreUnavailable as error:
        told["reachable"] = False
        return told, explain(error)
    except CoatcheckError as error:
        told["reachable"] = True  # it answered, and with something that does not fit
        return told, Failure(str(error))
    return told, None


async def _seen(found: Store) -> dict[str, object]:
    began = time.perf_counter()
    before = datetime.now(UTC)
    now = await found.now()
    middle = before + (datetime.now(UTC) - before) / 2
    await found.get("no-task")
    took = timedelta(seconds=time.perf_counter() - began)
    difference = now - middle
    return {
        "capabilities": sorted(str(each) for each in found.capabilities),
        "durability": _durability(found),
        "clock_difference_ms": round(difference / timedelta(milliseconds=1)),
        "answers_in_ms": round(took / timedelta(milliseconds=1), 1),
        "set_aside": (await found.stats()).set_aside,
    }


def _durability(found: Store) -> str:
    from coatcheck.store import Capability  # noqa: PLC0415 - help has no use for it

    if Capability.SURVIVES_FAILOVER in found.capabilities:
        return "nothing acknowledged is lost, also if a host crashes or a server takes another's place"
    if Capability.DURABLE in found.capabilities:
        return "survives a crash of processes; a crash of a host or a failover may lose the last steps"
    return "gone with the process"


def _text(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or None
    return duration_text(value) if isinstance(value, timedelta) else value


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what stores warn of, such as of what may be lost, instead of logging it."""
    found: list[str] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(" ".join(record.getMessage().split()))

    handler = Collecting(level=logging.WARNING)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield found
    finally:
        root.removeHandler(handler)
