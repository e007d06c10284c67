"""What a retry policy answers: delays, and what it makes of what the provider asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache, wraps
from typing import TypeVar

from attrs import frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coatcheck.errors import QueryFailed, SubmitDeferred
from coatcheck.evolving import evolve
from coatcheck.results import QueryResult
from coatcheck.retry import RetryPolicy
from coatcheck.task import LONGEST, Progress, Status, Task
from coatcheck_conformance.policy.snapshots import START, make_snapshot
from coatcheck_conformance.policy.spec import HINTS, RetrySpec
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule

__all__ = [
    "COUNTS",
    "MANY",
    "TRIED",
    "Delays",
    "RetryTrial",
    "counts",
    "require_delay",
    "retry_rule",
    "sampled",
    "usual_task",
]

_S = TypeVar("_S", bound=Suite)
MANY = 10_000
_ZERO = timedelta()
COUNTS = st.builds(
    Progress,
    submit_attempts=st.integers(0, MANY),
    query_count=st.integers(0, MANY),
    consecutive_errors=st.integers(0, MANY),
)
TRIED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    phases=[Phase.generate],  # the message tells the example; to make it smaller takes far longer
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@frozen
class RetryTrial:
    """A retry policy that was just made, and its three questions, each about a task in a usual status."""

    spec: RetrySpec
    policy: RetryPolicy

    def submit(self, progress: Progress, hint: timedelta | None = None) -> timedelta:
        """Ask what comes after a submission that was put off."""
        error = SubmitDeferred("the provider is busy", code="429", retry_after=hint)
        return self.policy.next_submit_delay(usual_task(Status.SUBMITTING, progress), error)

    def query(self, progress: Progress, hint: timedelta | None = None) -> timedelta:
        """Ask what comes after a query that says still going."""
        result = QueryResult.running(provider_status="reading", retry_after=hint)
        return self.policy.next_query_delay(usual_task(Status.RUNNING, progress), result)

    def error(self, progress: Progress, hint: timedelta | None = None) -> timedelta | None:
        """Ask what comes after a query that failed."""
        error = QueryFailed("the provider is busy", code="503", retry_after=hint)
        return self.policy.next_error_delay(usual_task(Status.RUNNING, progress), error)


_made = cache(make_snapshot)


def usual_task(status: Status, progress: Progress, at: datetime = START) -> Task:
    """Return a task with these counts; making one anew for each would take most of the time."""
    made = _made(status, at=at)
    counted = evolve(
        made.progress,
        submit_attempts=progress.submit_attempts,
        query_count=progress.query_count,
        consecutive_errors=progress.consecutive_errors,
    )
    return evolve(made, progress=counted)


def counts(number: int) -> Progress:
    """Return the counts of a task after that many attempts, errors or queries."""
    return Progress(submit_attempts=number, query_count=number, consecutive_errors=number)


def require_delay(delay: object) -> None:
    """Fail unless this is a delay that a worker can wait for."""
    assert isinstance(delay, timedelta), f"a delay is a timedelta, not {delay!r}"
    assert _ZERO <= delay <= LONGEST, (
        f"a delay is neither negative nor longer than {LONGEST}, as {delay!r} is"
    )


def retry_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[Callable[[_S, RetryTrial], None]], Callable[..., None]]:
    """Return a decorator that makes ``def (self, trial)`` a rule for retry policies."""

    def decorate(body: Callable[[_S, RetryTrial], None]) -> Callable[..., None]:
        @wraps(body)
        def test(suite: _S, spec: RetrySpec) -> None:
            body(suite, RetryTrial(spec, spec.create()))

        return spec_rule("retry_spec", id, level=level, kind=kind, requires=requires)(test)

    return decorate


class Delays(Suite):
    """Each question is answered by a delay; after an error the answer may be to give up."""

    @retry_rule("RETRY-DELAY-1")
    def test_a_submission_is_tried_again_after_a_delay(self, trial: RetryTrial) -> None:
        """Submitting again what was certainly not created waits for a delay, whatever the counts."""

        @TRIED
        @given(COUNTS)
        def check(progress: Progress) -> None:
            require_delay(trial.submit(progress))

        check()

    @retry_rule("RETRY-DELAY-2")
    def test_a_query_comes_after_a_delay(self, trial: RetryTrial) -> None:
        """The next query waits for a delay, whatever the counts."""

        @TRIED
        @given(COUNTS)
        def check(progress: Progress) -> None:
            require_delay(trial.query(progress))

        check()

    @retry_rule("RETRY-DELAY-3")
    def test_after_an_error_it_waits_or_gives_up(self, trial: RetryTrial) -> None:
        """After a query that failed it waits for a delay, or gives the task up by None, whatever the counts."""

        @TRIED
        @given(COUNTS)
        def check(progress: Progress) -> None:
            delay = trial.error(progress)
            if delay is not None:
                require_delay(delay)

        check()

    @retry_rule("RETRY-DELAY-4", level=Level.SHOULD)
    def test_it_backs_off(self, trial: RetryTrial) -> None:
        """Delays grow, or stay as they are: after thirty errors it asks no sooner than after one, and never at once."""
        for ask in (trial.submit, trial.error):
            first, later = sampled(ask, counts(1)), sampled(ask, counts(30))
            if first and later:
                assert max(later) >= min(first), "it hurries when errors pile up"
                assert max(later) > _ZERO, "it asks again at once, for ever"

    # ------------------------------------------------------------------ what the provider asks for

    @retry_rule("RETRY-HINT-1", requires=[HINTS])
    def test_a_submission_waits_as_long_as_it_was_asked_to(self, trial: RetryTrial) -> None:
        """Honours Retry-After of a submission that was put off: asking earlier than told is an error."""
        self._heeds(trial, trial.submit)

    @retry_rule("RETRY-HINT-2", requires=[HINTS])
    def test_a_query_waits_as_long_as_it_was_asked_to(self, trial: RetryTrial) -> None:
        """Honours the hint of a query that says still going: asking earlier than told is an error."""
        self._heeds(trial, trial.query)

    @retry_rule("RETRY-HINT-3", requires=[HINTS])
    def test_an_error_waits_as_long_as_it_was_asked_to(self, trial: RetryTrial) -> None:
        """Honours Retry-After of a query that failed, unless it gives up: asking earlier than told is an error."""
        self._heeds(trial, trial.error)

    @retry_rule("RETRY-HINT-4", requires=[HINTS])
    def test_a_hint_counts_for_no_more_than_the_ceiling(self, trial: RetryTrial) -> None:
        """A provider that says next year parks no task: a hint counts for no more than the ceiling."""
        for ask in (trial.submit, trial.query, trial.error):
            for number in (1, 5):
                own = max(sampled(ask, counts(number)), default=_ZERO)
                limit = 2 * (trial.spec.ceiling + own)
                for hint in (timedelta(days=365), timedelta.max):
                    delay = ask(counts(number), hint)
                    assert delay is None or delay <= limit, f"a hint of {hint} made it wait for {delay}"

    @retry_rule("RETRY-HINT-5")
    def test_a_hint_that_means_nothing_changes_nothing(self, trial: RetryTrial) -> None:
        """A hint of zero, or one from the past, makes no delay negative."""
        for ask in (trial.submit, trial.query, trial.error):
            for hint in (_ZERO, timedelta(seconds=-7), timedelta(days=-400)):
                delay = ask(counts(2), hint)
                if delay is not None:
                    require_delay(delay)

    @staticmethod
    def _heeds(trial: RetryTrial, ask: Callable[[Progress, timedelta], timedelta | None]) -> None:
        @TRIED
        @given(COUNTS, st.timedeltas(_ZERO, trial.spec.ceiling))
        def check(progress: Progress, hint: timedelta) -> None:
            delay = ask(progress, hint)
            assert delay is None or delay >= hint, f"the provider asked for {hint}, and it waits for {delay}"

        check()


def sampled(ask: Callable[[Progress], timedelta | None], progress: Progress) -> list[timedelta]:
    """Return some of its delays at these counts, since they may be jittered."""
    return [delay for delay in (ask(progress) for _ in range(20)) if delay is not None]
