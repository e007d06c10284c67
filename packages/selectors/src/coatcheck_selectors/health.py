"""Leaving out whoever is not well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from attrs import evolve, field, frozen

from coatcheck import InvalidParams, Selection, Selector
from coatcheck.gates import GateUsage
from coatcheck_selectors.turns import RoundRobin

__all__ = ["Healthy", "healthy", "own_gates"]

_LATELY = timedelta(minutes=5)


def own_gates(
    gates: Mapping[str, Sequence[GateUsage]], candidates: Sequence[str]
) -> dict[str, list[GateUsage]]:
    """Return the gates of each candidate that not all of them share: a tenant's gate speaks for none of them."""
    names = [{usage.gate.name for usage in gates.get(key, ())} for key in candidates]
    shared = set.intersection(*names) if len(names) > 1 else set()
    return {
        key: [usage for usage in gates.get(key, ()) if usage.gate.name not in shared] for key in candidates
    }


@frozen(kw_only=True, eq=False)
class Healthy:
    """Lets another selector choose among the candidates that are well.

    Left out is who has a gate that is paused, be it by an operator, for a 429, or by a circuit breaker; and whose
    tasks have ended badly of late. If that leaves nobody, it looks at pauses alone, and then at nothing: a task
    behind a closed gate waits, and that is better than none.
    """

    inner: Selector = field(factory=RoundRobin)
    """Who chooses among those that are left."""
    within: timedelta = _LATELY
    """How far back outcomes count."""
    bad_share: float = 0.5
    """From which share of bad outcomes on a handler is left out; above 0, at most 1."""
    minimum: int = 10
    """How many outcomes it takes to judge; at least 1."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        wrong = {
            "within must be positive": self.within <= timedelta(),
            "bad_share must be above 0 and at most 1": not 0 < self.bad_share <= 1,
            "minimum must be at least 1": self.minimum < 1,
        }
        for rule, broken in wrong.items():
            if broken:
                message = f"{rule}: {self!r}"
                raise InvalidParams(message)

    async def __call__(self, selection: Selection) -> str:
        """Return whom the inner selector takes of those that are well."""
        gates = own_gates(await selection.standing.gates(), selection.candidates)
        outcomes = await selection.standing.outcomes(self.within)
        awake = [key for key in selection.candidates if not any(usage.gate.pause for usage in gates[key])]
        bad = set()
        for key, ended in outcomes.items():
            of_all = ended.good + ended.bad
            if of_all >= self.minimum and ended.bad >= self.bad_share * of_all:
                bad.add(key)
        well = [key for key in awake if key not in bad]
        return await self.inner(evolve(selection, candidates=tuple(well or awake or selection.candidates)))


def healthy(
    inner: Selector | None = None,
    *,
    within: timedelta = _LATELY,
    bad_share: float = 0.5,
    minimum: int = 10,
) -> Healthy:
    """Return a selector that leaves out who is paused or does badly, and lets `inner` choose among the others.

    Args:
        inner: by default `round_robin()`.
        within: how far back outcomes count.
        bad_share: from which share of bad outcomes on a handler is left out.
        minimum: how many outcomes it takes to judge.

    Raises:
        InvalidParams: a setting means nothing.
    """
    return Healthy(inner=inner or RoundRobin(), within=within, bad_share=bad_share, minimum=minimum)
