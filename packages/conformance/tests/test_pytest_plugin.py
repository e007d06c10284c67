import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EVEN = """
import pytest
from small_suite import NumberConformance, NumberSpec

class TestNumber(NumberConformance):
    @pytest.fixture
    def number_spec(self):
        return NumberSpec({number})
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one module in a process of its own, as an author of an implementation does."""
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / "test_it.py").write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_suite_is_reported(tmp_path: Path) -> None:
    """The summary in the terminal, and the same report as the command writes."""
    done = run(tmp_path, EVEN.format(number=4), "--conformance-report", "reports")
    assert done.returncode == 0, done.stdout
    assert "TestNumber of the number 4: conformant" in done.stdout
    told = json.loads((tmp_path / "reports" / "TestNumber.json").read_text("utf-8"))
    assert (told["verdict"], told["server"]) == ("conformant", "Peano 1.0")
    assert [each["outcome"] for each in told["rules"]] == ["passed", "skipped", "passed"]
    assert told["rules"][1]["reason"] == "needs halves"


def test_processes_that_share_the_rules_give_one_report(tmp_path: Path) -> None:
    """With pytest-xdist, the report and the verdict are those of all rules, whichever process has tried them."""
    chosen = ["-n", "2", "--conformance-report", "reports"]
    for number, code, verdict in ((4, 0, "conformant"), (3, 1, "not conformant")):
        done = run(tmp_path, EVEN.format(number=number), *chosen)
        assert done.returncode == code, done.stdout
        assert done.stdout.count(f"TestNumber of the number {number}: {verdict}") == 1
        told = json.loads((tmp_path / "reports" / "TestNumber.json").read_text("utf-8"))
        assert told["verdict"] == verdict
        assert len([each for each in told["rules"] if each["outcome"] != "not run"]) == 3


def test_what_is_required_is_known_to_all_processes(tmp_path: Path) -> None:
    """With pytest-xdist, too, `--conformance-require` turns a skip into a failure."""
    done = run(tmp_path, EVEN.format(number=4), "-n", "2", "--conformance-require", "halves")
    assert done.returncode == 1
    assert "NUMBER-EVEN-2 failed: cannot be tried without halves, which is required here" in done.stdout


def test_skipping_everything_in_all_processes_is_a_failure(tmp_path: Path) -> None:
    """With pytest-xdist, too, a run in which no MUST rule was tried fails."""
    done = run(tmp_path, EVEN.format(number=4), "-n", "2", "-k", "test_positive")
    assert done.returncode == 1, done.stdout
    assert "no MUST rule was tried" in done.stdout


def test_a_failure_shows_what_was_compared(tmp_path: Path) -> None:
    """Rules assert, and pytest shows the values; the report has the reason."""
    done = run(tmp_path, EVEN.format(number=3), "--conformance-report", "reports")
    assert done.returncode == 1
    assert "TestNumber of the number 3: not conformant" in done.stdout
    told = json.loads((tmp_path / "reports" / "TestNumber.json").read_text("utf-8"))
    assert told["problems"][0].startswith("NUMBER-EVEN-1 failed: ")


def test_what_is_required_must_be_there(tmp_path: Path) -> None:
    """`--conformance-require` turns a skip into a failure."""
    done = run(tmp_path, EVEN.format(number=4), "--conformance-require", "halves")
    assert done.returncode == 1
    assert "NUMBER-EVEN-2 failed: cannot be tried without halves, which is required here" in done.stdout


@pytest.mark.parametrize(
    ("chosen", "code", "verdict"), [("test_even", 0, "partial"), ("test_positive", 1, "not conformant")]
)
def test_a_run_of_some_rules(tmp_path: Path, chosen: str, code: int, verdict: str) -> None:
    """What was left out makes it partial; a run without any MUST rule is a failure."""
    done = run(tmp_path, EVEN.format(number=4), "-k", chosen)
    assert done.returncode == code, done.stdout
    assert f"TestNumber of the number 4: {verdict}" in done.stdout


def test_trying_again_what_failed_may_be_a_should_alone(tmp_path: Path) -> None:
    """`--last-failed` chooses for itself: the MUST rules that it leaves out have passed before."""
    text = EVEN.format(number="int(open('number').read())")
    (tmp_path / "number").write_text("-4", "utf-8")
    assert run(tmp_path, text, "-p", "cacheprovider").returncode == 1
    still = run(tmp_path, text, "-p", "cacheprovider", "--last-failed")
    assert (still.returncode, "1 failed" in still.stdout) == (1, True)
    (tmp_path / "number").write_text("4", "utf-8")
    done = run(tmp_path, text, "-p", "cacheprovider", "--last-failed")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_skipping_everything_is_a_failure(tmp_path: Path) -> None:
    """Nothing executed is a failure, although pytest itself is content."""
    text = EVEN.format(number=4).replace(
        "        return", "        pytest.skip('no server here')\n        return"
    )
    done = run(tmp_path, text)
    assert done.returncode == 1
    assert "3 skipped" in done.stdout
    assert "no MUST rule was tried" in done.stdout


def test_a_rule_that_was_deleted_is_a_failure(tmp_path: Path) -> None:
    """Taking a rule out of a class after it was made doesn't go unnoticed."""
    text = EVEN.format(number=4) + "\nNumberConformance.test_halves = None\n"
    done = run(tmp_path, text)
    assert done.returncode == 1, done.stdout
    assert "NUMBER-EVEN-2 was replaced or deleted" in done.stdout


def test_a_suite_without_its_fixture_says_so(tmp_path: Path) -> None:
    """The first thing that a newcomer forgets."""
    done = run(
        tmp_path,
        "from coatcheck_conformance import StoreConformance\n\nclass TestIt(StoreConformance): pass\n",
        "-k",
        "ADD or add_answers",
    )
    assert done.returncode == 1
    assert "TestIt needs a fixture `store_spec` that returns a StoreSpec" in done.stdout


def test_what_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    """A misspelt factory fails each rule with its name, and no more."""
    text = (
        "import pytest\nfrom coatcheck_conformance import StoreConformance, StoreSpec\n\n"
        "class TestIt(StoreConformance):\n"
        "    @pytest.fixture\n    def store_spec(self):\n        return StoreSpec('nowhere:create')\n"
    )
    done = run(tmp_path, text, "-k", "add_answers")
    assert done.returncode == 1
    assert "there is no 'nowhere:create' here: No module named 'nowhere'" in done.stdout
    assert "INTERNALERROR" not in done.stdout + done.stderr


def test_other_tests_are_none_of_its_business(tmp_path: Path) -> None:
    """Without a rule, nothing is printed, and nothing of coatcheck is imported: coverage of it would be wrong."""
    text = (
        "import sys\n\ndef test_it():\n"
        "    assert 'coatcheck_conformance.pytest_plugin' in sys.modules\n"
        "    heavy = {'coatcheck', 'attrs', 'attr', 'hypothesis', 'coatcheck_conformance.rules'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    done = run(tmp_path, text, "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout
    assert "conformance" not in done.stdout
