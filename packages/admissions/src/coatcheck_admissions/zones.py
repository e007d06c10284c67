"""Local times: a zone by its name, and when its clocks first show a time of a day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from coatcheck import InvalidParams

__all__ = ["first_at", "zone_of"]

_SECOND = timedelta(seconds=1)


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone, such as ``Europe/Paris``.

    Raises:
        InvalidParams: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:  # an empty or absolute name is a ValueError
        message = (
            f"there is no time zone {name!r} here; write one such as 'Europe/Paris' or 'UTC' "
            "(where the system has no time zones, pip install tzdata)"
        )
        raise InvalidParams(message) from error


def first_at(day: date, at: time, zone: ZoneInfo) -> datetime:
    """Return the first instant, in UTC, at which the clocks of a zone show that time of that day, or a later one.

    A time that is skipped, when clocks go forward, comes when they do; one that comes twice, when they go back, is
    the first of the two.
    """
    wall = datetime.combine(day, at)
    one, other = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if one <= other:  # the same, or twice
        return one
    early, late = other, one
    while late - early > _SECOND:
        middle = early + (late - early) / 2
        if middle.astimezone(zone).replace(tzinfo=None) >= wall:
            late = middle
        else:
            early = middle
    return (early + _SECOND).replace(microsecond=0)
