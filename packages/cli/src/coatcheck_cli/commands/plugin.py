"""`coatcheck plugin`: begin a plugin of your own."""

from __future__ import annotations

from pathlib import Path

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.output import Output
from coatcheck_cli.session import Session, pass_session

__all__ = ["plugin"]

_NEW_EPILOG = """\b
Examples:
  coatcheck plugin new handler ocr:acme
  coatcheck plugin new handler acme-ocr --directory ~/src
  coatcheck plugin new store etcd
  coatcheck plugin new retry patient

\b
What things are called:
  NAME       distribution                 package                      key
  ocr:acme   coatcheck-handler-ocr-acme   coatcheck_handler_ocr_acme   ocr:acme
  acme-ocr   coatcheck-handler-acme-ocr   coatcheck_handler_acme_ocr   acme-ocr
  Acme OCR   coatcheck-handler-acme-ocr   coatcheck_handler_acme_ocr   acme-ocr
"""


@click.group(name="plugin", cls=LazyGroup, epilog="\b\nExamples:\n  coatcheck plugin new handler ocr:acme\n")
def plugin() -> None:
    """Begin a plugin of your own."""


@plugin.command(name="new", epilog=_NEW_EPILOG)
@click.argument("kind", type=click.Choice(["handler", "store", "selector", "retry", "admission"]))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the folder of the distribution is made; by default here.",
)
@pass_session
def new(session: Session, kind: str, name: str, directory: Path) -> None:
    """Write a whole distribution that works, in a new folder.

    It has an entry point, the plugin, README, changelog, CI, and tests with the conformance kit that pass at once: a
    handler for an invented provider, a store in a file, a selector by price, a retry policy with fixed delays, or an
    admission policy with a rate for one tenant. Replace what is invented with yours, and keep the tests green.

    The key is NAME, in lower case and with hyphens. A handler's may have one colon, with the kind of job before it, as
    the keys of coatcheck's own have: it stays in the key, and is a hyphen everywhere else. Nothing is overwritten.
    """
    session.guarded(lambda: _write(kind, name, directory))


def _write(kind: str, name: str, directory: Path) -> None:
    from coatcheck import discover  # noqa: PLC0415 - help has no use for it
    from coatcheck.hooks import Kind  # noqa: PLC0415
    from coatcheck.plugins import installed_version  # noqa: PLC0415
    from coatcheck.remedies import distribution_of  # noqa: PLC0415
    from coatcheck_cli.scaffolding import names_of, write_distribution  # noqa: PLC0415

    names = names_of(kind, name)
    owners = {
        offer.plugin.distribution
        for offer in discover().offers
        if offer.kind == kind and names.key in offer.names
    }
    if kind != Kind.HANDLER and (known := distribution_of(Kind(kind), names.key)):
        owners.add(known.partition("[")[0])
    owners.discard(names.distribution)
    if owners:
        message = (
            f"{kind} {names.key!r} is a key of {', '.join(sorted(owners))}; choose another name, or users of both "
            "would have to say which they prefer"
        )
        raise Failure(message, Exit.USAGE)
    folder = write_distribution(names, directory, version=installed_version("coatcheck"))
    click.echo(folder)
    Output().say(
        f"""
This is {names.distribution}, which offers the {kind} {names.key!r}. What to do next:

  cd {folder}
  python -m pip install --editable ".[dev,test]"
  python -m pytest
  coatcheck plugins --kind {kind}

Then replace what is invented in src/{names.package}, and choose the licence in pyproject.toml."""
    )
