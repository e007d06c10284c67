import json
import shlex
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck_cli.main import main

NUMBERS = count()
"""Modules stay imported, so each plugin of a test has a module of its own."""
GOOD = """
from attrs import frozen

from coatcheck.hooks import {kind}Descriptor, hookimpl


@hookimpl
def {hook}():
    return [{kind}Descriptor(key="{key}", factory="{factory}", summary="a thing"{more})]
"""
HOOKS = {
    "Selector": "coatcheck_selectors",
    "Handler": "coatcheck_handlers",
    "Store": "coatcheck_stores",
    "Retry": "coatcheck_retry_policies",
}

Plug = Callable[..., None]
Run = Callable[[str], Result]


@pytest.fixture
def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plug:
    """Return what installs a plugin, for this test."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def installed(
        distribution: str,
        key: str = "thing",
        *,
        kind: str = "Selector",
        factory: str = "builtins:dict",
        more: str = "",
        code: str | None = None,
    ) -> None:
        module = f"plugged_{next(NUMBERS)}"
        text = GOOD.format(kind=kind, hook=HOOKS[kind], key=key, factory=factory, more=more)
        (site / f"{module}.py").write_text(code or text)
        told = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (told / "entry_points.txt").write_text(f"[coatcheck]\n{distribution} = {module}\n")

    return installed


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs the command in an empty folder."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    for variable in ("COATCHECK_CONFIG", "COATCHECK_STRICT_PLUGINS", "COATCHECK_STORE__URL"):
        monkeypatch.delenv(variable, raising=False)
    return lambda line: CliRunner().invoke(main, shlex.split(line))


def configure(text: str) -> None:
    """Write coatcheck.toml into the working directory."""
    Path("coatcheck.toml").write_text(text)


def findings(result: Result, kind: str = "problems") -> list[dict[str, str]]:
    """Return what the doctor printed as JSON."""
    told = json.loads(result.stdout)
    assert told["ok"] is (not told["problems"])
    assert result.exit_code == (0 if told["ok"] else 1)
    found: list[dict[str, str]] = told[kind]
    return found


# ------------------------------------------------------------------ the listing


def test_what_is_installed_is_listed(run: Run, plug: Plug) -> None:
    """With tabs between stable columns, where there is no terminal."""
    plug("acme-things")
    lines = run("plugins").stdout.splitlines()
    assert lines[0].split("\t") == ["kind", "key", "distribution", "version", "state", "reason"]
    assert "selector\tthing\tacme-things\t1.0\tavailable\t" in lines
    assert any(line.startswith("store\tmemory\tcoatcheck\t") for line in lines)


def test_json_has_everything(run: Run, plug: Plug) -> None:
    """Also the plugin API, capabilities, summary and schemes."""
    plug(
        "acme-things", kind="Store", key="acme", more=', schemes=("acme", "acmes"), capabilities=("durable",)'
    )
    [row] = [row for row in json.loads(run("plugins --json").stdout) if row["key"] == "acme"]
    assert row == {
        "kind": "store",
        "key": "acme",
        "distribution": "acme-things",
        "version": "1.0",
        "api": "1.0",
        "capabilities": ["durable"],
        "state": "available",
        "reason": "",
        "summary": "a thing",
        "schemes": ["acme", "acmes"],
    }


def test_kinds_can_be_chosen(run: Run, plug: Plug) -> None:
    """Several at once; what failed as a whole has no kind, and is told beside the data."""
    plug("acme-things")
    plug("acme-broken", code="raise RuntimeError('not today')\n")
    result = run("plugins --kind selector --kind retry --json")
    rows = json.loads(result.stdout)
    assert {row["kind"] for row in rows} == {"selector", "retry"}
    assert "acme-broken" in result.stderr
    assert "doctor" in result.stderr


def test_nothing_of_a_kind_is_said_on_standard_error(run: Run) -> None:
    """Data stay data."""
    result = run("plugins --kind observer")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing of this kind" in result.stderr


def test_factories_are_imported_only_when_asked(run: Run, plug: Plug) -> None:
    """Then what cannot be imported is shown as failed."""
    plug("acme-things", factory="no_such_module:thing")

    def state(line: str) -> str:
        [row] = [row for row in json.loads(run(line).stdout) if row["key"] == "thing"]
        return str(row["state"])

    assert (state("plugins --json"), state("plugins --load --json")) == ("available", "failed")


def test_the_configuration_decides_who_may_come_in(run: Run, plug: Plug) -> None:
    """What is blocked is listed, and not imported."""
    plug("acme-things", code="raise SystemExit('must not be imported')\n")
    configure('store = "memory://"\n[plugins]\nblock = ["Acme.Things"]\n')
    rows = json.loads(run("plugins --json").stdout)
    assert [row["state"] for row in rows if row["distribution"] == "acme-things"] == ["blocked"]


def test_a_broken_configuration_does_not_hide_the_plugins(run: Run) -> None:
    """Unless it was named: then the command is about that file."""
    configure("store = [\n")
    result = run("plugins")
    assert result.exit_code == 0
    assert "memory" in result.stdout
    assert "the configuration is left aside: coatcheck.toml is no TOML" in result.stderr
    assert run("--config coatcheck.toml plugins").exit_code == 2


def test_an_app_in_code_takes_the_place_of_the_configuration(run: Run, plug: Plug) -> None:
    """Its plugins are all that are installed."""
    plug("acme-things")
    configure('store = "memory://"\n[plugins]\nblock = ["acme-things"]\n')
    assert "acme-things\t1.0\tavailable" in run("--app shop:app plugins").stdout


# ------------------------------------------------------------------ the doctor


def test_all_is_well(run: Run, plug: Plug) -> None:
    """Nothing is on standard output, and the code is 0."""
    plug("acme-things", factory="coatcheck:ExponentialRetry", kind="Retry")
    configure('store = "memory://"\nadmission = "standard"\nretry = {use = "exponential", initial = "2s"}\n')
    result = run("plugins doctor")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "all is well" in result.stderr


@pytest.mark.parametrize(
    ("broken", "told", "remedy"),
    [
        ({"code": "import no_such_module\n"}, "no_such_module", "--force-reinstall acme-things"),
        ({"factory": "no_such_module:x"}, "no_such_module", 'plugins.block = ["acme-things"]'),
        ({"more": ', api="9.0"'}, "plugin API 9.0", "pip install --upgrade coatcheck"),
        ({"more": ', api="0.1"'}, "plugin API 0.1", "pip install --upgrade acme-things"),
    ],
    ids=["import", "factory", "newer", "older"],
)
def test_what_is_broken_is_told_with_what_mends_it(
    run: Run, plug: Plug, broken: dict[str, str], told: str, remedy: str
) -> None:
    """One finding each, also where nobody asks for the plugin."""
    plug("acme-things", **broken)
    [problem] = findings(run("plugins doctor --json"))
    assert "acme-things 1.0" in problem["subject"]
    assert told in problem["reason"]
    assert remedy in problem["remedy"]


def test_strict_environments_see_what_is_broken(
    run: Run, plug: Plug, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There everything else refuses to start; listing and doctor are how one finds out why."""
    plug("acme-things", code="import no_such_module\n")
    monkeypatch.setenv("COATCHECK_STRICT_PLUGINS", "1")
    assert "acme-things\t1.0\tfailed" in run("plugins").stdout
    [problem] = findings(run("plugins doctor --json"))
    assert "acme-things" in problem["subject"]


def test_tracebacks_can_be_had(run: Run, plug: Plug) -> None:
    """On standard error."""
    plug("acme-things", code="import no_such_module\n")
    result = run("plugins doctor --traceback")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in result.stderr
    assert "Traceback (most recent call last)" in result.stderr
    assert "Traceback" not in result.stdout


def test_a_conflict_is_one_finding_with_the_line_that_settles_it(run: Run, plug: Plug) -> None:
    """Written into the configuration as told, it does."""
    plug("acme-things")
    plug("rival-things")
    [problem] = findings(run("plugins doctor --json"))
    assert problem["subject"] == "selector 'thing'"
    assert "acme-things 1.0 and rival-things 1.0" in problem["reason"]
    line, _, _ = problem["remedy"].partition(", or that of ")
    assert line == 'plugins.prefer = {"thing" = "acme-things"}'
    configure(f'store = "memory://"\nselector = "thing"\n{line}\n')
    [note] = findings(run("plugins doctor --json"), "notes")
    assert "rival-things" in note["subject"]


CONFIGURED = {
    "absent store": ('store = "redis://localhost"', "coatcheck.toml:1: store", "pip install"),
    "absent handler": (
        'store = "memory://"\n[handlers."ocr:nowhere"]\n',
        "coatcheck.toml:2: handlers.ocr:nowhere",
        "",
    ),
    "absent selector": ('store = "memory://"\nselector = "nobody"', "coatcheck.toml:2: selector", ""),
    "wrong setting": (
        'store = "memory://"\nretry = {use = "exponential", initail = "2s"}',
        "coatcheck.toml:2: retry",
        "",
    ),
    "prefer who does not offer": (
        'store = "memory://"\n[plugins]\nprefer = {memory = "acme-store"}',
        "coatcheck.toml:3: plugins.prefer.memory",
        "pip install acme-store",
    ),
}
"""A configuration, where it is wrong, and what mends it."""


@pytest.mark.parametrize("name", CONFIGURED)
def test_what_is_configured_and_cannot_be_made_is_told_with_its_place(
    run: Run, plug: Plug, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever else is wrong is told in the same run."""
    text, subject, remedy = CONFIGURED[name]
    configure(text)
    plug("acme-things", code="import no_such_module\n")
    if name == "absent store":  # it is installed where these tests run
        monkeypatch.setattr("coatcheck.plugins.importlib_metadata.entry_points", lambda **_: ())
    told = {each["subject"]: each for each in findings(run("plugins doctor --json"))}
    assert subject in told
    assert remedy in told[subject]["remedy"]
    if name != "absent store":
        assert any("acme-things" in each for each in told)


def test_a_misspelt_name_is_not_blamed_on_who_is_shut_out(run: Run, plug: Plug) -> None:
    """The nearest name is told, and that is enough."""
    plug("acme-things")
    configure('store = "memory://"\nretry = "exponentail"\n[plugins]\nblock = ["acme-things"]\n')
    [problem] = findings(run("plugins doctor --json"))
    assert "did you mean 'exponential'" in problem["reason"]
    assert problem["remedy"] == ""


@pytest.mark.parametrize(
    ("lists", "remedy"),
    [
        ('block = ["acme-things"]', 'take "acme-things" out of plugins.block'),
        ('allow = ["somebody-else"]', 'add "acme-things" to plugins.allow'),
    ],
)
def test_what_is_shut_out_and_configured_is_a_problem(run: Run, plug: Plug, lists: str, remedy: str) -> None:
    """Shut out alone it is a note."""
    plug("acme-things")
    configure(f'store = "memory://"\n[plugins]\n{lists}\n')
    notes = findings(run("plugins doctor --json"), "notes")
    assert any("acme-things 1.0" in each["subject"] and remedy in each["remedy"] for each in notes)
    configure(f'store = "memory://"\nselector = "thing"\n[plugins]\n{lists}\n')
    [problem] = findings(run("plugins doctor --json"))
    assert problem["subject"] == "coatcheck.toml:2: selector"
    assert remedy in problem["remedy"]


def test_names_of_nobody_on_a_list_are_noted(run: Run) -> None:
    """Perhaps they are misspelt."""
    configure('store = "memory://"\n[plugins]\nblock = ["nobody"]\n')
    [note] = findings(run("plugins doctor --json"), "notes")
    assert note["reason"] == "'nobody' is not installed"


def test_people_read_findings_with_their_remedies_below(run: Run, plug: Plug) -> None:
    """Problems first, on standard output; how many on standard error."""
    plug("acme-things", code="import no_such_module\n")
    configure('store = "memory://"\n[plugins]\nblock = ["nobody"]\n')
    result = run("plugins doctor")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("problem  plugin acme-things 1.0: failed: ModuleNotFoundError")
    assert lines[1].startswith("         pip install ")
    assert lines[2].startswith("note     ")
    assert result.stderr == "Error: 1 problem with plugins\n"
    assert result.exit_code == 1


# ------------------------------------------------------------------ wrong input

WRONG = {
    "plugins --kind printer": (2, "'printer' is not one of"),
    "plugins --kind": (2, "requires an argument"),
    "plugins --kinds": (2, "No such option"),
    "plugins --load=yes": (2, "does not take a value"),
    "plugins list": (2, "no such command 'list'"),
    "plugins docter": (2, "no such command 'docter'"),
    "plugins --json doctor": (2, "after its name"),
    "plugins --load doctor": (2, "after its name"),
    "plugins --kind store doctor": (2, "after its name"),
    "plugins doctor --load": (2, "No such option"),
    "plugins doctor now": (2, "unexpected extra argument"),
    "plugins doctor --traceback=1": (2, "does not take a value"),
    "--config missing.toml plugins": (2, "missing.toml cannot be read"),
    "--config missing.toml plugins doctor": (2, "missing.toml cannot be read"),
    "--config wrong.toml plugins": (2, "wrong.toml is no TOML"),
    "--config wrong.toml plugins doctor": (2, "wrong.toml is no TOML"),
    "--config words.toml plugins": (2, "did you mean 'plugins'"),
    "--config words.toml plugins doctor --json": (2, "did you mean 'plugins'"),
    "--config string.toml plugins": (2, "plugins.block"),
}
"""A command line, the exit code, and what is told."""


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_clear_line(run: Run, line: str) -> None:
    """It goes to standard error, with the promised exit code, and no traceback."""
    Path("wrong.toml").write_text("store = [\n")
    Path("words.toml").write_text('store = "memory://"\n[plugin]\nblock = []\n')
    Path("string.toml").write_text('store = "memory://"\n[plugins]\nblock = "acme"\n')
    code, told = WRONG[line]
    result = run(line)
    assert result.exit_code == code, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert told in last
    assert "Traceback" not in result.output
    assert result.stdout == ""
