"""`coatcheck tasks`: what operators see of tasks, and what they can decide."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
from attrs import define, field, frozen
from click.testing import CliRunner, Result

from coatcheck import App, QueryParams, SubmitOptions, SubmitResult, Task, create_store
from coatcheck.testing import ManualClock, ScriptedHandler
from coatcheck_cli.commands.tasks_texts import masked, one_line, since, summary
from coatcheck_cli.main import main

T = TypeVar("T")
HOUR = timedelta(hours=1)
LOST = "the connection was reset"


@frozen
class Scan:
    """What is read."""

    url: str
    pages: int | None = None
    api_key: str = ""


@define
class Shop:
    """An app on disk, and the command that works on it."""

    place: Path
    clock: ManualClock = field(factory=ManualClock)
    handler: ScriptedHandler[Scan] = field(factory=lambda: ScriptedHandler("ocr:eu", Scan))

    def app(self) -> App:
        """Make the app anew, as each process does."""
        store = create_store(f"sqlite:///{self.place}/jobs.db", clock=self.clock)
        return App(store, [self.handler])

    def run(self, *words: str) -> Result:
        """Run the command on it."""
        return CliRunner().invoke(main, ["--app", "shop_of_tasks:app", *words])

    def data(self, *words: str) -> Any:
        """Run the command, and read the JSON that it prints."""
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def submit(
        self, *names: str, timeout: timedelta = HOUR, options: SubmitOptions | None = None
    ) -> list[str]:
        """Submit scans, and return the ids."""

        async def work(app: App) -> list[str]:
            tasks = [
                await app.manager.submit(
                    Scan(f"https://e.com/{name}.png?sig=geheim", api_key="geheim"),
                    tracking_timeout=timeout,
                    options=options,
                )
                for name in names
            ]
            return [task.id for task in tasks]

        return self.within(work)

    def work(self) -> None:
        """Do what is due."""

        async def drain(app: App) -> None:
            await app.worker().drain()

        self.within(drain)

    def task(self, task_id: str) -> Task:
        """Return a task as it is now."""

        async def get(app: App) -> Task:
            task = await app.manager.get(task_id)
            assert task is not None
            return task

        return self.within(get)

    def within(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run something with the app, open."""

        async def opened() -> T:
            async with self.app() as app:
                return await work(app)

        return asyncio.run(opened())

    def lose(self, count: int = 1) -> list[str]:
        """Return the ids of tasks that are SUBMIT_UNKNOWN."""
        self.handler._submit.extend(ConnectionResetError(LOST) for _ in range(count))
        ids = self.submit(*map(str, range(count)))
        self.work()
        return ids

    def late(self, *, sent: bool) -> str:
        """Return the id of a task that timed out, sent or not."""
        [task_id] = self.submit("late", timeout=timedelta(minutes=1))
        if sent:
            self.work()
        self.clock.advance(timedelta(minutes=2))
        self.work()
        return task_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An app that ``--app shop_of_tasks:app`` leads to; the terminal is wide, and nobody sits at it."""
    made = Shop(place=tmp_path)
    module = ModuleType("shop_of_tasks")
    module.app = made.app  # type: ignore[attr-defined] # as a module of the user's has it
    module.number = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_of_tasks", module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return made


# ------------------------------------------------------------------ list


def test_list_has_stable_columns(shop: Shop) -> None:
    """Without a terminal there is a line of names and one line a task, with tabs between."""
    lost, found = shop.lose(1)[0], shop.submit("b")[0]
    shop.work()

    result = shop.run("tasks", "list")

    head, *rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert head == [
        "id",
        "status",
        "handler",
        "attempts",
        "queries",
        "created",
        "due",
        "external_id",
        "error",
    ]
    assert [row[:5] for row in rows] == [
        [lost, "SUBMIT_UNKNOWN", "ocr:eu", "1", "0"],
        [found, "SUBMITTED", "ocr:eu", "1", "0"],
    ]
    assert rows[1][7] == "ocr:eu-1"
    assert LOST in rows[0][8]
    assert result.exit_code == 0


def test_list_of_nothing_says_so_beside_the_data(shop: Shop) -> None:
    """An empty list is no error: nothing on standard output, an empty array as JSON."""
    result = shop.run("tasks", "list")

    assert (result.stdout, result.stderr, result.exit_code) == ("", "no task fits\n", 0)
    assert shop.data("tasks", "list") == []


def test_list_filters(shop: Shop) -> None:
    """Each filter restricts, and several do together."""
    [lost] = shop.lose(1)
    options = SubmitOptions(tenant_id="acme", account_id="cn", dedup_key="k")
    [acme] = shop.submit("a", options=options)
    shop.clock.advance(3 * HOUR)
    [young] = shop.submit("c")

    def ids(*words: str) -> list[str]:
        return [row["id"] for row in shop.data("tasks", "list", *words)]

    assert ids() == [lost, acme, young]
    assert ids("--status", "SUBMIT_UNKNOWN") == [lost]
    assert ids("--status", "submit_unknown", "--status", "PENDING_SUBMIT") == [lost, acme, young]
    assert ids("--handler", "ocr:eu", "--tenant", "acme") == [acme]
    assert ids("--handler", "ocr:us") == []
    assert ids("--account", "cn") == ids("--dedup-key", "k") == [acme]
    assert ids("--older-than", "2h") == [lost, acme]
    assert ids("--newer-than", "2h") == [young]
    assert ids("--created-before", "2030-01-01T02:00+00:00") == [lost, acme]
    assert ids("--created-after", "2030-01-01T02:00+00:00") == [young]
    assert ids("--external-id", "nothing") == []


def test_list_goes_by_pages(shop: Shop) -> None:
    """A page says how to go on, and --all has everything."""
    ids = shop.submit(*map(str, range(5)))

    first = shop.run("tasks", "list", "--limit", "2")
    second = shop.run("tasks", "list", "--limit", "3", "--after", ids[1])

    assert [line.split("\t")[0] for line in first.stdout.splitlines()[1:]] == ids[:2]
    assert f"--after {ids[1]}" in first.stderr
    assert [line.split("\t")[0] for line in second.stdout.splitlines()[1:]] == ids[2:]
    assert second.stderr == ""
    assert [row["id"] for row in shop.data("tasks", "list", "--limit", "1", "--all")] == ids


def test_list_all_has_more_than_a_page_of_the_store(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store gives in pages comes out whole."""
    monkeypatch.setattr("coatcheck_cli.commands.tasks_list.PAGE", 2)
    ids = shop.submit(*map(str, range(5)))

    assert [row["id"] for row in shop.data("tasks", "list", "--all")] == ids
    assert [row["id"] for row in shop.data("tasks", "list", "--limit", "3")] == ids[:3]


# ------------------------------------------------------------------ show


def test_show_tells_what_is_known_with_its_history(shop: Shop) -> None:
    """The task's fields come first, its transitions after them, in order; no credential is among them."""
    [task_id] = shop.lose(1)

    result = shop.run("tasks", "show", task_id)

    assert (
        "status             SUBMIT_UNKNOWN" in " ".join(result.stdout.split("  "))
        or "SUBMIT_UNKNOWN" in result.stdout
    )
    history = result.stdout.partition("history\n")[2]
    moves = [line.strip() for line in history.splitlines()]
    assert len(moves) == 3
    assert "PENDING_SUBMIT → SUBMITTING" in moves[1]
    assert "SUBMITTING → SUBMIT_UNKNOWN" in moves[2]
    assert "nobody knows what came of it" in result.stdout
    assert "https://e.com/0.png?sig=***" in result.stdout
    assert "geheim" not in result.stdout


def test_show_as_json_is_complete(shop: Shop) -> None:
    """--json has the result whole, whatever its length, and keeps what is named like a credential out of params."""
    shop.handler._submit.append(SubmitResult.succeeded({"text": "x" * 5000, "url": "https://e.com/?sig=abc"}))
    [done] = shop.submit("a")
    shop.work()
    [waiting] = shop.submit("b")

    document = shop.data("tasks", "show", done)
    pending = shop.data("tasks", "show", waiting)

    assert document["outcome"]["result"] == {"text": "x" * 5000, "url": "https://e.com/?sig=abc"}
    assert [entry["target"] for entry in document["history"]] == ["PENDING_SUBMIT", "SUBMITTING", "SUCCEEDED"]
    assert pending["params"] == {"url": "https://e.com/b.png?sig=***", "pages": None, "api_key": "***"}
    assert "settled_by" not in document
    text = shop.run("tasks", "show", done).stdout
    assert "characters in all; --json prints them" in text
    assert "x" * 700 not in text


def test_show_of_a_claimed_task_tells_who_has_it_and_hides_the_nonce(shop: Shop) -> None:
    """A lease is shown by its worker and its end; what would let somebody write in its name is not."""
    [task_id] = shop.submit("a")

    async def claim(app: App) -> None:
        await app.store.claim_submissions("worker-7", ["ocr:eu"], 1, timedelta(seconds=30))

    shop.within(claim)

    assert "worker-7 for 30s yet" in shop.run("tasks", "show", task_id).stdout
    assert "nonce" not in shop.data("tasks", "show", task_id)["lease"]
    shop.clock.advance(HOUR)
    assert "worker-7 and the lease has ended" in shop.run("tasks", "show", task_id).stdout


# ------------------------------------------------------------------ cancel, wait


def test_cancel_tells_of_each_task_what_came_of_it(shop: Shop) -> None:
    """A waiting task is cancelled at once, a submitted one asked for; once more changes nothing, and is fine."""
    [sent] = shop.submit("a")
    shop.work()
    [waiting] = shop.submit("b")

    first = shop.data("tasks", "cancel", sent, waiting)
    again = shop.data("tasks", "cancel", sent, waiting)

    assert [row["outcome"] for row in first] == ["asked for", "cancelled"]
    assert [row["outcome"] for row in again] == ["was asked for already", "was cancelled already"]


def test_cancel_of_what_has_ended_or_is_not_there_fails(shop: Shop) -> None:
    """The others are cancelled all the same; the exit code is of the worst."""
    shop.handler._submit.append(SubmitResult.succeeded({}))
    [done] = shop.submit("a")
    shop.work()
    [waiting] = shop.submit("b")

    ended = shop.run("tasks", "cancel", done)
    missing = shop.run("tasks", "cancel", "nope", done, waiting)

    assert (ended.exit_code, missing.exit_code) == (1, 3)
    assert "nope" in missing.stderr
    assert shop.task(waiting).status.value == "CANCELED"


def test_wait_exits_by_how_tasks_ended(shop: Shop) -> None:
    """0 if all succeeded, 4 if one ended otherwise, 5 if one has not ended, 3 if there is none."""
    shop.handler._submit += [SubmitResult.succeeded({"n": 1}), SubmitResult.failed("bad", "unreadable")]
    good, bad = shop.submit("a", "b")
    shop.work()
    [going] = shop.submit("c")

    results = {
        "good": shop.run("tasks", "wait", good),
        "bad": shop.run("tasks", "wait", good, bad),
        "going": shop.run("tasks", "wait", good, bad, going, "--timeout", "10ms"),
        "none": shop.run("tasks", "wait", "nope"),
    }

    assert {name: result.exit_code for name, result in results.items()} == {
        "good": 0,
        "bad": 4,
        "going": 5,
        "none": 3,
    }
    assert results["good"].stdout == f"id\tstatus\terror\n{good}\tSUCCEEDED\t\n"
    assert "unreadable" in results["bad"].stdout
    assert f"{good} SUCCEEDED" in results["good"].stderr
    assert "1 of 3 tasks are not at an end" in results["going"].stderr


def test_wait_prints_what_clients_may_see(shop: Shop) -> None:
    """--json is the public view of a task, one document for each, in the order in which they were named."""
    shop.handler._submit += [SubmitResult.succeeded({"n": 1}), SubmitResult.succeeded({"n": 2})]
    one, two = shop.submit("a", "b")
    shop.work()

    assert shop.data("tasks", "wait", one) == shop.task(one).public()
    both = shop.run("tasks", "wait", two, one, "--json").stdout
    assert both.index(two) < both.index(one)


def test_wait_asks_whether_a_worker_is_running(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for what nobody takes is told so, once."""
    monkeypatch.setattr("coatcheck_cli.commands.tasks_following.LONE_AFTER", 0.0)
    [task_id] = shop.submit("a")

    result = shop.run("tasks", "wait", task_id, "--timeout", "300ms")

    assert result.exit_code == 5
    assert result.stderr.count("coatcheck worker") == 1
    assert f"task {task_id} is not at an end" in result.stderr


# ------------------------------------------------------------------ the desk


def test_unknown_says_what_is_known_and_what_can_be_decided(shop: Shop) -> None:
    """Of a lost submission: when, by whom, the error, digest and key, where to look, and commands to paste."""
    [task_id] = shop.lose(1)
    task = shop.task(task_id)
    assert task.attempt is not None

    text = shop.run("tasks", "unknown").stdout

    for fact in (LOST, task.attempt.worker_id, task.identity.params_digest, task.identity.idempotency_key):
        assert fact in text
    assert "jobs at ocr:eu that were created between" in text
    assert "geheim" not in text
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("coatcheck ")]
    begin = "coatcheck --app shop_of_tasks:app tasks"
    assert commands == [
        f"{begin} adopt {task_id} EXTERNAL_ID",
        f"{begin} resubmit {task_id} --tracking-timeout 1h",
        f"{begin} abandon {task_id}",
    ]


def test_commands_of_the_desk_can_be_pasted(shop: Shop) -> None:
    """What the desk prints is what works: each choice of each case is accepted as it stands."""
    done = []
    makers: list[Callable[[], str]] = [
        lambda: shop.lose(1)[0],
        lambda: shop.late(sent=True),
        lambda: shop.late(sent=False),
    ]
    for make in makers:
        for index in range(len(_choices_of(shop, make()))):
            task_id = make()
            choice = _choices_of(shop, task_id)[index]
            words = shlex.split(choice["command"].replace("EXTERNAL_ID", "job-77"))[3:]
            yes = ["--yes"] if choice["choice"] in ("resubmit", "abandon") else []
            result = shop.run(*words, *yes)
            assert result.exit_code == 0, result.output
            done.append((choice["choice"], shop.task(task_id).status.value))
            shop.run("tasks", "cancel", task_id)
            shop.work()
    assert done == [
        ("adopt", "SUBMITTED"),
        ("resubmit", "PENDING_SUBMIT"),
        ("abandon", "FAILED"),
        ("extend", "SUBMITTED"),
        ("adopt", "SUBMITTED"),
        ("abandon", "FAILED"),
        ("extend", "PENDING_SUBMIT"),
        ("adopt", "SUBMITTED"),
        ("abandon", "FAILED"),
    ]


def _choices_of(shop: Shop, task_id: str) -> list[dict[str, str]]:
    [case] = [each for each in shop.data("tasks", "unknown", "--limit", "100") if each["id"] == task_id]
    found: list[dict[str, str]] = case["choices"]
    return found


def test_unknown_tells_what_handlers_keep_and_where_to_look(shop: Shop) -> None:
    """The names of other query params, the look-up that found nothing, and the key that the provider knows."""
    shop.handler = ScriptedHandler("ocr:eu", Scan, find=[], idempotency_window=timedelta(days=1))
    shop.handler._submit.append(SubmitResult.accepted("job-1", {"region": "eu"}))
    shop.submit("a", timeout=30 * HOUR)
    shop.work()

    async def lose(app: App) -> str:
        task = await app.manager.submit(Scan("https://e.com/b.png"), tracking_timeout=30 * HOUR)
        [claimed] = (await app.store.claim_submissions("w", ["ocr:eu"], 1, timedelta(seconds=9))).tasks
        await app.store.start([claimed], timedelta(seconds=9))
        return task.id

    task_id = shop.within(lose)
    shop.clock.advance(timedelta(days=1, hours=1))
    shop.work()
    [case] = [each for each in shop.data("tasks", "unknown") if each["id"] == task_id]

    assert "sent under the key" in case["look_at"]
    assert any("keeps: region" in remark for remark in case["remarks"])
    assert any("found nothing, which proves nothing" in remark for remark in case["remarks"])
    assert case["choices"][0]["command"].endswith("EXTERNAL_ID --param region=JSON")


def test_unknown_tells_until_when_sending_again_is_safe(shop: Shop) -> None:
    """Where the provider deduplicates, resubmitting within its window is no second charge."""
    [task_id] = shop.lose(1)
    shop.handler = ScriptedHandler("ocr:eu", Scan, idempotency_window=timedelta(days=1))

    [case] = shop.data("tasks", "unknown")

    assert case["id"] == task_id
    assert any("deduplicates on the key until" in remark for remark in case["remarks"])
    assert "without a second charge" in case["choices"][1]["when"]
    shop.clock.advance(timedelta(days=2))
    assert "it cannot come any more" in shop.run("tasks", "unknown").stdout


def test_commands_of_the_desk_name_the_same_configuration(shop: Shop) -> None:
    """Whoever gave --config finds it in what is to be pasted, quoted for a shell."""
    [task_id] = shop.lose(1)
    config = shop.place / "my shop.toml"
    config.write_text(f'[store]\nurl = "sqlite:///{shop.place}/jobs.db"\n', "utf-8")

    result = CliRunner().invoke(main, ["--config", str(config), "tasks", "unknown"])

    assert result.exit_code == 0, result.output
    assert f"coatcheck --config '{config}' tasks abandon {task_id}" in result.stdout


def test_unknown_counts_attempts(shop: Shop) -> None:
    """A task that was sent again, and lost again, tells how often."""
    [task_id] = shop.lose(1)
    shop.clock.advance(HOUR)
    shop.handler._submit.append(ConnectionResetError(LOST))
    shop.run("tasks", "resubmit", task_id, "--tracking-timeout", "1h", "--yes")
    shop.work()
    shop.work()

    [case] = shop.data("tasks", "unknown")

    assert case["attempts"] == 2
    assert "attempts         2; the last was started" in shop.run("tasks", "unknown").stdout


def test_unknown_of_a_handler_that_the_app_lacks(shop: Shop) -> None:
    """A task is still shown, and it is said that some worker must have the handler."""
    shop.lose(1)
    shop.handler = ScriptedHandler("ocr:us", Scan)

    assert "no handler ocr:eu" in shop.run("tasks", "unknown").stdout


def test_unknown_goes_by_pages_and_says_when_there_is_nothing(shop: Shop) -> None:
    """Like the list."""
    nothing = shop.run("tasks", "unknown")
    first, second = shop.lose(2)

    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "no task is in doubt" in nothing.stderr
    page = shop.run("tasks", "unknown", "--limit", "1")
    assert first in page.stdout
    assert second not in page.stdout
    assert f"--after {first}" in page.stderr
    assert second in shop.run("tasks", "unknown", "--limit", "1", "--after", first).stdout


def test_decisions_keep_who_and_why(shop: Shop) -> None:
    """Both stand in the task's history; who is the login name unless told."""
    one, two = shop.lose(2)

    told = shop.run(
        "tasks", "adopt", one, "job-7", "--param", 'region="eu"', "--who", "mina", "--note", "seen"
    )
    shop.run("tasks", "abandon", two, "--yes")

    task = shop.task(one)
    assert task.query_params == QueryParams(external_task_id="job-7", provider_params={"region": "eu"})
    assert "adopt by mina: seen" in task.history[-1].note
    assert "SUBMITTED" in told.stderr
    assert told.stdout == ""
    assert "abandon by " in shop.task(two).history[-1].note


def test_adopt_grants_time_and_prints_the_public_view(shop: Shop) -> None:
    """--tracking-timeout counts from now."""
    [task_id] = shop.lose(1)

    document = shop.data("tasks", "adopt", task_id, "job-7", "--tracking-timeout", "5h")

    assert document == shop.task(task_id).public()
    assert shop.task(task_id).schedule.deadline_at == shop.clock.now() + 5 * HOUR


def test_the_login_name_may_be_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container whose user has no name, a decision is still made."""

    def nobody() -> str:
        raise OSError("no username")

    monkeypatch.setattr("getpass.getuser", nobody)
    [task_id] = shop.lose(1)

    assert shop.run("tasks", "adopt", task_id, "job-7").exit_code == 0
    assert "adopt by unknown" in shop.task(task_id).history[-1].note


# ------------------------------------------------------------------ purge


def test_purge_deletes_what_ended_long_ago(shop: Shop) -> None:
    """All ends but SUBMIT_UNKNOWN, which goes only if it is named; batch after batch."""
    [lost] = shop.lose(1)
    shop.handler._submit += [SubmitResult.succeeded({}), SubmitResult.failed("bad", "unreadable")]
    old = shop.submit("a", "b")
    shop.work()
    shop.clock.advance(50 * HOUR)
    shop.handler._submit.append(SubmitResult.succeeded({}))
    [young] = shop.submit("c")
    shop.work()

    rows = shop.data("tasks", "purge", "--older-than", "2d", "--yes")

    assert {row["status"]: row["purged"] for row in rows} == {
        "SUCCEEDED": 1,
        "FAILED": 1,
        "CANCELED": 0,
        "TRACKING_TIMED_OUT": 0,
    }
    assert [row["id"] for row in shop.data("tasks", "list")] == [lost, young]
    assert old[0] not in {lost, young}
    shop.run("tasks", "purge", "--older-than", "0s", "--status", "SUBMIT_UNKNOWN", "--yes")
    assert [row["id"] for row in shop.data("tasks", "list")] == [young]


def test_purge_works_in_batches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tasks than one step takes are all purged."""
    monkeypatch.setattr("coatcheck_cli.commands.tasks_purge.BATCH", 2)
    shop.run("tasks", "cancel", *shop.submit(*map(str, range(5))))
    shop.clock.advance(HOUR)

    rows = shop.data("tasks", "purge", "--older-than", "1m", "--status", "CANCELED", "--yes")

    assert rows == [{"status": "CANCELED", "older_than": 60.0, "purged": 5}]


def test_purge_goes_by_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --older-than, what the configuration says is deleted, status by status, and nothing else."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "coatcheck.toml"
    store = f'[store]\nurl = "sqlite:///{tmp_path}/jobs.db"\n'
    config.write_text(f'{store}[retention]\nsucceeded = "30d"\nunresolved = "90d"\n')

    def purge(*words: str) -> Result:
        return CliRunner().invoke(main, ["tasks", "purge", "--yes", "--json", *words])

    assert {row["status"]: row["older_than"] for row in json.loads(purge().stdout)} == {
        "SUCCEEDED": 30 * 86_400.0,
        "TRACKING_TIMED_OUT": 90 * 86_400.0,
        "SUBMIT_UNKNOWN": 90 * 86_400.0,
    }
    assert len(json.loads(purge("--status", "SUCCEEDED").stdout)) == 1
    assert purge("--status", "FAILED").exit_code == 2
    config.write_text(store)
    nothing = purge()
    assert nothing.exit_code == 2
    assert "[retention]" in nothing.stderr


# ------------------------------------------------------------------ asking, wrong input


@pytest.mark.parametrize(("answer", "status", "code"), [("y\n", "FAILED", 0), ("\n", "SUBMIT_UNKNOWN", 1)])
def test_costly_decisions_are_asked_for_in_a_terminal(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, answer: str, status: str, code: int
) -> None:
    """Yes does it; anything else changes nothing."""
    [task_id] = shop.lose(1)
    monkeypatch.setattr("coatcheck_cli.commands.tasks_texts.somebody_is_there", lambda: True)

    result = CliRunner().invoke(
        main, ["--app", "shop_of_tasks:app", "tasks", "abandon", task_id], input=answer
    )

    assert result.exit_code == code
    assert "for good?" in result.stderr
    assert shop.task(task_id).status.value == status


WRONG: dict[str, tuple[str, int, str]] = {
    "no such task": ("tasks show nope", 3, "no task 'nope'"),
    "no id": ("tasks show", 2, "Missing argument"),
    "no such command": ("tasks shwo x", 2, "did you mean 'show'"),
    "no such status": ("tasks list --status DONE", 2, "DONE"),
    "no duration": ("tasks list --older-than soon", 2, "no duration"),
    "no time at all": ("tasks list --older-than 0s", 2, "0s"),
    "endless": ("tasks list --older-than 99999999d", 2, "36500d"),
    "no instant": ("tasks list --created-before yesterday", 2, "no time"),
    "out of the calendar": ("tasks list --created-before 0001-01-01T00:00+14:00", 2, "no time"),
    "both ages": ("tasks list --older-than 1h --created-before 2026-01-01", 2, "not both"),
    "no limit": ("tasks list --limit 0", 2, "--limit"),
    "no ids to cancel": ("tasks cancel", 2, "Missing argument"),
    "no ids to wait for": ("tasks wait", 2, "Missing argument"),
    "waiting for nothing": ("tasks wait nope --timeout 1s", 3, "no task"),
    "no time to wait": ("tasks wait nope --timeout 0s", 2, "0s"),
    "adopt without its id": ("tasks adopt nope", 2, "EXTERNAL_ID"),
    "adopt as pasted": ("tasks adopt nope EXTERNAL_ID", 2, "in place of EXTERNAL_ID"),
    "adopt a blank id": ("tasks adopt nope ' '", 2, "external_task_id"),
    "a param without a value": ("tasks adopt nope job-7 --param region", 2, "name=json"),
    "a param that is no JSON": ("tasks adopt nope job-7 --param region=eu", 2, 'region="eu"'),
    "a param that is no number": ("tasks adopt nope job-7 --param n=NaN", 2, "NaN"),
    "adopt none": ("tasks adopt nope job-7", 3, "no task"),
    "resubmit without time": ("tasks resubmit nope --yes", 2, "--tracking-timeout"),
    "resubmit unasked": ("tasks resubmit nope --tracking-timeout 1h", 2, "--yes"),
    "resubmit none": ("tasks resubmit nope --tracking-timeout 1h --yes", 3, "no task"),
    "resubmit what waits": ("tasks resubmit ID --tracking-timeout 1h --yes", 1, "PENDING_SUBMIT"),
    "abandon unasked": ("tasks abandon nope", 2, "Nothing was changed"),
    "abandon what waits": ("tasks abandon ID --yes", 1, "PENDING_SUBMIT"),
    "extend for no time": ("tasks extend nope --tracking-timeout 0s", 2, "0s"),
    "extend none": ("tasks extend nope --tracking-timeout 1h", 3, "no task"),
    "purge by nothing": ("tasks purge --yes", 2, "[retention]"),
    "purge unasked": ("tasks purge --older-than 1d", 2, "--yes"),
    "purge what lives": ("tasks purge --older-than 1d --status RUNNING --yes", 2, "RUNNING"),
    "purge before the calendar": ("tasks purge --older-than 99999999d --yes", 2, "36500d"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_clear_line(shop: Shop, name: str) -> None:
    """It goes to standard error, with the promised exit code, and no traceback."""
    line, code, told = WRONG[name]
    [task_id] = shop.submit("a")

    result = shop.run(*shlex.split(line.replace("ID ", f"{task_id} ") if " ID " in line else line))

    assert result.exit_code == code, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert told in last
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_apps_that_are_none_are_told(shop: Shop) -> None:
    """What --app leads to must be an app."""
    result = CliRunner().invoke(main, ["--app", "shop_of_tasks:number", "tasks", "list"])

    assert shop.place.is_dir()
    assert (result.exit_code, "is int" in result.stderr) == (2, True)


# ------------------------------------------------------------------ words


def test_credentials_are_masked_by_name_and_in_urls() -> None:
    """Names count whole, so that tokens which are counted, and keys of objects, stay."""
    given = {
        "api_key": "x",
        "nested": [{"access-token": "x", "max_tokens": 5, "object_key": "a/b"}],
        "url": "https://user:pw@e.com/a?X-Amz-Signature=abc&page=2&token=t",
        "empty": {"password": ""},
    }

    assert masked(given) == {
        "api_key": "***",
        "nested": [{"access-token": "***", "max_tokens": 5, "object_key": "a/b"}],
        "url": "https://user:***@e.com/a?X-Amz-Signature=***&page=2&token=***",
        "empty": {"password": ""},
    }


def test_texts_of_others_cannot_move_the_cursor() -> None:
    """Control characters become spaces, and long texts are cut."""
    assert one_line("a\x1b[2Jb\nc\td") == "a [2Jb c d"
    assert one_line("abcdef", 4) == "abc…"
    assert summary({"a": None, "b": "", "c": 1}) == '{"c": 1}'


def test_ages_are_short() -> None:
    """One or two units, past and future."""
    now = ManualClock().now()

    assert since(now, now) == "0s ago"
    assert since(now - timedelta(seconds=61.7), now) == "1m1s ago"
    assert since(now - timedelta(hours=5, minutes=2, seconds=7), now) == "5h2m ago"
    assert since(now + timedelta(days=2, hours=3, minutes=9), now) == "in 2d3h"
