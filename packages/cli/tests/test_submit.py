"""`coatcheck submit`: from a command line to tasks, and waiting for them."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from attrs import define, field, frozen
from click.testing import CliRunner, Result

from coatcheck import App, InvalidParams, Selection, SubmitResult, Task
from coatcheck.testing import ScriptedHandler
from coatcheck_cli.commands.submit_params import form_of, with_member, written
from coatcheck_cli.main import main

if TYPE_CHECKING:
    from coatcheck.task import JSON

GENEROUS = 50.0
"""Seconds that a test waits at most; the machine may be loaded."""


@frozen(kw_only=True)
class Scan:
    """What is read."""

    url: str
    pages: str | None = None
    tables: bool | None = None
    languages: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Refuse what is no URL."""
        if not self.url.startswith("https://"):
            message = f"{self.url!r} is no https URL"
            raise InvalidParams(message)


@frozen(kw_only=True)
class Film:
    """What is made; all fields have defaults."""

    prompt: str = ""
    duration: timedelta | None = None


@frozen(kw_only=True)
class Sound:
    """Of another type than films."""

    text: str


@frozen
class Ping:
    """Nothing."""


class Picky(ScriptedHandler[Scan]):
    """Takes PNG only."""

    def validate(self, params: Scan) -> None:
        """Refuse all else."""
        if not params.url.endswith(".png"):
            message = f"{params.url!r} is no PNG"
            raise InvalidParams(message)


async def _last(selection: Selection) -> str:
    """Select the last handler."""
    return selection.candidates[-1]


@define
class Shop:
    """An app on disk, and the command that works on it."""

    place: Path
    handlers: list[Any] = field(factory=list)
    choose: Any = None

    def app(self) -> App:
        """Make the app anew, as each process does."""
        return App(f"sqlite:///{self.place}/jobs.db", self.handlers, selector=self.choose)

    def run(self, *words: str, given: str | bytes | None = None) -> Result:
        """Run the command on it."""
        return CliRunner().invoke(main, ["--app", "shop_of_submit:app", "submit", *words], input=given)

    def submitted(self, *words: str, given: str | None = None) -> list[Task]:
        """Run the command, and return the tasks whose ids it printed."""
        result = self.run(*words, given=given)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        tasks = {task.id: task for task in self.tasks()}
        return [tasks[task_id] for task_id in result.stdout.splitlines()]

    def params(self, *words: str) -> JSON:
        """Run the command, and return the stored params of its one task."""
        [task] = self.submitted(*words)
        assert isinstance(task.params, Mapping)
        return {name: value for name, value in task.params.items() if value not in (None, [], {})}

    def tasks(self) -> list[Task]:
        """Return all tasks."""

        async def find() -> list[Task]:
            async with self.app() as app:
                return await app.manager.find(limit=1000)

        return asyncio.run(find())

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have a worker in the background."""
        over = threading.Event()

        async def drain() -> None:
            async with self.app() as app:
                while not over.is_set():
                    await app.worker().drain()
                    await asyncio.sleep(0.02)

        thread = threading.Thread(target=asyncio.run, args=(drain(),))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(GENEROUS)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An app with two OCR handlers of which one is picky, a video and two audio handlers; a selector chooses."""
    handlers: list[Any] = [
        ScriptedHandler("ocr:eu", Scan),
        Picky("ocr:png", Scan),
        ScriptedHandler("video:x", Film),
        ScriptedHandler("audio:film", Film),
        ScriptedHandler("audio:text", Sound),
        ScriptedHandler("plain", Sound),
    ]
    made = Shop(tmp_path, handlers, _last)
    module = ModuleType("shop_of_submit")
    module.app = made.app  # type: ignore[attr-defined] # as a module of the user's has it
    monkeypatch.setitem(sys.modules, "shop_of_submit", module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return made


# ------------------------------------------------------------------ which handler


def test_a_key_names_the_handler(shop: Shop) -> None:
    """With and without a colon."""
    assert shop.submitted("ocr:eu", "https://e.com/a.pdf")[0].route.handler_key == "ocr:eu"
    assert shop.submitted("plain", "hello")[0].route.handler_key == "plain"


def test_a_kind_leaves_the_choice_to_the_selector(shop: Shop) -> None:
    """What stands before the colon tells the params type, and the app's selector does the rest."""
    assert shop.submitted("ocr", "https://e.com/a.png")[0].route.handler_key == "ocr:png"


def test_a_kind_with_one_handler_means_that_one(shop: Shop) -> None:
    """Another handler of the same params, under another kind, is not asked."""
    assert shop.submitted("video", "a boat")[0].route.handler_key == "video:x"


def test_several_handlers_and_no_selector_are_told(shop: Shop) -> None:
    """The message says what to write instead."""
    shop.choose = None

    result = shop.run("ocr", "https://e.com/a.png")

    assert result.exit_code == 2
    assert "ocr:eu, ocr:png; name one as KIND, or configure a selector" in result.stderr
    assert shop.tasks() == []


def test_an_app_without_handlers_says_what_to_install(shop: Shop) -> None:
    """The kinds that we know have a distribution."""
    shop.handlers = []

    assert "pip install coatcheck-handler-video" in shop.run("video", "x").stderr
    assert "pip install" not in shop.run("knitting", "x").stderr


# ------------------------------------------------------------------ params


def test_a_value_fills_the_first_field_without_a_default(shop: Shop) -> None:
    """For a film, which has none, the first field of all; --field names another."""
    assert shop.params("ocr:eu", "https://e.com/a.pdf") == {"url": "https://e.com/a.pdf"}
    assert shop.params("video", "a boat") == {"prompt": "a boat"}
    assert shop.params("video", "5s", "--field", "duration", "--option", "prompt=sea") == {
        "prompt": "sea",
        "duration": 5,
    }


def test_params_come_as_json_or_from_a_file_or_standard_input(shop: Shop, tmp_path: Path) -> None:
    """All three say the same; an array is as many tasks."""
    text = json.dumps({"url": "https://e.com/a.pdf", "tables": True})
    (tmp_path / "request.json").write_text(text, "utf-8")

    inline = shop.submitted("ocr:eu", "--params", text)
    filed = shop.submitted("ocr:eu", "--params", "@request.json")
    piped = shop.submitted("ocr:eu", "--params", "@-", given=text)
    many = shop.submitted("ocr:eu", "--params", f"[{text}, {text}]")

    assert [task.params for task in (*inline, *filed, *piped, *many)] == [inline[0].params] * 5
    assert inline[0].identity.params_digest == filed[0].identity.params_digest


def test_values_go_on_top_of_params(shop: Shop) -> None:
    """--params are what all have in common, and --option goes before them."""
    tasks = shop.submitted(
        "ocr:eu",
        "https://e.com/a.pdf",
        "https://e.com/b.pdf",
        "--params",
        '{"pages": "1-2", "tables": true}',
        "--option",
        "pages=3",
    )

    assert [(task.params["url"][-5:], task.params["pages"], task.params["tables"]) for task in tasks] == [  # type: ignore[index, call-overload]
        ("a.pdf", "3", True),
        ("b.pdf", "3", True),
    ]


def test_options_are_read_as_their_field_wants_them(shop: Shop) -> None:
    """Text stays text, lists may have commas, dots lead to members."""
    words = ["languages=en,de", "tables=yes", "pages=1-3", "options.model.size=2", "options.name=x"]

    assert shop.params(
        "ocr:eu", "https://e.com/a.pdf", *(each for word in words for each in ("--option", word))
    ) == {
        "url": "https://e.com/a.pdf",
        "languages": ["en", "de"],
        "tables": True,
        "pages": "1-3",
        "options": {"model": {"size": 2}, "name": "x"},
    }


def test_options_alone_make_one_task(shop: Shop) -> None:
    """No value is needed where an option fills the field."""
    assert shop.params("video", "--option", "prompt=sea") == {"prompt": "sea"}


def test_submit_options_have_options(shop: Shop) -> None:
    """Those of their own, and --option for the rest."""
    [task] = shop.submitted(
        "ocr:eu",
        "https://e.com/a.pdf",
        *("--account", "cn", "--tenant", "acme", "--priority", "-3", "--delay", "1m", "--dedup-key", "k"),
        *("--tracking-timeout", "2h", "--option", "metadata.customer=7", "--option", "idempotency_key=once"),
    )

    assert (task.route.account_id, task.route.tenant_id, task.schedule.priority) == ("cn", "acme", -3)
    assert task.schedule.scheduled_at - task.schedule.created_at == timedelta(minutes=1)
    assert task.schedule.deadline_at - task.schedule.created_at == timedelta(hours=2)
    assert (task.identity.dedup_key, task.identity.idempotency_key) == ("k", "once")
    assert task.metadata == {"customer": 7}
    [later] = shop.submitted(
        "ocr:eu", "https://e.com/a.pdf", "--option", "not_before=2090-01-01T00:00:00+00:00"
    )
    assert later.schedule.scheduled_at == datetime(2090, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------ many


def test_a_line_of_standard_input_is_a_task(shop: Shop) -> None:
    """Blank lines are skipped; ids come in the order of the lines, one a line."""
    given = "\ufeffhttps://e.com/1.pdf\r\n\n  https://e.com/2.pdf  \nhttps://e.com/3.pdf"

    tasks = shop.submitted("ocr:eu", "https://e.com/0.pdf", "-", given=given)

    assert [task.params["url"] for task in tasks] == [f"https://e.com/{number}.pdf" for number in range(4)]  # type: ignore[index, call-overload]


def test_wrong_lines_are_named_and_nothing_is_submitted(shop: Shop) -> None:
    """By number, with what is wrong, also what only the handler knows."""
    result = shop.run(
        "ocr:png", "-", given="https://e.com/1.png\nfile:///etc/passwd\n\nhttps://e.com/4.pdf\n"
    )

    assert result.exit_code == 2
    assert result.stdout == ""
    for told in (
        "line 2: params: 'file:///etc/passwd' is no https URL",
        "line 4: ",
        "is no PNG",
        "nothing was sub",
    ):
        assert told in result.stderr
    assert shop.tasks() == []


def test_many_wrong_lines_are_counted(shop: Shop) -> None:
    """Five are told, and how many more there are."""
    result = shop.run("ocr:eu", "-", given="x\n" * 9)

    assert "line 5" in result.stderr
    assert "line 6" not in result.stderr
    assert "and 4 more" in result.stderr


def test_a_refused_batch_is_not_half_submitted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the selector knows the handler, its refusal names the line, and what came of the others."""
    monkeypatch.setattr("coatcheck_cli.commands.submit_batches.BATCH", 2)
    names = ["1.png", "2.png", "3.png", "4.pdf", "5.png"]

    result = shop.run("ocr", "-", given="\n".join(f"https://e.com/{name}" for name in names))

    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == len(shop.tasks()) == 2
    assert "line 4: 'https://e.com/4.pdf' is no PNG; 2 of 5 were submitted" in result.stderr
    assert "from line 3 to line 4, and after it, none" in result.stderr


def test_a_dedup_key_gives_the_same_task_again(shop: Shop) -> None:
    """Also line by line, so that a list that was submitted in part can be submitted again."""
    words = ("ocr:eu", "https://e.com/a.png", "https://e.com/b.png", "--dedup-key", "scan-{value}")

    assert shop.submitted(*words) == shop.submitted(*words)
    assert {task.identity.dedup_key for task in shop.tasks()} == {
        "scan-https://e.com/a.png",
        "scan-https://e.com/b.png",
    }


def test_a_dedup_key_of_other_params_is_refused(shop: Shop) -> None:
    """The holder is named."""
    [task] = shop.submitted("ocr:eu", "https://e.com/a.png", "--dedup-key", "k")

    result = shop.run("ocr:eu", "https://e.com/b.png", "--dedup-key", "k")

    assert (result.exit_code, task.id in result.stderr) == (2, True)


def test_a_dedup_key_that_is_taken_is_told_by_line(shop: Shop) -> None:
    """Of many, the one that has the key; none of its batch is submitted."""
    shop.submitted("ocr:eu", "https://e.com/b.png", "--dedup-key", "https://e.com/b.png")
    words = ("ocr:eu", "-", "--dedup-key", "{value}", "--option", "tables=true")

    result = shop.run(*words, given="https://e.com/a.png\nhttps://e.com/b.png\n")

    assert result.exit_code == 2
    assert "line 2: " in result.stderr
    assert "nothing was submitted" in result.stderr
    assert len(shop.tasks()) == 1


def test_params_without_fields_take_no_value(shop: Shop) -> None:
    """They are submitted with --params alone."""
    shop.handlers = [ScriptedHandler("ping", Ping)]

    assert "no field that a value could fill" in shop.run("ping", "x").stderr
    assert shop.run("ping", "--params", "{}").exit_code == 0


def test_an_empty_list_is_no_error(shop: Shop) -> None:
    """Nothing is submitted, and it is said."""
    result = shop.run("ocr:eu", "-", given="\n \n")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "the input is empty" in result.stderr


def test_json_is_the_public_view(shop: Shop) -> None:
    """Without --wait as it was saved."""
    result = shop.run("ocr:eu", "https://e.com/a.png", "--json")

    assert json.loads(result.stdout) == shop.tasks()[0].public()


# ------------------------------------------------------------------ waiting


def _with_answers(shop: Shop, *answers: SubmitResult) -> None:
    shop.handlers = [ScriptedHandler("ocr:eu", Scan, submit=answers)]


def test_wait_prints_what_came_of_it(shop: Shop) -> None:
    """Changes go to standard error, line by line; the end to standard output, with the result as JSON."""
    _with_answers(shop, SubmitResult.succeeded({"text": "hello"}))

    with shop.working():
        result = shop.run("ocr", "https://e.com/a.png", "--wait", "--json", "--timeout", "50s")

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["status"], document["result"]) == ("SUCCEEDED", {"text": "hello"})
    assert f"submitted {document['id']}" in result.stderr
    assert f"{document['id']} SUCCEEDED" in result.stderr
    assert "\r" not in result.output
    assert "\x1b" not in result.output


def test_wait_exits_by_how_tasks_ended(shop: Shop) -> None:
    """4 if one ended without a result, and it is said how many of how many."""
    _with_answers(shop, SubmitResult.failed("bad", "unreadable"), SubmitResult.succeeded({}))

    with shop.working():
        result = shop.run("ocr", "https://e.com/a.png", "https://e.com/b.png", "--wait", "--timeout", "50s")

    assert result.exit_code == 4
    assert result.stdout.splitlines()[0] == "id\tstatus\terror"
    assert "1 of 2 tasks ended without a result" in result.stderr


def test_wait_stops_when_its_time_is_over(shop: Shop) -> None:
    """5; many ids are counted rather than told one by one, and all are in the table."""
    result = shop.run("ocr:eu", "-", "--wait", "--timeout", "10ms", given="https://e.com/a.png\n" * 22)

    assert result.exit_code == 5
    assert result.stderr.count("submitted 0") == 20
    assert "submitted 22 tasks in all" in result.stderr
    assert len(result.stdout.splitlines()) == 23


_PROGRAM = """
import sys
from attrs import frozen
from coatcheck import App, SubmitResult
from coatcheck.testing import ScriptedHandler

@frozen
class Scan:
    url: str

def app():
    answers = [SubmitResult.succeeded({"n": 1})] * 2
    return App("sqlite:///jobs.db", [ScriptedHandler("ocr:eu", Scan, submit=answers)])
"""
_COMMAND = (sys.executable, "-c", "from coatcheck_cli.main import main; main()", "--app", "shop_on_disk:app")


def _in_terminal(folder: Path, words: Sequence[str], columns: int, typed: bytes = b"") -> tuple[int, str]:
    """Run the command in a terminal; return its exit code and all that it drew."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with subprocess.Popen(
        [*_COMMAND, *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, typed)
        drawn = b""
        try:
            while part := os.read(ours, 65536):
                drawn += part
        except OSError:  # the other end is closed
            pass
        code = process.wait(GENEROUS)
    os.close(ours)
    return code, drawn.decode("utf-8", "replace")


def test_in_a_terminal_progress_is_drawn(tmp_path: Path) -> None:
    """A line for each task and one for all, which move; the table of the end stays."""
    (tmp_path / "shop_on_disk.py").write_text(_PROGRAM, "utf-8")
    shop = Shop(tmp_path, [ScriptedHandler("ocr:eu", Scan, submit=[SubmitResult.succeeded({})] * 2)])
    # the worker of this process has its own class of params; both store the same JSON
    with shop.working():
        words = ["submit", "ocr", "https://e.com/a.png", "https://e.com/b.png", "--wait", "--timeout", "50s"]
        code, drawn = _in_terminal(tmp_path, words, 120)

    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)
    assert code == 0, plain
    assert "2 of 2 have ended" in plain
    assert plain.count("submitted ") == 2
    assert "\x1b[?25h" in drawn  # the cursor is back
    assert "SUCCEEDED" in plain.splitlines()[-1]


def test_in_a_terminal_lists_and_questions_are_for_people(tmp_path: Path) -> None:
    """Ages instead of times, fewer columns where there is less room, and a question before what cannot be undone."""
    (tmp_path / "shop_on_disk.py").write_text(_PROGRAM, "utf-8")
    Shop(tmp_path, [ScriptedHandler("ocr:eu", Scan)]).app()
    code, drawn = _in_terminal(tmp_path, ["submit", "ocr", "https://e.com/a.png"], 100)
    assert code == 0

    _, narrow = _in_terminal(tmp_path, ["tasks", "list"], 100)
    _, wide = _in_terminal(tmp_path, ["tasks", "list"], 200)
    code, asked = _in_terminal(tmp_path, ["tasks", "abandon", drawn.strip()], 100, b"n\n")

    assert "queries" not in narrow
    assert "external_id" in wide
    assert " ago" in narrow
    assert (code, "for good?" in asked, "nothing was changed" in asked) == (1, True, True)


# ------------------------------------------------------------------ wrong input

URL = "https://e.com/a.png"
WRONG: dict[str, tuple[list[str], str]] = {
    "no kind": ([], "Missing argument"),
    "no such kind": (["ocrr", URL], "did you mean 'ocr'"),
    "no such handler": (["ocr:us", URL], "no handler 'ocr:us'"),
    "a kind of several types": (["audio", "x"], "audio:film (Film), audio:text (Sound)"),
    "nothing": (["ocr"], "nothing to submit"),
    "no URL": (["ocr:eu", "a.png"], "'a.png' is no https URL"),
    "no JSON": (["ocr:eu", "--params", "{url: 1}"], "--params is not JSON"),
    "no JSON number": (["ocr:eu", "--params", '{"url": NaN}'], "NaN"),
    "no object": (["ocr:eu", "--params", "7"], "one is int"),
    "nested without end": (["ocr:eu", "--params", "[" * 200_000], "--params is not JSON"),
    "no such file": (["ocr:eu", "--params", "@missing.json"], "'missing.json' cannot be read"),
    "a folder": (["ocr:eu", "--params", "@."], "cannot be read"),
    "a field missing": (["ocr:eu", "--params", "{}"], "params.url: is required and missing"),
    "a field too many": (["ocr:eu", "--params", f'{{"url": "{URL}", "page": 1}}'], "no field 'page'"),
    "a field of another type": (["ocr:eu", "--params", '{"url": 1}'], "params.url: expected str"),
    "several params and values": (["ocr:eu", URL, "--params", "[{}, {}]"], "not both"),
    "no such field": (["ocr:eu", URL, "--field", "ulr"], "did you mean 'url'"),
    "a field for nothing": (["ocr:eu", "--params", "{}", "--field", "url"], "there are none"),
    "no such option": (["ocr:eu", URL, "--option", "page=1"], "did you mean 'pages'"),
    "an option without a value": (["ocr:eu", URL, "--option", "pages"], "name=value"),
    "an option without a name": (["ocr:eu", URL, "--option", "options..x=1"], "name=value"),
    "an option of another type": (["ocr:eu", URL, "--option", "tables=maybe"], "params.tables: expected"),
    "the handler as an option": (["ocr", URL, "--option", "handler_key=ocr:eu"], "as KIND"),
    "a submit option of another type": (["ocr:eu", URL, "--option", "metadata=1"], "options.metadata"),
    "no priority": (["ocr:eu", URL, "--priority", "high"], "--priority"),
    "a priority beyond 32 bits": (["ocr:eu", URL, "--priority", "9999999999"], "32-bit"),
    "no time": (["ocr:eu", URL, "--tracking-timeout", "0s"], "0s"),
    "a timeout without waiting": (["ocr:eu", URL, "--timeout", "1s"], "--wait"),
    "delayed twice": (
        ["ocr:eu", URL, "--delay", "1m", "--option", "not_before=2030-01-01T00:00Z"],
        "not both",
    ),
    "a delay of a life": (["ocr:eu", URL, "--delay", "99999d"], "delay"),
    "a blank tenant": (["ocr:eu", URL, "--tenant", " "], "tenant_id"),
    "one dedup key for two": (["ocr:eu", URL, URL, "--dedup-key", "k"], "for one task, not 2"),
    "a dedup key of no value": (["ocr:eu", "--params", "{}", "--dedup-key", "{value}"], "stands for a value"),
    "standard input twice": (["ocr:eu", "-", "-"], "named twice"),
    "no provider of that key": (["ocr", URL, "--option", "provider_key=x"], "no handler takes Scan"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_clear_line(shop: Shop, name: str) -> None:
    """It goes to standard error, nothing is submitted, and there is no traceback."""
    words, told = WRONG[name]

    result = shop.run(*words)

    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert told in last
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert shop.tasks() == []


def test_input_that_is_no_text_is_told_by_line(shop: Shop) -> None:
    """The line is where the text ends."""
    result = shop.run("ocr:eu", "-", given=b"https://e.com/a.png\n\xff\xfe\n")

    assert (result.exit_code, "from line 2 on" in result.stderr) == (2, True)


def test_a_file_that_is_no_text_is_told(shop: Shop, tmp_path: Path) -> None:
    """Like one that is not there."""
    (tmp_path / "request.json").write_bytes(b"\xff")

    assert "not text in UTF-8" in shop.run("ocr:eu", "--params", "@request.json").stderr


# ------------------------------------------------------------------ what text means


class Size(StrEnum):
    """Text."""

    BIG = "big"


class Level(IntEnum):
    """Numbers."""

    ONE = 1


READ: list[tuple[str, object, object]] = [
    ("12", str, "12"),
    ("12", int, 12),
    ("1.5", float, 1.5),
    ("12", str | None, "12"),
    ("null", str | None, "null"),
    ("null", int | None, None),
    ("Yes", bool, True),
    ("off", bool | None, False),
    ("true", bool, True),
    ("maybe", bool, "maybe"),
    ("1m30s", timedelta, 90.0),
    ("7", timedelta, 7),
    ("big", Size, "big"),
    ("1", Level, 1),
    ("2030-01-01", date, "2030-01-01"),
    ("1.20", Decimal, "1.20"),
    ("a, b", tuple[str, ...], ["a", "b"]),
    ("1,2", list[int], [1, 2]),
    ('["a,b"]', tuple[str, ...], ["a,b"]),
    ("a", frozenset[str], ["a"]),
    ('{"a": 1}', Mapping[str, object], {"a": 1}),
    ("word", object, "word"),
    ("0", object, 0),
    ("00000000-0000-0000-0000-000000000000", UUID, "00000000-0000-0000-0000-000000000000"),
]


@pytest.mark.parametrize(("text", "hint", "expected"), READ)
def test_text_is_read_as_its_field_wants_it(text: str, hint: object, expected: object) -> None:
    """What comes out is the JSON of stored params."""
    assert written(text, hint) == expected


def test_forms_of_all_data_classes() -> None:
    """attrs, dataclasses, and what has fields like a pydantic model; hints that cannot be resolved fit everything."""

    @dataclasses.dataclass
    class Plain:
        name: str = ""
        size: int = dataclasses.field(kw_only=True)
        tags: list[str] = dataclasses.field(default_factory=list)

    @frozen
    class Vague:
        thing: Missing  # type: ignore[name-defined] # noqa: F821 - only a type checker knows it

    class Info:
        def __init__(self, alias: str | None, *, needed: bool) -> None:
            self.alias, self.needed = alias, needed

        def is_required(self) -> bool:
            return self.needed

    class Model:
        __pydantic_fields__ = {"one": Info(None, needed=False), "two": Info("zwei", needed=True)}  # noqa: RUF012 - as pydantic has it

    assert (form_of(Plain).first, list(form_of(Plain).hints)) == ("size", ["name", "size", "tags"])
    assert form_of(Vague).hints == {"thing": object}
    assert (form_of(Model).first, list(form_of(Model).hints)) == ("zwei", ["one", "zwei"])
    assert form_of(int).first is None


def test_members_are_set_on_the_way() -> None:
    """Objects are made where there are none, and others stay as they were."""
    before = {"a": {"b": 1}, "c": 2}

    assert with_member(before, ["a", "d", "e"], 3) == {"a": {"b": 1, "d": {"e": 3}}, "c": 2}
    assert with_member(before, ["c", "x"], 3) == {"a": {"b": 1}, "c": {"x": 3}}
    assert before == {"a": {"b": 1}, "c": 2}
