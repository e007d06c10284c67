"""`coatcheck submit`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from coatcheck_cli.commands.tasks_texts import positive
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from coatcheck import App
    from coatcheck_cli.commands.submit_batches import Ticket

__all__ = ["submit"]

FEW = 20
"""How many ids a person is told before the waiting."""
_EPILOG = """\b
Examples:
  coatcheck submit ocr https://files.example.com/report.pdf --wait
  coatcheck submit ocr:azure - --option pages=1-3 < urls.txt
  coatcheck submit video "a paper boat in the rain" --option duration=5s --option aspect_ratio=16:9
  coatcheck submit ocr --params '{"url": "https://files.example.com/a.pdf", "tables": true}'
  coatcheck submit ocr --params @request.json --dedup-key invoice-4711
  coatcheck submit ocr - < urls.txt | xargs coatcheck tasks wait
"""


@click.command(name="submit", epilog=_EPILOG)
@click.argument("kind", metavar="KIND")
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option(
    "--params",
    "params_text",
    metavar="JSON|@FILE",
    help="The params as a JSON object, or where they are (@- is standard input). An array is as many tasks.",
)
@click.option("--field", metavar="NAME", help="Which field of the params the values fill.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A field of the params or of coatcheck.SubmitOptions, or with dots a member of one; several times.",
)
@click.option(
    "--tracking-timeout",
    type=DURATION,
    callback=positive,
    default="1h",
    show_default=True,
    help="How long it may take in all, queueing included.",
)
@click.option("--account", "account_id", metavar="ID", help="Under which account.")
@click.option("--tenant", "tenant_id", metavar="ID", help="For which tenant.")
@click.option("--priority", type=int, metavar="NUMBER", help="Higher goes first; 0 if not given.")
@click.option("--delay", type=DURATION, help="Send it no earlier than in this time.")
@click.option(
    "--dedup-key",
    metavar="KEY",
    help="Submitting it again under the same key gives the same task; {value} in it is the value.",
)
@click.option("--wait", is_flag=True, help="Wait until all have ended, and show how they go on.")
@click.option(
    "--timeout",
    type=DURATION,
    callback=positive,
    help="With --wait: how long; by default --tracking-timeout.",
)
@json_option
@pass_session
def submit(  # noqa: PLR0913 - the options of the command
    session: Session,
    /,
    *,
    kind: str,
    values: tuple[str, ...],
    params_text: str | None,
    field: str | None,
    options: tuple[str, ...],
    tracking_timeout: timedelta,
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
    **fields: Any,  # noqa: ANN401 - fields of SubmitOptions
) -> None:
    """Submit tasks, one for each VALUE, and print their ids, one a line.

    KIND is the key of a handler, such as ocr:azure, or what stands before the colon of such keys, such as ocr; where
    several handlers take the same params, the app's selector chooses. A VALUE is put into the first field of the
    params that has no default (the URL of a document), or else into the first of all (the prompt of a video), or into
    that of --field; - reads one a line from standard input. --params are beneath: what all tasks have in common.

    Before anything is submitted everything is checked; a wrong line is named by its number, and nothing is submitted.

    With --wait it exits with 4 if a task ended without a result, and with 5 if the time ran out.
    """
    from coatcheck_cli.commands.submit_batches import Order, tickets_of  # noqa: PLC0415 - help has no use for it

    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait; give both, or neither")
    order = Order(
        kind=kind,
        values=values,
        params_text=params_text,
        field=field,
        options=options,
        tracking_timeout=tracking_timeout,
        submit_options={name: value for name, value in fields.items() if value is not None},
    )
    out = Output(as_json=as_json)
    tickets = session.guarded(lambda: tickets_of(session.app(), order))
    if not tickets:
        out.say("nothing to submit: the input is empty")
        return
    if wait:
        _submit_and_wait(session, tickets, timeout or tracking_timeout, out)
    else:
        _submit(session, tickets, out)


def _submit(session: Session, tickets: list[Ticket], out: Output) -> None:
    from coatcheck_cli.commands.submit_batches import batches  # noqa: PLC0415 - help has no use for it

    async def work(app: App) -> None:
        async for tasks in batches(app, tickets):
            for task in tasks:
                if out.as_json:
                    out.print_json(task.public())
                else:
                    click.echo(task.id)

    session.run(work)


def _submit_and_wait(session: Session, tickets: list[Ticket], timeout: timedelta, out: Output) -> None:
    from coatcheck_cli.commands.submit_batches import batches  # noqa: PLC0415 - help has no use for it
    from coatcheck_cli.commands.tasks_following import follow, told  # noqa: PLC0415

    task_ids: list[str] = []

    async def work(app: App) -> dict[str, Any]:
        async for tasks in batches(app, tickets):
            task_ids.extend(task.id for task in tasks)
            for task_id in task_ids[len(task_ids) - len(tasks) : FEW]:
                out.say(f"submitted {task_id}")
        if len(task_ids) > FEW:
            out.say(f"submitted {len(task_ids)} tasks in all")
        return await follow(app, task_ids, timeout)

    told(session.run(work), task_ids, out, timeout)
