"""The lifecycle: its table, and what each step makes of a task."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from coatcheck import lifecycle
from coatcheck.errors import InvalidTransition, LeaseLost, VersionConflict
from coatcheck.events import (
    Abandon,
    Accepted,
    Adopt,
    CancelDone,
    CancelSeen,
    Deferred,
    Event,
    Extend,
    Finished,
    GaveBack,
    GaveUp,
    LeftUnknown,
    Overdue,
    Proof,
    QueryErred,
    Rejected,
    Resent,
    Resolution,
    Resubmit,
    StillGoing,
)
from coatcheck.lifecycle import ARROWS, HISTORY_LIMIT, Settlement
from coatcheck.lifecycle.settlement import apply
from coatcheck.task import (
    CancelOutcome,
    ErrorCode,
    Identity,
    Lease,
    QueryParams,
    Route,
    Status,
    Task,
    TaskDraft,
    TaskError,
)

T0 = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
JOB = QueryParams(external_task_id="remote-1")
OTHER_JOB = QueryParams(external_task_id="remote-2")
ERROR = TaskError(code=ErrorCode.PROVIDER_FAILED, message="page 7 is blank")
LOST = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="submit outcome unknown: timeout")


# ---------------------------------------------------------------- tasks in every state


def draft(**changes: Any) -> TaskDraft:
    """Return a draft of a task with an hour to live."""
    given: dict[str, Any] = {
        "id": "task-1",
        "route": Route(handler_key="h", provider_key="p", gates=("g",)),
        "identity": Identity(params_digest="0" * 64, idempotency_key="key-1"),
        "params": {"url": "https://example.com/a.pdf"},
        "tracking_timeout": HOUR,
    }
    return TaskDraft(**given | changes)


def pending(**changes: Any) -> Task:
    """Return a task that waits to be submitted."""
    return lifecycle.created(draft(**changes), T0)


def lease_for(task: Task, now: datetime = T0, *, who: str = "worker-1") -> Lease:
    """Return the lease that a store would give on a task."""
    token = task.token + 1
    return Lease(worker_id=who, token=token, nonce=f"{who}/{token}", until=now + MINUTE, granted_at=now)


def claimed(task: Task | None = None, now: datetime = T0) -> Task:
    """Return a task that is claimed for submission and not started."""
    task = task or pending()
    return lifecycle.claimed_for_submission(task, lease_for(task, now), now)


def started(task: Task | None = None, now: datetime = T0) -> Task:
    """Return a task whose submission is started."""
    return lifecycle.started(claimed(task, now), now, now + MINUTE)


def settle(task: Task, event: Event, now: datetime = T0) -> Task:
    """Return what a claimed task becomes; fail if it is refused."""
    after = lifecycle.settled(task, Settlement(task=task, event=event), now)
    assert isinstance(after, Task), after
    return after


def tracked(status: Status = Status.SUBMITTED, *, delay: timedelta = SECOND) -> Task:
    """Return a task that the provider has accepted."""
    return settle(started(), Accepted(query_params=JOB, delay=delay, status=status))


def querying(task: Task | None = None, now: datetime = T0) -> Task:
    """Return a task that is claimed for a query."""
    task = task or tracked()
    return lifecycle.claimed_for_query(task, lease_for(task, now), now)


def unknown() -> Task:
    """Return a task whose submission came to an end that nobody knows."""
    return settle(started(), LeftUnknown(error=LOST))


def in_doubt() -> Task:
    """Return a task that is to be sent again under the same key."""
    return settle(started(), Resent(delay=timedelta(), error=LOST))


def timed_out(*, known: bool) -> Task:
    """Return a task whose deadline has passed, with or without a job at the provider."""
    now = T0 + 2 * HOUR
    task = tracked() if known else pending()
    return settle(lifecycle.claimed_stale(task, lease_for(task, now), now), Overdue(), now)


def flagged(task: Task) -> Task:
    """Return a claimed task that was cancelled since."""
    after = lifecycle.cancellation_requested(task, T0)
    assert after is not None
    return after


def ended(status: Status) -> Task:
    """Return a task at an end."""
    return settle(querying(), Finished(status=status, error=ERROR))


def canceled() -> Task:
    """Return a task that was cancelled before it was sent."""
    return flagged(pending())


STATES: dict[Status, tuple[Callable[[], Task], ...]] = {
    Status.PENDING_SUBMIT: (pending, in_doubt),
    Status.SUBMITTING: (claimed, started, lambda: claimed(in_doubt()), lambda: started(in_doubt())),
    Status.SUBMITTED: (querying, lambda: querying(evolve(tracked(), nudged=True))),
    Status.RUNNING: (lambda: querying(tracked(Status.RUNNING)),),
    Status.SUCCEEDED: (lambda: ended(Status.SUCCEEDED),),
    Status.FAILED: (lambda: ended(Status.FAILED),),
    Status.CANCELED: (lambda: ended(Status.CANCELED), canceled),
    Status.TRACKING_TIMED_OUT: (lambda: timed_out(known=True), lambda: timed_out(known=False)),
    Status.SUBMIT_UNKNOWN: (unknown,),
}
"""Ways to be in each status."""

ACCEPTED = tuple(
    Accepted(query_params=JOB, delay=SECOND, status=s) for s in (Status.SUBMITTED, Status.RUNNING)
)
FINISHED = tuple(
    Finished(status=s, query_params=JOB) for s in (Status.SUCCEEDED, Status.FAILED, Status.CANCELED)
)
EVENTS: tuple[Event, ...] = (
    GaveBack(),
    CancelSeen(),
    Overdue(),
    *ACCEPTED,
    *FINISHED,
    Deferred(delay=SECOND, error=ERROR),
    Rejected(error=ERROR),
    Resent(delay=SECOND, error=LOST),
    Resent(delay=SECOND, error=LOST, window=SECOND),
    LeftUnknown(error=LOST),
    StillGoing(delay=SECOND),
    StillGoing(delay=SECOND, status=Status.SUBMITTED),
    QueryErred(delay=SECOND, error=ERROR),
    GaveUp(error=ERROR),
    CancelDone(remote_cancel=CancelOutcome.CONFIRMED),
)
RESOLUTIONS: tuple[Resolution, ...] = (
    Adopt(query_params=JOB),
    Resubmit(tracking_timeout=HOUR),
    Abandon(),
    Extend(tracking_timeout=HOUR),
)


@frozen
class Step:
    """One thing that can happen, under the name that the table has for it."""

    name: str
    take: Callable[[Task], Task | None]


def _resolving(resolution: Resolution) -> Callable[[Task], Task | None]:
    return lambda task: lifecycle.resolved(task, resolution, T0)


def _applying(event: Event, *, flag: bool) -> Callable[[Task], Task | None]:
    def take(task: Task) -> Task:
        if flag:
            task = evolve(task, cancellation_requested_at=T0)
        return apply(task, event, T0)

    return take


def _attesting(event: Accepted | Finished) -> Callable[[Task], Task | None]:
    def take(task: Task) -> Task:
        token = task.attempt.token if task.attempt else 0
        return lifecycle.attested(task, token, Proof(event=event), T0)

    return take


STEPS = (
    Step("claimed", lambda task: lifecycle.claimed_for_submission(task, lease_for(task), T0)),
    Step("cancellation", lambda task: lifecycle.cancellation_requested(task, T0)),
    Step("lease ended", lambda task: lifecycle.lease_ended(task, T0)),
    *(Step(type(event).__name__, _applying(event, flag=False)) for event in EVENTS),
    *(Step("settled while flagged", _applying(event, flag=True)) for event in EVENTS),
    *(Step(type(each).__name__, _resolving(each)) for each in RESOLUTIONS),
    *(Step("attested", _attesting(accepted)) for accepted in ACCEPTED),
    *(Step("attested", _attesting(finished)) for finished in FINISHED),
)


def reached(source: Status, name: str) -> Iterator[Status]:
    """Yield what tasks of this status become by the steps of this name, where it is another status."""
    for make in STATES[source]:
        for step in STEPS:
            if step.name != name:
                continue
            before = make()
            assert before.status is source
            try:
                after = step.take(before)
            except InvalidTransition:
                continue
            if after is not None and (after.status is not source or name == "StillGoing"):
                yield after.status


NAMES = sorted({arrow.event for arrow in ARROWS} - {"created", "settled while flagged"} | {"QueryErred"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", list(Status))
def test_the_table_holds_what_can_happen_and_no_more(source: Status, name: str) -> None:
    """From each status each step leads exactly to where the table has an arrow, by one way or another."""
    listed = {arrow.target for arrow in ARROWS if (arrow.source, arrow.event) == (source, name)}
    assert set(reached(source, name)) == listed


@pytest.mark.parametrize("source", [Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_flagged_task_ends_in_nothing_but_canceled(source: Status, event: Event) -> None:
    """Whatever a claim is settled with, a task whose cancel() returned True is CANCELED or still queryable."""
    for make in STATES[source]:
        task = flagged(make())
        after = lifecycle.settled(task, Settlement(task=task, event=event), T0)
        if isinstance(after, Task):
            assert after.status is Status.CANCELED or after.status.queryable
            assert not after.status.queryable or after.schedule.due_at <= T0
        else:
            assert isinstance(after, InvalidTransition)


def test_arrows_are_told_once() -> None:
    """The table has no arrow twice, and each says when it is taken."""
    keys = [(arrow.source, arrow.event, arrow.target) for arrow in ARROWS]
    assert len(keys) == len(set(keys))
    assert all(arrow.text for arrow in ARROWS)


def test_nothing_leaves_a_final_end() -> None:
    """SUCCEEDED, FAILED and CANCELED are for ever."""
    assert {arrow.source for arrow in ARROWS if arrow.source and arrow.source.terminal} == {
        Status.SUBMIT_UNKNOWN,
        Status.TRACKING_TIMED_OUT,
    }


def test_unknown_submissions_are_never_resubmitted_by_themselves() -> None:
    """Only a person's decision or proof leads out of SUBMIT_UNKNOWN."""
    ways = {arrow.event for arrow in ARROWS if arrow.source is Status.SUBMIT_UNKNOWN}
    assert ways == {"Adopt", "Resubmit", "Abandon", "attested"}


# ---------------------------------------------------------------- created


def test_a_new_task_is_stamped_by_the_store() -> None:
    """Version and token are 0, and all times come from the store's clock and the draft's durations."""
    task = pending(delay=MINUTE, priority=3)
    assert (task.status, task.version, task.token) == (Status.PENDING_SUBMIT, 0, 0)
    schedule = task.schedule
    assert (schedule.created_at, schedule.deadline_at) == (T0, T0 + HOUR)
    assert schedule.scheduled_at == schedule.due_at == T0 + MINUTE
    assert [(entry.source, entry.target) for entry in task.history] == [(None, Status.PENDING_SUBMIT)]


def test_due_is_never_after_the_deadline() -> None:
    """A task that may not be submitted before its deadline is due at its deadline."""
    task = pending(delay=2 * HOUR)
    assert task.schedule.scheduled_at == T0 + 2 * HOUR
    assert task.schedule.due_at == task.schedule.deadline_at == T0 + HOUR


@pytest.mark.parametrize(("microsecond", "wanted"), [(0, 0), (1000, 1), (1001, 2), (999_999, 1000)], ids=str)
def test_an_instant_is_rounded_up_to_milliseconds(microsecond: int, wanted: int) -> None:
    """`not_before` is honoured to the millisecond, and never early."""
    task = pending(not_before=(T0 + MINUTE).replace(microsecond=microsecond))
    assert task.schedule.scheduled_at == T0 + MINUTE + timedelta(milliseconds=wanted)


def test_the_later_of_delay_and_instant_counts() -> None:
    """A task is submitted neither before its delay nor before its instant."""
    assert pending(not_before=T0 - HOUR, delay=SECOND).schedule.scheduled_at == T0 + SECOND
    assert pending(not_before=T0 + MINUTE, delay=SECOND).schedule.scheduled_at == T0 + MINUTE


# ---------------------------------------------------------------- claims


def test_a_claim_raises_version_and_token_and_takes_slots() -> None:
    """A claim for submission gives a lease, fences all earlier ones, and holds the gates' slots."""
    task = claimed()
    assert (task.status, task.version, task.token) == (Status.SUBMITTING, 1, 1)
    assert task.holds_slots
    assert task.lease is not None
    assert task.lease.token == 1
    assert not task.submission_started


def test_a_query_claim_changes_no_status() -> None:
    """A claim for a query raises version and token; the history does not grow."""
    before = tracked()
    task = querying(before)
    assert (task.status, task.version, task.token) == (before.status, before.version + 1, before.token + 1)
    assert task.history == before.history


def test_a_lease_that_ended_without_an_outcome_is_counted() -> None:
    """Workers that die with a task in hand are counted and noted, until an outcome is settled."""
    task = querying(querying(), T0 + HOUR / 2)
    assert task.progress.lost_leases == 1
    assert "ended without an outcome" in task.history[-1].note
    assert settle(task, StillGoing(delay=SECOND), T0 + HOUR / 2).progress.lost_leases == 0


def test_a_stale_claim_keeps_a_started_submission_started() -> None:
    """A rescuer's lease says that the submission was started, and opens no attempt of its own."""
    before = started()
    task = lifecycle.claimed_stale(before, lease_for(before, T0 + HOUR), T0 + HOUR)
    assert task.submission_started
    again = lifecycle.started(task, T0 + HOUR, T0 + 2 * HOUR)
    assert (again.attempt, again.progress.submit_attempts) == (before.attempt, 1)


def test_a_stale_claim_of_what_was_never_started_starts_nothing() -> None:
    """A claim for a decision does not count as a submission."""
    task = lifecycle.claimed_stale(tracked(), lease_for(tracked()), T0)
    assert task.lease is not None
    assert task.lease.started_at is None


# ---------------------------------------------------------------- start and renew


def test_start_opens_an_attempt() -> None:
    """From `start` on the provider may have the job, under the token of the claim."""
    task = started()
    assert task.submission_started
    assert task.attempt is not None
    assert (task.attempt.token, task.attempt.open, task.progress.submit_attempts) == (1, True, 1)
    assert task.version == claimed().version


def test_start_is_idempotent() -> None:
    """A repeated start extends the lease, and counts nothing."""
    again = lifecycle.started(started(), T0 + SECOND, T0 + HOUR)
    assert again.lease is not None
    assert again.lease.until == T0 + HOUR
    assert (again.attempt, again.progress) == (started().attempt, started().progress)


def test_the_first_start_of_a_key_is_remembered() -> None:
    """A deduplication window opens at the first start, however often it is sent again."""
    again = started(settle(started(), Deferred(delay=SECOND, error=ERROR)), T0 + MINUTE)
    assert again.attempt is not None
    assert (again.attempt.first_started_at, again.attempt.started_at) == (T0, T0 + MINUTE)
    assert again.progress.submit_attempts == 2


def test_start_of_a_query_opens_no_attempt() -> None:
    """A query that is started stamps its lease only."""
    before = querying()
    task = lifecycle.started(before, T0, T0 + MINUTE)
    assert task.lease is not None
    assert task.lease.started_at == T0
    assert task.attempt == before.attempt


def test_leases_only_grow() -> None:
    """Neither a renewal nor a start makes a lease shorter."""
    task = claimed()
    assert lifecycle.renewed(task, T0).lease == task.lease
    assert task.lease is not None
    assert lifecycle.renewed(task, T0 + HOUR).lease == evolve(task.lease, until=T0 + HOUR)


def test_without_a_lease_there_is_nothing_to_start_or_renew() -> None:
    """Starting or renewing an unclaimed task is an error that says what to do."""
    with pytest.raises(InvalidTransition, match="claim it"):
        lifecycle.started(pending(), T0, T0)
    with pytest.raises(InvalidTransition, match="nothing to renew"):
        lifecycle.renewed(pending(), T0)


# ---------------------------------------------------------------- a lease that ended before the start


def test_an_unstarted_submission_returns_to_the_queue() -> None:
    """A submission that was never started goes back with its slots, and its attempts unchanged."""
    task = lifecycle.lease_ended(claimed(), T0 + HOUR / 2)
    assert task.status is Status.PENDING_SUBMIT
    assert not task.holds_slots
    assert task.lease is None
    assert (task.progress.submit_attempts, task.progress.lost_leases) == (0, 1)
    assert task.schedule.due_at == T0 + HOUR / 2


def test_a_flagged_unstarted_submission_is_canceled_when_its_lease_ends() -> None:
    """A cancelled task does not return to the queue when its worker dies."""
    task = lifecycle.lease_ended(flagged(claimed()), T0)
    assert (task.status, task.error and task.error.code) == (Status.CANCELED, ErrorCode.CANCELED)


def test_a_started_submission_never_returns_by_itself() -> None:
    """Nothing that forgets a request that may have been sent is possible."""
    with pytest.raises(InvalidTransition, match="may have been sent"):
        lifecycle.lease_ended(started(), T0)
    for event in (GaveBack(), CancelSeen(), Overdue()):
        assert isinstance(
            lifecycle.settled(started(), Settlement(task=started(), event=event), T0), InvalidTransition
        )


# ---------------------------------------------------------------- cancellation and nudges


def test_a_waiting_task_is_canceled_at_once() -> None:
    """Cancelling what nobody has sent is one step; a claim on it for a decision is void."""
    waiting = pending()
    overdue = lifecycle.claimed_stale(waiting, lease_for(waiting), T0)
    for task in (waiting, overdue):
        after = lifecycle.cancellation_requested(task, T0)
        assert after is not None
        assert (after.status, after.version, after.lease) == (Status.CANCELED, task.version + 1, None)
        assert after.outcome.finished_at == T0


def test_a_claimed_task_is_only_flagged() -> None:
    """A flag leaves version, token and due time alone, so the holder's outcome is not refused for it."""
    task = querying()
    after = flagged(task)
    assert after == evolve(task, cancellation_requested_at=T0)


def test_cancelling_again_changes_nothing() -> None:
    """A cancellation is accepted once, and not of what has ended."""
    assert lifecycle.cancellation_requested(flagged(querying()), T0) is None
    for status in (Status.SUCCEEDED, Status.SUBMIT_UNKNOWN, Status.TRACKING_TIMED_OUT):
        assert lifecycle.cancellation_requested(STATES[status][0](), T0) is None


def test_what_a_cancelled_task_may_still_cost_is_said() -> None:
    """A cancelled task whose job may run on says so in its error, and keeps what was known."""
    for task in (flagged(in_doubt()), settle(claimed(in_doubt()), CancelSeen())):
        assert "may still run and be charged" in told(task)
    assert "may still run" not in told(canceled())
    assert "may still run" not in told(settle(querying(), CancelDone(remote_cancel=CancelOutcome.CONFIRMED)))
    refused = settle(querying(), CancelDone(remote_cancel=CancelOutcome.REFUSED, note="too late"))
    assert "too late" in told(refused)
    assert "may still run and be charged" in told(refused)
    assert refused.outcome.remote_cancel is CancelOutcome.REFUSED


def told(task: Task) -> str:
    """Return the message of a task's error."""
    assert task.error is not None
    return task.error.message


def test_a_discarded_end_is_kept_beside_the_cancellation() -> None:
    """What a flagged task would have become shows in its error, result and history."""
    task = flagged(querying())
    after = settle(task, Finished(status=Status.SUCCEEDED, result={"pages": 3}))
    assert (after.status, after.result) == (Status.CANCELED, {"pages": 3})
    assert "had succeeded" in told(after)
    assert "would have become SUCCEEDED" in after.history[-1].note
    assert "page 7 is blank" in told(settle(task, Finished(status=Status.FAILED, error=ERROR)))
    assert "submit outcome unknown" in told(settle(flagged(started()), LeftUnknown(error=LOST)))
    assert after.outcome.finished_at == T0


def test_a_flagged_submission_that_is_accepted_is_due_at_once() -> None:
    """The job of a cancelled task is tracked until the provider was told."""
    after = settle(flagged(started()), Accepted(query_params=JOB, delay=MINUTE))
    assert (after.status, after.schedule.due_at) == (Status.SUBMITTED, T0)


def test_a_nudge_makes_a_query_due() -> None:
    """A callback makes the next query due now."""
    after = lifecycle.nudged(tracked(delay=MINUTE), T0 + SECOND)
    assert after is not None
    assert after.schedule.due_at == T0 + SECOND
    assert lifecycle.nudged(after, T0 + SECOND) is None


@pytest.mark.parametrize(
    "task", [pending(), ended(Status.SUCCEEDED), unknown()], ids=lambda task: task.status
)
def test_a_nudge_of_what_is_not_queried_changes_nothing(task: Task) -> None:
    """A callback about a task that is not tracked does nothing."""
    assert lifecycle.nudged(task, T0) is None


def test_a_nudge_waits_for_the_lease() -> None:
    """A callback during a query makes the task due as soon as that is settled, once."""
    task = lifecycle.nudged(querying(), T0)
    assert task is not None
    after = settle(task, StillGoing(delay=MINUTE))
    assert (after.schedule.due_at, after.nudged) == (T0, False)
    assert settle(querying(after), StillGoing(delay=MINUTE)).schedule.due_at == T0 + MINUTE


def test_a_nudge_ends_with_the_lease() -> None:
    """Once the lease has ended, a queryable task is due at once, and a submission is left alone."""
    later = T0 + HOUR / 2
    after = lifecycle.nudged(querying(tracked(delay=HOUR)), later)
    assert after is not None
    assert after.schedule.due_at == later
    assert lifecycle.nudged(started(), later) is None


# ---------------------------------------------------------------- settling


def test_a_settle_releases_the_lease() -> None:
    """An outcome is written with version + 1 and without a lease; the token stays."""
    task = querying()
    after = settle(task, StillGoing(delay=SECOND))
    assert (after.version, after.token, after.lease) == (task.version + 1, task.token, None)


def test_settling_twice_succeeds() -> None:
    """A settle that this very lease has committed may be repeated, also after a later claim."""
    task = querying()
    settlement = Settlement(task=task, event=StillGoing(delay=SECOND))
    after = settle(task, settlement.event)
    assert lifecycle.settled(after, settlement, T0) is after
    later = querying(after)
    assert lifecycle.settled(later, settlement, T0) is later


def test_a_moved_version_is_refused() -> None:
    """Compare-and-set: a zombie's outcome does not overwrite a newer state."""
    zombie = querying()
    assert isinstance(
        lifecycle.settled(querying(zombie), Settlement(task=zombie, event=StillGoing(delay=SECOND)), T0),
        VersionConflict,
    )


@pytest.mark.parametrize(
    "change",
    [{"nonce": "another"}, {"token": 99}, {"until": T0}],
    ids=["nonce", "token", "expired"],
)
def test_a_lost_lease_is_refused(change: dict[str, Any]) -> None:
    """Only who shows the same token and nonce in time may write."""
    task = querying()
    assert task.lease is not None
    current = evolve(task, lease=evolve(task.lease, **change))
    settlement = Settlement(task=task, event=StillGoing(delay=SECOND))
    assert isinstance(lifecycle.settled(current, settlement, T0), LeaseLost)


def test_without_a_lease_nothing_is_settled() -> None:
    """A task that was not claimed, or is not any more, takes no outcome."""
    task = querying()
    settlement = Settlement(task=task, event=StillGoing(delay=SECOND))
    assert isinstance(lifecycle.settled(evolve(task, lease=None), settlement, T0), LeaseLost)
    assert isinstance(
        lifecycle.settled(task, Settlement(task=tracked(), event=StillGoing(delay=SECOND)), T0), LeaseLost
    )


def test_a_settle_merges_what_changed_since_the_claim() -> None:
    """The row as it is now counts, not the worker's snapshot: a flag set meanwhile is not overwritten."""
    task = querying()
    after = lifecycle.settled(flagged(task), Settlement(task=task, event=GaveUp(error=ERROR)), T0)
    assert isinstance(after, Task)
    assert after.status is Status.CANCELED


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELED])
def test_an_end_releases_the_slots_and_is_stamped(status: Status) -> None:
    """A task that has ended holds no slot and says when it ended."""
    after = ended(status)
    assert not after.holds_slots
    assert after.outcome.finished_at == T0


def test_slots_are_held_from_the_claim_to_the_end() -> None:
    """A tracked task keeps its slots; one that goes back to the queue releases them."""
    assert tracked().holds_slots
    assert not settle(started(), Deferred(delay=SECOND, error=ERROR)).holds_slots
    assert not unknown().holds_slots


def test_params_are_dropped_once_the_provider_has_accepted() -> None:
    """Submit params are kept until then: for another attempt, and for a person."""
    assert tracked().params is None
    assert settle(started(), FINISHED[0]).params is None
    for event in (Deferred(delay=SECOND, error=ERROR), LeftUnknown(error=LOST), Rejected(error=ERROR)):
        assert settle(started(), event).params == pending().params


def test_acceptance_clears_the_errors_of_the_way() -> None:
    """The provider's acceptance resets the errors in a row and the last error."""
    again = started(settle(started(), Deferred(delay=timedelta(), error=ERROR)))
    assert (again.error, again.progress.consecutive_errors) == (ERROR, 1)
    after = settle(again, Accepted(query_params=JOB, delay=SECOND, fraction=0.5, query_params_version=3))
    assert (after.error, after.progress.consecutive_errors, after.progress.fraction) == (None, 0, 0.5)
    assert after.identity.query_params_version == 3
    assert after.progress.accepted_at == T0
    assert after.attempt is not None
    assert not after.attempt.open


def test_queries_are_counted() -> None:
    """Answers and errors count; a good answer ends a row of errors."""
    erred = settle(querying(), QueryErred(delay=MINUTE, error=ERROR, provider_status="odd"))
    assert erred.status is Status.SUBMITTED
    assert (erred.progress.query_count, erred.progress.consecutive_errors) == (1, 1)
    assert (erred.error, erred.progress.provider_status) == (ERROR, "odd")
    assert erred.schedule.due_at == T0 + MINUTE
    silent = settle(querying(erred), QueryErred(delay=MINUTE, error=ERROR))
    assert silent.progress.provider_status == "odd"
    good = settle(querying(silent), StillGoing(delay=SECOND, next_params=OTHER_JOB, query_params_version=2))
    assert (good.progress.query_count, good.progress.consecutive_errors, good.error) == (3, 0, None)
    assert (good.query_params, good.identity.query_params_version) == (OTHER_JOB, 2)


def test_progress_is_kept_until_there_is_news() -> None:
    """A query that tells no progress does not forget it; success is all of it."""
    half = settle(querying(), StillGoing(delay=SECOND, fraction=0.5))
    assert settle(querying(half), StillGoing(delay=SECOND)).progress.fraction == 0.5
    assert ended(Status.SUCCEEDED).progress.fraction == 1.0


@pytest.mark.parametrize("task", [claimed(), tracked()], ids=lambda task: task.status)
def test_a_query_error_needs_a_claimed_query(task: Task) -> None:
    """A submission has no query errors."""
    answer = lifecycle.settled(task, Settlement(task=task, event=QueryErred(delay=SECOND, error=ERROR)), T0)
    assert not isinstance(answer, Task)


def test_a_long_error_does_not_swell_the_history() -> None:
    """An error's text is cut in the history, and whole in the outcome."""
    error = TaskError(code=ErrorCode.SUBMIT_DEFERRED, message="x" * 10_000)
    after = settle(started(), Deferred(delay=SECOND, error=error))
    assert len(after.history[-1].note) == 200
    assert after.error == error


@pytest.mark.parametrize(
    ("event", "given_back"),
    [(GaveBack(), True), (CancelSeen(), True), (Overdue(), True), (Rejected(error=ERROR), False)],
    ids=lambda value: type(value).__name__,
)
def test_unused_grants_are_given_back(event: Event, *, given_back: bool) -> None:
    """A rate grant returns to its gate if no call was started for it."""
    assert lifecycle.returned_grant(claimed(), event) == (T0 if given_back else None)
    assert lifecycle.returned_grant(started(), event) is None
    assert lifecycle.returned_grant(pending(), event) is None


# ---------------------------------------------------------------- deadlines


@given(st.timedeltas(min_value=timedelta(days=-1)), st.sampled_from(["Accepted", "StillGoing", "QueryErred"]))
def test_no_delay_goes_past_the_deadline(delay: timedelta, kind: str) -> None:
    """However long a provider or a policy wants to wait, the task is due at its deadline at the latest."""
    if kind == "Accepted":
        after = settle(started(), Accepted(query_params=JOB, delay=delay))
    elif kind == "StillGoing":
        after = settle(querying(), StillGoing(delay=delay))
    else:
        after = settle(querying(), QueryErred(delay=delay, error=ERROR))
    assert after.schedule.due_at <= after.schedule.deadline_at
    assert after.schedule.due_at == after.schedule.deadline_at or after.schedule.due_at >= T0 + delay


def test_timing_out_says_what_may_still_cost() -> None:
    """A timed-out task says whether a remote job may run on, and what went wrong last."""
    assert "before it was submitted" in told(timed_out(known=False))
    assert "may still run and be charged" in told(timed_out(known=True))
    doubtful = in_doubt()
    now = T0 + 2 * HOUR
    after = settle(lifecycle.claimed_stale(doubtful, lease_for(doubtful, now), now), Overdue(), now)
    assert "may still run and be charged" in told(after)
    assert "timeout" in told(after)


# ---------------------------------------------------------------- sent again under the same key


def test_what_is_sent_again_keeps_its_key_and_its_doubt() -> None:
    """A resent task waits with the same key; that an earlier submission may have worked is not forgotten."""
    task = in_doubt()
    assert task.in_doubt
    assert (task.identity.idempotency_key, task.progress.submit_attempts) == ("key-1", 1)
    again = claimed(task)
    assert again.in_doubt
    assert not again.submission_started
    back = settle(again, GaveBack())
    assert back.in_doubt
    deferred = settle(started(back), Deferred(delay=SECOND, error=ERROR))
    assert deferred.in_doubt
    assert "page 7 is blank; the outcome of an earlier submission is unknown" in told(deferred)
    rejected = settle(started(deferred), Rejected(error=ERROR))
    assert rejected.error is not None
    assert rejected.error.code == ERROR.code
    assert "may still run" in told(rejected)


def test_certain_failures_leave_no_doubt() -> None:
    """What was certainly not created may be sent again without a doubt."""
    task = settle(started(), Deferred(delay=SECOND, error=ERROR))
    assert not task.in_doubt
    assert task.attempt is not None
    assert not task.attempt.open


@pytest.mark.parametrize("delay", [timedelta(), MINUTE])
def test_nothing_is_sent_again_after_the_window(delay: timedelta) -> None:
    """The store's clock decides whether the provider still deduplicates when the turn comes."""
    first = started()
    late = lifecycle.claimed_stale(first, lease_for(first, T0 + MINUTE), T0 + MINUTE)
    event = Resent(delay=delay, error=ERROR, window=2 * MINUTE)
    after = settle(late, event, T0 + MINUTE)
    assert after.status is (Status.PENDING_SUBMIT if delay < MINUTE else Status.SUBMIT_UNKNOWN)
    assert after.error is not None
    assert after.error.code == ErrorCode.SUBMIT_UNKNOWN


def test_what_was_never_started_is_not_sent_again() -> None:
    """There is nothing to resend, or to be unknown, of a submission that was not started."""
    for event in (Resent(delay=SECOND, error=LOST), LeftUnknown(error=LOST)):
        answer = lifecycle.settled(claimed(), Settlement(task=claimed(), event=event), T0)
        assert isinstance(answer, InvalidTransition)
        assert "never started" in str(answer)


# ---------------------------------------------------------------- history


def test_repeated_deferrals_are_one_entry() -> None:
    """However often a submission is put off, the history stays short and counts."""
    task = pending()
    for _ in range(100):
        task = settle(started(task), Deferred(delay=timedelta(), error=ERROR))
    assert [entry.count for entry in task.history] == [1, 100, 100]
    assert task.history[-1].token == 100


def test_repeated_queries_leave_no_trace() -> None:
    """Querying 10,000 times leaves the history as it is."""
    task = tracked()
    before = task.history
    for _ in range(200):
        task = settle(querying(task), StillGoing(delay=SECOND, status=Status.SUBMITTED))
    assert task.history == before


def test_the_history_is_bounded() -> None:
    """The first entry and the latest ones are kept."""
    task = pending()
    for attempt in range(100):
        task = settle(claimed(task), GaveBack(note=f"reason {attempt}"))
    assert len(task.history) == HISTORY_LIMIT
    assert task.history[0].source is None
    assert task.history[-1].note == "reason 99"


def test_a_note_that_is_repeated_is_counted() -> None:
    """The same entry twice in a row is one that counts two."""
    task = querying()
    for _ in range(3):
        task = querying(task, task.lease.until if task.lease else T0)
    assert task.history[-1].count == 3


@given(st.lists(st.sampled_from(EVENTS), max_size=60))
def test_no_walk_breaks_the_rules(events: list[Event]) -> None:
    """Whatever happens in whatever order, versions and tokens only rise and the parts of a task agree."""
    task = pending()
    for event in events:
        before = task
        if task.status is Status.PENDING_SUBMIT:
            task = started(task)
        elif task.status.queryable:
            task = querying(task)
        else:
            break
        after = lifecycle.settled(task, Settlement(task=task, event=event), T0)
        task = after if isinstance(after, Task) else evolve(task, lease=None, version=task.version + 1)
        if not isinstance(after, Task):
            break
        assert task.version > before.version
        assert task.token >= before.token
        assert task.lease is None
        assert task.status.terminal == (task.outcome.finished_at is not None)
        assert not task.holds_slots or task.status.active
        assert (task.query_params is not None) or not task.status.queryable
        assert task.schedule.due_at <= task.schedule.deadline_at
        assert len(task.history) <= HISTORY_LIMIT


# ---------------------------------------------------------------- late proof


def prove(task: Task, token: int = 1, event: Accepted | Finished = ACCEPTED[0], **more: Any) -> Task:
    """Return what late proof makes of a task."""
    return lifecycle.attested(task, token, Proof(event=event, worker_id="late", **more), T0)


@pytest.mark.parametrize("make", [started, unknown, in_doubt, lambda: claimed(in_doubt())])
def test_proof_of_an_open_submission_is_accepted(make: Callable[[], Task]) -> None:
    """The job's id is taken in, whoever holds the task is fenced, and it takes no slot that it had not."""
    task = make()
    after = prove(task)
    assert (after.status, after.external_task_id, after.error) == (Status.SUBMITTED, "remote-1", None)
    assert (after.version, after.token, after.lease) == (task.version + 1, task.token + 1, None)
    assert after.holds_slots == task.holds_slots
    assert after.outcome.finished_at is None
    assert after.history[-1].worker_id == "late"
    assert prove(after) == after


def test_proof_of_an_end_ends_the_task() -> None:
    """Proof that the job has ended brings the result, and the time at which it became known."""
    for task in (started(), unknown()):
        after = prove(task, event=Finished(status=Status.SUCCEEDED, result=[1]))
        assert (after.status, after.result) == (Status.SUCCEEDED, [1])
        assert after.outcome.finished_at == T0
        assert not after.holds_slots


def test_proof_obeys_flags_and_nudges() -> None:
    """A cancelled task ends in nothing but CANCELED by proof too; a nudge that came meanwhile counts."""
    assert prove(flagged(started()), event=Accepted(query_params=JOB, delay=MINUTE)).schedule.due_at == T0
    done = prove(flagged(started()), event=Finished(status=Status.SUCCEEDED, result=[1]))
    assert (done.status, done.result) == (Status.CANCELED, [1])
    assert prove(flagged(started()), event=FINISHED[2]).status is Status.CANCELED
    nudged = prove(evolve(started(), nudged=True), event=Accepted(query_params=JOB, delay=MINUTE))
    assert (nudged.schedule.due_at, nudged.nudged) == (T0, False)


def doubtful_canceled() -> Task:
    """Return a task that was cancelled while its submission was under way, and whose outcome is unknown."""
    return settle(flagged(started()), LeftUnknown(error=LOST))


def test_a_cancelled_task_keeps_the_id_for_the_remote_cancel() -> None:
    """The id of a job that turned up late is kept, and then what came of telling the provider."""
    task = doubtful_canceled()
    kept = prove(task, event=Accepted(query_params=JOB, delay=SECOND, query_params_version=2))
    assert (kept.status, kept.external_task_id, kept.outcome.remote_cancel) == (
        Status.CANCELED,
        "remote-1",
        None,
    )
    assert kept.identity.query_params_version == 2
    assert kept.version == task.version + 1
    assert kept.outcome.finished_at == task.outcome.finished_at
    assert prove(kept) == kept
    told_so = prove(kept, remote_cancel=CancelOutcome.CONFIRMED)
    assert told_so.outcome.remote_cancel is CancelOutcome.CONFIRMED
    assert prove(told_so, remote_cancel=CancelOutcome.REFUSED) == told_so


def test_a_cancelled_task_keeps_a_late_result() -> None:
    """A result that turned up late is kept beside the cancellation, also without an id."""
    end = Finished(status=Status.SUCCEEDED, result=[1])
    kept = prove(doubtful_canceled(), event=end)
    assert (kept.status, kept.result, kept.query_params) == (Status.CANCELED, [1], None)
    again = prove(kept, event=end)
    assert prove(again, event=end) == again
    assert prove(settle(flagged(started()), end), event=FINISHED[0]).result == [1]


def test_proof_after_a_resubmission_is_noted() -> None:
    """A paid job's id is in the history even where it decides nothing, once, and refuses nobody's outcome."""
    waiting = lifecycle.resolved(unknown(), Resubmit(tracking_timeout=HOUR), T0)
    noted = prove(waiting)
    assert noted.status is Status.PENDING_SUBMIT
    assert noted.version == waiting.version + 1
    assert "remote-1" in noted.history[-1].note
    assert prove(noted) == noted
    again = started(waiting)
    held = prove(again)
    assert held.version == again.version
    after = lifecycle.settled(held, Settlement(task=again, event=ACCEPTED[1]), T0)
    assert isinstance(after, Task)
    assert after.status is Status.RUNNING


def test_proof_without_an_attempt_is_noted() -> None:
    """Proof about a token under which nothing was started decides nothing."""
    assert prove(pending()).status is Status.PENDING_SUBMIT
    assert prove(canceled(), event=Finished(status=Status.FAILED)).status is Status.CANCELED


# ---------------------------------------------------------------- people


def resolve(task: Task, resolution: Resolution, now: datetime = T0) -> Task:
    """Return what a person's decision makes of a task."""
    return lifecycle.resolved(task, resolution, now)


def test_every_decision_fences_and_is_remembered() -> None:
    """Version and token rise, and the history says who and why."""
    task = unknown()
    for resolution in (
        Adopt(query_params=JOB, who="ann", note="found in the console"),
        Resubmit(tracking_timeout=HOUR, who="ann", note="found in the console"),
        Abandon(who="ann", note="found in the console"),
    ):
        after = resolve(task, resolution)
        assert (after.version, after.token) == (task.version + 1, task.token + 1)
        assert after.history[-1].note == f"{type(resolution).__name__.lower()} by ann: found in the console"
        assert not after.holds_slots
    assert resolve(task, Abandon()).history[-1].note == "abandon by unknown"


def test_an_adopted_job_is_tracked() -> None:
    """An adopted job is due at once, its params are dropped, and its errors forgotten."""
    after = resolve(unknown(), Adopt(query_params=JOB, query_params_version=4))
    assert (after.status, after.query_params, after.params, after.error) == (
        Status.SUBMITTED,
        JOB,
        None,
        None,
    )
    assert after.outcome.finished_at is None
    assert after.schedule.due_at == T0
    assert after.schedule.deadline_at == T0 + HOUR
    assert after.identity.query_params_version == 4
    assert after.progress.accepted_at == T0


def test_adopting_after_the_deadline_grants_time() -> None:
    """Without a new timeout the original one is granted again if the deadline has passed."""
    later = T0 + 3 * HOUR
    assert resolve(unknown(), Adopt(query_params=JOB), later).schedule.deadline_at == later + HOUR
    timed = Adopt(query_params=JOB, tracking_timeout=MINUTE)
    assert resolve(unknown(), timed, later).schedule.deadline_at == later + MINUTE


def test_a_resubmission_keeps_key_and_params() -> None:
    """A resubmitted task goes out again under the same key, within its new timeout, and free of doubt."""
    after = resolve(unknown(), Resubmit(tracking_timeout=MINUTE))
    assert (after.status, after.params) == (Status.PENDING_SUBMIT, pending().params)
    assert after.identity == pending().identity
    assert after.schedule.deadline_at == T0 + MINUTE
    assert not after.in_doubt
    assert not settle(started(after), Deferred(delay=SECOND, error=ERROR)).in_doubt


def test_abandoning_is_a_failure_that_says_what_it_may_cost() -> None:
    """An abandoned task is FAILED, at the time of the decision."""
    after = resolve(unknown(), Abandon(), T0 + HOUR)
    assert (after.status, after.outcome.finished_at) == (Status.FAILED, T0 + HOUR)
    assert "may still run and be charged" in told(after)
    assert "may still run" not in told(resolve(timed_out(known=False), Abandon()))


def test_more_time_for_what_timed_out() -> None:
    """A timed-out task goes on where it was: tracked, or waiting to be submitted for the first time."""
    later = T0 + 3 * HOUR
    known = resolve(timed_out(known=True), Extend(tracking_timeout=MINUTE), later)
    assert (known.status, known.query_params) == (Status.SUBMITTED, JOB)
    assert (known.schedule.due_at, known.schedule.deadline_at) == (later, later + MINUTE)
    assert (
        resolve(timed_out(known=False), Extend(tracking_timeout=MINUTE), later).status
        is Status.PENDING_SUBMIT
    )


def test_more_time_cannot_help_what_is_in_doubt() -> None:
    """A task that may be at the provider under an unknown id is not sent again by granting time."""
    doubtful, now = in_doubt(), T0 + 2 * HOUR
    task = settle(lifecycle.claimed_stale(doubtful, lease_for(doubtful, now), now), Overdue(), now)
    with pytest.raises(InvalidTransition, match="adopt it"):
        resolve(task, Extend(tracking_timeout=HOUR))
