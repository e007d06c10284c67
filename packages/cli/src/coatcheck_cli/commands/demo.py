"""`coatcheck demo`: coatcheck at work, against a provider on this machine."""

from __future__ import annotations

from importlib import import_module

import click

from coatcheck_cli.failing import Exit, Failure

__all__ = ["demo"]


@click.command(
    name="demo",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def demo(arguments: tuple[str, ...]) -> None:
    """See coatcheck at work: `coatcheck demo --help` tells how."""
    try:
        found = import_module("coatcheck_sandbox.demo.__main__")
    except ImportError as error:
        message = f"the demo cannot be imported: {error}; pip install 'coatcheck-sandbox[demo]'"
        raise Failure(message, Exit.USAGE) from error
    raise click.exceptions.Exit(found.main(list(arguments)))
