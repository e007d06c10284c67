"""The lifecycle page is made from the lifecycle, and is up to date."""

import importlib.util
from types import ModuleType

import pytest

from coatcheck.lifecycle import ARROWS
from coatcheck.task import Status
from workspace import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """Return `docs/generate.py` as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generator: ModuleType) -> None:
    """What is generated is what is there; if not, run `python docs/generate.py`."""
    for file, make in generator.PAGES.items():
        assert (DOCS / file).read_text("utf-8") == make(), "run ./dev run python docs/generate.py"


def test_the_page_tells_every_arrow_and_status(generator: ModuleType) -> None:
    """Each arrow is in a row of the table, each frequent one in the picture, and each status has a meaning."""
    page = generator.lifecycle_page()
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")
    ]
    rows = [(row[0].split(", "), row[1], row[2].split(", ")) for row in cells if len(row) == 4]
    told = {
        (source, event, target)
        for sources, event, targets in rows
        for source in sources
        for target in targets
    }
    assert told == {
        (arrow.source.value if arrow.source else "-", arrow.event, arrow.target.value) for arrow in ARROWS
    } | {("from", "event", "to"), ("---", "---", "---")}
    for arrow in ARROWS:
        line = f"{arrow.source.value if arrow.source else '[*]'} --> {arrow.target.value} : "
        drawn = [each for each in page.splitlines() if each.strip().startswith(line)]
        assert arrow.event in generator.SELDOM or any(arrow.event in each for each in drawn)
    assert set(generator.meanings()) == {status.value for status in Status}
