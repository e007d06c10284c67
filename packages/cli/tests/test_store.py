import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck import App
from coatcheck_cli.main import main

MODULE = """
import logging
from coatcheck import App, SchemaOutdated, StoreUnavailable
from coatcheck.memory import MemoryStore

class Telling(MemoryStore):
    async def open(self):
        logging.getLogger("papyrus").warning("a flood may lose\\nthe last steps")
        await super().open()

    def schema_sql(self, *, since=0):
        return f"-- since {since}"

class Old(MemoryStore):
    async def open(self):
        raise SchemaOutdated("the scrolls have schema 1, not 2")

class Away(MemoryStore):
    async def open(self):
        raise StoreUnavailable("nobody answers")

class New(MemoryStore):
    async def setup(self):
        raise SchemaOutdated("the scrolls have schema 9, which is too new")

telling, old, away, new = (App(kind()) for kind in (Telling, Old, Away, New))
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration on SQLite, whose handler is broken, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "store_shop.py").write_text(MODULE)
    (tmp_path / "coatcheck.toml").write_text(
        f'[store]\nurl = "sqlite:///{tmp_path}/jobs.db"\ntable_prefix = "coats_"\n'
        '[handlers."shop:one"]\nuse = "nowhere_at_all:one"\n'
    )
    sys.modules.pop("store_shop", None)
    return tmp_path


def store(*arguments: str, app: str | None = None) -> Result:
    """Call the command, for the configuration or for an app of the module."""
    named = ["--app", f"store_shop:{app}"] if app else []
    return CliRunner().invoke(main, [*named, "store", *arguments])


def test_a_store_is_set_up_twice_and_checked_though_handlers_are_broken() -> None:
    """Tables can be made and looked at where handlers are not installed; doing it twice is fine."""
    for _ in range(2):
        result = store("setup")
        assert (result.exit_code, result.stdout) == (0, ""), result.stderr
        assert result.stderr.endswith("jobs.db is set up\n")
    result = store("check")
    assert result.exit_code == 0, result.stderr
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert lines["reachable"].strip() == "yes"
    assert "nothing acknowledged is lost" in lines["durability"]
    assert abs(int(lines["clock_difference_ms"])) < 60_000
    assert result.stderr == "the store can be used\n"


def test_programs_get_what_was_seen(shop: Path) -> None:
    """JSON says whether it is all right, and has what people see."""
    document = json.loads(store("check", "--json").stdout)
    assert (document["ok"], document["reachable"], document["error"]) == (True, True, None)
    assert document["url"] == f"sqlite:///{shop}/jobs.db"
    assert document["capabilities"] == ["durable", "shared", "survives_failover", "transactional_add"]
    assert document["set_aside"] == 0


def test_what_a_store_says_of_itself_is_shown() -> None:
    """What it warns of is told, not logged."""
    result = store("check", app="telling")
    assert result.exit_code == 0
    assert "gone with the process" in result.stdout
    assert "warning: a flood may lose the last steps" in result.stderr
    warnings = json.loads(store("check", "--json", app="telling").stdout)["warnings"]
    assert warnings == ["a flood may lose the last steps"]


@pytest.mark.parametrize(("app", "code", "reachable"), [("old", 1, True), ("away", 6, False)])
def test_a_store_that_cannot_be_used_is_told_by_the_exit_code(
    app: str, code: int, *, reachable: bool
) -> None:
    """1: it is there and cannot be used; 6: it is not there."""
    result = store("check", app=app)
    assert result.exit_code == code
    assert result.stderr.startswith("Error: ")
    document = json.loads(store("check", "--json", app=app).stdout)
    assert (document["ok"], document["reachable"]) == (False, reachable)
    assert document["error"] in result.stderr


def test_the_sql_of_the_configured_store_is_printed(shop: Path) -> None:
    """What is printed makes the tables of this store, under its names, and nothing is done."""
    text = store("setup", "--sql").stdout
    assert "CREATE TABLE coats_task " in text
    assert not (shop / "jobs.db").exists()
    with sqlite3.connect(shop / "jobs.db") as connection:
        connection.executescript(text)
    connection.close()
    assert store("check").exit_code == 0
    assert "coats_gate_history" in store("migrate", "--sql", "--since", "1").stdout


def test_a_stores_own_sql_goes_first() -> None:
    """A store of somebody else that knows its SQL is asked for it."""
    assert store("setup", "--sql", app="telling").stdout == "-- since 0\n"
    assert store("migrate", "--sql", "--since", "3", app="telling").stdout == "-- since 3\n"


def test_servers_print_their_own_kind_of_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dialect and the names come from the store's URL; no server is asked."""
    monkeypatch.setenv("COATCHECK_STORE__URL", "postgresql://jobs@127.0.0.1:1/shop?schema=jobs")
    text = store("setup", "--sql").stdout
    assert "CREATE SCHEMA IF NOT EXISTS jobs" in text
    assert "jobs.coats_task" in text


def test_migrating_lets_rows_take_part_again(shop: Path) -> None:
    """After an upgrade, tasks that older code could not read are no longer set aside."""
    result = store("migrate")
    assert result.exit_code == 0
    assert "0 tasks that were set aside take part again" in result.stderr

    async def look() -> int:
        async with App(f"sqlite:///{shop}/jobs.db?table_prefix=coats_") as app:
            return (await app.manager.stats()).set_aside

    assert asyncio.run(look()) == 0


@pytest.mark.timeout(180)
def test_it_is_a_module_too(shop: Path) -> None:
    """`python -m coatcheck_cli` is the command."""
    told = subprocess.run(
        [sys.executable, "-m", "coatcheck_cli", "store", "check", "--json"],
        cwd=shop,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(told.stdout)["ok"] is True


WRONG: dict[str, tuple[list[str], str | None, int]] = {
    "a misspelt command": (["store", "setp"], None, 2),
    "an argument": (["store", "setup", "now"], None, 2),
    "an option that is none": (["store", "check", "--deep"], None, 2),
    "sql without since": (["store", "migrate", "--sql"], None, 2),
    "since without sql": (["store", "migrate", "--since", "1"], None, 2),
    "since nothing": (["store", "migrate", "--sql", "--since", "0"], None, 2),
    "since the future": (["store", "migrate", "--sql", "--since", "99"], None, 2),
    "since in words": (["store", "migrate", "--sql", "--since", "ever"], None, 2),
    "sql of what has none": (["store", "setup", "--sql"], "memory://", 2),
    "sql of what has none, later": (["store", "migrate", "--sql", "--since", "1"], "memory://", 2),
    "a folder that is not there": (["store", "setup"], "sqlite:///nowhere/jobs.db", 6),
    "a folder that is not there, checked": (["store", "check"], "sqlite:///nowhere/jobs.db", 6),
    "a folder that is not there, migrated": (["store", "migrate"], "sqlite:///nowhere/jobs.db", 6),
    "a server that is not there": (["store", "check"], "postgresql://127.0.0.1:1/shop?timeout=1s", 6),
    "no database": (["store", "check"], "postgresql://127.0.0.1", 2),
    "no URL": (["store", "check"], "jobs.db", 2),
    "a scheme that nobody serves": (["store", "check"], "papyrus://x", 2),
    "a setting that is none": (["store", "check"], "sqlite:///jobs.db?colour=red", 2),
    "too new a schema": (["--app", "store_shop:new", "store", "setup"], None, 2),
    "a server that is away": (["--app", "store_shop:away", "store", "migrate"], None, 6),
    "an app that is none": (["--app", "store_shop:MemoryStore", "store", "check"], None, 2),
    "a file that is not there": (["--config", "nowhere.toml", "store", "check"], None, 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_told_in_one_line(name: str, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be meant, or cannot be reached, is told in one line."""
    arguments, url, code = WRONG[name]
    if url is not None:
        (shop / "coatcheck.toml").unlink()
        monkeypatch.setenv("COATCHECK_STORE__URL", url)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
