"""Following tasks until they have ended: alive in a terminal, in plain lines elsewhere, always on standard error."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from coatcheck_cli.commands.tasks_texts import error_text, one_line
from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import Output, duration_text

if TYPE_CHECKING:
    from rich.progress import TaskID

    from coatcheck import App, Task

__all__ = ["follow", "told"]

FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Seconds between two looks, at first and at last."""
LOOK_AT = 500
"""Tasks that the store is asked for at once."""
LONE_AFTER = 5.0
"""Seconds without a claim after which a person is asked whether a worker is running."""
_BARS = 12
"""How many tasks have a line of their own in a terminal."""


async def follow(app: App, task_ids: Sequence[str], timeout: timedelta) -> dict[str, Task]:
    """Return the last snapshot of each task, once all have ended or the time has run out.

    Raises:
        TaskNotFound: there is none of that id.
    """
    clock = asyncio.get_running_loop().time
    began, look, lone = clock(), FIRST_LOOK, False
    latest: dict[str, Task] = {}
    waiting = list(dict.fromkeys(task_ids))
    with closing(_display(waiting)) as display:
        while True:
            found = await _look(app, waiting)
            display.show([task for task in found.values() if _moved(latest.get(task.id), task)])
            latest |= found
            waiting = [task_id for task_id in waiting if not latest[task_id].status.terminal]
            left = timeout.total_seconds() - (clock() - began)
            if not waiting or left <= 0:
                return latest
            if not lone and clock() - began > LONE_AFTER and _untouched(latest):
                lone = True
                display.say("no worker has taken anything yet; is one running? Start one: coatcheck worker")
            pause = look * (0.8 + 0.4 * random.random())  # noqa: S311 - spreads many that wait
            await asyncio.sleep(min(left, pause))
            look = min(look * 1.5, LAST_LOOK)


def told(latest: Mapping[str, Task], task_ids: Sequence[str], out: Output, timeout: timedelta) -> None:
    """Print what the tasks came to: as a table, or as one JSON document each, of what clients may see.

    Raises:
        Failure: some have not ended, or ended without a result.
    """
    ended = [latest[task_id] for task_id in dict.fromkeys(task_ids)]
    if out.as_json:
        for task in ended:
            out.print_json(task.public())
    else:
        rows = [
            {"id": task.id, "status": task.status.value, "error": error_text(task) if task.error else None}
            for task in ended
        ]
        out.table(rows, ("id", "status", "error"))
    _judge(ended, timeout)


def _judge(ended: Sequence[Task], timeout: timedelta) -> None:
    going = [task for task in ended if not task.status.terminal]
    bad = [task for task in ended if task.status.terminal and task.status.value != "SUCCEEDED"]
    if going:
        which = f"task {going[0].id} is" if len(ended) == 1 else f"{len(going)} of {len(ended)} tasks are"
        message = f"{which} not at an end after {duration_text(timeout)}; waiting stops, the work goes on"
        raise Failure(message, Exit.TIMED_OUT)
    if bad:
        which = f"task {bad[0].id} ended as {bad[0].status}"
        if len(ended) > 1:
            which = f"{len(bad)} of {len(ended)} tasks ended without a result"
        raise Failure(f"{which}; coatcheck tasks show tells more", Exit.UNSUCCESSFUL)


async def _look(app: App, task_ids: Sequence[str]) -> dict[str, Task]:
    from coatcheck import TaskNotFound  # noqa: PLC0415 - help has no use for it

    found: dict[str, Task] = {}
    for start in range(0, len(task_ids), LOOK_AT):
        found |= await app.store.get_many(task_ids[start : start + LOOK_AT])
    for task_id in task_ids:
        if task_id not in found:
            raise TaskNotFound(task_id)
    return found


def _moved(before: Task | None, after: Task) -> bool:
    """Whether there is something to see."""
    return before is None or before.version != after.version


def _untouched(latest: Mapping[str, Task]) -> bool:
    """Whether no worker has ever claimed one of these, though one is due."""
    return all(task.token == 0 and not task.status.terminal for task in latest.values()) and any(
        task.schedule.due_at == task.schedule.created_at for task in latest.values()
    )


class _Display(ABC):
    """Shows how tasks move."""

    @abstractmethod
    def show(self, moved: Collection[Task]) -> None:
        """Take in new snapshots."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Say a sentence between."""

    @abstractmethod
    def close(self) -> None:
        """Leave the screen as it is to stay."""


class _Lines(_Display):
    """One line whenever the status of a task changes."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def show(self, moved: Collection[Task]) -> None:
        for task in moved:
            if self._seen.get(task.id) != task.status.value:
                self._seen[task.id] = task.status.value
                self.say(f"{task.id} {task.status}{_why(task)}")

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class _Bars(_Display):
    """A bar for all, and, while they are few, a line for each."""

    def __init__(self, task_ids: Sequence[str]) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal has use for it
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.table import Column  # noqa: PLC0415

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn(
                "{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
        )
        self._ended: set[str] = set()
        self._total = len(task_ids)
        few = self._total <= _BARS
        self._all: TaskID | None = None
        if self._total > 1:
            self._all = self._progress.add_task("all", total=self._total, state="")
        self._lines = {
            task_id: self._progress.add_task(task_id, total=None, state="") for task_id in task_ids if few
        }
        self._progress.start()

    def show(self, moved: Collection[Task]) -> None:
        for task in moved:
            if task.status.terminal:
                self._ended.add(task.id)
            if task.id in self._lines:
                self._show_line(task)
        if self._all is not None:
            state = f"{len(self._ended)} of {self._total} have ended"
            self._progress.update(self._all, completed=len(self._ended), state=state)

    def _show_line(self, task: Task) -> None:
        line, fraction = self._lines[task.id], task.progress.fraction
        state = f"{task.status}{_why(task)}"
        if task.status.terminal:
            self._progress.update(line, total=1, completed=1, state=state)
            self._progress.stop_task(line)
        elif fraction is not None:
            self._progress.update(line, total=1, completed=fraction, state=state)
        else:
            self._progress.update(line, state=state)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False)

    def close(self) -> None:
        self._progress.stop()


def _why(task: Task) -> str:
    """Return what is to be said beside a status: the error, or the provider's own word."""
    if task.error is not None:
        return f": {error_text(task, 100)}"
    if task.status.queryable and task.progress.provider_status:
        return f" ({one_line(task.progress.provider_status, 40)})"
    return ""


def _display(task_ids: Sequence[str]) -> _Display:
    alive = sys.stderr.isatty() and not _is_dumb()
    return _Bars(task_ids) if alive else _Lines()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")
