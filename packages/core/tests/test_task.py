"""The model: what tasks are made of, and what they refuse."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import InvalidParams
from coatcheck.task import (
    LONGEST,
    Attempt,
    Identity,
    Lease,
    Outcome,
    Progress,
    QueryParams,
    Route,
    Status,
    TaskDraft,
    TaskError,
    as_millis,
    from_millis,
    millis,
    new_task_id,
)
from coatcheck.testing import make_task

T0 = datetime(2030, 1, 1, tzinfo=UTC)
JOB = QueryParams(external_task_id="remote-1", provider_params={"region": "eu", "page": 3, "deep": True})


def test_ids_are_uuids_of_version_7() -> None:
    """Ids are UUIDv7 strings, so that later ones sort after earlier ones."""
    assert uuid.UUID(new_task_id()).version == 7
    assert new_task_id() != new_task_id()


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_are_cut_to_milliseconds(at: datetime) -> None:
    """An instant comes back from its milliseconds less than one earlier."""
    assert timedelta() <= at - from_millis(as_millis(at)) < timedelta(milliseconds=1)


@given(st.timedeltas())
def test_durations_are_rounded_up(duration: timedelta) -> None:
    """No wait or window comes out shorter than asked, nor a millisecond longer."""
    assert timedelta() <= timedelta(milliseconds=millis(duration)) - duration < timedelta(milliseconds=1)


def test_statuses_are_their_names() -> None:
    """The names are what is stored and shown; the sets of them don't overlap."""
    assert all(status.value == status.name for status in Status)
    assert {status for status in Status if status.terminal} == {
        Status.SUCCEEDED,
        Status.FAILED,
        Status.CANCELED,
        Status.TRACKING_TIMED_OUT,
        Status.SUBMIT_UNKNOWN,
    }
    assert {status for status in Status if status.queryable} == {Status.SUBMITTED, Status.RUNNING}
    assert {s for s in Status if s.active} == {Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING}


@pytest.mark.parametrize("external_task_id", ["", " ", "\n", None, 7])
def test_an_id_is_never_blank(external_task_id: Any) -> None:
    """Query params without the provider's id are refused when they are made."""
    with pytest.raises(InvalidParams, match="external_task_id"):
        QueryParams(external_task_id=external_task_id)


def test_params_are_read_by_name_and_type() -> None:
    """A provider param comes back if it is there and of the wanted type."""
    assert JOB.read("region", str) == "eu"
    assert JOB.read("page", int) == 3
    assert JOB.read("deep", bool) is True


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("zone", str, "have no 'zone'; there are: deep, page, region"),
        ("page", str, "not str"),
        ("deep", int, "not int"),
    ],
)
def test_a_param_that_does_not_fit_is_named(name: str, kind: type, message: str) -> None:
    """What is missing or of another type is told, with what there is."""
    with pytest.raises(InvalidParams, match=message):
        JOB.read(name, kind)


def test_a_missing_param_of_none_is_told() -> None:
    """Where there are no provider params, the message says so."""
    with pytest.raises(InvalidParams, match="there are: none"):
        QueryParams(external_task_id="x").read("region", str)


def test_evolving_params_leaves_the_old_ones() -> None:
    """A cursor moves on in a copy; the id stays."""
    moved = JOB.evolve(page=4, cursor="c")
    assert (moved.external_task_id, moved.read("page", int), moved.read("cursor", str)) == (
        "remote-1",
        4,
        "c",
    )
    assert JOB.read("page", int) == 3


def test_snapshots_do_not_change() -> None:
    """A task cannot be assigned to."""
    task = make_task()
    with pytest.raises(FrozenInstanceError):
        task.status = Status.FAILED  # type: ignore[misc]


def test_shortcuts_lead_into_the_parts() -> None:
    """Result, error and external id are read from where they are kept."""
    task = make_task()
    assert (task.result, task.error, task.external_task_id) == (None, None, None)
    error = TaskError(code="x", message="y")
    done = evolve(task, outcome=Outcome(result=1, error=error), query_params=JOB)
    assert (done.result, done.error, done.external_task_id) == (1, error, "remote-1")


def lease(started_at: datetime | None) -> Lease:
    """Return a lease, started or not."""
    return Lease(worker_id="w", token=1, nonce="n", until=T0, started_at=started_at)


@pytest.mark.parametrize(
    ("status", "held", "attempted", "started", "in_doubt"),
    [
        (Status.PENDING_SUBMIT, None, False, False, False),
        (Status.PENDING_SUBMIT, None, True, False, True),
        (Status.SUBMITTING, lease(None), True, False, True),
        (Status.SUBMITTING, lease(T0), True, True, False),
        (Status.SUBMITTING, lease(None), False, False, False),
        (Status.SUBMITTED, lease(T0), False, False, False),
        (Status.SUBMIT_UNKNOWN, None, True, False, False),
    ],
)
def test_whether_a_request_may_be_out(
    status: Status, held: Lease | None, *, attempted: bool, started: bool, in_doubt: bool
) -> None:
    """A submission is started by its lease's mark; one of unknown outcome that is to go again is in doubt."""
    attempt = Attempt(token=1, worker_id="w", started_at=T0, first_started_at=T0) if attempted else None
    task = make_task(status=status, lease=held, attempt=attempt)
    assert (task.submission_started, task.in_doubt) == (started, in_doubt)


def test_clients_see_what_is_theirs() -> None:
    """The public view has no account, lease, params or provider in it, and shows ends only at the end."""
    error = TaskError(code="x", message="y", provider_code="secret-ish")
    task = make_task(
        progress=Progress(fraction=0.5), outcome=Outcome(result={"a": 1}, error=error), metadata={"m": 1}
    )
    view = task.public()
    assert set(view) == {
        "id",
        "status",
        "progress",
        "result",
        "error",
        "created_at",
        "deadline_at",
        "finished_at",
        "cancellation_requested",
    }
    assert (view["status"], view["progress"], view["result"], view["error"]) == (
        "PENDING_SUBMIT",
        0.5,
        None,
        None,
    )
    assert view["finished_at"] is None
    ended = evolve(task, status=Status.FAILED, outcome=evolve(task.outcome, finished_at=T0))
    assert ended.public()["error"] == {"code": "x", "message": "y"}
    assert ended.public()["finished_at"] == T0.isoformat()
    assert evolve(task, status=Status.SUCCEEDED).public()["result"] == {"a": 1}
    assert evolve(task, cancellation_requested_at=T0).public()["cancellation_requested"] is True


@pytest.mark.parametrize(
    "change",
    [
        {"tracking_timeout": timedelta()},
        {"tracking_timeout": timedelta(seconds=-1)},
        {"tracking_timeout": timedelta.max},
        {"delay": timedelta(seconds=-1)},
        {"delay": LONGEST + timedelta(seconds=1)},
        {"priority": 2**31},
        {"priority": -(2**31) - 1},
        {"not_before": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is what is wrong
    ],
    ids=str,
)
def test_a_draft_that_no_store_could_honour_is_refused(change: dict[str, Any]) -> None:
    """Durations, priorities and instants that mean nothing are the caller's error at once."""
    given: dict[str, Any] = {
        "route": Route(handler_key="h", provider_key="p"),
        "identity": Identity(params_digest="0", idempotency_key="k"),
        "params": None,
        "tracking_timeout": timedelta(hours=1),
    }
    TaskDraft(**given)
    TaskDraft(**given | {"priority": -(2**31), "not_before": T0, "tracking_timeout": LONGEST})
    with pytest.raises(InvalidParams, match=next(iter(change))):
        TaskDraft(**given | change)
