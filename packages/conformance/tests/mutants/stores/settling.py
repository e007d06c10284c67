"""Mutants of S7: settling."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.errors import InvalidTransition, LeaseLost, NotPersistable, VersionConflict
from coatcheck.events import Accepted, CancelSeen, Deferred, Finished, GaveBack, Overdue
from coatcheck.evolving import evolve
from coatcheck.lifecycle import Settlement
from coatcheck.lifecycle.settlement import apply
from coatcheck.locked import snapshots, steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.task import Lease, Status, Task
from mutants.stores import breaks_store

_MS = timedelta(milliseconds=1)


@breaks_store("STORE-SETTLE-1")
def params_outlive_acceptance(patch: pytest.MonkeyPatch) -> None:
    """Keeps what was submitted, though the provider has accepted it."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        after = good(task, settlement, now)
        if isinstance(after, Task) and isinstance(settlement.event, Accepted):
            after = evolve(after, params=task.params)
        return after

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-2")
def settle_takes_later_versions(patch: pytest.MonkeyPatch) -> None:
    """Refuses only snapshots that are older than the row."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        claimed = settlement.task
        if claimed.version > task.version:
            settlement = evolve(settlement, task=evolve(claimed, version=task.version))
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-3")
def settle_ignores_token(patch: pytest.MonkeyPatch) -> None:
    """Knows a lease by its nonce alone."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        shown, held = settlement.task.lease, task.lease
        if shown is not None and held is not None and shown.nonce == held.nonce:
            claimed = evolve(settlement.task, lease=evolve(shown, token=held.token))
            settlement = evolve(settlement, task=claimed)
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-4")
def settle_ignores_expiry(patch: pytest.MonkeyPatch) -> None:
    """Takes the outcome of a claim whose lease has expired."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        if task.lease is not None and task.lease.until <= now:
            now = task.lease.until - _MS
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-5")
def late_result_beats_rescuer(patch: pytest.MonkeyPatch) -> None:
    """Takes the result of the started attempt, though another worker holds the task by now."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        shown, held, attempt = settlement.task.lease, task.lease, task.attempt
        if shown is None or held is None or attempt is None or not isinstance(settlement.event, Finished):
            return good(task, settlement, now)
        if attempt.open and attempt.token == shown.token < held.token:
            settlement = evolve(settlement, task=task)
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-6")
def last_nonce_still_counts(patch: pytest.MonkeyPatch) -> None:
    """Compares version and token, and takes the nonce of the lease before for that of the present one."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        claimed, held = settlement.task, task.lease
        same = (claimed.version, claimed.token) == (task.version, task.token)
        if same and held is not None and claimed.lease and claimed.lease.nonce == task.settled_by:
            settlement = evolve(settlement, task=evolve(claimed, lease=held))
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-7")
def no_lease_fits_no_lease(patch: pytest.MonkeyPatch) -> None:
    """Finds the lease that is not shown equal to the lease that there is not."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        shown = settlement.task.lease
        if shown is None and task.lease is None and isinstance(settlement.event, (CancelSeen, Overdue)):
            try:
                return evolve(apply(task, settlement.event, now), version=task.version + 1)
            except InvalidTransition as error:
                return error
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-8")
def settle_skips_missing(patch: pytest.MonkeyPatch) -> None:
    """Answers only for the tasks that it has found, so that the answers move up."""
    good = MemoryStore.settle

    async def settle(self: MemoryStore, settlements: Sequence[Settlement]):
        found = await self.get_many([each.task.id for each in settlements])
        return await good(self, [each for each in settlements if each.task.id in found])

    patch.setattr(MemoryStore, "settle", settle)


@breaks_store("STORE-SETTLE-9")
def one_nan_fails_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Raises what says that one outcome cannot be stored, and undoes the others with it."""
    good = steps.settle

    def settle(ledger: Ledger, settlement: Settlement):
        answer = good(ledger, settlement)
        if isinstance(answer, NotPersistable):
            raise answer
        return answer

    patch.setattr(steps, "settle", settle)


@breaks_store("STORE-SETTLE-9")
def half_characters_in_errors(patch: pytest.MonkeyPatch) -> None:
    """Does not look at the text of an error before it writes it."""
    good = snapshots._texts_of_outcome

    def texts_of_outcome(task: Task):
        return {name: text for name, text in good(task).items() if name != "error.message"}

    patch.setattr(snapshots, "_texts_of_outcome", texts_of_outcome)


@breaks_store("STORE-SETTLE-10")
def giving_back_started_raises(patch: pytest.MonkeyPatch) -> None:
    """Raises for a started claim that is given back, and undoes the rest of the batch with it."""
    good = steps.settle

    def settle(ledger: Ledger, settlement: Settlement):
        answer = good(ledger, settlement)
        if isinstance(answer, InvalidTransition) and isinstance(settlement.event, GaveBack):
            raise answer
        return answer

    patch.setattr(steps, "settle", settle)


@breaks_store("STORE-SETTLE-11")
def repeat_must_say_the_same(patch: pytest.MonkeyPatch) -> None:
    """Takes a repetition for one only if it says of the status what was written."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        shown, event = settlement.task.lease, settlement.event
        repeated = shown is not None and task.settled_by == shown.nonce and task.lease is None
        if repeated and isinstance(event, Finished) and event.status is not task.status:
            return VersionConflict(f"task {task.id} is {task.status}")
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-12")
def claim_forgets_who_settled(patch: pytest.MonkeyPatch) -> None:
    """Forgets at the next claim which lease has settled the task."""
    good = lifecycle.claimed_for_submission

    def claimed(task: Task, lease: Lease, now: datetime):
        return evolve(good(task, lease, now), settled_by=None)

    patch.setattr(lifecycle, "claimed_for_submission", claimed)


@breaks_store("STORE-SETTLE-13")
def batch_refuses_its_repeats(patch: pytest.MonkeyPatch) -> None:
    """Compares all of a batch with the rows as they were before it, and writes only the first of a task."""
    good = MemoryStore.settle

    async def settle(self: MemoryStore, settlements: Sequence[Settlement]):
        ids = [each.task.id for each in settlements]
        answers = await good(self, settlements)
        return [
            VersionConflict(f"task {task_id} has moved") if task_id in ids[:place] else answer
            for place, (task_id, answer) in enumerate(zip(ids, answers, strict=True))
        ]

    patch.setattr(MemoryStore, "settle", settle)


@breaks_store("STORE-SETTLE-14")
def deferral_outlives_deadline(patch: pytest.MonkeyPatch) -> None:
    """Lets a deferred submission wait for as long as it was said, past the deadline."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        after, event = good(task, settlement, now), settlement.event
        if isinstance(after, Task) and isinstance(event, Deferred) and after is not task:
            after = evolve(after, schedule=evolve(after.schedule, due_at=now + event.delay))
        return after

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-SETTLE-15")
def settle_stops_at_256(patch: pytest.MonkeyPatch) -> None:
    """Writes as many outcomes as fit into one statement, and calls the rest lost."""
    good = MemoryStore.settle

    async def settle(self: MemoryStore, settlements: Sequence[Settlement]):
        rest = [LeaseLost(f"task {each.task.id} was not written") for each in settlements[256:]]
        return [*await good(self, settlements[:256]), *rest]

    patch.setattr(MemoryStore, "settle", settle)


@breaks_store("STORE-SETTLE-16")
def delays_run_from_the_start(patch: pytest.MonkeyPatch) -> None:
    """Counts the time until the first query from when the call began."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        after, event = good(task, settlement, now), settlement.event
        began = task.lease.started_at if task.lease is not None else None
        flagged = task.cancellation_requested_at is not None or task.nudged
        if isinstance(after, Task) and isinstance(event, Accepted) and began is not None and not flagged:
            due_at = min(began + event.delay, after.schedule.deadline_at)
            if after.status in (Status.SUBMITTED, Status.RUNNING):
                after = evolve(after, schedule=evolve(after.schedule, due_at=due_at))
        return after

    patch.setattr(lifecycle, "settled", settled)
