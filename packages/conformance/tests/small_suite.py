"""A suite of a few rules about numbers, to try the machinery of the kit with."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest
from attrs import frozen

from coatcheck_conformance import Identity, Kind, Level, Suite, spec_rule

number_rule = partial(spec_rule, "number_spec")


@frozen
class NumberSpec:
    """A number to try."""

    number: int

    def offers(self) -> Collection[str]:
        """Large numbers can be halved."""
        return {"halves"} if self.number > 100 else set()

    def identity(self) -> Identity:
        """Return the number."""
        return Identity(target=f"the number {self.number}", modules=["small_suite"], server="Peano 1.0")


class NumberConformance(Suite):
    """Numbers are even and positive."""

    fixture = "number_spec"

    @pytest.fixture
    def number_spec(self) -> NumberSpec:
        """Return the number."""
        pytest.fail("needs a number")

    @number_rule("NUMBER-EVEN-1")
    def test_even(self, spec: NumberSpec) -> None:
        """It is even."""
        assert spec.number % 2 == 0

    @number_rule("NUMBER-EVEN-2", requires=["halves"])
    def test_halves(self, spec: NumberSpec) -> None:
        """Its half is even."""
        assert spec.number // 2 % 2 == 0, f"half of {spec.number} is odd"

    @number_rule("NUMBER-SIGN-1", level=Level.SHOULD, kind=Kind.STOCHASTIC)
    def test_positive(self, spec: NumberSpec) -> None:
        """It is positive."""
        if spec.number <= 0:
            message = "too small"
            raise ValueError(message)


def even(folder: Path) -> NumberSpec:
    """Return an even number, wherever."""
    assert not list(folder.iterdir())
    return NumberSpec(2)


def numbered(number: int) -> Callable[[Path], NumberSpec]:
    """Return what makes specs of this number."""
    return lambda _: NumberSpec(number)
