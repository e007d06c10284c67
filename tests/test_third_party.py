"""The way of a plugin's author, and of who installs no more than needed: everything from wheels, in clean places."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen

from wheels import constraints_of, install, uv
from workspace import MEMBERS, ROOT, Member

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KINDS = {
    "handler": "acme-ocr",
    "store": "press",
    "selector": "cheap",
    "retry": "patient",
    "admission": "bulk",
}
"""What is made with `coatcheck plugin new`, by kind."""
RECOVERY = (["tasks", "list"], ["tasks", "unknown"], ["gates", "list"], ["stats"], ["plugins"])
"""What an operator needs when something is broken."""
SECRET = "key-of-the-test"


@define
class Provider:
    """What the invented provider of the template has been asked."""

    url: str = ""
    keys: list[str] = field(factory=list)
    """The credential of each creating request."""
    documents: list[str] = field(factory=list)


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Serve the API that the template of handlers speaks."""
    found = Provider()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found.keys.append(str(self.headers["authorization"]))
            found.documents.append(body["url"])
            self.answer({"id": f"job-{len(found.keys)}", "status": "queued"})

        def do_GET(self) -> None:
            self.answer({"id": "job", "status": "succeeded", "result": {"text": "Total: 12"}})

        def answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


# ------------------------------------------------------------------ places


@frozen
class Place:
    """An environment, and a folder in which commands run."""

    python: Path
    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """What commands see of the environment."""
        return {"PATH": str(self.python.parent), "ACME_KEY": SECRET}

    def run(self, *arguments: str | Path, code: int = 0) -> str:
        """Run `coatcheck`, which exits with `code` and shows no traceback; return both its outputs."""
        done = subprocess.run(
            [self.python.parent / "coatcheck", *arguments],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == code, f"{arguments} came to {done.returncode}: {told}"
        assert "Traceback" not in told
        return done.stdout if code == 0 else told

    def listed(self, *arguments: str) -> dict[tuple[str | None, str | None, str], dict[str, Any]]:
        """Return the listing of plugins, by kind, key and distribution."""
        rows = json.loads(self.run("plugins", "--json", *arguments))
        return {(row["kind"], row["key"], row["distribution"]): row for row in rows}

    def configure(self, provider: Provider, more: str = "") -> None:
        """Write a configuration with the new store and the new handler."""
        (self.folder / "coatcheck.toml").write_text(f"""
store = "press://{self.folder}/tasks.log"

[handlers.acme-ocr]
settings = {{base_url = "{provider.url}"}}
accounts.default.api_key = {{env = "ACME_KEY"}}

[worker]
poll_interval = "100ms"

{more}""")

    def work(self, provider: Provider) -> dict[str, Any]:
        """Submit a document, let a worker do it, stop the worker; return the task."""
        before = len(provider.keys)
        task_id = self.run("submit", "acme-ocr", "https://files.example.com/a.pdf").strip()
        worker = subprocess.Popen(
            [self.python.parent / "coatcheck", "worker"],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            self.run("tasks", "wait", task_id, "--timeout", "90s")
            worker.send_signal(signal.SIGTERM)
            told, _ = worker.communicate(timeout=90)
        finally:
            worker.kill()
            worker.communicate()
        assert worker.returncode == 0, told
        assert provider.keys[before:] == [f"Bearer {SECRET}"]
        task: dict[str, Any] = json.loads(self.run("tasks", "show", task_id, "--json"))
        return task


@pytest.fixture(scope="module")
def constraints(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Say that members are the wheels that were built."""
    return constraints_of(wheels, tmp_path_factory.mktemp("constraints"))


@pytest.fixture(scope="module")
def sources(constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begin one plugin of each kind, and a second handler, with the command from its wheel; return the folder."""
    folder = tmp_path_factory.mktemp("sources")
    place = Place(install(folder / "place", "--constraints", constraints, "coatcheck-cli"), folder)
    for kind, name in (*KINDS.items(), ("handler", "rival")):
        place.run("plugin", "new", kind, name)
    return folder


@frozen
class Built:
    """A wheel of a plugin that was begun."""

    wheel: Path
    source: Path


Build = Callable[..., Built]


@pytest.fixture(scope="module")
def build(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return what builds a plugin, after replacing texts in its files; the path has a name for the package."""

    def built(kind: str, name: str, **changes: tuple[str, str]) -> Built:
        folder = tmp_path_factory.mktemp(name)
        source = shutil.copytree(sources / f"coatcheck-{kind}-{name}", folder / f"coatcheck-{kind}-{name}")
        for file, (old, new) in changes.items():
            [path] = [each for each in source.rglob("*") if each.stem == file]
            text = path.read_text("utf-8")
            assert old in text
            path.write_text(text.replace(old, new), "utf-8")
        uv("build", "--wheel", "--out-dir", folder, source)
        return Built(next(folder.glob("*.whl")), source)

    return built


@pytest.fixture(scope="module")
def installed(constraints: Path, build: Build) -> Callable[..., Place]:
    """Return what installs the new handler, the new store, the command, and what is given, into a clean place."""
    own = [build(kind, KINDS[kind]).wheel for kind in ("handler", "store")]

    def made(folder: Path, *more: str | Path) -> Place:
        wanted = ("--constraints", constraints, *own, "coatcheck-cli", *more)
        return Place(install(folder / "place", *wanted), folder)

    return made


# ------------------------------------------------------------------ begun, proven, used


@frozen
class Proving:
    """Where all kinds of plugins are proven."""

    python: Path
    sources: dict[str, Path]
    """By kind."""
    cache: Path
    """What the type checker learns of coatcheck, once."""


@pytest.fixture(scope="module")
def proving(constraints: Path, build: Build, tmp_path_factory: pytest.TempPathFactory) -> Proving:
    """Install one plugin of each kind, from its wheel, with what its tests need, and the linter and type checker."""
    folder = tmp_path_factory.mktemp("proving")
    made = {kind: build(kind, name) for kind, name in KINDS.items()}
    wanted = [f"{each.wheel}[test]" for each in made.values()]
    tools = ("mypy>=2.4,<3", "ruff>=0.17.6,<0.18")
    python = install(folder / "place", "--constraints", constraints, *wanted, *tools)
    return Proving(python, {kind: each.source for kind, each in made.items()}, folder / "cache")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_begun_is_sound_at_once(kind: str, proving: Proving) -> None:
    """Its own tests pass and are the kit's, and linter, formatter and type checker have no word to say."""
    source = proving.sources[kind]
    for command in (
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--conformance-report", "reports"],
    ):
        done = subprocess.run(
            [proving.python, "-m", *command],
            cwd=source,
            env={"PATH": str(proving.python.parent), "MYPY_CACHE_DIR": str(proving.cache)},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(each.read_text("utf-8")) for each in (source / "reports").iterdir()]
    assert [each["verdict"] for each in reports] == ["conformant", "conformant"]


def test_it_is_found_used_disabled_and_upgraded(
    installed: Callable[..., Place], build: Build, provider: Provider, tmp_path: Path
) -> None:
    """It is listed, does its work from configuration alone, can be blocked, and a new version takes its place."""
    place = installed(tmp_path)
    found = place.listed()
    handler = ("handler", "acme-ocr", "coatcheck-handler-acme-ocr")
    store = ("store", "press", "coatcheck-store-press")
    assert [(found[each]["version"], found[each]["state"]) for each in (handler, store)] == [
        ("0.1.0", "available"),
        ("0.1.0", "available"),
    ]
    assert place.listed("--load")[handler]["state"] == "loaded"

    place.configure(provider)
    assert place.work(provider)["status"] == "SUCCEEDED"
    place.run("plugins", "doctor")

    place.configure(provider, '[plugins]\nblock = ["coatcheck-handler-acme-ocr"]')
    assert place.listed()[None, None, handler[2]]["state"] == "blocked"
    told = place.run("plugins", "doctor", code=1)
    assert 'take "coatcheck-handler-acme-ocr" out of plugins.block' in told
    assert "coatcheck-handler-acme-ocr" in place.run("worker", code=2)

    newer = build("handler", "acme-ocr", pyproject=('version = "0.1.0"', 'version = "0.2.0"'))
    uv("pip", "install", "--python", place.python, "--no-deps", newer.wheel)
    place.configure(provider)
    assert place.listed()[handler]["version"] == "0.2.0"
    assert place.work(provider)["status"] == "SUCCEEDED"
    assert len(json.loads(place.run("tasks", "list", "--json"))) == 2


# ------------------------------------------------------------------ broken on purpose

BROKEN: dict[str, tuple[dict[str, tuple[str, str]], str, str]] = {
    "import error": (
        {"plugin": ("from coatcheck.hooks", "import no_such_module\nfrom coatcheck.hooks")},
        "failed",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "import error of the factory": (
        {"handler": ("from attrs import", "import no_such_module\nfrom attrs import")},
        "failed",
        "no_such_module",
    ),
    "wrong API version": (
        {"plugin": ('key="rival",', 'key="rival", api="9.0",')},
        "incompatible",
        "pip install --upgrade coatcheck",
    ),
    "duplicate key": (
        {"plugin": ('key="rival"', 'key="acme-ocr"')},
        "conflict",
        'plugins.prefer = {"acme-ocr" = "coatcheck-handler-acme-ocr"}',
    ),
}
"""How another handler is broken, in which state it is then, and what the doctor says."""


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_neighbour_stops_nobody(
    how: str, installed: Callable[..., Place], build: Build, provider: Provider, tmp_path: Path
) -> None:
    """What nobody asked for breaks nothing but the listing; the doctor says what mends it."""
    changes, state, told = BROKEN[how]
    place = installed(tmp_path, build("handler", "rival", **changes).wheel)
    place.configure(provider)
    states = {row["state"] for row in place.listed("--load").values() if "rival" in row["distribution"]}
    assert states == {state}
    assert told in place.run("plugins", "doctor", code=1)
    if how == "duplicate key":  # until somebody decides, who asks for it is told
        assert "prefer" in place.run("worker", code=2)
        place.configure(provider, '[plugins]\nprefer = {acme-ocr = "coatcheck-handler-acme-ocr"}')
    assert place.work(provider)["status"] == "SUCCEEDED"
    for command in RECOVERY:
        place.run(*command)


def test_an_upgrade_that_breaks_a_configured_handler_stops_only_its_own_tasks(
    installed: Callable[..., Place], build: Build, provider: Provider, tmp_path: Path
) -> None:
    """The worker says that it is left out and works for the others; every recovery command goes on, too."""
    place = installed(tmp_path, build("handler", "rival").wheel)
    more = f'[handlers.rival]\nsettings = {{base_url = "{provider.url}"}}\n'
    place.configure(provider, more)
    waiting = place.run("submit", "rival", "https://files.example.com/b.pdf").strip()
    worse = build(
        "handler",
        "rival",
        plugin=("from coatcheck.hooks", "import no_such_module\nfrom coatcheck.hooks"),
        pyproject=('version = "0.1.0"', 'version = "0.2.0"'),
    )
    uv("pip", "install", "--python", place.python, "--no-deps", worse.wheel)
    assert "pip install --upgrade --force-reinstall" in place.run("plugins", "doctor", code=1)
    assert place.work(provider)["status"] == "SUCCEEDED"
    for command in RECOVERY:
        place.run(*command)
    assert json.loads(place.run("tasks", "show", waiting, "--json"))["status"] == "PENDING_SUBMIT"
    place.run("tasks", "cancel", waiting)
    assert json.loads(place.run("tasks", "show", waiting, "--json"))["status"] == "CANCELED"


# ------------------------------------------------------------------ only what is needed

PLUGINS = [member for member in MEMBERS if any(group == "coatcheck" for group, _, _ in member.entry_points)]
CREATE = """
import json, sys
from coatcheck import ConfigurationError, PluginError, discover

needed, names = json.load(sys.stdin)
catalog = discover()
offers = {(str(each.kind), name): each.plugin.distribution for each in catalog.offers for name in each.names}
told = {}

def create_store(scheme, settings):
    for rest in ("", "/run/jobs", "localhost/jobs", "localhost", "localhost/service/0"):  # each has URLs of its own
        try:
            return catalog.create_store(f"{scheme}://{rest}")
        except ConfigurationError as error:
            refusal = error
    raise refusal

for kind, name in names or offers:
    make = {
        "store": create_store,
        "handler": lambda name, settings: catalog.create_handler(name, settings=settings),
        "selector": catalog.create_selector,
        "retry": catalog.create_retry_policy,
        "admission": catalog.create_admission_policy,
    }[kind]
    try:
        make(name, needed.get(name))
    except (ConfigurationError, PluginError) as error:
        told[f"{kind} {name}"] = str(error)
print(json.dumps([[[*each, owner] for each, owner in offers.items()], told]))
"""


def create(
    python: Path, needed: dict[str, Any], names: list[tuple[str, str]] | None = None
) -> tuple[list[list[str]], dict[str, str]]:
    """Make everything that is installed, or what is named; return what is offered, and the errors."""
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", CREATE],
        input=json.dumps([needed, names]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    offers, told = json.loads(done.stdout)
    return offers, told


def needed_by(member: Member) -> dict[str, Any]:
    """Return the settings without which some of its offers are nothing: its own tests have them."""
    file = member.folder / "tests" / "test_plugin.py"
    tree = ast.parse(file.read_text("utf-8") if file.exists() else "")
    tables = [
        ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value
        if each.target.id in {"NEEDED", "SETTINGS"}
    ]
    return tables[0] if tables else {}


@pytest.fixture(scope="module")
def bare(constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Core and nothing else."""
    return install(tmp_path_factory.mktemp("bare") / "place", "--constraints", constraints, "coatcheck")


def test_there_are_plugins() -> None:
    """Stores, handlers, selectors, retry and admission policies, each to be had alone."""
    assert {"coatcheck-store-sql", "coatcheck-store-redis", "coatcheck-handler-ocr"} <= {
        member.name for member in PLUGINS
    }
    assert len(PLUGINS) >= 7


@pytest.mark.parametrize("member", PLUGINS, ids=lambda member: member.name)
def test_a_plugin_alone_is_enough_and_its_absence_is_told(
    member: Member, constraints: Path, bare: Path, tmp_path: Path
) -> None:
    """With it and core, all that it offers can be made; without it, the error is the pip command that brings it."""
    needed = needed_by(member)
    drivers = "[mysql,postgresql]" if member.name == "coatcheck-store-sql" else ""
    alone = install(tmp_path / "place", "--constraints", constraints, f"{member.name}{drivers}")
    offers, errors = create(alone, needed)
    own = [(kind, name) for kind, name, owner in offers if owner == member.name]
    assert own
    others = {what: message for what, message in errors.items() if "needs the driver" not in message}
    assert others == {}
    assert all("pip install " in message for message in errors.values())  # a second driver of a database
    _, told = create(bare, needed, own)
    assert len(told) == len(own)
    for what, message in told.items():
        assert f"pip install '{member.name}" in message, what


def test_the_rest_of_the_workspace_is_not_seen(bare: Path) -> None:
    """The tests of this module would prove nothing if these environments saw the sources."""
    offers, errors = create(bare, {})
    assert {owner for _, _, owner in offers} == {"coatcheck"}
    assert errors == {}
    assert str(ROOT) not in str(bare.parent.parent)
    assert os.path.realpath(bare) == os.path.realpath(sys.executable)
