"""`Retry-After`, in whatever form a provider sends it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

__all__ = ["parse_retry_after"]

_SECONDS = re.compile(r"([+-]?)([0-9]+)(\.[0-9]+)?")


def _parse_date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def parse_retry_after(
    value: str | None, *, now: datetime, maximum: timedelta, date: str | None = None
) -> timedelta | None:
    """Return how long to wait, between zero and `maximum`, or None if `value` is missing or makes no sense.

    `value` is seconds or an HTTP date. A date is read by the server's own clock, told by its `date` header,
    else by `now`. Negative numbers and dates gone by are zero.
    """
    text = (value or "").strip()
    number = _SECONDS.fullmatch(text)
    if number:
        if number[1] == "-":
            return timedelta()
        # Anything with more digits is beyond every maximum, and may be beyond timedelta.
        seconds = float(number[2][-12:] + (number[3] or "")) if len(number[2].lstrip("0")) <= 12 else None  # noqa: PLR2004
        return maximum if seconds is None else min(timedelta(seconds=seconds), maximum)
    until = _parse_date(text)
    if until is None:
        return None
    return min(max(until - (_parse_date(date or "") or now), timedelta()), maximum)
