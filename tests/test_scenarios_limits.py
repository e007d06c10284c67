"""What really went wrong elsewhere when providers ask to slow down, and when everybody comes back at once."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from attrs import frozen

from coatcheck import App, ExponentialRetry, QueryParams, Rate, Status, Store, Submission, gates
from coatcheck.memory import MemoryStore
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end
from coatcheck_sandbox import Answer, Operation, SandboxServer
from provider import HOUR, document, handler_of

CEILING = timedelta(minutes=10)
RETRY = ExponentialRetry(ceiling=CEILING, seed=1)
PROVIDER, QUERIES = gates.provider("ocr:gitee"), gates.query("ocr:gitee")
SECOND = timedelta(seconds=1)
DAYS_AHEAD = format_datetime(datetime.now(UTC) + timedelta(days=10), usegmt=True)
LONG_GONE = format_datetime(datetime(2001, 1, 1, tzinfo=UTC), usegmt=True)
WORDS = {
    "none": None,
    "seconds": "7",
    "zero": "0",
    "negative": "-30",
    "ten days": "864000",
    "a date in ten days": DAYS_AHEAD,
    "a date gone by": LONG_GONE,
    "more than fits": "9" * 40,
    "garbage": "soon, we hope",
    "empty": "",
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("operation", [Operation.SUBMIT, Operation.QUERY])
async def test_10_a_429_says_whatever_it_likes(
    store: Store, clock: ManualClock, sandbox: SandboxServer, operation: Operation, word: str | None
) -> None:
    """Scenario 10: no crash, no busy loop, and no task parked for days: what is asked counts up to the ceiling."""
    sandbox.faults.add(Answer(operation=operation, status=429, code="rate_limit", retry_after=word, times=2))
    async with App(store, [handler_of(sandbox.url)], retry=RETRY) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=24 * HOUR)
        (done,) = await run_to_end(app, clock)
        paused = [
            record.gate.pause.until - record.gate.pause.since
            for name in (PROVIDER, QUERIES)
            for record in await app.manager.gate_history(name)
            if record.gate.pause is not None and record.gate.pause.until is not None
        ]
    assert (done.id, done.status) == (task.id, Status.SUCCEEDED)
    assert sandbox.creating_requests("a.png") == (3 if operation is Operation.SUBMIT else 1)
    assert paused
    assert all(timedelta() < each <= 2 * CEILING for each in paused)
    if word == "7":
        assert min(paused) >= 7 * SECOND
    if word in ("864000", DAYS_AHEAD, "9" * 40):
        assert min(paused) >= CEILING / 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("insufficient_quota", "no more pages this month"),
        ("sandbox_fault", "your balance is 0, please top up"),
    ],
)
async def test_11_a_429_that_means_money_is_no_rate(
    store: Store, clock: ManualClock, sandbox: SandboxServer, code: str, message: str
) -> None:
    """Scenario 11: told apart by the body: no gate is paused as for a rate, it is named, and paid bills mend it."""
    bill = Answer(operation=Operation.SUBMIT, status=429, code=code, message=message, times=None)
    sandbox.faults.add(bill)
    async with App(store, [handler_of(sandbox.url)], retry=RETRY) as app:
        task = await app.manager.submit(document(sandbox.url), tracking_timeout=24 * HOUR)
        for _ in range(3):
            await app.worker().drain()
            clock.advance(timedelta(minutes=6))
        waiting = await app.manager.get(task.id)
        assert waiting is not None
        assert waiting.status is Status.PENDING_SUBMIT
        assert any("quota_or_billing" in entry.note for entry in waiting.history)
        assert await app.manager.gate_history(PROVIDER) == []
        asked = sandbox.creating_requests("a.png")
        assert asked <= 4  # about every five minutes, and not every second
        sandbox.faults.clear()
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED


async def test_11_a_429_that_means_a_rate_is_one(
    store: Store, clock: ManualClock, sandbox: SandboxServer
) -> None:
    """Scenario 11, the other way round: a code about a rate pauses the gate for as long as the provider asks."""
    sandbox.faults.add(Answer(operation=Operation.SUBMIT, status=429, code="rate_limit", retry_after="60"))
    async with App(store, [handler_of(sandbox.url)], retry=RETRY) as app:
        await app.manager.submit(document(sandbox.url), tracking_timeout=24 * HOUR)
        await app.worker().drain()
        (usage,) = await app.manager.gates([PROVIDER])
        assert usage.gate.pause is not None
        assert usage.gate.pause.until is not None
        assert usage.gate.pause.until - clock.now() >= 59 * SECOND


# ------------------------------------------------------------------ everybody comes back at once

TRACKED = 10_000
PER_SECOND = 500


@frozen
class Clip:
    """What the provider of the mass restart takes."""

    number: int = 0


class Provider(ScriptedHandler[Clip]):
    """A provider whose jobs go on for hours, and which notes when it is asked."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("clips", Clip)
        self.asked: list[datetime] = []
        self._clock = clock

    async def query(self, params: QueryParams, context: object) -> QueryResult:
        """It is still going."""
        self.asked.append(self._clock.now())
        return QueryResult.running()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rate", [None, PER_SECOND], ids=["no rate", "rate"])
async def test_21_ten_thousand_tracked_jobs_after_half_an_hour(clock: ManualClock, rate: int | None) -> None:
    """Scenario 21: the provider's rate is never exceeded, and what was due at once is spread out from then on."""
    provider = Provider(clock)
    provider._submit.extend([SubmitResult.accepted(f"job-{n}") for n in range(TRACKED)])
    pace = ExponentialRetry(initial=timedelta(minutes=1), maximum=timedelta(minutes=1), seed=1)
    store = MemoryStore(clock=clock)
    async with App(store, [provider], retry=pace) as app:
        one = Submission(params=Clip(), tracking_timeout=24 * HOUR)
        await app.manager.submit_many([one] * TRACKED)
        await app.worker(submissions=1000).drain()
        if rate is not None:
            await app.manager.set_gate(gates.query("clips"), rate=Rate(rate))
        clock.advance(timedelta(minutes=30))  # nobody works: all of them are overdue by then
        began = clock.now()
        while len(provider.asked) < TRACKED:
            await app.worker(queries=1000).drain()
            clock.advance(timedelta(milliseconds=100))
        if rate is not None:
            assert most_in_a_second(provider.asked) <= rate
            assert clock.now() - began <= 1.1 * SECOND * TRACKED / rate
        coming = Counter(
            int((task.schedule.due_at - began).total_seconds())
            for task in await app.manager.find(limit=TRACKED)
        )
    # a minute and its jitter, a quarter: within 15 seconds no second has more than twice its share
    assert max(coming.values()) <= 2 * TRACKED / 15
    assert max(coming) - min(coming) >= 14


def most_in_a_second(times: list[datetime]) -> int:
    """Return the most in any window of a second."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - SECOND:
            first += 1
        most = max(most, last - first + 1)
    return most
