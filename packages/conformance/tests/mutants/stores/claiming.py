"""Mutants of S4: claiming for submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import pytest
from attrs import evolve

from coatcheck.locked import claims, entries, steps
from coatcheck.locked.claims import Claimant
from coatcheck.locked.gatekeeper import Gatekeeper, GateState
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import Key
from coatcheck.locked.walk import Walk
from coatcheck.memory import MemoryStore
from coatcheck.store import Claims
from coatcheck.task import ErrorCode, Lease, Outcome, Status, Task, from_millis
from mutants.stores import breaks_store

_MS = timedelta(milliseconds=1)


def _leases(patch: pytest.MonkeyPatch, change: Callable[[Claimant, Task, Lease], Lease]) -> None:
    good = Claimant.lease

    def lease(self: Claimant, task: Task, until: datetime, granted_at: datetime | None = None) -> Lease:
        return change(self, task, good(self, task, until, granted_at))

    patch.setattr(Claimant, "lease", lease)


@breaks_store("STORE-CLAIM-1")
def claim_cuts_long_leases(patch: pytest.MonkeyPatch) -> None:
    """Gives a lease of half an hour at most, whatever was asked for."""
    good = MemoryStore.claim_submissions

    async def claim_submissions(self, worker_id, handler_keys, limit, lease):
        return await good(self, worker_id, handler_keys, limit, min(lease, timedelta(minutes=30)))

    patch.setattr(MemoryStore, "claim_submissions", claim_submissions)


@breaks_store("STORE-CLAIM-2")
def one_nonce_for_a_batch(patch: pytest.MonkeyPatch) -> None:
    """Draws one nonce for a claim, and gives it to all of its tasks."""
    _leases(patch, lambda self, task, lease: evolve(lease, nonce=f"{self.nonce}-1"))


@breaks_store("STORE-CLAIM-3")
def handlers_fold_case(patch: pytest.MonkeyPatch) -> None:
    """Compares handler keys as many a collation does."""
    good = Claimant.__init__

    def init(self: Claimant, worker_id, handler_keys, limit, lease) -> None:
        good(self, worker_id, [*handler_keys, *(key.lower() for key in handler_keys)], limit, lease)

    patch.setattr(Claimant, "__init__", init)


@breaks_store("STORE-CLAIM-4")
def tasks_go_a_moment_early(patch: pytest.MonkeyPatch) -> None:
    """Lets a task go in the millisecond before it is due."""
    good = Ledger.promote

    def promote(self: Ledger, handler_key: str) -> bool:
        now = self.now
        self.now = now + _MS
        try:
            return good(self, handler_key)
        finally:
            self.now = now

    patch.setattr(Ledger, "promote", promote)


@breaks_store("STORE-CLAIM-5")
def limit_begins_anew_in_each_lane(patch: pytest.MonkeyPatch) -> None:
    """Takes up to the limit from a further lane of the same priority, without what it has already."""
    good = Walk._serve

    def serve(self: Walk, lane, head, bound) -> None:
        limit = self._limit
        if self.granted and self.granted[-1].task.schedule.rank.band == head[0] and self._lanes.slots:
            self._limit += len(self.granted)
        try:
            good(self, lane, head, bound)
        finally:
            self._limit = limit

    patch.setattr(Walk, "_serve", serve)


@breaks_store("STORE-CLAIM-6")
def the_deadline_itself_is_in_time(patch: pytest.MonkeyPatch) -> None:
    """Claims a task at the instant of its deadline."""
    good = Ledger.submission_at

    def submission_at(self: Ledger, key: Key) -> Task | None:
        now = self.now
        self.now = now - _MS
        try:
            return good(self, key)
        finally:
            self.now = now

    patch.setattr(Ledger, "submission_at", submission_at)


@breaks_store("STORE-CLAIM-7")
def cancelled_tasks_stay_in_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Leaves the entry of a cancelled task in its queue, and claims what it finds there."""
    good = Ledger.submission_at
    good_cancel = steps.cancel

    def cancel(ledger: Ledger, task_id: str) -> bool:
        task = ledger.load(task_id)
        accepted = good_cancel(ledger, task_id)
        if task and task.status is Status.PENDING_SUBMIT and task.lease is None and not task.route.gates:
            ledger.submissions.enter(task.route.handler_key, *entries.submit_turn(task))
        return accepted

    def submission_at(self: Ledger, key: Key) -> Task | None:
        task = self.load(str(key[-1]))
        if task is None or task.status is not Status.CANCELED:
            return good(self, key)
        self.records.delete(key)
        return evolve(task, status=Status.PENDING_SUBMIT, outcome=Outcome())

    patch.setattr(steps, "cancel", cancel)
    patch.setattr(Ledger, "submission_at", submission_at)


@breaks_store("STORE-CLAIM-8")
def cancelling_cuts_the_lease(patch: pytest.MonkeyPatch) -> None:
    """Decides at once about a started submission that was cancelled, though its worker is at it."""
    good = claims.claim_stale

    def claim_stale(ledger: Ledger, claimant: Claimant) -> Claims:
        for key in ledger.records.under(("submitting",)):
            task = ledger.load(str(key[-1]))
            if task is None or task.lease is None or task.cancellation_requested_at is None:
                continue
            if task.attempt is not None and task.attempt.token == task.lease.token:
                ledger.write(task, evolve(task, lease=evolve(task.lease, until=ledger.now)))
        return good(ledger, claimant)

    patch.setattr(claims, "claim_stale", claim_stale)


@breaks_store("STORE-CLAIM-9")
def deferred_task_keeps_its_token(patch: pytest.MonkeyPatch) -> None:
    """Claims a task that was deferred under the token that it had."""

    def lease(_: Claimant, task: Task, made: Lease) -> Lease:
        error = task.outcome.error
        was_deferred = error is not None and error.code == ErrorCode.SUBMIT_DEFERRED
        return evolve(made, token=task.token) if was_deferred else made

    _leases(patch, lease)


@breaks_store("STORE-CLAIM-11")
def any_limit_stamps_a_grant(patch: pytest.MonkeyPatch) -> None:
    """Says of every task behind a limited gate when it was granted, as if a rate had been involved."""
    good = Gatekeeper.take

    def take(self: Gatekeeper, states: Iterable[GateState], count: int, *, slots: bool) -> datetime | None:
        gates = list(states)
        at = good(self, gates, count, slots=slots)
        limited = any(gate.gate is not None for gate in gates)
        return from_millis(self._moment.stamp) if at is None and limited else at

    patch.setattr(Gatekeeper, "take", take)


@breaks_store("STORE-CLAIM-12")
def nothing_is_looked_for_twice(patch: pytest.MonkeyPatch) -> None:
    """Says "again" once of each batch that is empty, to be on the safe side."""
    good = MemoryStore.claim_submissions
    again: set[int] = set()

    async def claim_submissions(self, worker_id, handler_keys, limit, lease):
        batch = await good(self, worker_id, handler_keys, limit, lease)
        if batch.tasks or id(self) in again:
            again.discard(id(self))
            return batch
        again.add(id(self))
        return evolve(batch, again=True)

    patch.setattr(MemoryStore, "claim_submissions", claim_submissions)
