"""Mutants of S6: tasks that need a decision."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.evolving import evolve
from coatcheck.locked import claims, entries
from coatcheck.locked.ordered import above
from coatcheck.memory import MemoryStore
from coatcheck.store import Claims
from coatcheck.task import Status
from mutants.stores import breaks_store
from mutants.stores.slots import leak


@breaks_store("STORE-STALE-1")
def overdue_jobs_want_their_handler(patch: pytest.MonkeyPatch) -> None:
    """Lets only workers that have the handler time out what was submitted."""
    good = claims._needing

    def needing(ledger, claimant, task):
        mine = task.route.handler_key in claimant.handler_keys
        if task.status.queryable and task.cancellation_requested_at is None and not mine:
            return None
        return good(ledger, claimant, task)

    patch.setattr(claims, "_needing", needing)


@breaks_store("STORE-STALE-2")
def no_handlers_no_claims(patch: pytest.MonkeyPatch) -> None:
    """Answers a worker without handlers before it has looked."""
    good = MemoryStore.claim_stale

    async def claim_stale(self, worker_id, handler_keys, limit, lease):
        if not handler_keys:
            return Claims()
        return await good(self, worker_id, handler_keys, limit, lease)

    patch.setattr(MemoryStore, "claim_stale", claim_stale)


@breaks_store("STORE-STALE-3")
def paused_gates_stop_decisions(patch: pytest.MonkeyPatch) -> None:
    """Leaves flagged tasks alone while their query gate is paused."""
    good = claims._needing

    def needing(ledger, claimant, task):
        gate = ledger.gates.state(task.route.query_gate).gate if task.route.query_gate else None
        if task.status.queryable and gate is not None and gate.paused_at(ledger.now):
            return None
        return good(ledger, claimant, task)

    patch.setattr(claims, "_needing", needing)


@breaks_store("STORE-STALE-4")
def overdue_beats_a_live_lease(patch: pytest.MonkeyPatch) -> None:
    """Takes what is past its deadline from the worker that holds it."""
    good = claims._needing

    def needing(ledger, claimant, task):
        if task.submission_started and task.schedule.deadline_at <= ledger.now:
            return task
        return good(ledger, claimant, task)

    patch.setattr(claims, "_needing", needing)


@breaks_store("STORE-STALE-5")
def decisions_of_one_handler(patch: pytest.MonkeyPatch) -> None:
    """Looks for decisions of the first of a worker's handlers only."""
    good = claims._stale_keys

    def stale_keys(ledger, claimant):
        asked = claimant.handler_keys
        claimant.handler_keys = asked[:1]
        try:
            return good(ledger, claimant)
        finally:
            claimant.handler_keys = asked

    patch.setattr(claims, "_stale_keys", stale_keys)


@breaks_store("STORE-STALE-6")
def rescue_keeps_the_version(patch: pytest.MonkeyPatch) -> None:
    """Does not raise the version of an orphaned submission that it hands to another worker."""
    good = lifecycle.claimed_stale

    def claimed_stale(task, lease, now):
        after = good(task, lease, now)
        return evolve(after, version=task.version) if task.submission_started else after

    patch.setattr(lifecycle, "claimed_stale", claimed_stale)


@breaks_store("STORE-STALE-7")
def the_handler_goes_first_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Knows no grace period: what no worker has the handler for is never decided."""
    for module in (claims, entries):
        patch.setattr(module, "STALE_GRACE", timedelta(days=99))


@breaks_store("STORE-STALE-8")
def orphan_keeps_its_grant(patch: pytest.MonkeyPatch) -> None:
    """Puts back what was never started, without the rate grant that it took."""

    def put_back(ledger, task):
        return ledger.write(task, lifecycle.lease_ended(task, ledger.now))

    patch.setattr(claims, "put_back", put_back)


@breaks_store("STORE-STALE-9")
def flagged_orphan_leaks_slots(patch: pytest.MonkeyPatch) -> None:
    """Cancels what was never started and flagged, and forgets its slots."""
    leak(
        patch,
        lambda old, new: (
            old.status is Status.SUBMITTING
            and new.status is Status.CANCELED
            and not old.submission_started
            and new.progress.lost_leases > 0
        ),
    )


@breaks_store("STORE-STALE-10")
def overdue_orphan_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Puts back what was never started without a look at its deadline, and has used up its entry."""
    good = claims._needing
    put_back: set[str] = set()

    def needing(ledger, claimant, task):
        unstarted = task.status is Status.SUBMITTING and not task.submission_started
        deadline = task.schedule.deadline_at
        if unstarted and deadline <= ledger.now and task.lease.until <= ledger.now:
            claims.put_back(ledger, task)
            ledger.records.delete(("any", deadline, task.id))
            put_back.add(task.id)
        return None if task.id in put_back else good(ledger, claimant, task)

    patch.setattr(claims, "_needing", needing)


@breaks_store("STORE-STALE-11")
def deaths_count_once(patch: pytest.MonkeyPatch) -> None:
    """Remembers that a lease was lost, and not how many."""
    good = lifecycle.claimed_stale

    def claimed_stale(task, lease, now):
        after = good(task, lease, now)
        lost = min(after.progress.lost_leases, 1)
        return evolve(after, progress=evolve(after.progress, lost_leases=lost))

    patch.setattr(lifecycle, "claimed_stale", claimed_stale)


@breaks_store("STORE-STALE-12")
def what_was_read_ahead_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Takes more overdue tasks off their index than it hands out."""
    good = claims._stale_keys

    def stale_keys(ledger, claimant):
        keys = good(ledger, claimant)
        ahead = ledger.records.scan(("any",), above(("any", ledger.now)), 2 * claimant.limit)
        for key in ahead[claimant.limit :]:
            ledger.records.delete(key)
        return keys

    patch.setattr(claims, "_stale_keys", stale_keys)


@breaks_store("STORE-STALE-13")
def others_hide_what_is_ours(patch: pytest.MonkeyPatch) -> None:
    """Looks at the oldest flagged tasks, whosever they are, and then for those of the worker among them."""
    good = claims._stale_keys

    def stale_keys(ledger, claimant):
        oldest = sorted(ledger.records.under(("own",)), key=lambda key: key[-2:])[: claimant.limit]
        return [key for key in good(ledger, claimant) if key[0] != "own" or key in oldest]

    patch.setattr(claims, "_stale_keys", stale_keys)
