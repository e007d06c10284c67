"""The command `coatcheck`."""

from __future__ import annotations

import click

from coatcheck_cli.groups import RootGroup

__all__ = ["main"]

_COMMANDS = "coatcheck_cli.commands"
_EPILOG = """\b
Examples:
  coatcheck config check
  coatcheck worker --processes 2
  coatcheck submit ocr https://files.example.com/report.pdf --wait
  coatcheck tasks list --status SUBMIT_UNKNOWN
  coatcheck gates pause provider/ocr%3Aazure --reason maintenance --for 30m
"""


@click.group(
    name="coatcheck",
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
    lazy={
        "worker": (f"{_COMMANDS}.worker:worker", "Work: submit what waits, and query what runs."),
        "submit": (f"{_COMMANDS}.submit:submit", "Submit tasks, and wait for them if you like."),
        "tasks": (f"{_COMMANDS}.tasks:tasks", "List, show, cancel, resolve and purge tasks."),
        "gates": (f"{_COMMANDS}.gates:gates", "Limit, pause and resume providers, accounts and tenants."),
        "stats": (f"{_COMMANDS}.stats:stats", "How many tasks are where, and how old the oldest are."),
        "store": (f"{_COMMANDS}.store:store", "Set up, check and migrate the store."),
        "config": (f"{_COMMANDS}.config:config", "Check and show the configuration."),
        "plugins": (f"{_COMMANDS}.plugins:plugins", "What is installed, and what is wrong with it."),
        "plugin": (f"{_COMMANDS}.plugin:plugin", "Begin a plugin of your own."),
        "conformance": (f"{_COMMANDS}.conformance:conformance", "Prove that a plugin keeps its promises."),
        "demo": (f"{_COMMANDS}.demo:demo", "See coatcheck at work, against a provider on this machine."),
        "completion": (f"{_COMMANDS}.completion:completion", "Completion for your shell."),
    },
)
@click.option(
    "--config", "config_file", metavar="FILE", help="The configuration; by default coatcheck.toml here."
)
@click.option(
    "--app", "app_reference", metavar="MODULE:NAME", help="An app in your code, instead of a configuration."
)
@click.version_option(package_name="coatcheck-cli", message="coatcheck %(version)s")
@click.pass_context
def main(ctx: click.Context, config_file: str | None, app_reference: str | None) -> None:
    """Hand the job over, keep the ticket, come back for the result.

    coatcheck durably tracks jobs at external providers. What the commands work on is described in coatcheck.toml, in
    [tool.coatcheck] of pyproject.toml, or by an app in your code (--app).
    """
    from coatcheck_cli.session import Session  # noqa: PLC0415 - help has no use for it

    if config_file is not None and app_reference is not None:
        raise click.UsageError("give --config or --app, not both")
    ctx.obj = Session(config_file=config_file, app_reference=app_reference)
