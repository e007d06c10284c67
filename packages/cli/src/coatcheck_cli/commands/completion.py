"""`coatcheck completion`: what a shell needs to complete the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


_EPILOG = """\b
Examples:
  eval "$(coatcheck completion bash)"
  coatcheck completion fish > ~/.config/fish/completions/coatcheck.fish
"""


@click.command(name="completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes coatcheck in a SHELL."""
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has one for each choice
    click.echo(found(ctx.find_root().command, {}, "coatcheck", "_COATCHECK_COMPLETE").source())
