"""Tasks as policies see them: in every status in which they are asked, with much in them or little."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from coatcheck import lifecycle
from coatcheck.evolving import evolve
from coatcheck.gates import TaskChange
from coatcheck.task import (
    Attempt,
    ErrorCode,
    Lease,
    Outcome,
    Progress,
    QueryParams,
    Status,
    Task,
    TaskDraft,
    TaskError,
    new_task_id,
)
from coatcheck_conformance.drafts import HANDLER, make_draft

__all__ = [
    "EVENTS",
    "START",
    "changes",
    "make_bare_snapshot",
    "make_change",
    "make_snapshot",
    "ordinary_draft",
]

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""The time of rules that name none."""
_MINUTE = timedelta(minutes=1)
_BEFORE_ACCEPTANCE = frozenset({Status.PENDING_SUBMIT, Status.SUBMITTING})


def ordinary_draft(
    *, handler: str = HANDLER, account: str | None = "eu", tenant: str | None = "acme", priority: int = 0
) -> TaskDraft:
    """Return a draft with an account, a tenant, and metadata."""
    return make_draft(
        handler=handler,
        account=account,
        tenant=tenant,
        priority=priority,
        params={"url": "https://files.example.com/report.pdf", "pages": [1, 2]},
        metadata={"team": "blue", "tags": ["a"]},
    )


def make_snapshot(
    status: Status = Status.RUNNING,
    *,
    progress: Progress | None = None,
    at: datetime = START,
    draft: TaskDraft | None = None,
) -> Task:
    """Return a task as it stands about ten minutes after it was created at `at`: everything is there.

    Args:
        status: where it stands.
        progress: what was done so far.
        at: when it was created.
        draft: what it was made from; by default an ordinary one.
    """
    created = lifecycle.created(draft or ordinary_draft(), at)
    held_since = at + 9 * _MINUTE
    accepted = status not in _BEFORE_ACCEPTANCE
    lease = Lease(
        worker_id="worker-1",
        token=3,
        nonce="nonce",
        until=held_since + 5 * _MINUTE,
        granted_at=held_since,
        started_at=held_since,
    )
    done = progress or Progress(submit_attempts=1, query_count=1, consecutive_errors=1)
    return evolve(
        created,
        status=status,
        version=6,
        token=3,
        lease=None if status.terminal or status is Status.PENDING_SUBMIT else lease,
        attempt=Attempt(
            token=2, worker_id="worker-1", started_at=at + _MINUTE, first_started_at=at + _MINUTE
        ),
        progress=evolve(
            done,
            fraction=0.5,
            provider_status="reading",
            accepted_at=at + 2 * _MINUTE,
            queried_at=at + 8 * _MINUTE,
        ),
        outcome=Outcome(error=TaskError(code=ErrorCode.QUERY_FAILED, message="busy", provider_code="503")),
        query_params=QueryParams(external_task_id="remote-1", provider_params={"hosts": ["eu"]}),
        params=None if accepted else created.params,
        holds_slots=status.active,
    )


def make_bare_snapshot(status: Status, *, at: datetime = START) -> Task:
    """Return a task with as little in it as there can be in this status."""
    created = lifecycle.created(make_draft(), at)
    lease = Lease(worker_id="worker-1", token=1, nonce="nonce", until=at + 5 * _MINUTE)
    known = status in {Status.SUBMITTED, Status.RUNNING}
    return evolve(
        created,
        status=status,
        version=1,
        token=1,
        lease=None if status.terminal or status is Status.PENDING_SUBMIT else lease,
        query_params=QueryParams(external_task_id="remote-1") if known else None,
        params=None if known else created.params,
        holds_slots=status.active,
    )


EVENTS: tuple[tuple[str, Status | None, Status], ...] = (
    ("created", None, Status.PENDING_SUBMIT),
    ("cancellation", None, Status.CANCELED),
    ("GaveBack", Status.SUBMITTING, Status.PENDING_SUBMIT),
    ("CancelSeen", Status.SUBMITTING, Status.CANCELED),
    ("Overdue", Status.SUBMITTING, Status.TRACKING_TIMED_OUT),
    ("Overdue", Status.RUNNING, Status.TRACKING_TIMED_OUT),
    ("Accepted", Status.SUBMITTING, Status.SUBMITTED),
    ("Accepted", Status.SUBMITTING, Status.RUNNING),
    ("Finished", Status.SUBMITTING, Status.SUCCEEDED),
    ("Finished", Status.RUNNING, Status.SUCCEEDED),
    ("Finished", Status.RUNNING, Status.FAILED),
    ("Finished", Status.RUNNING, Status.CANCELED),
    ("Deferred", Status.SUBMITTING, Status.PENDING_SUBMIT),
    ("Deferred", Status.SUBMITTING, Status.CANCELED),
    ("Rejected", Status.SUBMITTING, Status.FAILED),
    ("Resent", Status.SUBMITTING, Status.PENDING_SUBMIT),
    ("LeftUnknown", Status.SUBMITTING, Status.SUBMIT_UNKNOWN),
    ("StillGoing", Status.SUBMITTED, Status.RUNNING),
    ("StillGoing", Status.RUNNING, Status.RUNNING),
    ("QueryErred", Status.RUNNING, Status.RUNNING),
    ("GaveUp", Status.RUNNING, Status.FAILED),
    ("CancelDone", Status.RUNNING, Status.CANCELED),
    ("Adopt", Status.SUBMIT_UNKNOWN, Status.SUBMITTED),
    ("Resubmit", Status.SUBMIT_UNKNOWN, Status.PENDING_SUBMIT),
    ("Abandon", Status.SUBMIT_UNKNOWN, Status.FAILED),
    ("Extend", Status.TRACKING_TIMED_OUT, Status.SUBMITTED),
    ("an event of a newer version", Status.RUNNING, Status.RUNNING),
)
"""What can be committed: event, from, to. One is of tomorrow, since events may be added."""


def make_change(
    event: str, source: Status | None, target: Status, *, bare: bool = False, draft: TaskDraft | None = None
) -> TaskChange:
    """Return a committed change of one task."""
    if bare:
        before = None if source is None else make_bare_snapshot(source)
        after = make_bare_snapshot(target)
    else:
        draft = draft or ordinary_draft()
        before = None if source is None else make_snapshot(source, draft=draft)
        after = make_snapshot(target, draft=draft)
    after = evolve(after, id=before.id if before else after.id, lease=None, version=after.version + 1)
    return TaskChange(before=before, after=after, event=event)


_STREAK = 30


def changes() -> Iterator[TaskChange]:
    """Return what workers commit on good and on bad days: long rows of the same, then something else.

    Whatever counts failures and breaks a circuit has cause to do so, and to close it again.
    """
    common = [each for each in EVENTS if each[1] is not None and each[1].active and each[0][0].isupper()]
    for tenant in ("acme", "umbrella"):
        draft = ordinary_draft(tenant=tenant)
        made = [make_change(*each, draft=draft) for each in common]
        for change in made:
            yield from (_of_another_task(change) for _ in range(_STREAK))
        yield from map(_of_another_task, made)


def _of_another_task(change: TaskChange) -> TaskChange:
    after = evolve(change.after, id=new_task_id())
    before = change.before and evolve(change.before, id=after.id)
    return evolve(change, before=before, after=after)
