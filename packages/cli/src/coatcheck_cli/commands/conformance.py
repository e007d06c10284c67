"""`coatcheck conformance`: the kit that proves a plugin's promises."""

from __future__ import annotations

from importlib import import_module

import click

from coatcheck_cli.failing import Exit, Failure

__all__ = ["conformance"]


@click.command(
    name="conformance",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def conformance(arguments: tuple[str, ...]) -> None:
    """Prove that a store, handler, policy or plugin keeps its promises: `coatcheck conformance --help` tells how."""
    try:
        found = import_module("coatcheck_conformance.cli")
    except ImportError as error:
        message = f"the kit cannot be imported: {error}; pip install coatcheck-conformance"
        raise Failure(message, Exit.USAGE) from error
    raise click.exceptions.Exit(found.main(list(arguments)))
