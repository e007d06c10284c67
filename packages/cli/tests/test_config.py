import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from coatcheck_cli.commands.config import masked
from coatcheck_cli.failing import Exit
from coatcheck_cli.main import main

CONFIGURATION = """\
store = { url = "postgresql://shop:hunter2@db.example.com/jobs" }

[handlers."ocr:gitee".accounts.default]
api_key = { env = "TEST_GITEE_KEY" }

[handlers."ocr:gitee".accounts.eu]
api_key = { file = "eu.key" }

[gates."provider/ocr%3Agitee"]
rate = "5/s"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its code and what it printed."""
    result = CliRunner().invoke(main, ["config", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_right_configuration_is_right(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it describes is made, and the credentials are looked up; nothing is connected to."""
    (here / "coatcheck.toml").write_text(CONFIGURATION)
    (here / "eu.key").write_text("secret-of-eu\n")
    monkeypatch.setenv("TEST_GITEE_KEY", "secret-of-default")
    code, out, err = check("check", "--json")
    assert code == 0, err
    assert json.loads(out) == {
        "ok": True,
        "store": "SqlStore",
        "handlers": ["ocr:gitee"],
        "gates": ["provider/ocr%3Agitee"],
    }
    code, out, err = check("check")
    assert (code, err) == (0, "the configuration is right\n")
    assert "secret-of" not in out


def test_a_missing_credential_is_told_with_its_place(here: Path) -> None:
    """All of them at once; whether a worker could authenticate is what an operator wants to know before it starts."""
    (here / "coatcheck.toml").write_text(CONFIGURATION)
    code, out, err = check("check")
    assert (code, out) == (Exit.USAGE, "")
    assert err.count("\n") == 1
    assert "handlers.ocr:gitee.accounts.default.api_key" in err
    assert "TEST_GITEE_KEY" in err
    assert "handlers.ocr:gitee.accounts.eu.api_key" in err


def test_what_is_shown_hides_secrets(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of URLs among them; references to secrets are none, and stay."""
    (here / "coatcheck.toml").write_text(CONFIGURATION)
    monkeypatch.setenv("COATCHECK_WORKER__QUERIES", "20")
    code, out, _ = check("show", "--json")
    assert code == 0
    shown = json.loads(out)
    assert shown["store"]["url"] == "postgresql://shop:***@db.example.com/jobs"
    assert shown["handlers"]["ocr:gitee"]["accounts"]["default"]["api_key"] == {"env": "TEST_GITEE_KEY"}
    code, out, _ = check("show")
    rows = [line.split("\t") for line in out.splitlines()]
    assert rows[0] == ["setting", "value", "from"]
    assert ["store.url", "postgresql://shop:***@db.example.com/jobs", "coatcheck.toml:1"] in rows
    assert ["worker.queries", "20", "environment variable COATCHECK_WORKER__QUERIES"] in rows
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ({"handlers": {"a:b": {"accounts": {"x": {"id": "A", "secret_key": "B"}}}}}, ["***", "***"]),
        ({"store": {"url": "redis://:word@cache/0"}}, ["redis://:***@cache/0"]),
        ({"store": {"url": "sqlite:///jobs.db"}}, ["sqlite:///jobs.db"]),
        ({"store": {"url": "mysql://u@db/x", "passwords": ["a"]}}, ["mysql://u@db/x", "a"]),
        ({"handlers": {"a:b": {"settings": {"webhook_token": "B", "model": "m"}}}}, ["***", "m"]),
    ],
)
def test_masking(written: dict[str, object], shown: list[str]) -> None:
    """By where something stands, and by what it is called."""

    def leaves(value: object) -> list[str]:
        if isinstance(value, dict):
            return [leaf for each in value.values() for leaf in leaves(each)]
        return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [str(value)]

    assert leaves(masked(written)) == shown


WRONG = {
    "no TOML": ("store = ", "is no TOML"),
    "no store": ("[worker]\nqueries = 3", "there is no store"),
    "an unknown section": ('stor = "memory://"', "has no 'stor'; did you mean 'store'"),
    "an unknown key": ('store = "memory://"\n[worker]\nquerys = 3', "coatcheck.toml:3: worker.querys"),
    "a wrong value": ('store = "memory://"\n[worker]\nqueries = "many"', "coatcheck.toml:3: worker.queries"),
    "no such store": ('store = "mongodb://db"', "mongodb"),
    "no such handler": ('store = "memory://"\n[handlers."ocr:gitte"]', "did you mean 'ocr:gitee'?"),
    "no settings of it": (
        'store = "memory://"\n[handlers."ocr:gitee"]\nsettings = { modle = "x" }',
        "coatcheck.toml:2: handlers.ocr:gitee: handler 'ocr:gitee' of coatcheck-handler-ocr",
    ),
    "no account of it": (
        'store = "memory://"\n[handlers."ocr:gitee".accounts.default]\napi_kye = { env = "X" }',
        "api_kye",
    ),
    "no such selector": ('store = "memory://"\nselector = "round-robbin"', "coatcheck.toml:2: selector: "),
    "no limits": ('store = "memory://"\n[gates.x]', "needs a concurrency, a rate, or both"),
    "a bad rate": (
        'store = "memory://"\n[gates.provider]\nrate = "5/y"',
        "coatcheck.toml:3: gates.provider.rate",
    ),
    "no gate's name": (
        'store = "memory://"\n[gates."provider/ocr:gitee"]\nrate = "5/s"',
        "provider/ocr%3Agitee",
    ),
    "nothing": ("", "there is no configuration"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_place(here: Path, name: str) -> None:
    """In one line, with a way out; there is no traceback."""
    written, told = WRONG[name]
    (here / "coatcheck.toml").write_text(written)
    code, out, err = check("check")
    assert (code, out) == (Exit.USAGE, ""), err
    assert told in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


def test_a_named_file_that_is_not_there(here: Path) -> None:
    """Is no reason to take another."""
    (here / "coatcheck.toml").write_text('store = "memory://"')
    result = CliRunner().invoke(main, ["--config", "other.toml", "config", "check"])
    assert result.exit_code == Exit.USAGE
    assert result.stderr == "Error: other.toml cannot be read: No such file or directory\n"
