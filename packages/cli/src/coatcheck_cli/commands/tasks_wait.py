"""`coatcheck tasks wait`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from coatcheck_cli.commands.tasks_texts import positive
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App, Task

__all__ = ["wait"]

_EPILOG = """\b
Examples:
  coatcheck tasks wait 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --timeout 10m
  coatcheck submit ocr - < urls.txt | xargs coatcheck tasks wait
  coatcheck tasks wait 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --json | jq .result
"""


@click.command(name="wait", epilog=_EPILOG)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--timeout",
    type=DURATION,
    callback=positive,
    default="1h",
    show_default=True,
    help="How long to wait, for all of them.",
)
@json_option
@pass_session
def wait(session: Session, task_ids: tuple[str, ...], timeout: timedelta, *, as_json: bool) -> None:
    """Wait until tasks have ended, however they end.

    Exits with 0 if all succeeded, with 4 if one ended without a result, with 5 if the time ran out; the tasks go on.
    --json prints what clients may see of each task, one document a task, with its result.
    """
    from coatcheck_cli.commands.tasks_following import follow, told  # noqa: PLC0415 - help has no use for it

    async def work(app: App) -> dict[str, Task]:
        return await follow(app, task_ids, timeout)

    told(session.run(work), task_ids, Output(as_json=as_json), timeout)
