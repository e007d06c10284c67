"""The first that has room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from coatcheck import InvalidParams, Load, Selection, Selector
from coatcheck.gates import GateUsage
from coatcheck_selectors.health import own_gates
from coatcheck_selectors.sequences import in_order

__all__ = ["FirstAvailable", "first_available"]

_NO_LOAD = Load()


def _keys(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@frozen(kw_only=True, eq=False)
class FirstAvailable:
    """Takes the first candidate of an order of preference that has room, so that the others get what spills over.

    Room has who could begin this task now: no gate of its own is paused, and each has a slot and a grant left
    when all that waits for that handler has had its turn.
    """

    order: Sequence[str] = field(converter=_keys)
    """Handler keys, the preferred ones first. Candidates that are not named come last, by key."""
    otherwise: Selector | None = None
    """Who chooses if nobody has room; None takes the first that is not paused, where the task then waits."""

    def __attrs_post_init__(self) -> None:
        """Refuse an order that is none."""
        twice = sorted({key for key in self.order if self.order.count(key) > 1})
        if not self.order or twice:
            what = f"names {', '.join(map(repr, twice))} twice" if twice else "is empty"
            message = f"the order of preference {what}; name each handler key once, the preferred ones first"
            raise InvalidParams(message)

    async def __call__(self, selection: Selection) -> str:
        """Return the first that has room."""
        candidates = sorted(in_order(selection), key=self._place)
        gates = own_gates(await selection.standing.gates(), candidates)
        load = await selection.standing.load()
        for key in candidates:
            if all(_has_room(usage, load.get(key, _NO_LOAD).waiting) for usage in gates[key]):
                return key
        if self.otherwise is not None:
            return await self.otherwise(selection)
        awake = (key for key in candidates if not any(usage.gate.pause for usage in gates[key]))
        return next(awake, candidates[0])

    def _place(self, key: str) -> int:
        return self.order.index(key) if key in self.order else len(self.order)


def _has_room(usage: GateUsage, waiting: int) -> bool:
    gate = usage.gate
    if gate.pause is not None:
        return False
    if gate.concurrency is not None and usage.used + waiting >= gate.concurrency:
        return False
    return gate.rate is None or usage.granted + waiting < gate.rate.count


def first_available(order: Iterable[str], *, otherwise: Selector | None = None) -> FirstAvailable:
    """Return a selector that takes the first handler of `order` that has room.

    Args:
        order: handler keys, the preferred ones first.
        otherwise: who chooses if nobody has room; by default the first that is not paused gets the task.

    Raises:
        InvalidParams: the order is empty, or names a handler twice.
    """
    return FirstAvailable(order=_keys(order), otherwise=otherwise)
