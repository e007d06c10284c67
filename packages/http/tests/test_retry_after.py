from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck_http import parse_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", timedelta(seconds=120)),
        (" 1.25 ", timedelta(seconds=1.25)),
        ("+3", timedelta(seconds=3)),
        ("0", timedelta()),
        ("-1", timedelta()),
        ("864000", HOUR),
        ("9" * 5000, HOUR),
        ("0" * 50 + "7", timedelta(seconds=7)),
        ("Thu, 01 Jan 2026 00:01:00 GMT", timedelta(minutes=1)),
        ("Thursday, 01-Jan-26 00:01:00 GMT", timedelta(minutes=1)),
        ("Thu, 01 Jan 2026 01:01:00 +0100", timedelta(minutes=1)),
        ("Fri, 01 Jan 2100 00:00:00 GMT", HOUR),
        ("Thu, 01 Jan 1970 00:00:00 GMT", timedelta()),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
        ("Thu, 99 Jan 2026 00:00:00 GMT", None),
        ("2026-13-45", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("\N{ARABIC-INDIC DIGIT THREE}", None),
        ("", None),
        (None, None),
    ],
)
def test_every_form_is_clamped_or_nothing(value: str | None, wait: timedelta | None) -> None:
    """Seconds and dates come out between zero and the maximum; what makes no sense is None."""
    assert parse_retry_after(value, now=NOW, maximum=HOUR) == wait


def test_a_date_is_read_by_the_clock_that_wrote_it() -> None:
    """A server whose clock is a day off still means what it says, if it tells its time."""
    until, date = "Fri, 02 Jan 2026 00:00:30 GMT", "Fri, 02 Jan 2026 00:00:00 GMT"
    assert parse_retry_after(until, now=NOW, maximum=HOUR, date=date) == timedelta(seconds=30)
    assert parse_retry_after(until, now=NOW, maximum=HOUR, date="nonsense") == HOUR


@given(st.text() | st.integers().map(str) | st.floats().map(str), st.none() | st.text())
def test_no_text_breaks_it(value: str, date: str | None) -> None:
    """Whatever a header holds, the answer is None or within bounds."""
    found = parse_retry_after(value, now=NOW, maximum=HOUR, date=date)
    assert found is None or timedelta() <= found <= HOUR
