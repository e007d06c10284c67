"""`coatcheck tasks cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App

__all__ = ["cancel"]

_EPILOG = """\b
Examples:
  coatcheck tasks cancel 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11
  coatcheck tasks list --tenant acme --status PENDING_SUBMIT --all --json \\
    | jq -r '.[].id' | xargs coatcheck tasks cancel
"""


@click.command(name="cancel", epilog=_EPILOG)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@pass_session
def cancel(session: Session, task_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Cancel tasks.

    One that waits is CANCELED at once. Of one that the provider may have, a worker tells the provider, if the handler
    can; it ends in nothing but CANCELED. Cancelling twice is fine. Exits with 3 if there is no such task, with 1 if
    one had ended before.
    """

    async def work(app: App) -> list[dict[str, object]]:
        return [await _cancelled(app, task_id) for task_id in task_ids]

    rows = session.run(work)
    Output(as_json=as_json).table(rows, ("id", "status", "outcome"))
    missing = [str(row["id"]) for row in rows if row["outcome"] == "not found"]
    ended = [str(row["id"]) for row in rows if row["outcome"] == "had ended before"]
    if missing:
        message = f"there is no task {', '.join(missing)} here; check the id, and whether it was purged"
        raise Failure(message, Exit.NOT_FOUND)
    if ended:
        raise Failure(f"ended before, and not cancelled: {', '.join(ended)}", Exit.FAILED)


async def _cancelled(app: App, task_id: str) -> dict[str, object]:
    accepted = await app.manager.cancel(task_id)
    task = await app.manager.get(task_id)
    if task is None:
        return {"id": task_id, "status": None, "outcome": "not found"}
    canceled = task.status.value == "CANCELED"
    if accepted:
        outcome = "cancelled" if canceled else "asked for"
    elif canceled:
        outcome = "was cancelled already"
    else:
        outcome = "had ended before" if task.status.terminal else "was asked for already"
    return {"id": task_id, "status": task.status.value, "outcome": outcome}
