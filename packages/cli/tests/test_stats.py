import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner

from coatcheck import App, SubmitOptions
from coatcheck.testing import ScriptedHandler
from coatcheck_cli.main import main

PATIENCE_SECONDS = 60.0


@frozen
class Order:
    """What is submitted."""

    name: str


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and a store with four tasks of two handlers, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coatcheck.toml").write_text(f'store = "sqlite:///{tmp_path}/jobs.db"\n')

    async def fill() -> None:
        handlers = [ScriptedHandler[Order](key, Order) for key in ("shop:one", "shop:two")]
        async with App(f"sqlite:///{tmp_path}/jobs.db", handlers) as app:
            for key, priority in (("shop:one", 0), ("shop:one", 0), ("shop:one", 5), ("shop:two", 0)):
                await app.manager.submit(
                    Order("coat"),
                    tracking_timeout=timedelta(hours=1),
                    options=SubmitOptions(handler_key=key, priority=priority),
                )
            await app.worker(submissions=1, queries=0).run_once()

    asyncio.run(fill())
    return tmp_path


def watching(folder: Path, *options: str, **how: int) -> subprocess.Popen[bytes]:
    """Start `stats --watch`, as from a terminal: one that is started in the background would not hear Ctrl-C."""
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # one that is ignored would be so there, too
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "coatcheck_cli", "stats", "--watch", *options],
            cwd=folder,
            stdout=how.get("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("shop")
def test_counts_are_told_by_handler_and_status() -> None:
    """A row a handler, one for all, the queue by priority, and what else there is."""
    result = CliRunner().invoke(main, ["stats"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split("\t") == [
        "handler", "PENDING_SUBMIT", "SUBMITTING", "SUBMITTED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED",
        "TRACKING_TIMED_OUT", "SUBMIT_UNKNOWN", "total",
    ]  # fmt: skip
    assert [line.split("\t")[0] for line in lines[1:4]] == ["shop:one", "shop:two", "all"]
    assert lines[3].split("\t")[1:] == ["3", "0", "1", "0", "0", "0", "0", "0", "0", "4"]
    assert "priority\twaiting\tlongest_wait" in lines
    assert "set_aside          0" in lines


@pytest.mark.usefixtures("shop")
def test_programs_get_all_of_it() -> None:
    """JSON has every number, durations in seconds."""
    document = json.loads(CliRunner().invoke(main, ["stats", "--json"]).stdout)
    assert document["handlers"][0]["handler"] == "shop:one"
    assert document["handlers"][0]["by_status"]["SUBMITTED"] == 1
    assert document["queue"][0]["longest_wait"] >= 0
    assert {"now", "oldest_submitting", "query_lateness", "unattended", "set_aside"} <= set(document)


def test_an_empty_store_has_nothing_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tasks are no error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COATCHECK_STORE__URL", "memory://")
    result = CliRunner().invoke(main, ["stats"])
    assert result.exit_code == 0
    assert "there are no tasks" in result.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("as_json", [False, True])
def test_watching_prints_a_line_each_time_and_ends_with_0(shop: Path, *, as_json: bool) -> None:
    """Without a terminal nothing moves: lines, until Ctrl-C, which is no error."""
    process = watching(shop, "0.2", *(["--json"] if as_json else []))
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline().decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, b"")
    assert b"\r" not in rest
    assert b"\x1b" not in rest
    if as_json:
        assert [len(json.loads(line)["handlers"]) for line in lines] == [2, 2, 2]
    else:
        assert all("PENDING_SUBMIT=3 SUBMITTING=0 SUBMITTED=1" in line for line in lines)
        assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d ", line) for line in lines)


@pytest.mark.timeout(180)
def test_watching_draws_in_place_in_a_terminal(shop: Path) -> None:
    """In a terminal one table is drawn again and again, and stays there at the end."""
    ours, theirs = pty.openpty()
    process = watching(shop, "0.2", stdout=theirs)
    os.close(theirs)
    seen = b""
    with process:
        ends = time.monotonic() + PATIENCE_SECONDS
        while seen.count(b"shop:two") < 2 and time.monotonic() < ends:
            seen += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        _drained(ours, process.poll, ends)
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(ours)
    assert b"\x1b[" in seen
    assert seen.count(b"shop:two") >= 2


def _drained(terminal: int, ended: Callable[[], int | None], ends: float) -> None:
    """Read on, so that what writes is not held up."""
    os.set_blocking(terminal, False)
    while ended() is None and time.monotonic() < ends:
        try:
            os.read(terminal, 65_536)
        except OSError:
            time.sleep(0.02)


WRONG: dict[str, tuple[list[str], str | None, int]] = {
    "no interval": (["stats", "--watch", "0"], None, 2),
    "an interval below zero": (["stats", "--watch=-1"], None, 2),
    "an interval in words": (["stats", "--watch", "often"], None, 2),
    "an interval of two": (["stats", "--watch", "1 2"], None, 2),
    "an interval without number": (["stats", "--watch", "s"], None, 2),
    "an interval for ever": (["stats", "--watch", "9" * 30], None, 2),
    "a table that is none": (["stats", "queue"], None, 2),
    "an option that is none": (["stats", "--yaml"], None, 2),
    "a misspelt command": (["stat"], None, 2),
    "two places": (["--config", "a.toml", "--app", "a:b", "stats"], None, 2),
    "a file that is not there": (["--config", "nowhere.toml", "stats"], None, 2),
    "a module that is not there": (["--app", "nowhere_at_all:app", "stats"], None, 2),
    "a reference without colon": (["--app", "shop", "stats"], None, 2),
    "a thing that is no app": (["--app", "os:sep", "stats"], None, 2),
    "a store that nobody serves": (["stats"], "papyrus://x", 2),
    "a store that is no URL": (["stats"], "jobs.db", 2),
    "a folder that is not there": (["stats"], "sqlite:///nowhere/jobs.db", 6),
    "a folder that is not there, watched": (["stats", "--watch"], "sqlite:///nowhere/jobs.db", 6),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_told_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be meant is refused, in one line."""
    monkeypatch.chdir(tmp_path)
    arguments, url, code = WRONG[name]
    monkeypatch.setenv("COATCHECK_STORE__URL", url or "memory://")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
