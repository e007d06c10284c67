import datetime as dt
import pickle
import time
from datetime import UTC, datetime, timedelta

from coatcheck_conformance.store.skew import client_clock_off

_OFF = timedelta(minutes=10)
_MINUTE = timedelta(minutes=1)


def test_modules_see_a_clock_that_is_off() -> None:
    """Whatever name a module has for the wall clock tells another time, and the right one again afterwards."""
    true = datetime.now(UTC)
    for off in (_OFF, -_OFF):
        with client_clock_off(off):
            seen = (
                datetime.now(UTC),
                dt.datetime.now(UTC),
                datetime.fromtimestamp(time.time(), UTC),
                datetime.fromtimestamp(time.time_ns() / 10**9, UTC),
            )
        assert all(abs(each - true - off) < _MINUTE for each in seen)
    assert abs(datetime.now(UTC) - true) < _MINUTE


def test_how_fast_time_goes_stays() -> None:
    """Timeouts are not touched: only the wall clock is off."""
    before = time.monotonic()
    with client_clock_off(_OFF):
        assert before <= time.monotonic() < before + 60


def test_times_stay_what_they_are() -> None:
    """What is made while the clock is off is an ordinary datetime, and every datetime is taken for one."""
    true = datetime.now(UTC)
    with client_clock_off(_OFF):
        made = [datetime.now(UTC), datetime(2030, 1, 1, tzinfo=UTC), datetime.fromisoformat("2030-01-01")]
        assert isinstance(true, datetime)
        assert all(isinstance(each, datetime) for each in made)
    assert [type(each) for each in made] == [datetime] * 3
    assert pickle.loads(pickle.dumps(made)) == made
