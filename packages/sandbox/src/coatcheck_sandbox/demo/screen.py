"""How the demo looks: a live table in a terminal, plain lines elsewhere."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from coatcheck import Status, Task
from coatcheck_sandbox.demo.programme import Programme, Verdict
from coatcheck_sandbox.demo.stage import Scene

_COLOURS = {
    Status.PENDING_SUBMIT: "white",
    Status.SUBMITTING: "yellow",
    Status.SUBMITTED: "cyan",
    Status.RUNNING: "blue",
    Status.SUCCEEDED: "green",
}
_SHOWN_LINES = 4


def _coloured(status: Status) -> Text:
    return Text(status.value, style=_COLOURS.get(status, "red"))


class Screen:
    """Draws scenes. In a terminal it redraws one table; elsewhere it prints a line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._seen: dict[str, Status] = {}
        self._said = 0

    def __enter__(self) -> Self:
        """Begin."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, leaving the last scene."""
        if self._live is not None:
            self._live.stop()

    def draw(self, scene: Scene) -> None:
        """Show a scene."""
        if self._live is not None:
            self._live.update(_scene(scene), refresh=True)
            return
        for line in scene.said[self._said :]:
            self._console.print(f"* {line}")
        self._said = len(scene.said)
        for piece, task in scene.tasks.items():
            if self._seen.get(piece) is not task.status:
                self._seen[piece] = task.status
                self._console.print(f"  {piece:<18} {task.status}")


def _scene(scene: Scene) -> Group:
    table = Table(title="tasks in the store", title_justify="left", expand=False)
    for column in ("what", "status", "provider's id", "submitted by", "queries"):
        table.add_column(column)
    for piece, task in scene.tasks.items():
        attempt = task.attempt
        table.add_row(
            piece,
            _coloured(task.status),
            task.external_task_id or "",
            scene.name_of(attempt.worker_id if attempt else None),
            str(task.progress.query_count),
        )
    workers = "   ".join(f"worker {name}: {doing}" for name, doing in scene.workers.items())
    said = [Text(f"* {line}") for line in scene.said]
    return Group(table, Text(workers, style="bold"), *said)


def _timeline(task: Task, scene_names: Sequence[tuple[str, str]]) -> Text:
    names = dict(scene_names)
    begin = task.schedule.created_at
    steps = []
    for entry in task.history:
        pid = (entry.worker_id or "").rsplit("-", 2)
        worker = names.get(pid[1], "") if len(pid) == 3 else ""  # noqa: PLR2004 - host, pid, nonce
        seconds = (entry.at - begin).total_seconds()
        what = entry.target.value if entry.source is not entry.target else entry.note
        steps.append(f"{seconds:5.1f} s  {what}" + (f"  (worker {worker})" if worker else ""))
    return Text("\n".join(steps), style="dim")


def show_results(console: Console, plays: Programme, verdicts: Sequence[Verdict], scene: Scene) -> None:
    """Print the result and the timeline of each piece, and the table of requests."""
    for verdict in verdicts:
        lines = [line for line in verdict.text.splitlines() if line.strip()]
        shown = "\n".join(lines[:_SHOWN_LINES]) + ("\n..." if len(lines) > _SHOWN_LINES else "")
        timeline = _timeline(verdict.task, tuple(scene.owners.items()))
        console.print(Panel(Group(Text(shown), timeline), title=verdict.piece, title_align="left"))
    table = Table(title="what the provider saw, and what came of it", title_justify="left")
    for column in ("what", "status", "creating requests", plays.measure, ""):
        table.add_column(column)
    for verdict in verdicts:
        table.add_row(
            verdict.piece,
            _coloured(verdict.task.status),
            str(verdict.creating_requests),
            verdict.measured,
            Text("ok", style="green") if verdict.good else Text("WRONG", style="bold red"),
        )
    console.print(table)
