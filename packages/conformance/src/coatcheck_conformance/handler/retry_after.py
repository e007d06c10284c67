"""`Retry-After`, in every form in which providers send it."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime

from coatcheck.errors import HandlerError, QueryFailed
from coatcheck_conformance.handler.calls import Call, Certainty
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Level, Suite

__all__ = ["RetryAfter"]

_LONGEST = timedelta(days=1)


def _hint(call: Call) -> timedelta | None:
    assert isinstance(call.error, HandlerError), f"a 429 came to {call.told}"
    return call.error.retry_after


class RetryAfter(Suite):
    """Retry-After in seconds and HTTP-date form, clamped."""

    async def _limited(self, trial: Trial, **headers: str) -> Call:
        call = await trial.submit(trial.script.rate_limited.with_headers(**headers))
        found = trial.certainty(call)
        assert found is Certainty.DEFERRED, f"a 429 with {headers} is {found}; submit came to {call.told}"
        return call

    @handler_rule("HANDLER-RETRY-1")
    async def test_seconds_are_passed_on(self, trial: Trial) -> None:
        """`Retry-After: 7` is `SubmitDeferred(retry_after=timedelta(seconds=7))`."""
        hint = _hint(await self._limited(trial, retry_after="7"))
        assert hint == timedelta(seconds=7), f"Retry-After: 7 came to {hint}"

    @handler_rule("HANDLER-RETRY-2")
    async def test_a_date_is_passed_on(self, trial: Trial) -> None:
        """`Retry-After` in HTTP-date form is the time until then, by the server's `Date` or the context's `now`."""
        now = format_datetime(trial.now, usegmt=True)
        until = format_datetime(trial.now + timedelta(seconds=90), usegmt=True)
        hint = _hint(await self._limited(trial, retry_after=until, date=now))
        assert hint is not None, f"Retry-After: {until} was not understood"
        assert abs(hint - timedelta(seconds=90)) <= timedelta(seconds=15), (
            f"90 seconds from now came to {hint}"
        )

    @handler_rule("HANDLER-RETRY-3")
    async def test_nonsense_is_no_hint(self, trial: Trial) -> None:
        """A `Retry-After` that is missing or makes no sense changes nothing, and is never negative."""
        absent = _hint(await self._limited(trial))
        assert absent is None or absent >= timedelta(), f"no Retry-After came to {absent}"
        for value in ("soon", "", "-5", "1e400", "nan", "7, 9", "Fri, 99 Foo 2026 99:99:99 GMT", "\xb2"):
            hint = _hint(await self._limited(trial, retry_after=value))
            assert hint is None or hint >= timedelta(), f"Retry-After: {value!r} came to {hint}"

    @handler_rule("HANDLER-RETRY-4")
    async def test_too_much_is_clamped(self, trial: Trial) -> None:
        """`Retry-After` is clamped: a server's mistake stops nobody for a year, and overflows nothing."""
        for value in ("31536000", "9" * 40, "Fri, 31 Dec 9999 23:59:59 GMT"):
            hint = _hint(await self._limited(trial, retry_after=value))
            assert hint is None or hint <= _LONGEST, f"Retry-After: {value} came to {hint}"

    @handler_rule("HANDLER-RETRY-5")
    async def test_a_rate_limited_query_says_so(self, trial: Trial) -> None:
        """A 429 to a query is `QueryFailed(rate_limited=True)` with its `Retry-After`, which pauses the query gate."""
        call = await trial.query(trial.script.rate_limited.with_headers(retry_after="7"))
        assert isinstance(call.error, QueryFailed), f"a 429 to a query came to {call.told}"
        assert call.error.rate_limited, "QueryFailed(rate_limited=True) is what slows the others down"
        hint = call.error.retry_after
        assert hint == timedelta(seconds=7), f"Retry-After: 7 came to {hint}"

    @handler_rule("HANDLER-RETRY-6", level=Level.SHOULD)
    async def test_a_hint_in_a_good_answer_is_passed_on(self, trial: Trial) -> None:
        """A `Retry-After` beside a job that was accepted, or goes on, is its `retry_after`."""
        accepted = await trial.submit(trial.script.accepted.with_headers(retry_after="9"))
        hint = accepted.submitted.retry_after
        assert hint == timedelta(seconds=9), f"Retry-After: 9 beside script.accepted came to {hint}"
        going_on = await trial.query(trial.going_on.with_headers(retry_after="9"))
        hint = going_on.queried.retry_after
        assert hint == timedelta(seconds=9), f"Retry-After: 9 beside a job that goes on came to {hint}"
