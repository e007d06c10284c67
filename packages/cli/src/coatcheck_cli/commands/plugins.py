"""`coatcheck plugins`: what is installed, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import Session, pass_session

if TYPE_CHECKING:
    from coatcheck.catalog import Catalog
    from coatcheck.configuration import Configuration

__all__ = ["plugins"]

_KINDS = ("store", "handler", "selector", "retry", "admission", "observer")
_COLUMNS = ("kind", "key", "distribution", "version", "state", "reason")
_EPILOG = """\b
Examples:
  coatcheck plugins
  coatcheck plugins --kind handler --kind store
  coatcheck plugins --load --json
  coatcheck plugins doctor
"""


@click.group(name="plugins", cls=LazyGroup, invoke_without_command=True, epilog=_EPILOG)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(_KINDS),
    multiple=True,
    help="Only what is of this kind; may be given several times.",
)
@click.option("--load", is_flag=True, help="Import what makes them, too, and show what cannot be imported.")
@json_option
@click.pass_context
def plugins(ctx: click.Context, *, kinds: tuple[str, ...], load: bool, as_json: bool) -> None:
    """List what is installed: kind, key, distribution, version, state, and the reason if it cannot be used.

    Installing a plugin activates nothing: active is what the configuration names. With --json each has also its plugin
    API, its capabilities, its summary, and the URL schemes of a store.
    """
    if ctx.invoked_subcommand is not None:
        if kinds or load or as_json:
            raise click.UsageError(f"give options of {ctx.invoked_subcommand!r} after its name")
        return
    session = ctx.ensure_object(Session)
    out = Output(as_json=as_json)
    catalog = session.guarded(lambda: _catalog(session, out))
    everything = session.guarded(lambda: catalog.listing(load=load))
    rows = [row for row in everything if not kinds or row.kind in kinds]
    if as_json:
        out.print_json([row.as_json() for row in rows])
    else:
        shown = [{name: row.as_json()[name] for name in _COLUMNS} for row in rows]
        out.table(shown, _COLUMNS, empty="nothing of this kind is installed")
    failed = [row for row in everything if kinds and row.kind is None and row.broken]
    if failed:
        names = ", ".join(row.distribution for row in failed)
        out.say(f"nobody knows the kinds of what cannot be imported: {names}; see coatcheck plugins doctor")


@plugins.command(
    name="doctor", epilog="\b\nExamples:\n  coatcheck plugins doctor\n  coatcheck plugins doctor --json\n"
)
@click.option("--traceback", "traceback", is_flag=True, help="Show where each broken plugin failed, too.")
@json_option
@pass_session
def doctor(session: Session, *, traceback: bool, as_json: bool) -> None:
    """Say what is wrong with the plugins, and with what the configuration names of them; exit 1 if anything is.

    Every factory is imported, and everything that is configured is made; nothing is connected to. Each problem comes
    with what mends it. What you blocked or did not allow is told as a note.
    """
    out = Output(as_json=as_json)
    catalog = session.guarded(lambda: _examined(session, out, traceback=traceback))
    usable = sum(not offer.reason for offer in catalog.offers)
    out.say(f"all is well: {usable} things of {len(catalog.plugins)} distributions can be used")


def _examined(session: Session, out: Output, *, traceback: bool) -> Catalog:
    """Print what is found; return what was examined if all is well.

    Raises:
        Failure: something is wrong.
    """
    from coatcheck.configuration import read_written  # noqa: PLC0415 - help has no use for it
    from coatcheck_cli.diagnosis import diagnose  # noqa: PLC0415

    configuration = _configuration(session)
    catalog = _catalog_of(configuration)
    place = read_written(session.config_file).place if configuration is not None else _unwritten
    findings = diagnose(catalog, configuration, place)
    problems = [each for each in findings if each.problem]
    if out.as_json:
        told = {
            "problems": [each.as_json() for each in problems],
            "notes": [each.as_json() for each in findings if not each.problem],
        }
        out.print_json({"ok": not problems, **told})
    else:
        for each in findings:
            click.echo(f"{'problem' if each.problem else 'note':<8} {each.subject}: {each.reason}")
            if each.remedy:
                click.echo(f"{'':<8} {each.remedy}")
    for plugin in catalog.plugins if traceback else ():
        if plugin.traceback:
            out.say(plugin.traceback.rstrip())
    if problems:
        word = "problem" if len(problems) == 1 else "problems"
        raise Failure(f"{len(problems)} {word} with plugins", Exit.FAILED)
    return catalog


def _configuration(session: Session) -> Configuration | None:
    """Return the configuration; None if there is none, or an app in code takes its place.

    Raises:
        ConfigurationError: there is one, and it is wrong.
    """
    from coatcheck import ConfigurationError  # noqa: PLC0415 - help has no use for it

    if session.app_reference is not None:
        return None
    try:
        return session.configuration()
    except ConfigurationError as error:
        if session.config_file is None and str(error).startswith("there is no configuration"):
            return None
        raise


def _unwritten(*path: str) -> str:
    """Return the path in the configuration of what is written nowhere."""
    return ".".join(path)


def _catalog_of(configuration: Configuration | None) -> Catalog:
    """Return the plugins, also where `COATCHECK_STRICT_PLUGINS` forbids broken ones: these are to be seen here."""
    from coatcheck import builtin  # noqa: PLC0415 - help has no use for it
    from coatcheck.catalog import Catalog  # noqa: PLC0415
    from coatcheck.configuration import PluginConfiguration  # noqa: PLC0415
    from coatcheck.plugins import find_plugins, installed_version  # noqa: PLC0415

    lists = PluginConfiguration() if configuration is None else configuration.plugins
    own = ("coatcheck", installed_version("coatcheck"), builtin)
    return Catalog(plugins=find_plugins([own], allow=lists.allow, block=lists.block), prefer=lists.prefer)


def _catalog(session: Session, out: Output) -> Catalog:
    """Return the plugins as configured; as they are, if there is no configuration that can be read."""
    from coatcheck import ConfigurationError  # noqa: PLC0415 - help has no use for it

    try:
        configuration = _configuration(session)
    except ConfigurationError as error:
        if session.config_file is not None:
            raise
        out.say(f"the configuration is left aside: {error}")
        configuration = None
    return _catalog_of(configuration)
