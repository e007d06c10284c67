from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck import App, ConfigurationError, ExponentialRetry, Rate
from coatcheck.configuration import Configuration, load_configuration, read_written
from coatcheck.configuration.making import gates_of, parts_of
from coatcheck.configuration.places import line_of
from coatcheck.memory import MemoryStore
from coatcheck.testing import ScriptedHandler

WHOLE = """\
callback_url = "https://app.example.com/callbacks/{handler_key}"
priority_ageing = "10m"
retry = { use = "exponential", initial = "2s", maximum = "1m" }

[store]
url = "memory://"

[handlers."docs:acme-eu"]
use = "packages.core.tests.test_configuration:make_handler"

[gates."provider/docs%3Aacme-eu"]
concurrency = 5
rate = "10/m"

[worker]
processes = 2
queries = 20
lease = "90s"

[retention]
succeeded = "7d"

[plugins]
block = ["coatcheck-store-sql"]
"""


def make_handler(*, key: str, accounts: object = None, settings: object = None) -> ScriptedHandler[str]:
    """Make a handler, as a reference in configuration names it."""
    assert (accounts, settings) == (None, None)
    return ScriptedHandler(key, str)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, here: Path, **environ: str) -> Configuration:
    """Return what a file says, with these variables over it."""
    (here / "coatcheck.toml").write_text(text)
    return load_configuration(environ=environ)


def test_all_of_it_is_read(here: Path) -> None:
    """Into typed data; what is not written has its default."""
    found = load(WHOLE, here)
    assert found.store == {"url": "memory://"}
    assert found.priority_ageing == timedelta(minutes=10)
    assert (found.worker.processes, found.worker.queries, found.worker.submissions) == (2, 20, 50)
    assert found.worker.lease == timedelta(seconds=90)
    assert found.retention.succeeded == timedelta(days=7)
    assert found.plugins.block == ("coatcheck-store-sql",)
    (gate,) = gates_of(found)
    assert (gate.name, gate.concurrency, gate.rate) == (
        "provider/docs%3Aacme-eu",
        5,
        Rate(10, timedelta(minutes=1)),
    )
    assert found.handlers["docs:acme-eu"].use == "packages.core.tests.test_configuration:make_handler"


def test_a_file_becomes_an_app(here: Path) -> None:
    """The same objects as in code; its workers are as configured, unless they are told otherwise."""
    (here / "coatcheck.toml").write_text(
        WHOLE.replace("packages.core.tests.test_configuration:make_handler", f"{__name__}:make_handler")
    )
    app = App.from_config(environ={})
    assert isinstance(app.store, MemoryStore)
    assert list(app.registry) == ["docs:acme-eu"]
    assert app.configuration is not None
    assert app.configuration.callback_url == "https://app.example.com/callbacks/{handler_key}"
    worker = app.worker(submissions=3)
    assert (worker.settings.submissions, worker.settings.queries) == (3, 20)
    assert worker.settings.lease == timedelta(seconds=90)
    assert worker.settings.callback_url == app.configuration.callback_url
    retry = parts_of(app.configuration)["retry"]
    assert isinstance(retry, ExponentialRetry)
    assert retry.initial == timedelta(seconds=2)


def test_the_first_place_counts(here: Path) -> None:
    """A file that is named, the variable's, coatcheck.toml, pyproject.toml, in this order."""
    (here / "pyproject.toml").write_text('[tool.coatcheck]\nstore = "memory://d"\n')
    assert load_configuration(environ={}).store["url"] == "memory://d"
    assert load_configuration("pyproject.toml", environ={}).store["url"] == "memory://d"
    (here / "coatcheck.toml").write_text('store = "memory://c"\n')
    assert load_configuration(environ={}).store["url"] == "memory://c"
    (here / "b.toml").write_text('store = "memory://b"\n')
    assert load_configuration(environ={"COATCHECK_CONFIG": "b.toml"}).store["url"] == "memory://b"
    (here / "a.toml").write_text('store = "memory://a"\n')
    found = load_configuration(here / "a.toml", environ={"COATCHECK_CONFIG": "b.toml"})
    assert found.store["url"] == "memory://a"


def test_variables_go_before_the_file(here: Path) -> None:
    """Two underscores stand for a dot; what is no setting is somebody else's."""
    found = load(
        WHOLE,
        here,
        COATCHECK_STORE="memory://other",
        COATCHECK_WORKER__QUERIES="7",
        COATCHECK_RETENTION__FAILED="30d",
        COATCHECK_DEMO_SPEED="11",
        COATCHECK_STRICT_PLUGINS="1",
    )
    assert found.store == {"url": "memory://other"}
    assert (found.worker.queries, found.worker.processes) == (7, 2)
    assert found.retention.failed == timedelta(days=30)


def test_variables_alone_are_enough(here: Path) -> None:
    """In a container there may be no file."""
    assert list(here.iterdir()) == []
    found = load_configuration(environ={"COATCHECK_STORE__URL": "memory://"})
    assert found.store == {"url": "memory://"}


def test_a_setting_of_the_store_may_come_from_a_variable(here: Path) -> None:
    """Also beside a URL in short."""
    found = load('store = "memory://"\n', here, COATCHECK_STORE__NAMESPACE="a")
    assert found.store == {"url": "memory://", "namespace": "a"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("store = \n", r"coatcheck\.toml is no TOML: .*line 1"),
        (
            'stroe = "memory://"\n',
            r"^coatcheck\.toml:1: stroe: the configuration has no 'stroe'; did you mean 'store'",
        ),
        ("[worker]\nqueries = 5\n", r"^coatcheck\.toml: there is no store"),
        ('[store]\nnamespace = "a"\n', r"^coatcheck\.toml:1: store has no url"),
        ("store = 7\n", r"^coatcheck\.toml:1: store is to be a table, not int"),
        (
            'store = "memory://"\n\n[worker]\nquries = 5\n',
            r"^coatcheck\.toml:4: worker\.quries: worker has no 'quries'; did you mean 'queries'",
        ),
        (
            'store = "memory://"\n[worker]\nlease = 90\n',
            r"^coatcheck\.toml:3: worker\.lease: expected a duration such as '30s'",
        ),
        (
            'store = "memory://"\n[worker]\nprocesses = 0\n',
            r"^coatcheck\.toml:2: worker: processes must be at least 1",
        ),
        ('store = "memory://"\nworker = "fast"\n', r"^coatcheck\.toml:2: worker is to be a table, not str"),
        (
            'store = "memory://"\n[handlers."a:b"]\nuse = "x"\nsetings = {}\n',
            r"^coatcheck\.toml:4: handlers\.a:b\.setings: handlers\.a:b has no 'setings'; did you mean 'settings'",
        ),
        (
            'store = "memory://"\n[gates."provider/a"]\nrate = "fast"\n',
            r"^coatcheck\.toml:3: gates\.provider/a\.rate: expected a rate",
        ),
        (
            'store = "memory://"\n[gates."provider/a"]\n',
            r"^coatcheck\.toml:2: gates\.provider/a: a gate needs a concurrency",
        ),
        ('store = "memory://"\nretry = { initial = "2s" }\n', r"^coatcheck\.toml:2: retry has no use"),
        ('store = "memory://"\nretry = 7\n', r"^coatcheck\.toml:2: retry is to be a table, not int"),
        (
            'store = "memory://"\npriority_ageing = "soon"\n',
            r"^coatcheck\.toml:2: priority_ageing: expected a duration",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(here: Path, text: str, says: str) -> None:
    """File, line and path, and the nearest right name."""
    with pytest.raises(ConfigurationError, match=says):
        load(text, here)


def test_a_variable_that_is_wrong_is_told_by_its_name(here: Path) -> None:
    """There is no line that could be looked at."""
    with pytest.raises(
        ConfigurationError, match=r"^environment variable COATCHECK_WORKER__LEASE: expected a duration"
    ):
        load(WHOLE, here, COATCHECK_WORKER__LEASE="long")
    with pytest.raises(
        ConfigurationError,
        match=r"^environment variable COATCHECK_WORKER__LEESE: worker has no 'leese'; did you mean 'lease'",
    ):
        load(WHOLE, here, COATCHECK_WORKER__LEESE="1s")


def test_a_file_that_cannot_be_read_is_told(here: Path) -> None:
    """With the reason; and so is that there is none at all."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read: No such file"):
        load_configuration("nowhere.toml", environ={})
    (here / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not text in UTF-8"):
        load_configuration("bad.toml", environ={})
    with pytest.raises(ConfigurationError, match=r"no configuration: no coatcheck\.toml here"):
        load_configuration(environ={})
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ConfigurationError, match="no configuration"):
        load_configuration(environ={})


def test_an_app_can_be_made_without_what_is_broken(here: Path) -> None:
    """Who wants that is told what is left out, and why; everybody else gets the error."""
    (here / "coatcheck.toml").write_text(
        'store = "memory://"\n[handlers."docs:good"]\n'
        'use = "packages.core.tests.test_configuration:make_handler"\n[handlers."docs:bad"]\nuse = "nowhere:make"\n'
    )
    with pytest.raises(ConfigurationError, match="nowhere"):
        App.from_config(environ={})
    told: dict[str, str] = {}
    app = App.from_config(environ={}, unusable=lambda key, error: told.update({key: str(error)}))
    assert list(app.registry) == ["docs:good"]
    assert list(told) == ["docs:bad"]
    assert "nowhere" in told["docs:bad"]


def test_what_was_written_can_be_had_unchecked(here: Path) -> None:
    """To show where each value is from."""
    (here / "coatcheck.toml").write_text(WHOLE)
    written = read_written(environ={"COATCHECK_WORKER__QUERIES": "7"})
    assert written.place("worker", "lease") == "coatcheck.toml:18: worker.lease"
    assert written.place("worker", "queries") == "environment variable COATCHECK_WORKER__QUERIES"
    assert written.place() == "coatcheck.toml"
    assert read_written(environ={"COATCHECK_STORE": "memory://"}).variables == {"store": "COATCHECK_STORE"}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("b", "c"), 2),
        (("t", "u v"), 8),
        (("t", "u v", "x"), 9),
        (("t", "u v", "y", "z"), 10),
        (("t", "u v", "missing"), 8),
        (("t", "w"), None),
        (("inside",), None),
        (("l",), 12),
    ],
)
def test_a_line_is_found(path: tuple[str, ...], line: int | None) -> None:
    """Of a table, an entry, or of what is nearest above it; text of several lines has none."""
    text = (
        'a = 1\nb.c = 2\n\ntext = """\ninside = 3\n"""\n\n[t."u v"] # a table\nx = 1\n'
        '"y" = { z = 1 }\n\n[[l]]\nm = 1\n'
    )
    assert line_of(text, path) == line
