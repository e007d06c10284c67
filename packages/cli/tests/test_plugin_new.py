import ast
import os
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck_cli.failing import Failure
from coatcheck_cli.main import main
from coatcheck_cli.scaffolding import KINDS, names_of, write_distribution

Run = Callable[[str], Result]


def names_in(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs `coatcheck plugin new` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(main, ["plugin", "new", *shlex.split(line)])


@pytest.mark.parametrize(
    ("kind", "given", "distribution", "package", "key", "camel"),
    [
        (
            "handler",
            "acme-ocr",
            "coatcheck-handler-acme-ocr",
            "coatcheck_handler_acme_ocr",
            "acme-ocr",
            "AcmeOcr",
        ),
        (
            "handler",
            "ocr:acme",
            "coatcheck-handler-ocr-acme",
            "coatcheck_handler_ocr_acme",
            "ocr:acme",
            "OcrAcme",
        ),
        (
            "handler",
            "Acme OCR",
            "coatcheck-handler-acme-ocr",
            "coatcheck_handler_acme_ocr",
            "acme-ocr",
            "AcmeOcr",
        ),
        (
            "handler",
            "acme__o.c",
            "coatcheck-handler-acme-o-c",
            "coatcheck_handler_acme_o_c",
            "acme-o-c",
            "AcmeOC",
        ),
        (
            "handler",
            "coatcheck-handler-acme",
            "coatcheck-handler-acme",
            "coatcheck_handler_acme",
            "acme",
            "Acme",
        ),
        ("store", "store-etcd", "coatcheck-store-etcd", "coatcheck_store_etcd", "etcd", "Etcd"),
        ("store", "coatcheck-etcd", "coatcheck-store-etcd", "coatcheck_store_etcd", "etcd", "Etcd"),
        ("handler", "job", "coatcheck-handler-job", "coatcheck_handler_job", "job", "MyJob"),
        ("store", "locked", "coatcheck-store-locked", "coatcheck_store_locked", "locked", "MyLocked"),
        (
            "retry",
            "store-like",
            "coatcheck-retry-store-like",
            "coatcheck_retry_store_like",
            "store-like",
            "StoreLike",
        ),
        ("retry", "retry", "coatcheck-retry-retry", "coatcheck_retry_retry", "retry", "Retry"),
    ],
)
def test_names_are_made_of_one(
    kind: str, given: str, distribution: str, package: str, key: str, camel: str
) -> None:
    """Valid for pip, for Python and in configuration; a handler's key keeps its colon."""
    names = names_of(kind, given)
    assert (names.distribution, names.package, names.key, names.camel) == (distribution, package, key, camel)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_distribution_is_written(run: Run, tmp_path: Path, kind: str) -> None:
    """Every file is complete and can be read as what it is; where it is goes to standard output."""
    result = run(f"{kind} acme-thing")
    assert result.exit_code == 0, result.output
    folder = tmp_path / f"coatcheck-{kind}-acme-thing"
    assert result.stdout == f"{folder.relative_to(tmp_path)}\n"
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    package = f"coatcheck_{kind}_acme_thing"
    assert {
        ".github/workflows/test.yml",
        ".gitignore",
        "CHANGELOG.md",
        "README.md",
        "pyproject.toml",
        f"src/{package}/__init__.py",
        f"src/{package}/plugin.py",
        f"src/{package}/py.typed",
        "tests/test_conformance.py",
        "tests/test_plugin.py",
    } <= files.keys()
    for path, file in files.items():
        text = file.read_text("utf-8")
        assert text.count("{{") == text.count("${{"), path
        if path.endswith(".py"):
            assert ast.get_docstring(ast.parse(text)) or path.startswith("tests/"), path
    project = tomllib.loads(files["pyproject.toml"].read_text("utf-8"))["project"]
    assert project["name"] == folder.name
    assert project["entry-points"]["coatcheck"] == {f"{kind}-acme-thing": f"{package}.plugin"}
    assert any(each.startswith("coatcheck>=0.1,<0.2") for each in project["dependencies"])


def test_what_to_do_next_is_told(run: Run) -> None:
    """On standard error: where to go, and what to run there."""
    told = run("handler ocr:acme").stderr
    for part in ("cd coatcheck-handler-ocr-acme", "pip install --editable", "python -m pytest", "'ocr:acme'"):
        assert part in told


def test_a_directory_is_made(run: Run, tmp_path: Path) -> None:
    """However deep, and the folder is as open as any other."""
    result = run("retry patient --directory a/b")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "a" / "b" / "coatcheck-retry-patient"
    assert (folder / "pyproject.toml").is_file()
    assert names_in(folder.parent) == [folder.name]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "dangling link"])
def test_nothing_is_overwritten(run: Run, tmp_path: Path, kind: str) -> None:
    """Whatever is there stays as it is, and nothing is left beside it."""
    there = tmp_path / "coatcheck-retry-patient"
    if kind == "file":
        there.write_text("mine")
    elif kind == "dangling link":
        there.symlink_to("nowhere")
    else:
        there.mkdir()
        if kind == "folder":
            (there / "mine").write_text("mine")
    result = run("retry patient")
    assert result.exit_code == 2
    assert "nothing is overwritten" in result.stderr
    assert names_in(tmp_path) == [there.name]
    assert os.path.lexists(there)
    assert kind != "folder" or names_in(there) == ["mine"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution is there as a whole, or not at all."""

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(Failure, match="No space left on device"):
        write_distribution(names_of("retry", "patient"), tmp_path, version="0.1.0")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("version", "span"),
    [("0.1.0", ">=0.1,<0.2"), ("0.9.3", ">=0.9,<0.10"), ("2.3.1", ">=2.3,<3"), ("unknown", ">=0.1,<0.2")],
)
def test_the_range_is_of_the_version_at_hand(tmp_path: Path, version: str, span: str) -> None:
    """Before 1.0 a minor may break; later only a major."""
    folder = write_distribution(names_of("handler", "acme"), tmp_path, version=version)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert {f"coatcheck{span}", f"coatcheck-http{span}"} <= set(project["dependencies"])


# ------------------------------------------------------------------ wrong input

WRONG = {
    "handler": (2, "Missing argument 'NAME'"),
    "printer acme": (2, "'printer' is not one of"),
    "handler ''": (2, "no name can be made of ''"),
    "handler ' -- '": (2, "no name can be made of"),
    "handler 3d": (2, "no name can be made of '3d'"),
    "handler Überwachung": (2, "no name can be made of"),
    "handler acme/ocr": (2, "no name can be made of 'acme/ocr'"),
    "handler ../acme": (2, "no name can be made of '../acme'"),
    f"handler {'a' * 31}": (2, "30 characters at most"),
    "handler ocr:acme:eu": (2, "has a colon"),
    "handler :acme": (2, "no name can be made of"),
    "store etcd:one": (2, "only a handler's name may have one"),
    "handler ocr": (2, "a distribution of coatcheck itself"),
    "store sql": (2, "a distribution of coatcheck itself"),
    "store memory": (2, "store 'memory' is a key of coatcheck;"),
    "store sqlite": (2, "is a key of coatcheck-store-sql"),
    "retry exponential": (2, "retry 'exponential' is a key of coatcheck;"),
    "selector weighted": (2, "is a key of coatcheck-selectors"),
    "handler acme ocr": (2, "unexpected extra argument"),
    "handler acme --dir x": (2, "No such option"),
    "handler acme --directory": (2, "requires an argument"),
    "handler acme --directory file": (2, "is a file"),
    "handler acme --directory file/x": (1, "cannot be written: Not a directory"),
}
"""A command line, the exit code, and what is told."""


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_clear_line(run: Run, tmp_path: Path, line: str) -> None:
    """It goes to standard error, with the promised exit code, no traceback, and no file."""
    (tmp_path / "file").touch()
    code, told = WRONG[line]
    result = run(line)
    assert result.exit_code == code, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert told in last
    assert "Traceback" not in result.output
    assert names_in(tmp_path) == ["file"]
