"""The simulation of retry policies, and what the docs say that it said."""

import importlib.util
import sys
from types import ModuleType

import pytest

from workspace import ROOT

PAGE = ROOT / "docs" / "retries.md"


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    """Load the benchmark, which is no package that tests can import."""
    spec = importlib.util.spec_from_file_location("retries_benchmark", ROOT / "benchmarks" / "retries.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_fixed_interval_costs_and_is_late_as_arithmetic_says(simulation: ModuleType) -> None:
    """Jobs of 100 seconds, asked about every 10 without jitter, take 10 queries and are late by nothing."""
    told = simulation.simulate(simulation.fixed(jitter=0), lambda _: 100.0, tasks=20)
    assert (told.queries, told.late, told.late_95, told.share) == (10, 0, 0, 0)
    told = simulation.simulate(simulation.fixed(jitter=0), lambda _: 101.0, tasks=20)
    assert (told.queries, told.late) == (11, pytest.approx(9))


def test_the_same_seed_gives_the_same_figures(simulation: ModuleType) -> None:
    """A table can be made again."""
    draw = simulation.DISTRIBUTIONS["OCR (log-normal, median 12 s)"]
    one, other = (simulation.simulate(simulation.learned(seed=1), draw, tasks=50) for _ in range(2))
    assert one == other


def test_learning_pays(simulation: ModuleType) -> None:
    """It asks less often than the default, and about OCR jobs it is late by less."""
    for name, draw in simulation.DISTRIBUTIONS.items():
        by_policy = {
            policy: simulation.simulate(simulation.POLICIES[policy](), draw, tasks=100)
            for policy in ("exponential (the default)", "learned")
        }
        default, learned = by_policy.values()
        assert learned.queries < default.queries, name
        assert learned.late < default.late or name.startswith("video"), name


@pytest.mark.slow
def test_the_docs_tell_what_the_simulation_says(simulation: ModuleType) -> None:
    """Table and picture are those of the present policies: ``python -m benchmarks.retries --write`` makes them."""
    results = simulation.measure()
    page = PAGE.read_text("utf-8")
    assert simulation.written(page, results) == page
    assert (PAGE.parent / simulation.PICTURE).read_text("utf-8") == simulation.picture(results)
