"""One after the other, or as chance has it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from random import Random

from attrs import field, frozen

from coatcheck import Selection
from coatcheck_selectors.sequences import Sequences, in_order

__all__ = ["AtRandom", "RoundRobin", "random", "round_robin"]


@frozen(kw_only=True, eq=False)
class RoundRobin:
    """Takes one candidate after the other, by key, with a sequence for each set of candidates."""

    _turns: Sequences[Iterator[str]] = field(init=False, factory=lambda: Sequences(cycle), repr=False)

    async def __call__(self, selection: Selection) -> str:
        """Return the next one."""
        return self._turns.step(in_order(selection), next)


def round_robin() -> RoundRobin:
    """Return a selector that takes one candidate after the other, in the order of their keys."""
    return RoundRobin()


@frozen(kw_only=True, eq=False)
class AtRandom:
    """Takes any candidate, each as likely as the others."""

    seed: int | None = None
    """Makes the sequence of each set of candidates repeatable, for tests."""
    _dice: Sequences[Random] = field(init=False, repr=False)

    @_dice.default
    def _make_dice(self) -> Sequences[Random]:
        def begin(candidates: tuple[str, ...]) -> Random:
            return Random(None if self.seed is None else repr((self.seed, candidates)))  # noqa: S311 - no secret

        return Sequences(begin)

    async def __call__(self, selection: Selection) -> str:
        """Throw the dice."""
        candidates = in_order(selection)
        return self._dice.step(candidates, lambda dice: dice.choice(candidates))


def random(seed: int | None = None) -> AtRandom:
    """Return a selector that takes any candidate; with a `seed`, the same ones each time."""
    return AtRandom(seed=seed)
