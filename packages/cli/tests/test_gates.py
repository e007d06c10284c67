import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck import App, Gate, Rate
from coatcheck_cli.gate_names import check_name
from coatcheck_cli.gate_rows import rate_text
from coatcheck_cli.main import main

MODULE = """
from attrs import frozen
from coatcheck import App, Gate, Rate
from coatcheck.testing import ScriptedHandler

@frozen
class Order:
    name: str

class Modest(ScriptedHandler[Order]):
    def suggested_gates(self):
        return [Gate(name="provider/shop%3Aone", rate=Rate(2)), Gate(name="query/shop%3Aone", rate=Rate(7))]

one = Modest("shop:one", Order)
app = App("memory://", [one])
"""
GATE = "provider/shop%3Aone"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration of two gates on SQLite, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "gates_shop.py").write_text(MODULE)
    (tmp_path / "coatcheck.toml").write_text(
        f'store = "sqlite:///{tmp_path}/jobs.db"\n'
        '[handlers."shop:one"]\nuse = "gates_shop:one"\n'
        f'[gates."{GATE}"]\nconcurrency = 4\nrate = "10/30s"\n'
        "[gates.'tenant/acme']\nconcurrency = 2\n"
    )
    sys.modules.pop("gates_shop", None)
    return tmp_path


def gates(*arguments: str) -> Result:
    """Call the command."""
    return CliRunner().invoke(main, ["gates", *arguments])


def told(*arguments: str) -> list[dict[str, object]]:
    """Call a command that prints a JSON array."""
    result = gates(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


pytestmark = pytest.mark.usefixtures("shop")


def test_a_gate_is_limited_listed_and_shown_with_its_history() -> None:
    """What is set is in the list, in stable columns, and in the history with who and why."""
    assert gates("list").stdout == ""
    assert "there are no gates" in gates("list").stderr
    result = gates("set", GATE, "--rate", "5/s", "--who", "ada", "--reason", "contract")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{GATE}: rate 5/s (before: no such gate)\n"
    gates("set", GATE, "--concurrency", "3")
    lines = gates("list").stdout.splitlines()
    assert lines[0].split("\t") == [
        "name", "concurrency", "used", "rate", "granted", "paused", "until", "reason", "who",
    ]  # fmt: skip
    assert lines[1].split("\t")[:6] == [GATE, "3", "0", "5/s", "0", "no"]
    shown = gates("show", GATE)
    assert "concurrency  3" in shown.stdout
    assert "LIMITED\tada\tcontract\t1\t\t5/s\tno" in shown.stdout
    document = json.loads(gates("show", GATE, "--json").stdout)
    assert [each["rate"] for each in document["history"]] == ["5/s", "5/s"]
    assert document["history"][1]["who"] not in {"ada", ""}


def test_limits_that_are_not_mentioned_stay() -> None:
    """One limit is taken away without the other, and a pause stays."""
    gates("set", GATE, "--concurrency", "3", "--rate", "100/m")
    gates("pause", GATE, "--reason", "x")
    gates("set", GATE, "--no-concurrency")
    (row,) = told("list")
    assert (row["concurrency"], row["rate"], row["paused"]) == (None, "100/m", True)
    assert "no limits (before: rate 100/m)" in gates("set", GATE, "--no-rate").stderr


def test_a_gate_is_paused_and_resumed() -> None:
    """A pause says why, by whom and until when; resuming twice is fine."""
    result = gates("pause", GATE, "--reason", "maintenance", "--for", "30m", "--who", "ada")
    assert result.exit_code == 0
    (row,) = told("list")
    assert (row["paused"], row["reason"], row["who"]) == (True, "maintenance", "ada")
    until = datetime.fromisoformat(str(row["until"]))
    assert timedelta(minutes=20) < until - datetime.now(UTC) <= timedelta(minutes=31)
    assert "lasts longer" in gates("pause", GATE, "--reason", "short", "--for", "1m").stderr
    assert "lasts longer" not in gates("pause", GATE, "--reason", "for good").stderr
    assert "is open again" in gates("resume", GATE).stderr
    again = gates("resume", GATE)
    assert (again.exit_code, again.stderr) == (0, f"{GATE} is not paused\n")


def test_a_pause_ends_at_an_instant() -> None:
    """--until takes ISO 8601, with a zone or without one."""
    for text in ("2999-01-01T08:00:00Z", "2999-01-01T08:00:00+02:00", "2999-01-01T08:00"):
        gates("resume", GATE)
        assert gates("pause", GATE, "--reason", "x", "--until", text).exit_code == 0
        (row,) = told("list")
        wanted = datetime.fromisoformat(text).astimezone()
        assert abs(datetime.fromisoformat(str(row["until"])) - wanted) < timedelta(seconds=60)


def test_a_gate_is_deleted_and_its_history_stays() -> None:
    """Deleting has to be meant; afterwards the history is still shown."""
    gates("set", GATE, "--concurrency", "3")
    assert gates("delete", GATE).exit_code == 2
    assert len(told("list")) == 1
    assert gates("delete", GATE, "--yes", "--reason", "over").exit_code == 0
    document = json.loads(gates("show", GATE, "--json").stdout)
    assert document["defined"] is False
    assert document["history"][-1]["action"] == "DELETED"
    assert document["history"][-1]["reason"] == "over"


def test_configured_gates_reach_the_store_when_they_are_applied() -> None:
    """What changes is shown; a dry run changes nothing, a second run finds nothing to do, and pauses stay."""
    dry = told("apply", "--dry-run")
    assert [(row["name"], row["change"]) for row in dry] == [(GATE, "set"), ("tenant/acme", "set")]
    assert told("list") == []
    gates("set", "tenant/acme", "--concurrency", "9")
    gates("pause", "tenant/acme", "--reason", "unpaid")
    rows = told("apply")
    assert [(row["concurrency"], row["rate"], row["concurrency_before"]) for row in rows] == [
        (4, "10/30s", None),
        (2, None, 9),
    ]
    assert [row["change"] for row in told("apply")] == ["unchanged", "unchanged"]
    assert [row["paused"] for row in told("list")] == [False, True]
    assert "0 of 2 gates changed" in gates("apply").stderr


def test_suggested_gates_are_applied_where_there_are_none() -> None:
    """Handlers' suggestions never take the place of limits that somebody has set."""
    wanted = [(GATE, "set"), ("tenant/acme", "set"), ("query/shop%3Aone", "suggested")]
    for options in (["--dry-run"], []):
        rows = told("apply", "--suggested", *options)
        assert [(row["name"], row["change"]) for row in rows] == wanted
    assert {row["name"]: row["rate"] for row in told("list")} == {
        GATE: "10/30s", "query/shop%3Aone": "7/s", "tenant/acme": None,
    }  # fmt: skip


def test_an_app_in_code_has_suggestions_only() -> None:
    """Without a configuration there is nothing to apply but what handlers suggest."""
    runner = CliRunner()
    refused = runner.invoke(main, ["--app", "gates_shop:app", "gates", "apply"])
    assert refused.exit_code == 2
    rows = runner.invoke(main, ["--app", "gates_shop:app", "gates", "apply", "--suggested", "--json"])
    assert [row["change"] for row in json.loads(rows.stdout)] == ["suggested", "suggested"]


NAMES = [
    (["provider", "ocr:gitee"], "provider/ocr%3Agitee"),
    (["account", "ocr:gitee", "eu/west"], "account/ocr%3Agitee/eu%2Fwest"),
    (["tenant", "a b"], "tenant/a%20b"),
    (["query", "ocr:gitee"], "query/ocr%3Agitee"),
    (["breaker", "ocr:gitee", "x"], "breaker/ocr%3Agitee/x"),
]


@pytest.mark.parametrize(("parts", "name"), NAMES)
def test_names_are_built(parts: list[str], name: str) -> None:
    """The name of a gate is printed as `coatcheck.gates` builds it, and is taken."""
    assert gates("name", *parts).stdout == f"{name}\n"
    check_name(name)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(5), "5/s"),
        (Rate(100, timedelta(minutes=1)), "100/m"),
        (Rate(1, timedelta(hours=1)), "1/h"),
        (Rate(10, timedelta(seconds=30)), "10/30s"),
        (Rate(3, timedelta(milliseconds=1500)), "3/1500ms"),
        (None, None),
    ],
)
def test_rates_are_shown_as_they_are_written(rate: Rate | None, text: str | None) -> None:
    """A rate that is shown can be given to `gates set`."""
    assert rate_text(rate) == text


def test_a_gate_of_an_unusual_name_can_be_changed_if_it_is_there(tmp_path: Path) -> None:
    """Names that code has made are taken, however they look."""

    async def define() -> None:
        async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
            await app.manager.set_gate("provider", concurrency=1)

    asyncio.run(define())
    assert Gate(name="provider").name == "provider"
    assert gates("set", "provider", "--concurrency", "2").exit_code == 0


WRONG: dict[str, tuple[list[str], int]] = {
    "no command": (["lst"], 2),
    "a gate that is not there": (["show", GATE], 3),
    "resuming what is not there": (["resume", GATE], 3),
    "deleting what is not there": (["delete", GATE, "--yes"], 3),
    "nothing to set": (["set", GATE], 2),
    "a limit and none": (["set", GATE, "--concurrency", "1", "--no-concurrency"], 2),
    "a rate and none": (["set", GATE, "--rate", "1/s", "--no-rate"], 2),
    "concurrency 0": (["set", GATE, "--concurrency", "0"], 2),
    "concurrency in words": (["set", GATE, "--concurrency", "few"], 2),
    "a rate of nothing": (["set", GATE, "--rate", "0/s"], 2),
    "a rate without time": (["set", GATE, "--rate", "5"], 2),
    "a name put together by hand": (["set", "provider/shop:one", "--rate", "5/s"], 2),
    "a provider's name alone": (["pause", "provider", "--reason", "x"], 2),
    "an account without provider": (["pause", "account/eu", "--reason", "x"], 2),
    "an empty part": (["pause", "tenant/", "--reason", "x"], 2),
    "a name that begins with a slash": (["pause", "/x", "--reason", "x"], 2),
    "no reason": (["pause", GATE], 2),
    "an empty reason": (["pause", GATE, "--reason", " "], 2),
    "for and until": (["pause", GATE, "--reason", "x", "--for", "1m", "--until", "2999-01-01"], 2),
    "for no time": (["pause", GATE, "--reason", "x", "--for", "0s"], 2),
    "for a number": (["pause", GATE, "--reason", "x", "--for", "30"], 2),
    "until no time": (["pause", GATE, "--reason", "x", "--until", "tomorrow"], 2),
    "until the past": (["pause", GATE, "--reason", "x", "--until", "2001-01-01T00:00Z"], 2),
    "too few parts": (["name", "account", "ocr:gitee"], 2),
    "too many parts": (["name", "tenant", "a", "b"], 2),
    "a misspelt kind": (["name", "provder"], 2),
    "an empty part of a name": (["name", "tenant", ""], 2),
    "a kind with a slash": (["name", "a/b", "c"], 2),
    "no name": (["show"], 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_told_in_one_line(name: str) -> None:
    """What cannot be meant is refused, in one line, and changes nothing."""
    arguments, code = WRONG[name]
    result = gates(*arguments)
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
    assert told("list") == []
