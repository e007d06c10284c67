"""`coatcheck tasks show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from coatcheck_cli.commands.tasks_texts import error_text, masked, one_line, since, summary
from coatcheck_cli.output import Output, duration_text, json_option, time_text
from coatcheck_cli.session import Session, pass_session

if TYPE_CHECKING:
    from datetime import datetime

    from coatcheck import App, Task
    from coatcheck.task import Transition

__all__ = ["document_of", "show"]

_EPILOG = """\b
Examples:
  coatcheck tasks show 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11
  coatcheck tasks show 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --json | jq .outcome.result
"""
_MASKED = ("params", "query_params", "metadata")
_INTERNAL = frozenset({"extra_json", "nonce", "settled_by"})
"""What is nobody's business but the store's; who knows a lease's nonce could write in its name."""


@click.command(name="show", epilog=_EPILOG)
@click.argument("task_id", metavar="ID")
@json_option
@pass_session
def show(session: Session, task_id: str, *, as_json: bool) -> None:
    """Show everything that is known of a task, with its history.

    Long params and results are cut; --json has them complete, with the fields of coatcheck.Task. What looks like a
    credential in params, metadata and query params is masked.
    """

    async def work(app: App) -> tuple[Task, datetime]:
        from coatcheck import TaskNotFound  # noqa: PLC0415 - help has no use for it

        task = await app.manager.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        return task, await app.store.now()

    task, now = session.run(work)
    out = Output(as_json=as_json)
    if as_json:
        out.print_json(document_of(task))
        return
    out.pairs({name: value for name, value in _lines(task, now).items() if value not in (None, "")})
    click.echo("\nhistory")
    for entry in task.history:
        click.echo(f"  {_moment(entry)}")


def document_of(task: Task) -> dict[str, Any]:
    """Return a task as JSON with all its fields; what looks like a credential is masked, but in its result."""
    from coatcheck.persistable import to_json  # noqa: PLC0415 - help has no use for it

    document: Any = _without_internals(to_json(task, path="task", prove=False))
    for name in _MASKED:
        document[name] = masked(document[name])
    return dict(document)


def _without_internals(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the parts of a task without internals; what is the caller's or the handler's own stays as it is."""
    if not isinstance(value, Mapping):
        return [_without_internals(each) for each in value] if isinstance(value, list) else value
    return {
        name: each if name in (*_MASKED, "result") else _without_internals(each)
        for name, each in value.items()
        if name not in _INTERNAL
    }


def _lines(task: Task, now: datetime) -> dict[str, object]:
    route, schedule, identity, progress = task.route, task.schedule, task.identity, task.progress

    def at(moment: datetime | None) -> str | None:
        return None if moment is None else f"{time_text(moment)} ({since(moment, now)})"

    live = not task.status.terminal
    return {
        "id": task.id,
        "status": task.status.value,
        "error": error_text(task),
        "cancellation asked for": at(task.cancellation_requested_at),
        "remote cancel": task.outcome.remote_cancel,
        "handler": route.handler_key,
        "provider": None if route.provider_key == route.handler_key else route.provider_key,
        "account": route.account_id,
        "tenant": route.tenant_id,
        "priority": schedule.priority or None,
        "created": at(schedule.created_at),
        "scheduled": None if schedule.scheduled_at == schedule.created_at else at(schedule.scheduled_at),
        "due": at(schedule.due_at) if live else None,
        "deadline": at(schedule.deadline_at),
        "accepted": at(progress.accepted_at),
        "last query": at(progress.queried_at),
        "finished": at(task.outcome.finished_at),
        "attempts": progress.submit_attempts,
        "queries": progress.query_count,
        "errors in a row": progress.consecutive_errors or None,
        "workers lost in a row": progress.lost_leases or None,
        "progress": None if progress.fraction is None else f"{progress.fraction:.0%}",
        "provider status": one_line(progress.provider_status or ""),
        **_details(task, now),
        "external id": one_line(task.external_task_id or ""),
        "query params": _given(task.query_params.provider_params if task.query_params else None),
        "dedup key": identity.dedup_key,
        "idempotency key": None if identity.idempotency_key == task.id else identity.idempotency_key,
        "params digest": identity.params_digest,
        "params": _given(task.params),
        "metadata": _given(task.metadata),
        "result": _given(task.result),
    }


def _details(task: Task, now: datetime) -> dict[str, object]:
    found: dict[str, object] = {"gates": " ".join(task.route.gates), "query gate": task.route.query_gate}
    if task.lease is not None:
        left = task.lease.until - now
        started = f"; call started {since(task.lease.started_at, now)}" if task.lease.started_at else ""
        ends = f"for {duration_text(left)} yet" if left.total_seconds() > 0 else "and the lease has ended"
        found["held by"] = f"{task.lease.worker_id} {ends}{started}"
    if task.attempt is not None:
        known = "nobody knows what came of it" if task.attempt.open else "its answer is known"
        began = f"{time_text(task.attempt.started_at)} ({since(task.attempt.started_at, now)})"
        found["last submission"] = f"{began} by {task.attempt.worker_id}; {known}"
    return found


def _given(value: object) -> str | None:
    return None if value is None or value == {} else summary(value)


def _moment(entry: Transition) -> str:
    """Return one line of the timeline."""
    move = f"{entry.source or '·'} → {entry.target}"
    if entry.source is entry.target:
        move = str(entry.target)
    times = f" ({entry.count} times)" if entry.count > 1 else ""
    worker = f"  [{entry.worker_id}]" if entry.worker_id else ""
    note = one_line(entry.note)
    return f"{time_text(entry.at)}  {move}{times}{worker}{'  ' + note if note else ''}"
