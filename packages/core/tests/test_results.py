"""What handlers answer, and which answers are impossible."""

import math
from datetime import timedelta
from typing import Any

import pytest

from coatcheck.errors import InvalidParams
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.task import QueryParams, Status

JOB = QueryParams(external_task_id="remote-1", provider_params={"region": "eu"})
SECOND = timedelta(seconds=1)


def test_an_acceptance_has_query_params() -> None:
    """An accepted submit says where the job is, and whether it runs."""
    answer = SubmitResult.accepted("remote-1", {"region": "eu"}, provider_status="queued", progress=0.0)
    assert (answer.status, answer.query_params) == (Status.SUBMITTED, JOB)
    assert SubmitResult.accepted("x", running=True, retry_after=SECOND).status is Status.RUNNING


def test_a_submit_may_end_at_once() -> None:
    """A provider may do, refuse or cancel the job in its answer to the submit."""
    assert SubmitResult.succeeded({"a": 1}, query_params=JOB).result == {"a": 1}
    failed = SubmitResult.failed("E7", "blank")
    assert (failed.status, failed.error_code, failed.error_message) == (Status.FAILED, "E7", "blank")
    assert SubmitResult.canceled().status is Status.CANCELED


@pytest.mark.parametrize(
    "status",
    [Status.PENDING_SUBMIT, Status.SUBMITTING, Status.TRACKING_TIMED_OUT, Status.SUBMIT_UNKNOWN],
)
def test_a_handler_cannot_set_our_statuses(status: Status) -> None:
    """What only coatcheck may set is refused in the handler that answers it."""
    with pytest.raises(InvalidParams, match="only coatcheck"):
        SubmitResult(status=status, query_params=JOB)


@pytest.mark.parametrize("status", [Status.SUBMITTED, Status.RUNNING])
def test_accepted_without_an_id_is_impossible(status: Status) -> None:
    """An accepted job can be asked about, or it is lost."""
    with pytest.raises(InvalidParams, match=r"SubmitResult\.accepted"):
        SubmitResult(status=status)


@pytest.mark.parametrize("progress", [-0.1, 1.1, math.nan, math.inf, "half"])
def test_progress_is_a_fraction(progress: Any) -> None:
    """Progress that no provider can mean is refused, in submits and queries."""
    with pytest.raises(InvalidParams, match="between 0 and 1"):
        SubmitResult.accepted("x", progress=progress)
    with pytest.raises(InvalidParams, match="between 0 and 1"):
        QueryResult.running(progress=progress)


def test_a_hint_is_a_duration() -> None:
    """A bare number of what? is refused."""
    with pytest.raises(InvalidParams, match="timedelta"):
        QueryResult.running(retry_after=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "verdict", "status"),
    [
        (QueryResult.running(progress=1, next_params=JOB), Verdict.RUNNING, Status.RUNNING),
        (QueryResult.waiting(provider_status="queued"), Verdict.RUNNING, Status.SUBMITTED),
        (QueryResult.succeeded([1]), Verdict.SUCCEEDED, Status.RUNNING),
        (QueryResult.failed("E7", "blank"), Verdict.FAILED, Status.RUNNING),
        (QueryResult.canceled(), Verdict.CANCELED, Status.RUNNING),
        (QueryResult.not_found(code="404"), Verdict.NOT_FOUND, Status.RUNNING),
        (QueryResult.incomplete(), Verdict.INCOMPLETE, Status.RUNNING),
    ],
    ids=lambda value: value.verdict if isinstance(value, QueryResult) else str(value),
)
def test_a_query_has_a_verdict(answer: QueryResult, verdict: Verdict, status: Status) -> None:
    """Each way to make an answer says what it means."""
    assert (answer.verdict, answer.status) == (verdict, status)


def test_an_unlisted_word_is_named() -> None:
    """A status word that the handler does not know is in the message."""
    answer = QueryResult.unlisted("zombie", retry_after=SECOND)
    assert (answer.verdict, answer.provider_status, answer.retry_after) == (
        Verdict.UNLISTED,
        "zombie",
        SECOND,
    )
    assert "'zombie'" in (answer.error_message or "")


def test_a_job_that_goes_on_is_submitted_or_running() -> None:
    """A query cannot put a job anywhere else."""
    with pytest.raises(InvalidParams, match="SUBMITTED or RUNNING"):
        QueryResult(verdict=Verdict.RUNNING, status=Status.FAILED)
