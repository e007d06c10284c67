import json
from pathlib import Path

import pytest

from coatcheck_conformance import StoreConformance, StoreSpec
from coatcheck_conformance.cli import main

SOME = ["--only", "STORE-ADD-1", "--only", "STORE-READ-1"]
MEMORY = StoreSpec("coatcheck.memory:MemoryStore", clock="clock")


def make_spec(folder: Path) -> StoreSpec:
    """Return a spec in a folder."""
    assert folder.is_dir()
    return MEMORY


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    "target",
    [
        ["memory://"],
        ["coatcheck.memory:MemoryStore"],
        ["coatcheck:create_store", "--url", "memory://"],
        ["test_cli:MEMORY"],
        ["test_cli:make_spec"],
    ],
)
def test_a_store_is_named_in_several_ways(target: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """By its URL, its factory, a spec, or a function that returns one."""
    assert main(["store", *target, *SOME]) == 3
    assert "  2 passed, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["retry", "exponential", "--setting", "initial=2s"], "RetryConformance of exponential"),
        (["admission", "coatcheck:StandardAdmission"], "AdmissionConformance of coatcheck:StandardAdmission"),
        (["plugin", "coatcheck-store-sql"], "PluginConformance of coatcheck-store-sql"),
    ],
)
def test_other_kinds_are_named_as_configuration_names_them(
    arguments: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By key, by reference, or by the name of the distribution."""
    assert main(arguments) == 0
    assert target in capsys.readouterr().out


def test_the_report_is_written(tmp_path: Path) -> None:
    """As JSON, with the placeholders of the URL as they were given."""
    out = tmp_path / "out.json"
    main(["store", "sqlite:///{folder}/jobs.db", *SOME, "--report", str(out), "--seed", "5"])
    told = json.loads(out.read_text("utf-8"))
    assert told["target"] == "coatcheck:create_store sqlite:///{folder}/jobs.db"
    assert (told["seed"], told["counts"]["passed"], told["verdict"]) == (5, 2, "partial")


def test_failures_are_printed_with_their_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """The rule, what it promises, and what did not hold."""
    assert main(["store", "broken_stores:Flattering", "--only", "STORE-CANCEL-2"]) == 1
    out = capsys.readouterr().out
    assert "FAILED           STORE-CANCEL-2 True only the first time." in out
    assert "  STORE-CANCEL-2 failed: " in out
    assert "StoreConformance of broken_stores:Flattering: not conformant" in out


def test_expected_failures_are_partial(capsys: pytest.CaptureFixture[str]) -> None:
    """A reason is wanted, and told."""
    arguments = ["store", "broken_stores:Flattering", "--only", "STORE-CANCEL-2"]
    assert main([*arguments, "--expect-failure", "STORE-CANCEL-2=always says yes"]) == 3
    assert "STORE-CANCEL-2 is expected to fail: always says yes" in capsys.readouterr().out


def test_requirements_are_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    """`--require` turns a skip into a failure."""
    assert (
        main(
            ["store", "memory://", "--only", "STORE-SHARE-1", "--only", "STORE-ADD-1", "--require", "shared"]
        )
        == 1
    )
    assert "cannot be tried without shared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["store", "sqlite:///jobs.db"], "is one place, and each rule needs an empty one"),
        (["store", "nowhere:create"], "there is no 'nowhere:create' here"),
        (["store", "coatcheck"], "write module:attribute, not 'coatcheck'"),
        (["store", "nothing://x"], "nothing"),
        (["store", "memory://", "--only", "STORE-NONE-1"], "has no rules STORE-NONE-1"),
        (["store", "memory://", "--expect-failure", "STORE-ADD-1"], "write NAME=VALUE, not 'STORE-ADD-1'"),
        (["store", "builtins:dict", *SOME], "is no coatcheck.store.Store"),
        (["retry", "nothing"], "nothing installed offers retry 'nothing'"),
        (["plugin", "coatcheck-nothing"], "the distribution 'coatcheck-nothing' is not installed here"),
        (["handler", "coatcheck.memory:MemoryStore"], "is neither a HandlerSpec nor a function"),
    ],
)
def test_what_cannot_be_carried_out_says_why(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a line that says what to do."""
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_the_rules_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As the table of the docs."""
    assert main(["rules", "store"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 2 + len(StoreConformance.rules())
    assert lines[2].startswith("| `STORE-ADD-1` | MUST |")
