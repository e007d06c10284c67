"""Worker processes, to be killed, stopped and restarted; run as a program, this module is one of them."""

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import asdict, field, frozen

import coatcheck.calling
from coatcheck import App, Submission, create_store
from coatcheck.clock import SystemClock
from coatcheck_handler_ocr import GiteeOcr
from provider import HOUR, QUICK, CancellingOcr, StagedOcr, document, handler_of
from waits import PATIENCE_SECONDS

SHORT_LEASE = {"lease": 5.0, "call_timeout": 4.5}
"""Settings of a worker whose lease ends soon, but not so soon that a busy machine cannot renew it."""


@frozen(kw_only=True)
class Orders:
    """What a worker process is to do."""

    store_url: str
    provider_url: str
    handlers: dict[str, str] = field(factory=lambda: {"ocr:gitee": ""})
    """The keys of its handlers, and what each does where: ``kill`` or ``hold``, and a point of `StagedOcr`."""
    submits: list[str] = field(factory=list)
    """Documents to submit itself, beside its work."""
    worker: dict[str, float] = field(factory=dict)
    """Settings of the worker in seconds."""
    minutes_later: float = 0
    """How far its clock is ahead: a worker that comes later, without waiting for it."""


def environment() -> dict[str, str]:
    """Return this environment, with a place for bytecode: to compile all sources takes a process seconds."""
    environment = dict(os.environ)
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        place = Path(tempfile.gettempdir(), f"coatcheck-bytecode-{os.getuid()}")
        place.mkdir(mode=0o700, exist_ok=True)
        environment["PYTHONPYCACHEPREFIX"] = str(place)
    return environment


class Process:
    """One worker process, with a log."""

    def __init__(self, folder: Path, *orders: Orders) -> None:
        """Start it; with several orders it becomes a process for each, and a parent that ends after them."""
        self._count = len(orders)
        self._log = folder / f"worker-{time.monotonic_ns()}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, json.dumps([asdict(each) for each in orders])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment(),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it, and its children, if it runs; say what it said if something went wrong."""
        if self.exit_code is None or self._count > 1:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.let_go()
        if error is not None:
            error.add_note(f"the worker process said:\n{self.log}")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def lines_with(self, pattern: str) -> list[str]:
        """Return the lines of its log in which the pattern is, in upper or lower case: a failed test shows them."""
        return [line for line in self.log.splitlines() if re.search(pattern, line, re.IGNORECASE)]

    @property
    def works(self) -> bool:
        """Whether it has begun to work, with all its orders; raises `ChildProcessError` if it has ended."""
        if self.exit_code is not None:
            message = f"the worker process has ended with exit code {self.exit_code}"
            raise ChildProcessError(message)
        return self.log.count(" works for ") == self._count

    @property
    def exit_code(self) -> int | None:
        """How it ended, minus the signal's number if by a signal; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def let_go(self) -> None:
        """Let it go on where it holds."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for its end and return how it ended."""
        return self._process.wait(seconds)


@contextlib.contextmanager
def between_writes(database: Path) -> Iterator[None]:
    """Let no process be in the middle of a write: a stopped one would lock the whole file for everybody."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=PATIENCE_SECONDS)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hold(key: str) -> None:
    """Block as if this process were stopped here, until the parent lets go."""
    print(f"{key} holds", flush=True)  # noqa: T201 - for the parent
    os.read(0, 1)


def _handler(orders: Orders, key: str) -> GiteeOcr:
    if not orders.handlers[key]:
        return handler_of(orders.provider_url, kind=CancellingOcr, key=key)
    act, point = orders.handlers[key].split()
    return StagedOcr(
        orders.provider_url, key=key, at=point, act=_kill if act == "kill" else partial(_hold, key)
    )


@frozen
class LaterClock:
    """The host's clock, some time later."""

    by: timedelta

    def now(self) -> datetime:
        """Return the time, cut to the millisecond."""
        return SystemClock().now() + self.by


async def _work(orders: Orders) -> None:
    settings = {name: timedelta(seconds=seconds) for name, seconds in orders.worker.items()}
    clock = LaterClock(timedelta(minutes=orders.minutes_later))
    store = create_store(orders.store_url, clock=clock)
    app = App(store, [_handler(orders, key) for key in orders.handlers], retry=QUICK)
    async with app, asyncio.TaskGroup() as group:
        worker = app.worker(**settings)  # type: ignore[arg-type]  # none of them is a budget
        group.create_task(worker.run())
        for name in orders.submits:
            one = Submission(params=document(orders.provider_url, name), tracking_timeout=HOUR)
            await app.manager.submit_many([one])


def _main(orders: list[Orders]) -> None:
    # a process that was stopped must find its calls as it left them, and not give them up for being late
    coatcheck.calling.GIVE_UP_GRACE_SECONDS = 600.0
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    create_store(orders[0].store_url)  # forked processes have its modules, which take a second to import
    children = []
    for each in orders[1:]:
        child = os.fork()
        if not child:
            asyncio.run(_work(each))
            return
        children.append(child)
    asyncio.run(_work(orders[0]))
    for child in children:
        os.kill(child, signal.SIGTERM)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(codes, key=abs, default=0))


if __name__ == "__main__":
    _main([Orders(**each) for each in json.loads(sys.argv[1])])
