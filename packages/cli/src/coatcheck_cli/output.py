"""What commands print: tables for people, JSON for programs, and nothing that moves where nobody looks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Output", "duration_text", "json_option", "time_text"]


@frozen(kw_only=True)
class Output:
    """Where results go. Data goes to standard output, everything else to standard error."""

    as_json: bool = False

    @property
    def console(self) -> Console:
        """A console for standard output; it colours in a terminal only, and honours NO_COLOR."""
        from rich.console import Console  # noqa: PLC0415 - JSON and help have no use for it

        return Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it in a terminal."""
        return sys.stdout.isatty()

    def say(self, text: str) -> None:
        """Tell people something, on standard error, so that data stay data."""
        click.echo(text, err=True)

    def print_json(self, document: object) -> None:
        """Print one JSON document."""
        click.echo(json.dumps(document, ensure_ascii=False, indent=2, default=_plain))

    def table(
        self, rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, empty: str = "nothing"
    ) -> None:
        """Print rows: as a JSON array, as a table in a terminal, or in columns with tabs between them.

        The columns and their order are part of what scripts may rely on.
        """
        if self.as_json:
            self.print_json([{name: row.get(name) for name in columns} for row in rows])
        elif not rows:
            self.say(empty)
        elif self.is_terminal:
            self._draw(rows, columns)
        else:
            click.echo("\t".join(columns))
            for row in rows:
                click.echo("\t".join(" ".join(_cell(row.get(name)).split()) for name in columns))

    def _draw(self, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in columns:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(row.get(name))) for name in columns))
        self.console.print(table)

    def pairs(self, values: Mapping[str, object]) -> None:
        """Print names with their values: as a JSON object, or below each other."""
        if self.as_json:
            self.print_json(values)
            return
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            lines = _cell(value).split("\n")
            click.echo(f"{name:<{width}}  {lines[0]}".rstrip())
            for line in lines[1:]:
                click.echo(f"{'':<{width}}  {line}".rstrip())


def json_option(command: Any) -> Any:  # noqa: ANN401 - a decorator of click's
    """Add ``--json`` to a command, which gets it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def time_text(value: datetime) -> str:
    """Return a time as people read it, in the zone of this machine."""
    return value.astimezone().isoformat(sep=" ", timespec="seconds")


def duration_text(value: timedelta) -> str:
    """Return a duration as it is written in configuration, such as ``1h30m``; parts of a second to a tenth."""
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration_text(-value)}"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:g}{unit}")
    if seconds or not parts:
        parts.append(f"{seconds:.1f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)
