"""`coatcheck tasks purge`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click
from attrs import frozen

from coatcheck_cli.commands.tasks_texts import STATUSES, confirmed
from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import Output, duration_text, json_option
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App

__all__ = ["purge"]

BATCH = 1000
"""Tasks that are deleted in one step, so that no step takes long."""
_ENDS = STATUSES[4:]
_IN_DOUBT = "SUBMIT_UNKNOWN"
_RETENTION = {
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "CANCELED": "canceled",
    "TRACKING_TIMED_OUT": "unresolved",
    _IN_DOUBT: "unresolved",
}
"""Which field of the configuration's `retention` holds for a status."""
_EPILOG = """\b
Examples:
  coatcheck tasks purge --yes
  coatcheck tasks purge --older-than 30d
  coatcheck tasks purge --older-than 7d --status SUCCEEDED --status CANCELED --yes
"""


@frozen
class _Round:
    """What is deleted: tasks in this status that ended longer ago than this."""

    status: str
    older_than: timedelta


def _not_too_long(ctx: click.Context, param: click.Parameter, value: timedelta | None) -> timedelta | None:
    from coatcheck.task import LONGEST  # noqa: PLC0415 - help has no use for it

    if value is not None and value > LONGEST:
        message = f"{duration_text(value)} is longer than {LONGEST.days}d; nothing is as old as that"
        raise click.BadParameter(message, ctx, param)
    return value


@click.command(name="purge", epilog=_EPILOG)
@click.option(
    "--older-than",
    type=DURATION,
    callback=_not_too_long,
    help="Those that ended longer ago than this; by default what retention says.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_ENDS, case_sensitive=False),
    metavar="STATUS",
    help=f"Only these; may be given several times. One of {', '.join(_ENDS)}.",
)
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@json_option
@pass_session
def purge(
    session: Session,
    *,
    older_than: timedelta | None,
    statuses: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Delete tasks that have ended, for good, with their results.

    Without --older-than, what [retention] of the configuration says is deleted, and nothing else. With it, tasks in
    every final status are, but SUBMIT_UNKNOWN only if it is named. Their dedup keys are free then.
    """
    rounds = session.guarded(lambda: _rounds(session, older_than, statuses))
    told = ", ".join(f"{each.status} ended over {duration_text(each.older_than)} ago" for each in rounds)
    confirmed(f"Delete for good: {told}?", yes=yes)

    async def work(app: App) -> list[dict[str, object]]:
        return [await _purged(app, each) for each in rounds]

    rows = session.run(work)
    Output(as_json=as_json).table(rows, ("status", "older_than", "purged"))


def _rounds(session: Session, older_than: timedelta | None, statuses: tuple[str, ...]) -> list[_Round]:
    wanted = [status for status in _ENDS if status in statuses]
    if older_than is not None:
        return [_Round(status, older_than) for status in wanted or _ENDS if wanted or status != _IN_DOUBT]
    configuration = session.app().configuration
    kept = configuration.retention if configuration else None
    rounds = [
        _Round(status, age)
        for status in wanted or _ENDS
        if (age := getattr(kept, _RETENTION[status], None)) is not None
    ]
    if rounds:
        return rounds
    what = " of these" if wanted else ""
    message = f"nothing says how long tasks{what} are kept: give --older-than, or set [retention] in the configuration"
    raise Failure(message, Exit.USAGE)


async def _purged(app: App, one: _Round) -> dict[str, object]:
    from coatcheck import Status  # noqa: PLC0415 - help has no use for it

    before = await app.store.now() - one.older_than
    purged = 0
    while count := await app.store.purge(before, statuses=[Status(one.status)], limit=BATCH):
        purged += count
    return {"status": one.status, "older_than": one.older_than, "purged": purged}
