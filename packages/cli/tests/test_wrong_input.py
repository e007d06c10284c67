"""Whatever is typed wrongly, each command answers with one line that says what, and with a code that is not 0."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from coatcheck_cli.failing import Exit
from coatcheck_cli.main import main

CONFIGURATION = """\
store = "sqlite:///jobs.db"

[handlers."ocr:gitee".accounts.default]
api_key = { env = "TEST_GITEE_KEY" }

[handlers."video:gitee".accounts.default]
api_key = { env = "TEST_GITEE_KEY" }
"""
NOBODY = "01890000-0000-7000-8000-000000000000"
"""The id of no task."""
USAGE, NOT_FOUND, FAILED = Exit.USAGE, Exit.NOT_FOUND, Exit.FAILED

WRONG: list[tuple[str, Exit, str]] = [
    # the command itself
    ("tsks", USAGE, "did you mean 'tasks'"),
    ("--confg x", USAGE, "--config"),
    ("--config no.toml stats", USAGE, "no.toml cannot be read"),
    ("--config . stats", USAGE, "cannot be read"),
    ("--config broken.toml stats", USAGE, "is no TOML"),
    ("--config coatcheck.toml --app a:b stats", USAGE, "not both"),
    ("--app nothing stats", USAGE, "module:attribute"),
    ("--app nothing:here stats", USAGE, "cannot be imported"),
    ("--app os:sep stats", USAGE, "name a coatcheck.App"),
    # worker
    ("worker --processes 0", USAGE, "--processes"),
    ("worker --processes two", USAGE, "'two'"),
    ("worker --lease soon", USAGE, "'soon'"),
    ("worker --lease 10s --call-timeout 30s", USAGE, "call_timeout"),
    ("worker --only ocr:azure", USAGE, "ocr:azure"),
    ("worker --health-port 99999", USAGE, "99999"),
    ("worker --health no/such/folder/alive", USAGE, "no/such/folder"),
    ("worker --log-level loud", USAGE, "'loud'"),
    ("worker now", USAGE, "now"),
    # submit
    ("submit", USAGE, "KIND"),
    ("submit ocr", USAGE, ""),
    ("submit ocrs https://files.example.com/a.pdf", USAGE, "ocrs"),
    ("submit ocr:azure https://files.example.com/a.pdf", USAGE, "ocr:azure"),
    ("submit ocr /home/me/scan.pdf", USAGE, "/home/me/scan.pdf"),
    ("submit ocr file:///home/me/scan.pdf", USAGE, "file"),
    ("submit ocr https://files.example.com/a.pdf --option pages", USAGE, "pages"),
    ("submit ocr https://files.example.com/a.pdf --option pagse=1-3", USAGE, "pagse"),
    ("submit ocr --params '{'", USAGE, "JSON"),
    ("submit ocr --params 7", USAGE, ""),
    ("submit ocr --params @no.json", USAGE, "no.json"),
    ("submit ocr https://files.example.com/a.pdf --field urll", USAGE, "urll"),
    ("submit ocr https://files.example.com/a.pdf --tracking-timeout 0s", USAGE, "--tracking-timeout"),
    ("submit ocr https://files.example.com/a.pdf --timeout 5s", USAGE, "--wait"),
    ("submit ocr https://files.example.com/a.pdf --priority high", USAGE, "'high'"),
    ("submit ocr https://files.example.com/a.pdf --delay yesterday", USAGE, "'yesterday'"),
    ("submit ocr https://files.example.com/a.pdf --acount nobody", USAGE, "--account"),
    # tasks
    ("tasks lst", USAGE, "did you mean 'list'"),
    ("tasks list --status RUNING", USAGE, "RUNNING"),
    ("tasks list --limit 0", USAGE, "--limit"),
    ("tasks list --older-than -5s", USAGE, "--older-than"),
    ("tasks list --created-before tomorrow", USAGE, "tomorrow"),
    ("tasks show", USAGE, "ID"),
    ("tasks show nonsense", NOT_FOUND, "nonsense"),
    (f"tasks show {NOBODY}", NOT_FOUND, NOBODY),
    (f"tasks wait {NOBODY} --timeout x", USAGE, "'x'"),
    ("tasks cancel", USAGE, "ID"),
    ("tasks adopt abc", USAGE, "EXTERNAL_ID"),
    (f"tasks adopt {NOBODY} job-1 --tracking-timeout 1h", NOT_FOUND, NOBODY),
    (f"tasks resubmit {NOBODY} --yes --tracking-timeout 1h", NOT_FOUND, NOBODY),
    (f"tasks abandon {NOBODY} --yes", NOT_FOUND, NOBODY),
    (f"tasks abandon {NOBODY}", USAGE, "--yes"),
    (f"tasks extend {NOBODY} --tracking-timeout -1h", USAGE, "--tracking-timeout"),
    ("tasks purge", USAGE, ""),
    ("tasks purge --older-than 7d", USAGE, "--yes"),
    ("tasks purge --older-than week --yes", USAGE, "'week'"),
    ("tasks purge --older-than 7d --status RUNNING --yes", USAGE, "RUNNING"),
    ("tasks unknown --limit 5000", USAGE, "5000"),
    # gates
    ("gates", USAGE, ""),
    ("gates show", USAGE, "NAME"),
    ("gates show provider/nobody", NOT_FOUND, "provider/nobody"),
    ("gates name", USAGE, "KIND"),
    ("gates name provider", USAGE, "provider"),
    ("gates set provider/ocr%3Agitee", USAGE, "nothing to set"),
    ("gates set provider/ocr%3Agitee --rate 5/y", USAGE, "1y"),
    ("gates set provider/ocr%3Agitee --rate 5/s --no-rate", USAGE, "not both"),
    ("gates set provider/ocr%3Agitee --concurrency 0", USAGE, "--concurrency"),
    ("gates set '' --rate 5/s", USAGE, ""),
    ("gates pause provider/ocr%3Agitee", USAGE, "--reason"),
    ("gates pause provider/ocr%3Agitee --reason x --for a-while", USAGE, "'a-while'"),
    ("gates pause provider/ocr%3Agitee --reason x --until noon", USAGE, "noon"),
    ("gates pause provider/ocr%3Agitee --reason x --until 2020-01-01T00:00:00Z", USAGE, "2020"),
    ("gates delete provider/nobody --yes", NOT_FOUND, "provider/nobody"),
    # the others
    ("stats --watch soon", USAGE, "soon"),
    ("store", USAGE, ""),
    ("store setup --url x", USAGE, "--url"),
    ("store migrate --since 0", USAGE, "--since"),
    ("config", USAGE, ""),
    ("config chekc", USAGE, "did you mean 'check'"),
    ("config check", USAGE, "TEST_GITEE_KEY"),
    ("plugins --kind nonsense", USAGE, "nonsense"),
    ("plugins doktor", USAGE, "did you mean 'doctor'"),
    ("plugin new", USAGE, "{handler|store|selector|retry|admission}"),
    ("plugin new thing acme", USAGE, "thing"),
    ("plugin new handler", USAGE, "NAME"),
    ("plugin new handler 'A Name!'", USAGE, "A Name!"),
    ("completion tcsh", USAGE, "tcsh"),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration and a store that is set up."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "coatcheck.toml").write_text(CONFIGURATION)
    (folder / "broken.toml").write_text("store = ")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(main, ["store", "setup"])
    assert result.exit_code == 0, result.output
    return folder


def test_there_are_many() -> None:
    """Each of them another."""
    assert len({line for line, _, _ in WRONG}) == len(WRONG) > 60


@pytest.mark.parametrize(("line", "code", "told"), WRONG, ids=[line for line, _, _ in WRONG])
def test_wrong_input_is_told_in_one_line(
    line: str, code: Exit, told: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is wrong; nothing is printed that a program would take for a result."""
    monkeypatch.chdir(shop)
    result = CliRunner().invoke(main, shlex.split(line), input="")
    assert isinstance(result.exception, SystemExit), result.output
    assert result.exit_code == code, result.output
    if result.stderr.startswith("Usage: "):  # a group without a command tells its commands
        assert len(shlex.split(line)) == 1
        return
    assert (result.stdout, result.stderr.count("\n")) == ("", 1), result.output
    assert result.stderr.startswith("Error: ")
    assert told.lower() in result.stderr.lower()
