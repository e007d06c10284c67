import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner

from coatcheck import App, Status, Submission, SubmitOptions
from coatcheck.testing import ScriptedHandler
from coatcheck_cli.logs import JsonLines, PlainLines
from coatcheck_cli.main import main

PATIENCE_SECONDS = 100.0
MODULE = """
import asyncio
from attrs import frozen
from coatcheck import App, SubmitResult
from coatcheck.testing import ScriptedHandler

@frozen
class Order:
    name: str

async def hang(params, context):
    open("hanging", "w").close()
    await asyncio.sleep(600)
    return SubmitResult.accepted("never")

one = ScriptedHandler("shop:one", Order)
two = ScriptedHandler("shop:two", Order)
slow = ScriptedHandler("shop:slow", Order, submit=[hang] * 10)
local = App("memory://", [one])
"""
HANDLERS = "\n".join(
    f'[handlers."shop:{name}"]\nuse = "worker_shop:{name}"' for name in ("one", "two", "slow")
)


@frozen
class Order:
    """What is submitted."""

    name: str


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration of three handlers on SQLite, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "worker_shop.py").write_text(MODULE)
    (tmp_path / "coatcheck.toml").write_text(f'store = "sqlite:///{tmp_path}/jobs.db"\n{HANDLERS}\n')
    sys.modules.pop("worker_shop", None)
    return tmp_path


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Running:
    """A worker command that runs."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log_file = folder / "log"
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coatcheck_cli", "worker", *options], cwd=folder, stderr=log
            )

    @property
    def log(self) -> str:
        """What it has said."""
        return self.log_file.read_text()

    def children(self) -> list[int]:
        """The processes that it has told of."""
        return [int(pid) for pid in re.findall(r"worker \d+ is process (\d+)", self.log)]

    def working(self, count: int) -> None:
        """Wait until so many workers have begun to work."""
        until(lambda: self.log.count(" works for ") >= count, f"{count} workers:\n{self.log}")

    def ended(self) -> int:
        """Wait for its end."""
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Running]:
    """Run the command, and leave none of its processes behind."""
    command = Running(folder, *options)
    try:
        yield command
    finally:
        for pid in [command.process.pid, *command.children()]:
            if runs(pid):
                os.kill(pid, signal.SIGKILL)
        command.process.wait()


async def submit(folder: Path, count: int, handler: str = "shop:one") -> list[str]:
    """Submit tasks from another process than the workers'."""
    options = SubmitOptions(handler_key=handler)
    hour = timedelta(hours=1)
    app = App(f"sqlite:///{folder}/jobs.db", [ScriptedHandler[Order](handler, Order)])
    async with app:
        orders = [
            Submission(params=Order(str(n)), tracking_timeout=hour, options=options) for n in range(count)
        ]
        return [task.id for task in await app.manager.submit_many(orders)]


async def statuses(folder: Path, ids: list[str]) -> set[Status]:
    """Wait for tasks; return how they ended."""
    app = App(f"sqlite:///{folder}/jobs.db")
    async with app:
        found = [await app.manager.wait(each, timedelta(seconds=PATIENCE_SECONDS)) for each in ids]
    return {task.status for task in found}


# ------------------------------------------------------------------ one process


@pytest.mark.timeout(240)
async def test_one_worker_works_shows_its_health_and_ends_with_0_at_sigterm(shop: Path) -> None:
    """A single process does the work, touches its file, answers at its port, and ends cleanly."""
    ids = await submit(shop, 3)
    with running(shop, "--health", "alive", "--health-port", "0", "--log-json") as command:
        command.working(1)
        assert await statuses(shop, ids) == {Status.SUCCEEDED}
        until((shop / "alive").exists, "the health file")
        port = re.findall(r"http://127.0.0.1:(\d+)/", command.log)[0]
        for path, expected in (("live", 200), ("ready", 200), ("else", 404)):
            assert _asked(f"http://127.0.0.1:{port}/{path}") == expected
        assert _asked(f"http://127.0.0.1:{port}/live", method="POST") == 405
        command.process.send_signal(signal.SIGTERM)
        assert command.ended() == 0
        assert not (shop / "alive").exists()
        told = [json.loads(line) for line in command.log.splitlines()]
        assert {"time", "level", "logger", "process", "message"} <= set(told[0])


def _asked(url: str, method: str = "GET") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.timeout(240)
async def test_a_worker_can_be_limited_to_some_handlers(shop: Path) -> None:
    """With --only, tasks of other handlers wait for other workers."""
    (left,) = await submit(shop, 1, "shop:two")
    ids = await submit(shop, 2)
    with running(shop, "--only", "shop:one") as command:
        assert await statuses(shop, ids) == {Status.SUCCEEDED}
        async with App(f"sqlite:///{shop}/jobs.db") as app:
            task = await app.manager.get(left)
        assert task is not None
        assert task.status is Status.PENDING_SUBMIT
        command.process.send_signal(signal.SIGINT)
        assert command.ended() == 0


# ------------------------------------------------------------------ several


@pytest.mark.timeout(300)
async def test_a_killed_worker_is_started_again_and_sigterm_ends_all_with_0(shop: Path) -> None:
    """Two processes survive kill -9 of one, do the work, and leave no process at the end."""
    with running(shop, "--processes", "2", "--health-port", "0", "--health", "alive") as command:
        command.working(2)
        first = command.children()[0]
        os.kill(first, signal.SIGKILL)
        until(lambda: len(command.children()) == 3, "a third process")
        command.working(3)
        assert f"(process {first}) was killed by SIGKILL; it is started again in 0.5s" in command.log
        assert await statuses(shop, await submit(shop, 5)) == {Status.SUCCEEDED}
        port = re.findall(r"http://127.0.0.1:(\d+)/", command.log)[0]
        until(lambda: _asked(f"http://127.0.0.1:{port}/ready") == 200, "all workers to be ready")
        until((shop / "alive").exists, "the joint health file")
        command.process.send_signal(signal.SIGTERM)
        assert command.ended() == 0, command.log
        assert not [pid for pid in command.children() if runs(pid)]
        assert not (shop / "alive").exists()
        assert "Traceback" not in command.log


@pytest.mark.timeout(240)
def test_workers_end_when_their_parent_is_killed(shop: Path) -> None:
    """A parent that is killed leaves no worker behind: they wind down by themselves."""
    with running(shop, "--processes", "2") as command:
        command.working(2)
        os.kill(command.process.pid, signal.SIGKILL)
        until(lambda: not any(runs(pid) for pid in command.children()), "the workers to end")
        until(lambda: command.log.count("has ended") == 2, "both to end cleanly")


@pytest.mark.timeout(240)
def test_workers_that_are_still_starting_are_stopped_cleanly(shop: Path) -> None:
    """A signal that comes before the first claim ends everything with 0, too."""
    with running(shop, "--processes", "2") as command:
        until(lambda: len(command.children()) == 2, "two processes")
        command.process.send_signal(signal.SIGTERM)
        assert command.ended() == 0
        assert "exit code" not in command.log
        assert not [pid for pid in command.children() if runs(pid)]


@pytest.mark.timeout(240)
async def test_a_second_signal_ends_all_workers_at_once(shop: Path) -> None:
    """The first signal waits for calls in flight, the second for nothing: 130, and no process is left."""
    await submit(shop, 1, "shop:slow")
    with running(shop, "--processes", "2", "--stop-timeout", "100s") as command:
        command.working(2)
        until((shop / "hanging").exists, "a call in flight")
        command.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping 2 workers" in command.log, "the first signal to be heard")
        command.process.send_signal(signal.SIGTERM)
        assert command.ended() == 130
        until(lambda: not any(runs(pid) for pid in command.children()), "the workers to be gone")


# ------------------------------------------------------------------ wrong input, and words


WRONG: dict[str, tuple[list[str], int]] = {
    "no processes": (["--processes", "0"], 2),
    "half a process": (["--processes", "1.5"], 2),
    "negative submissions": (["--submissions", "-1"], 2),
    "queries in words": (["--queries", "many"], 2),
    "no budget": (["--submissions", "0", "--queries", "0"], 2),
    "a bare number as lease": (["--lease", "60"], 2),
    "a call longer than the lease": (["--lease", "10s", "--call-timeout", "10s"], 2),
    "no poll interval": (["--poll-interval", "0s"], 2),
    "a poll interval without unit": (["--poll-interval", "fast"], 2),
    "a stop timeout of nothing known": (["--stop-timeout", "5 fortnights"], 2),
    "no lost leases": (["--max-lost-leases", "0"], 2),
    "a handler that is not there": (["--only", "shop:on"], 2),
    "a health file in no folder": (["--health", "nowhere/alive"], 2),
    "a folder as health file": (["--health", "."], 2),
    "a port out of range": (["--health-port", "70000"], 2),
    "a host of somebody else": (["--health-host", "192.0.2.1", "--health-port", "0"], 1),
    "a level that is none": (["--log-level", "loud"], 2),
    "an option that is none": (["--threads", "4"], 2),
    "an argument": (["now"], 2),
}


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_told_in_one_line(name: str) -> None:
    """What cannot be meant is refused before anything is started."""
    options, code = WRONG[name]
    result = CliRunner().invoke(main, ["worker", *options])
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1


@pytest.mark.usefixtures("shop")
def test_a_store_that_is_not_shared_takes_one_process() -> None:
    """Several processes on a store in memory would each have their own tasks."""
    result = CliRunner().invoke(main, ["--app", "worker_shop:local", "worker", "--processes", "2"])
    assert result.exit_code == 2
    assert "memory:// cannot be shared by 2 processes" in result.stderr


def test_a_store_that_is_away_ends_a_single_worker_with_6(shop: Path) -> None:
    """A single process says so and leaves the rest to whoever started it."""
    (shop / "coatcheck.toml").write_text(f'store = "sqlite:///{shop}/nowhere/jobs.db"\n{HANDLERS}\n')
    result = CliRunner().invoke(main, ["worker"])
    assert result.exit_code == 6
    assert "Traceback" not in result.stderr


def test_lines_have_the_time_with_its_zone() -> None:
    """People and programs get the time, the level, who says it, and what; an error with its trace."""
    try:
        raise ValueError("oh")  # noqa: TRY301 - for its trace
    except ValueError:
        trouble = sys.exc_info()
    record = logging.LogRecord("shop", logging.ERROR, "", 1, "no %s", ("coats",), trouble)
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d ERROR   shop\[\d+\]: no coats\n",
        PlainLines().format(record),
    )
    told = json.loads(JsonLines().format(record))
    assert (told["level"], told["logger"], told["message"]) == ("error", "shop", "no coats")
    assert "ValueError: oh" in told["error"]
