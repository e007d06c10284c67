"""By weight."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen

from coatcheck import ConfigurationError, InvalidParams, Selection
from coatcheck_selectors.sequences import Sequences, in_order

__all__ = ["Weighted", "weighted"]


def _frozen_table(weights: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType(dict(weights))


@frozen(kw_only=True, eq=False)
class Weighted:
    """Takes each candidate as often as its weight says, as evenly spread as can be.

    The interleaving is the smooth one: each turn every candidate gains its weight, and the one that has most is
    taken and pays the sum of all. So in any run of as many turns as that sum, each comes exactly as often as it
    weighs: with 2 and 1, the turns are a b a, a b a, and never a a b b.
    """

    weights: Mapping[str, int] = field(converter=_frozen_table)
    """A positive integer for each handler key. One table may cover handlers of several params types."""
    _gained: Sequences[dict[str, int]] = field(
        init=False, factory=lambda: Sequences(_nothing_yet), repr=False
    )

    def __attrs_post_init__(self) -> None:
        """Refuse a table that means nothing."""
        if not self.weights:
            message = "the table of weights is empty; give each handler key a positive integer"
            raise InvalidParams(message)
        for key, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
                message = (
                    f"the weight of {key!r} is a positive integer, not {weight!r}; "
                    "to leave a handler out, do not register it, or pause its gate"
                )
                raise InvalidParams(message)

    async def __call__(self, selection: Selection) -> str:
        """Return whose turn it is.

        Raises:
            ConfigurationError: a candidate has no weight, whether or not it would have been its turn.
        """
        candidates = in_order(selection)
        missing = [key for key in candidates if key not in self.weights]
        if missing:
            message = (
                f"no weight for {', '.join(map(repr, missing))}, which could take this task; "
                f"add it to the table, which has: {', '.join(sorted(self.weights))}"
            )
            raise ConfigurationError(message)
        return self._gained.step(candidates, self._turn)

    def _turn(self, gained: dict[str, int]) -> str:
        for key in gained:
            gained[key] += self.weights[key]
        taken = max(gained, key=gained.__getitem__)  # the first of equals
        gained[taken] -= sum(self.weights[key] for key in gained)
        return taken


def _nothing_yet(candidates: tuple[str, ...]) -> dict[str, int]:
    return dict.fromkeys(candidates, 0)


def weighted(weights: Mapping[str, int]) -> Weighted:
    """Return a selector that takes handlers by weight: ``weighted({"ocr:a": 3, "ocr:b": 1})``.

    Raises:
        InvalidParams: the table is empty, or a weight is no positive integer.
    """
    return Weighted(weights=weights)
