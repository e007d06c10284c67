"""A number that the fleet shares and replaces only as it knew it: compare-and-set, made of a tally.

Gates are read up to a second late, so what has to be decided by one worker of many is decided here, and the gate
follows. A tally only adds, but on one that only ever rises, "add what is missing, and stop there" succeeds exactly if
nobody has raised it meanwhile.
"""

from __future__ import annotations

from datetime import timedelta

from coatcheck.gates import Fleet
from coatcheck.tallies import Count

__all__ = ["REMEMBERED", "peek", "swap"]

REMEMBERED = timedelta(days=7)
"""How long such a number lasts that nobody changes."""


def peek(name: str) -> Count:
    """Return the count that only looks."""
    return Count(name=name, amount=0, lifetime=REMEMBERED)


async def swap(fleet: Fleet, name: str, known: int, wanted: int) -> bool:
    """Raise a number from `known` to `wanted`, which is larger; False if somebody else was quicker."""
    wish = Count(name=name, amount=wanted - known, at_most=wanted, lifetime=REMEMBERED)
    return (await fleet.count([wish]))[0].counted
