"""`coatcheck tasks unknown`: the desk for tasks that ended in doubt."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from attrs import frozen

from coatcheck_cli.commands.tasks_texts import PLACEHOLDER, error_text, masked, one_line, since, summary
from coatcheck_cli.output import Output, duration_text, json_option, time_text
from coatcheck_cli.session import Session, pass_session

if TYPE_CHECKING:
    from datetime import datetime

    from coatcheck import App, Task
    from coatcheck.handler import AnyHandler

__all__ = ["unknown"]

_EPILOG = """\b
Examples:
  coatcheck tasks unknown
  coatcheck tasks unknown --handler ocr:azure --limit 100
  coatcheck tasks unknown --json | jq -r '.[].choices[].command'
"""


@frozen(kw_only=True)
class _Choice:
    """One thing that a person can decide."""

    when: str
    command: str


@frozen(kw_only=True)
class _Case:
    """A task in doubt, with what is known around it."""

    task: Task
    now: datetime
    handler: AnyHandler | None
    """None if this app has none of that key."""
    kept: Sequence[str]
    """The names of what the handler keeps beside the id, as far as other tasks show."""

    @property
    def unanswered(self) -> bool:
        """Whether a creating request was sent, or may have been, and nobody knows what came of it."""
        return self.task.query_params is None and self.task.attempt is not None and self.task.attempt.open

    @property
    def deduplicates_until(self) -> datetime | None:
        """Until when the provider takes a second request for the same job; None if it does not any more."""
        window = self.handler.idempotency_window if self.handler else None
        if window is None or self.task.attempt is None:
            return None
        until = self.task.attempt.first_started_at + window
        return until if until > self.now else None


@click.command(name="unknown", epilog=_EPILOG)
@click.option(
    "--handler",
    "handler_keys",
    multiple=True,
    metavar="KEY",
    help="Of this handler; may be given several times.",
)
@click.option("--tenant", "tenant_id", metavar="ID", help="Of this tenant.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most."
)
@click.option("--after", metavar="ID", help="Begin after this task: the next page.")
@json_option
@pass_session
def unknown(
    session: Session,
    *,
    handler_keys: tuple[str, ...],
    tenant_id: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Show the tasks that ended in doubt, and for each what can be decided, ready to paste.

    These are SUBMIT_UNKNOWN, where a creating request was sent and its answer lost, and TRACKING_TIMED_OUT, where the
    deadline passed. Nothing happens to them by itself: sending one again may cost money twice.
    """

    async def work(app: App) -> list[_Case]:
        from coatcheck import Filter, Status  # noqa: PLC0415 - help has no use for it

        doubtful = Filter(
            statuses=(Status.SUBMIT_UNKNOWN, Status.TRACKING_TIMED_OUT),
            handler_keys=handler_keys,
            tenant_id=tenant_id,
        )
        found = await app.manager.find(doubtful, limit=limit + 1, after=after)
        return await _cases(app, found)

    cases = session.run(work)
    out = Output(as_json=as_json)
    shown = cases[:limit]
    program = _program(session)
    if as_json:
        out.print_json([_document(case, program) for case in shown])
    elif not shown:
        out.say("no task is in doubt")
    for number, case in enumerate(shown, 1):
        if not as_json:
            click.echo(("\n" if number > 1 else "") + _page(case, program))
    if shown and not as_json:
        out.say("\nsay why with --note: it stays in the task's history")
    if len(cases) > limit:
        out.say(f"there are more; go on with --after {shown[-1].task.id}")


def _program(session: Session) -> str:
    """Return how this very command was begun, so that what is pasted works on the same app."""
    words = ["coatcheck"]
    if session.config_file is not None:
        words += ["--config", session.config_file]
    if session.app_reference is not None:
        words += ["--app", session.app_reference]
    return shlex.join(words)


async def _cases(app: App, tasks: Sequence[Task]) -> list[_Case]:
    now = await app.store.now()
    kept = {key: await _kept(app, key) for key in {task.route.handler_key for task in tasks}}
    return [
        _Case(
            task=task,
            now=now,
            handler=app.registry.get(task.route.handler_key),
            kept=kept[task.route.handler_key],
        )
        for task in tasks
    ]


async def _kept(app: App, handler_key: str) -> list[str]:
    """Return the names of the query params of another task of this handler: an adopted one needs them too."""
    from coatcheck import Filter, Status  # noqa: PLC0415 - help has no use for it

    known = (Status.SUBMITTED, Status.RUNNING, Status.SUCCEEDED)
    others = await app.manager.find(Filter(statuses=known, handler_keys=(handler_key,)), limit=1)
    params = others[0].query_params if others else None
    return sorted(params.provider_params) if params else []


def _choices(case: _Case, program: str) -> dict[str, _Choice]:
    """Return what can be decided, the likeliest first; the lifecycle refuses everything else."""
    task = case.task
    begin, end = f"{program} tasks", f"{shlex.quote(task.id)}"
    again = duration_text(task.schedule.deadline_at - task.schedule.created_at)
    params = "".join(f" --param {shlex.quote(f'{name}=JSON')}" for name in case.kept)
    choices = {}
    if task.status.value == "TRACKING_TIMED_OUT" and not case.unanswered:
        known = "the result is still wanted"
        choices["extend"] = _Choice(when=known, command=f"{begin} extend {end} --tracking-timeout {again}")
    adopt = f"{begin} adopt {end} {PLACEHOLDER}{params}"
    when = "the provider has the job"
    choices["adopt"] = _Choice(when=when if case.unanswered else f"{when} under another id", command=adopt)
    if task.status.value == "SUBMIT_UNKNOWN":
        when = "the provider does not have it, and it cannot come any more"
        if case.deduplicates_until is not None:
            when = (
                f"it is to be sent again, before {time_text(case.deduplicates_until)} without a second charge"
            )
        command = f"{begin} resubmit {end} --tracking-timeout {again}"
        choices["resubmit"] = _Choice(when=when, command=command)
    abandon = f"{begin} abandon {end}"
    choices["abandon"] = _Choice(when="nobody needs it any more", command=abandon)
    return choices


def _look_at(case: _Case) -> str:
    """Return what a person is to look at, at the provider."""
    task, attempt = case.task, case.task.attempt
    account = f", account {task.route.account_id}" if task.route.account_id else ""
    where = f"{task.route.provider_key}{account}"
    if task.external_task_id is not None:
        return f"the job {one_line(task.external_task_id)} at {where}: does it still run, or is its result there?"
    if attempt is None:
        return "nothing: no request was ever sent"
    if not case.unanswered:
        return "nothing: the last request certainly created no job"
    ended = task.outcome.finished_at or case.now
    began = time_text(attempt.first_started_at)
    span = f"between {began} and {time_text(ended)}"
    reference = ""
    if case.handler is not None and case.handler.idempotency_window is not None:
        reference = f", or sent under the key {task.identity.idempotency_key}"
    return f"jobs at {where} that were created {span}{reference}, with these params"


def _remarks(case: _Case) -> list[str]:
    found = []
    if case.handler is None:
        found.append(f"this app has no handler {case.task.route.handler_key}; a worker with it has to go on")
    elif case.unanswered and "find_submission" in {each.value for each in case.handler.capabilities}:
        found.append("the worker asked the provider by our reference and found nothing, which proves nothing")
    if case.unanswered and case.deduplicates_until is not None:
        found.append(f"the provider deduplicates on the key until {time_text(case.deduplicates_until)}")
    if case.kept:
        found.append(f"to query a job, this handler also keeps: {', '.join(case.kept)}")
    return found


def _page(case: _Case, program: str) -> str:
    """Return what a person reads of one task."""
    task, route = case.task, case.task.route
    whose = "".join(
        f", {name} {one_line(value)}"
        for name, value in (("account", route.account_id), ("tenant", route.tenant_id))
        if value
    )
    facts: dict[str, object] = {
        "what happened": error_text(task),
        "attempts": _attempts(case),
        "ended": _at(task.outcome.finished_at, case.now),
        "created": _at(task.schedule.created_at, case.now),
        "deadline": _at(task.schedule.deadline_at, case.now),
        "provider's id": one_line(task.external_task_id) if task.external_task_id else None,
        "last word": one_line(task.progress.provider_status or ""),
        "params": summary(task.params, limit=300) if task.params is not None else "dropped on acceptance",
        "params digest": task.identity.params_digest,
        "idempotency key": task.identity.idempotency_key,
        "dedup key": task.identity.dedup_key,
        "metadata": summary(task.metadata, limit=300) if task.metadata else None,
        "look at": _look_at(case),
    }
    lines = [f"{task.id}  {task.status}  {route.handler_key}{whose}"]
    lines += [f"  {name:<16} {value}" for name, value in facts.items() if value]
    lines += [f"  {'know':<16} {remark}" for remark in _remarks(case)]
    for name, choice in _choices(case, program).items():
        lines += [f"  {name + ':':<16} if {choice.when}", f"    {choice.command}"]
    return "\n".join(lines)


def _attempts(case: _Case) -> str:
    count, attempt = case.task.progress.submit_attempts, case.task.attempt
    if attempt is None:
        return "never sent"
    told = f"{count}; the last was started {_at(attempt.started_at, case.now)} by {attempt.worker_id}"
    if attempt.first_started_at != attempt.started_at:
        told += f", the first {_at(attempt.first_started_at, case.now)}"
    return told


def _at(moment: datetime | None, now: datetime) -> str | None:
    return None if moment is None else f"{time_text(moment)} ({since(moment, now)})"


def _document(case: _Case, program: str) -> Mapping[str, object]:
    """Return what programs get of one task."""
    task, attempt, error = case.task, case.task.attempt, case.task.error
    return {
        "id": task.id,
        "status": task.status.value,
        "handler": task.route.handler_key,
        "provider": task.route.provider_key,
        "account": task.route.account_id,
        "tenant": task.route.tenant_id,
        "error": {"code": error.code, "message": error.message, "provider_code": error.provider_code}
        if error
        else None,
        "attempts": task.progress.submit_attempts,
        "last_attempt": {
            "started_at": attempt.started_at,
            "first_started_at": attempt.first_started_at,
            "worker": attempt.worker_id,
            "outcome_unknown": attempt.open,
        }
        if attempt
        else None,
        "created_at": task.schedule.created_at,
        "deadline_at": task.schedule.deadline_at,
        "finished_at": task.outcome.finished_at,
        "external_id": task.external_task_id,
        "provider_status": task.progress.provider_status,
        "params": masked(task.params),
        "params_digest": task.identity.params_digest,
        "idempotency_key": task.identity.idempotency_key,
        "dedup_key": task.identity.dedup_key,
        "metadata": masked(task.metadata),
        "look_at": _look_at(case),
        "remarks": _remarks(case),
        "choices": [
            {"choice": name, "when": choice.when, "command": choice.command}
            for name, choice in _choices(case, program).items()
        ],
    }
