"""`coatcheck stats`: how many tasks are where, and how old the oldest are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import click
from attrs import define

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import Output, duration_text, json_option, time_text
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from rich.live import Live

    from coatcheck import App
    from coatcheck.store import Stats

__all__ = ["stats"]

_QUEUE = ("priority", "waiting", "longest_wait")
_EPILOG = """\b
Examples:
  coatcheck stats
  coatcheck stats --json
  coatcheck stats --watch
  coatcheck stats --watch 30s >> stats.log

\b
What is shown below the counts:
  oldest_submitting  how long the oldest SUBMITTING task has been claimed
  query_lateness     how late the most overdue query is; a fleet that keeps up has seconds here
  set_aside          tasks that this version cannot read
  unattended         handlers with tasks that are due and that no worker has claimed for lately
"""


class _Interval(click.ParamType[timedelta]):
    """Seconds, or a duration such as ``30s``."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:  # noqa: ANN401 - click's own
        """Read it."""
        text = str(value).strip()
        found = DURATION.convert(f"{text}s" if text.replace(".", "", 1).isdecimal() else text, param, ctx)
        if found < timedelta(milliseconds=100):
            self.fail(f"{text!r} is shorter than 0.1 seconds", param, ctx)
        return found


@click.command(name="stats", epilog=_EPILOG)
@click.option(
    "--watch",
    "interval",
    type=_Interval(),
    is_flag=False,
    flag_value="2",
    metavar="[SECONDS]",
    help="Go on showing it, every 2 seconds by default, until Ctrl-C.",
)
@json_option
@pass_session
def stats(session: Session, *, interval: timedelta | None, as_json: bool) -> None:
    """How many tasks are where, and how old the oldest are.

    In a terminal --watch draws one table again and again. Elsewhere it prints a line each time, with --json one JSON
    object a line.
    """
    out = Output(as_json=as_json)
    if interval is None:
        _show(out, session.run(lambda app: app.manager.stats()))
        return
    watch = _Watch(out=out, interval=interval)
    try:
        session.run(watch.run)
    except Failure as failure:
        if failure.code is not Exit.INTERRUPTED or not watch.shown:
            raise


# ------------------------------------------------------------------ once


def _show(out: Output, found: Stats) -> None:
    if out.as_json:
        out.print_json(document_of(found))
        return
    if out.is_terminal:
        out.console.print(_drawing(found))
        return
    out.table(_rows(found), ("handler", *_statuses(), "total"), empty="there are no tasks")
    if found.queue:
        click.echo()
        out.table(_queue(found), _QUEUE)
    click.echo()
    out.pairs(_rest(found))


def _statuses() -> list[str]:
    from coatcheck import Status  # noqa: PLC0415 - help has no use for it

    return [status.value for status in Status]


def _rows(found: Stats) -> list[dict[str, object]]:
    """Return a row for each handler, and one for all if there are several."""
    rows: list[dict[str, object]] = []
    sums = dict.fromkeys(_statuses(), 0)
    for handler in found.handlers:
        counts = {status.value: count for status, count in handler.by_status.items()}
        for name, count in counts.items():
            sums[name] += count
        row = {name: counts.get(name, 0) for name in sums}
        rows.append({"handler": handler.handler_key, **row, "total": sum(row.values())})
    if len(rows) > 1:
        rows.append({"handler": "all", **sums, "total": sum(sums.values())})
    return rows


def _queue(found: Stats) -> list[dict[str, object]]:
    return [
        {"priority": each.priority, "waiting": each.waiting, "longest_wait": each.longest_wait}
        for each in found.queue
    ]


def _rest(found: Stats) -> dict[str, object]:
    unattended = ", ".join(f"{key} ({count})" for key, count in sorted(found.unattended.items()))
    return {
        "now": found.now,
        "oldest_submitting": found.oldest_submitting,
        "query_lateness": found.query_lateness,
        "set_aside": found.set_aside,
        "unattended": unattended or None,
    }


def document_of(found: Stats) -> dict[str, object]:
    """Return all of it as JSON has it; durations in seconds."""
    return {
        "now": found.now,
        "handlers": [
            {"handler": row["handler"], "by_status": {name: row[name] for name in _statuses()}}
            for row in _rows(found)[: len(found.handlers)]
        ],
        "queue": _queue(found),
        "oldest_submitting": found.oldest_submitting,
        "query_lateness": found.query_lateness,
        "unattended": dict(sorted(found.unattended.items())),
        "set_aside": found.set_aside,
    }


# ------------------------------------------------------------------ again and again


@define(eq=False)
class _Watch:
    """Shows how the store stands until it is interrupted."""

    out: Output
    interval: timedelta
    shown: int = 0
    _away: bool = False

    async def run(self, app: App) -> None:
        """Look every `interval`; once it has been seen, a store may be away for a while."""
        from coatcheck import StoreUnavailable  # noqa: PLC0415 - help has no use for it

        with self._screen() as live:
            while True:
                try:
                    found = await app.manager.stats()
                except StoreUnavailable as error:
                    if not self.shown:
                        raise
                    self._tell_away(str(error))
                else:
                    self._away = False
                    self._draw(found, live)
                    self.shown += 1
                await asyncio.sleep(self.interval.total_seconds())

    def _tell_away(self, why: str) -> None:
        if not self._away:
            self.out.say(f"the store is away: {' '.join(why.split())}")
        self._away = True

    @contextmanager
    def _screen(self) -> Iterator[Live | None]:
        """Draw in place in a terminal; nothing moves elsewhere."""
        if self.out.as_json or not self.out.is_terminal:
            yield None
            return
        from rich.live import Live  # noqa: PLC0415 - seldom needed

        with Live(console=self.out.console, auto_refresh=False) as live:
            yield live

    def _draw(self, found: Stats, live: Live | None) -> None:
        if live is not None:
            live.update(_drawing(found), refresh=True)
        elif self.out.as_json:
            click.echo(json.dumps(document_of(found), ensure_ascii=False, default=_plain))
        else:
            click.echo(line_of(found))


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else cast("datetime", value).isoformat()


def line_of(found: Stats) -> str:
    """Return how the store stands in one line: the time, and names with values."""
    counts = dict.fromkeys(_statuses(), 0)
    for handler in found.handlers:
        for status, count in handler.by_status.items():
            counts[status.value] += count
    told: dict[str, object] = {
        **counts,
        "waiting": sum(each.waiting for each in found.queue),
        "longest_wait": _duration(max((each.longest_wait for each in found.queue), default=None)),
        "oldest_submitting": _duration(found.oldest_submitting),
        "query_lateness": _duration(found.query_lateness),
        "unattended": sum(found.unattended.values()),
        "set_aside": found.set_aside,
    }
    return " ".join([time_text(found.now), *(f"{name}={value}" for name, value in told.items())])


def _duration(value: timedelta | None) -> str:
    return "-" if value is None else duration_text(value)


def _drawing(found: Stats) -> Any:  # noqa: ANN401 - something that rich draws
    from rich.console import Group  # noqa: PLC0415 - seldom needed
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, header_style="bold", pad_edge=False)
    used = [name for name in _statuses() if any(row[name] for row in _rows(found))]
    for name in ("handler", *used, "total"):
        table.add_column(name, justify="left" if name == "handler" else "right", overflow="fold")
    for row in _rows(found):
        table.add_row(*(Text(str(row[name])) for name in ("handler", *used, "total")))
    queue = [
        f"priority {each.priority}: {each.waiting} waiting, the first for {duration_text(each.longest_wait)}"
        for each in found.queue
    ]
    rest = [
        f"{name.replace('_', ' ')}: {duration_text(value) if isinstance(value, timedelta) else value}"
        for name, value in _rest(found).items()
        if name != "now" and value is not None
    ]
    return Group(Text(time_text(found.now), style="dim"), table, Text("\n".join(["", *queue, *rest])))
