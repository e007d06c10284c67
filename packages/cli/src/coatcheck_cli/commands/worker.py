"""`coatcheck worker`: submit what waits, and query what runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from attrs import frozen

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.health import HealthOrders, Pulse, is_fresh, watched
from coatcheck_cli.logs import LEVELS, set_up_logging
from coatcheck_cli.output import Output
from coatcheck_cli.session import DURATION, Session, pass_session

if TYPE_CHECKING:
    from types import FrameType

    from coatcheck import App, Worker

__all__ = ["worker"]

SLACK = timedelta(seconds=30)
"""How long closing the store and the handlers may take, beside the two stop timeouts of calls and outcomes."""
_SIZES = (
    "submissions",
    "queries",
    "lease",
    "call_timeout",
    "poll_interval",
    "stop_timeout",
    "max_lost_leases",
    "final_query",
)
_EPILOG = """\b
Examples:
  coatcheck worker
  coatcheck worker --processes 4 --queries 400
  coatcheck worker --only ocr:gitee --only ocr:azure
  coatcheck worker --health /run/coatcheck.alive
  coatcheck worker --health-host 0.0.0.0 --health-port 8080 --log-json

SIGTERM or Ctrl-C: the worker claims nothing more, lets the calls in flight finish within --stop-timeout, gives back
what it has not begun, and exits with 0. A second signal ends it at once, with 130; other workers then rescue its tasks.
"""


@frozen(kw_only=True)
class _Orders:
    """What one worker process is to do."""

    sizes: dict[str, Any]
    """Fields of `WorkerSettings` that the command line gives."""
    only: tuple[str, ...]
    health: HealthOrders
    supervised: bool
    log_level: str | None
    log_json: bool


@click.command(name="worker", epilog=_EPILOG)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N worker processes and look after them.",
)
@click.option("--submissions", type=click.IntRange(min=0), metavar="N", help="Submit calls at once.")
@click.option("--queries", type=click.IntRange(min=0), metavar="N", help="Queries at once.")
@click.option("--lease", type=DURATION, help="How long a claim holds unless renewed, such as 60s.")
@click.option("--call-timeout", type=DURATION, help="How long one handler call may take; below the lease.")
@click.option("--poll-interval", type=DURATION, help="How long to wait for work before looking again.")
@click.option("--stop-timeout", type=DURATION, help="How long calls in flight may go on after a signal.")
@click.option(
    "--max-lost-leases",
    type=click.IntRange(min=1),
    metavar="N",
    help="Workers that may die in a row holding one task before it is stopped.",
)
@click.option(
    "--final-query/--no-final-query",
    default=None,
    help="Ask about an overdue task once more before it times out.",
)
@click.option(
    "--only", multiple=True, metavar="KEY", help="Work for this handler; may be given several times."
)
@click.option(
    "--health",
    "health_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Touch FILE every second while the worker goes round and its store answers; removed at the end.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Answer /live and /ready with 200 or 503; 0 takes a free port and says which.",
)
@click.option(
    "--health-host", default="127.0.0.1", metavar="HOST", show_default=True, help="Where to listen."
)
@click.option(
    "--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="From which level on to log; info."
)
@click.option("--log-json", is_flag=True, help="Log JSON, an object a line.")
@click.option("--supervised", is_flag=True, hidden=True, help="Stop when standard input ends.")
@pass_session
def worker(  # noqa: PLR0913 - the options
    session: Session,
    /,
    *,
    processes: int | None,
    only: tuple[str, ...],
    health_file: Path | None,
    health_port: int | None,
    health_host: str,
    log_level: str | None,
    log_json: bool,
    supervised: bool,
    **sizes: Any,  # noqa: ANN401 - of several types
) -> None:
    """Work: submit what waits, and query what runs.

    Any number of workers on any number of machines share a store. Sizes are those of the configuration, unless they
    are given here. A process that dies is started again where there are several (--processes).
    """
    orders = _Orders(
        sizes={name: sizes[name] for name in _SIZES if sizes[name] is not None},
        only=only,
        health=HealthOrders(file=health_file, host=health_host, port=health_port),
        supervised=supervised,
        log_level=log_level,
        log_json=log_json,
    )
    session.works = True
    with _ending_at_sigterm():
        app = session.guarded(session.app)
        if session.left_out and not len(app.registry):
            raise Failure(
                "none of the configured handlers can be used; see `coatcheck plugins doctor`", Exit.USAGE
            )
        set_up_logging(log_level, as_json=log_json)
        made = session.guarded(lambda: _limited(app, only).worker(**orders.sizes))
        count = processes or (app.configuration.worker.processes if app.configuration else 1)
        if not len(app.registry):
            Output().say("there are no handlers: this worker only ends tasks that are past their deadline")
        if count == 1:
            session.run(lambda opened: _work(opened, orders))
            return
        _check_shared(app, count)
        patience = 2 * made.settings.stop_timeout + SLACK
        code = session.guarded(lambda: asyncio.run(_supervise(session, orders, count, patience)))
    if code is not Exit.OK:
        raise click.exceptions.Exit(code)


@contextlib.contextmanager
def _ending_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end what has not begun to work, with 0: it has done nothing that could be left undone."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _limited(app: App, only: tuple[str, ...]) -> App:
    """Return the app, or one like it whose workers work for these handlers only.

    Raises:
        NoHandler: it has none of that key.
    """
    if not only:
        return app
    from copy import copy  # noqa: PLC0415 - seldom needed

    from coatcheck.registry import Registry  # noqa: PLC0415 - help has no use for it

    limited = copy(app)
    limited.registry = Registry([app.registry[key] for key in dict.fromkeys(only)])
    return limited


def _check_shared(app: App, count: int) -> None:
    from coatcheck.store import Capability  # noqa: PLC0415 - help has no use for it

    if Capability.SHARED not in app.store.capabilities:
        message = (
            f"the store {app.store.url} cannot be shared by {count} processes: work with --processes 1, or take a "
            "store such as sqlite:///jobs.db"
        )
        raise Failure(message, Exit.USAGE)


# ------------------------------------------------------------------ one process


async def _work(app: App, orders: _Orders) -> None:
    made = _limited(app, orders.only).worker(**orders.sizes)
    pulse = Pulse(app.store)
    async with watched(orders.health, pulse.unready, pulse.beat):
        if orders.supervised:
            _stop_at_end_of_input(
                made
            )  # heard once the worker runs: one that was stopped before cannot begin
        await made.run()


def _stop_at_end_of_input(made: Worker) -> None:
    """Stop the worker when the parent closes this process's standard input, or is no more."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):  # past Python's buffer, whose lock would be held at exit
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(made.stop)

    threading.Thread(target=watch, name="end of input", daemon=True).start()


# ------------------------------------------------------------------ several


async def _supervise(session: Session, orders: _Orders, count: int, patience: timedelta) -> Exit:
    from coatcheck_cli.supervising import Supervisor  # noqa: PLC0415 - help has no use for it

    with tempfile.TemporaryDirectory(prefix="coatcheck-") as folder:
        files = {number: Path(folder, str(number)) for number in range(1, count + 1)}
        supervisor = Supervisor(
            command=lambda number: _command(session, orders, files[number]), count=count, patience=patience
        )

        def unready() -> str | None:
            if supervisor.stopping:
                return "the workers are being stopped"
            ready = {number for number in supervisor.running if is_fresh(files[number])}
            lacking = ", ".join(str(number) for number in files if number not in ready)
            return f"not ready: worker {lacking} of {count}" if lacking else None

        async with watched(orders.health, unready):
            return await supervisor.run()


def _command(session: Session, orders: _Orders, file: Path) -> list[str]:
    """Return what starts one worker of several."""
    command = [sys.executable, "-m", "coatcheck_cli"]
    if session.config_file is not None:
        command += ["--config", session.config_file]
    if session.app_reference is not None:
        command += ["--app", session.app_reference]
    command += ["worker", "--processes", "1", "--supervised", "--health", str(file)]
    for name, value in orders.sizes.items():
        command += _option(name, value)
    for key in orders.only:
        command += ["--only", key]
    if orders.log_level is not None:
        command += ["--log-level", orders.log_level]
    return [*command, "--log-json"] if orders.log_json else command


def _option(name: str, value: object) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    if isinstance(value, timedelta):
        return [f"--{option}", f"{value.total_seconds() * 1000:.3f}ms"]
    return [f"--{option}", str(value)]
