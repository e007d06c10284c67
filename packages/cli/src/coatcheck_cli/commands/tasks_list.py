"""`coatcheck tasks list`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from coatcheck_cli.commands.tasks_texts import STATUSES, error_text, one_line, positive, since
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App, Task
    from coatcheck.store import Filter

__all__ = ["list_tasks"]

COLUMNS = (
    "id",
    "status",
    "handler",
    "attempts",
    "queries",
    "created",
    "due",
    "external_id",
    "error",
)
"""What programs get; a narrow terminal shows fewer."""
_NARROW, _MIDDLE = 110, 150
"""Characters in a line, below which columns are left out."""
PAGE = 500
"""Tasks that are asked for at once."""
_LONGEST_CELL = 60
_EPILOG = """\b
Examples:
  coatcheck tasks list --status SUBMIT_UNKNOWN --status TRACKING_TIMED_OUT
  coatcheck tasks list --handler ocr:azure --tenant acme --older-than 2h
  coatcheck tasks list --external-id job-77
  coatcheck tasks list --status FAILED --all --json | jq -r '.[].error'
"""


class _Instant(click.ParamType[datetime]):
    """An instant in ISO 8601; without a zone it is this machine's."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:  # noqa: ANN401 - click's own
        """Read it."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time; write it as in 2026-03-01 or 2026-03-01T08:00+01:00", param, ctx
            )


_INSTANT = _Instant()


@frozen(kw_only=True)
class _Wanted:
    """Which tasks, as the command line says it."""

    restrictions: dict[str, Any]
    older_than: timedelta | None
    newer_than: timedelta | None

    async def query(self, app: App) -> Filter:
        """Return the store's filter; ages are by the store's clock."""
        from coatcheck import Filter, Status  # noqa: PLC0415 - help has no use for it

        found = dict(self.restrictions)
        found["statuses"] = [Status(each) for each in found["statuses"]]
        if self.older_than is not None or self.newer_than is not None:
            now = await app.store.now()
            if self.older_than is not None:
                found["created_before"] = now - self.older_than
            if self.newer_than is not None:
                found["created_after"] = now - self.newer_than
        return Filter(**found)


def _checked(
    times: dict[str, datetime | None], older_than: timedelta | None, newer_than: timedelta | None
) -> dict[str, datetime]:
    for age, name, option in (
        (older_than, "created_before", "--older-than"),
        (newer_than, "created_after", "--newer-than"),
    ):
        if age is not None and times[name] is not None:
            message = f"give {option} or --{name.replace('_', '-')}, not both"
            raise click.UsageError(message)
    return {name: value for name, value in times.items() if value is not None}


@click.command(name="list", epilog=_EPILOG)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES, case_sensitive=False),
    metavar="STATUS",
    help=f"In this status; may be given several times. One of {', '.join(STATUSES)}.",
)
@click.option(
    "--handler",
    "handler_keys",
    multiple=True,
    metavar="KEY",
    help="Of this handler; may be given several times.",
)
@click.option("--tenant", "tenant_id", metavar="ID", help="Of this tenant.")
@click.option("--account", "account_id", metavar="ID", help="Under this account.")
@click.option("--dedup-key", metavar="KEY", help="Submitted under this dedup key.")
@click.option("--external-id", "external_task_id", metavar="ID", help="That the provider knows by this id.")
@click.option(
    "--older-than", type=DURATION, callback=positive, help="Created longer ago than this, such as 2h."
)
@click.option("--newer-than", type=DURATION, callback=positive, help="Created within this time.")
@click.option("--created-before", type=_INSTANT, help="Created before this time, such as 2026-03-01.")
@click.option("--created-after", type=_INSTANT, help="Created after this time.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option("--after", metavar="ID", help="Begin after this task: the next page.")
@click.option("--all", "everything", is_flag=True, help="All pages.")
@json_option
@pass_session
def list_tasks(  # noqa: PLR0913 - the options of the command
    session: Session,
    /,
    *,
    limit: int,
    after: str | None,
    everything: bool,
    as_json: bool,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    created_before: datetime | None,
    created_after: datetime | None,
    **restrictions: Any,  # noqa: ANN401 - fields of Filter
) -> None:
    """List tasks, the oldest first.

    Of error, attempts and queries the latest state is shown; `coatcheck tasks show ID` has the history. A narrow
    terminal shows fewer columns; --json, and output that is no terminal, always have all.
    """
    restrictions |= _checked(
        {"created_before": created_before, "created_after": created_after}, older_than, newer_than
    )
    wanted = _Wanted(restrictions=restrictions, older_than=older_than, newer_than=newer_than)
    out = Output(as_json=as_json)

    async def work(app: App) -> tuple[list[dict[str, object]], tuple[str, ...], bool]:
        found, more = await _found(app, wanted, None if everything else limit, after)
        if as_json:
            return [_row(task) for task in found], COLUMNS, more
        if not out.is_terminal:
            return [_plain_row(task) for task in found], COLUMNS, more
        now = await app.store.now()
        return [_short_row(task, now) for task in found], _columns(out.console.width), more

    rows, columns, more = session.run(work)
    out.table(rows, columns, empty="no task fits")
    if more:
        out.say(f"there are more; go on with --after {rows[-1]['id']}, or ask for --all")


async def _found(app: App, wanted: _Wanted, limit: int | None, after: str | None) -> tuple[list[Task], bool]:
    """Return the tasks, and whether there are more."""
    query = await wanted.query(app)
    found: list[Task] = []
    while limit is None or len(found) <= limit:
        size = PAGE if limit is None else min(PAGE, limit + 1 - len(found))
        page = await app.manager.find(query, limit=size, after=found[-1].id if found else after)
        found += page
        if len(page) < size:
            break
    more = limit is not None and len(found) > limit
    return found[:limit], more


def _row(task: Task) -> dict[str, object]:
    return {
        "id": task.id,
        "status": task.status.value,
        "handler": task.route.handler_key,
        "attempts": task.progress.submit_attempts,
        "queries": task.progress.query_count,
        "created": task.schedule.created_at,
        "due": None if task.status.terminal else task.schedule.due_at,
        "external_id": task.external_task_id,
        "error": error_text(task),
    }


def _plain_row(task: Task) -> dict[str, object]:
    """Return the row for lines of text: what others have written stays on one."""
    return {**_row(task), "external_id": one_line(task.external_task_id or "")}


def _short_row(task: Task, now: datetime) -> dict[str, object]:
    """Return the row for a terminal: ages instead of times, and nothing that is long."""
    due = task.schedule.due_at
    return {
        **_row(task),
        "created": since(task.schedule.created_at, now),
        "due": None if task.status.terminal else "now" if due <= now else since(due, now),
        "external_id": one_line(task.external_task_id or "", _LONGEST_CELL),
        "error": error_text(task, _LONGEST_CELL),
    }


def _columns(width: int) -> tuple[str, ...]:
    if width < _NARROW:
        return ("id", "status", "handler", "created")
    if width < _MIDDLE:
        return ("id", "status", "handler", "attempts", "queries", "created", "due")
    return COLUMNS
