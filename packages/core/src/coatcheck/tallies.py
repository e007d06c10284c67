"""Tallies: numbers that the whole fleet counts together, in the store, for admission policies."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import LONGEST

__all__ = ["MAX_TALLY", "Count", "Counted", "Tally", "counted"]

MAX_TALLY = 2**53 - 1
"""The largest total, and the smallest with a minus: what every store counts exactly."""


@frozen(kw_only=True)
class Count:
    """One count on a tally: it happens whole or not at all."""

    name: str
    """Which tally; one that there is not stands at 0. By convention ``policy/what it is about``."""
    amount: int = 1
    """What is added; a negative amount takes back, and 0 only looks: it changes nothing."""
    at_most: int | None = None
    """Count only if the total stays at or below this; None counts always."""
    clock: bool = False
    """Before anything is added, raise the total to the store's time in milliseconds since 1970, if it is below."""
    lifetime: timedelta
    """The tally is kept for so long after this count, or longer if another count has said so, and then forgotten. A
    millisecond to a hundred years."""

    def __attrs_post_init__(self) -> None:
        """Refuse what no store could count."""
        if not self.name or not _is_text(self.name):
            message = f"a tally's name is non-empty text, not {self.name!r}"
            raise InvalidParams(message)
        for value in (self.amount, self.at_most or 0):
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_TALLY:
                message = f"tally {self.name!r} counts whole numbers up to {MAX_TALLY}, not {value!r}"
                raise InvalidParams(message)
        if not timedelta(milliseconds=1) <= self.lifetime <= LONGEST:
            message = f"tally {self.name!r} lives for a millisecond to {LONGEST}, not {self.lifetime!r}"
            raise InvalidParams(message)


def _is_text(name: str) -> bool:
    """Whether every store can hold it: no lone surrogates."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


@frozen
class Counted:
    """What came of one count."""

    before: int
    """The total before it, raised to the clock if that was wanted."""
    total: int
    """The total after it; the same if it was not counted."""
    counted: bool
    """Whether it was counted, or would have gone above `at_most`."""


@frozen(kw_only=True)
class Tally:
    """A tally as it stands."""

    name: str
    total: int
    expires_at: datetime
    """By the store's clock; a count puts it off."""


def counted(wanted: Count, total: int, now: int) -> Counted:
    """Return what comes of a count on a tally that stands at `total`; `now` is the store's time in milliseconds.

    Raises:
        InvalidParams: the total would leave the range of `MAX_TALLY`.
    """
    before = max(total, now) if wanted.clock else total
    after = before + wanted.amount
    if wanted.at_most is not None and after > wanted.at_most:
        return Counted(before, before, counted=False)
    if abs(after) > MAX_TALLY:
        message = (
            f"tally {wanted.name!r} stands at {before}, and counting {wanted.amount} would pass {MAX_TALLY}"
        )
        raise InvalidParams(message)
    return Counted(before, after, counted=True)
