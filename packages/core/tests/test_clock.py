"""Clocks for stores."""

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.clock import Clock, ManualClock, SystemClock
from coatcheck.errors import InvalidParams


def test_the_hosts_clock_tells_whole_milliseconds_in_utc() -> None:
    """Whatever a store persists comes back equal."""
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert now.microsecond % 1000 == 0
    assert isinstance(SystemClock(), Clock)


def test_a_manual_clock_stands_still_until_told() -> None:
    """It moves by `advance` and `set`, tells its listeners, and forgets those that leave."""
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    heard: list[datetime] = []
    leave = clock.on_advance(lambda: heard.append(clock.now()))
    assert clock.advance(timedelta(seconds=2)) == datetime(2030, 1, 1, 0, 0, 2, tzinfo=UTC)
    clock.set(datetime(2029, 1, 1, tzinfo=UTC))
    leave()
    leave()
    clock.advance(timedelta(seconds=1))
    assert [each.year for each in heard] == [2030, 2029]


def test_a_manual_clock_refuses_what_it_cannot_mean() -> None:
    """A naive start, and time that runs backwards."""
    with pytest.raises(InvalidParams, match="aware"):
        ManualClock(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidParams, match="time goes forward"):
        ManualClock().advance(timedelta(seconds=-1))
