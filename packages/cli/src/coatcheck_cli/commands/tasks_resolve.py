"""`coatcheck tasks adopt`, `resubmit`, `abandon` and `extend`: what a person decides about a task in doubt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from coatcheck_cli.commands.tasks_texts import (
    PLACEHOLDER,
    as_written,
    confirmed,
    json_argument,
    login_name,
    positive,
)
from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App, Task

__all__ = ["abandon", "adopt", "extend", "resubmit"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Said(TypedDict):
    """Who decided, and why."""

    who: str | None
    note: str


def _decision(command: Any) -> Any:  # noqa: ANN401 - a decorator of click's
    """Add the options that all decisions have."""
    command = click.option("--note", default="", help="Why; it is kept in the task's history.")(command)
    return click.option("--who", help="Who decides; by default your login name.")(command)


def _yes(command: Any) -> Any:  # noqa: ANN401 - a decorator of click's
    return click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")(command)


def _timeout(*, required: bool, text: str) -> Callable[[_Command], _Command]:
    return click.option("--tracking-timeout", type=DURATION, callback=positive, required=required, help=text)


def _resolve(
    session: Session, work: Callable[[App], Awaitable[Task]], *, as_json: bool, sentence: str
) -> None:
    """Carry a decision out, and tell what came of it."""
    task = session.run(work)
    out = Output(as_json=as_json)
    if as_json:
        out.print_json(task.public())
    out.say(f"task {task.id} is {task.status}: {sentence}")


def _said(who: str | None, note: str) -> _Said:
    return {"who": who or login_name(), "note": note}


@click.command(
    name="adopt",
    epilog="""\b
Examples:
  coatcheck tasks adopt 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 job-77 --note "found in the console"
  coatcheck tasks adopt 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 job-77 --param 'region="eu"'
""",
)
@click.argument("task_id", metavar="ID")
@click.argument("external_id", metavar="EXTERNAL_ID")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=JSON",
    help="What else the handler keeps to query a job, such as region='\"eu\"'; may be given several times.",
)
@_timeout(required=False, text="From now on; by default the old deadline, or the old timeout again.")
@_decision
@json_option
@pass_session
def adopt(  # noqa: PLR0913 - the options of the command
    session: Session,
    *,
    task_id: str,
    external_id: str,
    params: tuple[str, ...],
    tracking_timeout: timedelta | None,
    who: str | None,
    note: str,
    as_json: bool,
) -> None:
    """Say that the provider has the job, under EXTERNAL_ID; it is tracked from now on.

    For tasks that are SUBMIT_UNKNOWN or TRACKING_TIMED_OUT. `coatcheck tasks unknown` lists them.
    """
    if external_id == PLACEHOLDER:
        message = f"put the id that the provider gave the job in place of {PLACEHOLDER}"
        raise Failure(message, Exit.USAGE)
    given = dict(_param(text) for text in params)

    async def work(app: App) -> Task:
        from coatcheck import QueryParams  # noqa: PLC0415 - help has no use for it

        found = QueryParams(external_task_id=external_id, provider_params=given)
        said = _said(who, note)
        return await app.manager.adopt(task_id, found, tracking_timeout=tracking_timeout, **said)

    _resolve(session, work, as_json=as_json, sentence=f"it is tracked as {external_id}")


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        message = f"--param {text!r} is written name=json, such as region='\"eu\"'"
        raise Failure(message, Exit.USAGE)
    try:
        return name, json_argument(value, f"--param {name}")
    except Failure as error:
        message = f"{error.message}; text is written with quotes: --param '{name}={as_written(value)}'"
        raise Failure(message, Exit.USAGE) from error


@click.command(
    name="resubmit",
    epilog="""\b
Examples:
  coatcheck tasks resubmit 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --tracking-timeout 1h \\
    --note "the provider was down all day"
""",
)
@click.argument("task_id", metavar="ID")
@_timeout(required=True, text="How long it may take now, queueing included, such as 1h.")
@_yes
@_decision
@json_option
@pass_session
def resubmit(  # noqa: PLR0913 - the options of the command
    session: Session,
    *,
    task_id: str,
    tracking_timeout: timedelta,
    yes: bool,
    who: str | None,
    note: str,
    as_json: bool,
) -> None:
    """Say that the provider does not have the job; it is sent again, under the same idempotency key.

    For tasks that are SUBMIT_UNKNOWN. If you are wrong, there are two jobs, and both are charged.
    """
    confirmed(f"Send task {task_id} again? If the provider has the job already, there will be two.", yes=yes)

    async def work(app: App) -> Task:
        return await app.manager.resubmit(task_id, tracking_timeout=tracking_timeout, **_said(who, note))

    _resolve(session, work, as_json=as_json, sentence="a worker sends it again")


@click.command(
    name="abandon",
    epilog="""\b
Examples:
  coatcheck tasks abandon 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --note "the customer has left"
""",
)
@click.argument("task_id", metavar="ID")
@_yes
@_decision
@json_option
@pass_session
def abandon(session: Session, *, task_id: str, yes: bool, who: str | None, note: str, as_json: bool) -> None:
    """Give a task up: it becomes FAILED, and cannot be brought back.

    For tasks that are SUBMIT_UNKNOWN or TRACKING_TIMED_OUT. The provider is told nothing: if it has the job, that may
    still run and be charged.
    """
    confirmed(f"Give task {task_id} up for good?", yes=yes)

    async def work(app: App) -> Task:
        return await app.manager.abandon(task_id, **_said(who, note))

    _resolve(session, work, as_json=as_json, sentence="it was given up")


@click.command(
    name="extend",
    epilog="""\b
Examples:
  coatcheck tasks extend 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --tracking-timeout 2h
""",
)
@click.argument("task_id", metavar="ID")
@_timeout(required=True, text="How much more time it has from now, such as 2h.")
@_decision
@json_option
@pass_session
def extend(
    session: Session,
    *,
    task_id: str,
    tracking_timeout: timedelta,
    who: str | None,
    note: str,
    as_json: bool,
) -> None:
    """Grant a task that timed out more time.

    For tasks that are TRACKING_TIMED_OUT. A job that the provider has is queried again; a task that was never sent
    goes back to the queue. One that was sent and whose id is not known has to be adopted or abandoned.
    """

    async def work(app: App) -> Task:
        return await app.manager.extend(task_id, tracking_timeout=tracking_timeout, **_said(who, note))

    _resolve(session, work, as_json=as_json, sentence="it has more time")
