import logging
from collections.abc import Iterator

import pytest
from mutants import all_mutants, tried

from coatcheck_conformance import Level
from coatcheck_conformance.rules import sort_key

MUTANTS = all_mutants()


@pytest.fixture
def quiet() -> Iterator[None]:
    """Core complains about mutants, as it should."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_every_must_rule_has_a_mutant() -> None:
    """No rule is there that has never been seen to fail."""
    suites = {each.suite for each in MUTANTS.values()}
    musts = {each.id for suite in suites for each in suite.rules() if each.level is Level.MUST}
    assert sorted(musts - {each.rule for each in MUTANTS.values()}, key=sort_key) == []


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_its_rule_catches_a_mutant(name: str) -> None:
    """What is broken is noticed; that no other rule does is tried by the gate, with ``python -m mutants``."""
    assert tried(name, alone=True).caught == 1
