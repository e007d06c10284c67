import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coatcheck import ConfigurationError, StoreUnavailable, TaskNotFound
from coatcheck_cli import session as sessions
from coatcheck_cli.failing import Exit, Failure, explain
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.main import main

SHOP = """
from coatcheck import App
from coatcheck.memory import MemoryStore
from coatcheck.testing import ScriptedHandler

app = App(store=MemoryStore(), handlers=[ScriptedHandler("docs:acme", str)])
number = 7
def make(): return app
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app in code, called main_shop."""
    (tmp_path / "main_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "main_shop", raising=False)
    return tmp_path


def commands_of(
    group: click.Group, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return all commands below a group, with their names."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands_of(command, (*path, name))
    return found


COMMANDS = commands_of(main)
OURS = [path for path, command in COMMANDS if command.add_help_option]


def test_there_is_what_an_operator_needs() -> None:
    """The commands that are promised."""
    names = {" ".join(path) for path, _ in COMMANDS}
    wanted = {
        "worker", "submit", "stats", "demo", "conformance", "completion", "plugins", "plugins doctor", "plugin new",
        "config check", "config show", "store setup", "store check", "store migrate",
        "gates list", "gates set", "gates pause", "gates resume",
        *(f"tasks {each}" for each in (
            "list", "show", "cancel", "adopt", "resubmit", "abandon", "wait", "purge", "unknown",
        )),
    }  # fmt: skip
    assert wanted - names == set()


@pytest.mark.parametrize("path", OURS, ids=" ".join)
def test_help_teaches_by_examples(path: tuple[str, ...]) -> None:
    """Every group, and every command that does more than its name and its arguments say."""
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")
    command = dict(COMMANDS)[path]
    assert command.help, path
    options = [each for each in command.params if isinstance(each, click.Option) and each.name != "as_json"]
    if isinstance(command, click.Group) or len(options) > 3:
        assert "Examples:" in result.output


@pytest.mark.parametrize("path", OURS, ids=" ".join)
def test_a_line_of_help_is_what_a_command_says_itself(path: tuple[str, ...]) -> None:
    """Where a list of commands is written without importing one, it says nothing else than they do."""
    parent: click.Group = main
    for name in path[:-1]:
        found = parent.get_command(click.Context(parent), name)
        assert isinstance(found, click.Group)
        parent = found
    if isinstance(parent, LazyGroup) and path[-1] in parent.lazy:
        assert parent.lazy[path[-1]][1].endswith(".")


def test_help_imports_no_command() -> None:
    """Nor anything that takes long: it is there at once."""
    code = (
        "import sys\n"
        "from coatcheck_cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = ('coatcheck.', 'coatcheck_cli.commands.', 'rich', 'httpx', 'sqlalchemy')\n"
        "bad = [name for name in sys.modules if name.startswith(slow)]\n"
        "assert bad == [], bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


def test_the_version_is_told() -> None:
    """Of the command line."""
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("coatcheck ")


def test_python_can_run_it() -> None:
    """`python -m coatcheck_cli` is the command, whatever the folder of scripts is called."""
    command = [sys.executable, "-m", "coatcheck_cli", "tasks", "lst"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert done.stderr.startswith("Error: no such command 'lst'; did you mean 'list'?")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    """With the script that the command prints."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_COATCHECK_COMPLETE" in result.output


def test_bash_is_given_the_commands() -> None:
    """What its script asks for is answered with names."""
    environ = {"_COATCHECK_COMPLETE": "bash_complete", "COMP_WORDS": "coatcheck tasks a", "COMP_CWORD": "2"}
    result = CliRunner().invoke(main, [], env=environ, prog_name="coatcheck")
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["plain,adopt", "plain,abandon"]


# ------------------------------------------------------------------ the app


@pytest.mark.parametrize("reference", ["main_shop:app", "main_shop:make"])
def test_an_app_in_code_is_taken(shop: Path, reference: str) -> None:
    """Or a function that makes one."""
    assert (shop / "main_shop.py").exists()
    result = CliRunner().invoke(main, ["--app", reference, "tasks", "list", "--json"])
    assert (result.exit_code, result.output) == (0, "[]\n")


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("main_shop", "written module:attribute"),
        ("main_shop:", "written module:attribute"),
        ("main_shop:no", "cannot be imported"),
        ("no_shop:app", "No module named 'no_shop'"),
        ("main_shop:number", "is int"),
    ],
)
def test_a_reference_to_something_else_is_told(shop: Path, reference: str, told: str) -> None:
    """In one line."""
    assert (shop / "main_shop.py").exists()
    result = CliRunner().invoke(main, ["--app", reference, "tasks", "list"])
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_session_gives_one_app(shop: Path) -> None:
    """However often a command asks for it."""
    assert (shop / "main_shop.py").exists()
    session = sessions.Session(app_reference="main_shop:make")
    assert session.app() is session.app()


def test_errors_have_codes() -> None:
    """Which scripts can go by; what nobody foresaw is no failure of the user's, and keeps its traceback."""
    for error, code in (
        (TaskNotFound("no task"), Exit.NOT_FOUND),
        (StoreUnavailable("no store"), Exit.UNAVAILABLE),
        (ConfigurationError("two\nlines"), Exit.USAGE),
    ):
        found = explain(error)
        assert found is not None
        assert (found.exit_code, "\n" in found.format_message()) == (code, False)
    assert explain(RuntimeError("a mistake of ours")) is None
    session = sessions.Session()

    def fail(error: BaseException) -> None:
        raise error

    with pytest.raises(RuntimeError):
        session.guarded(lambda: fail(RuntimeError("a mistake of ours")))
    with pytest.raises(Failure) as caught:
        session.guarded(lambda: fail(KeyboardInterrupt()))
    assert caught.value.exit_code == Exit.INTERRUPTED
