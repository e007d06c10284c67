"""Mutants of S8: renewing leases."""

from __future__ import annotations

import pytest

from coatcheck import lifecycle
from coatcheck.evolving import evolve
from coatcheck.locked import steps
from coatcheck.memory import MemoryStore
from coatcheck.store import Renewal
from coatcheck.task import Status
from mutants.stores import breaks_store


@breaks_store("STORE-LEASE-1")
def renewal_moves_due(patch: pytest.MonkeyPatch) -> None:
    """Hides a claimed task until its lease ends by moving the time at which it is due."""
    good = lifecycle.renewed

    def renewed(task, until):
        after = good(task, until)
        return evolve(after, schedule=evolve(after.schedule, due_at=min(until, after.schedule.deadline_at)))

    patch.setattr(lifecycle, "renewed", renewed)


@breaks_store("STORE-LEASE-2")
def renewal_of_started_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Says yes to who renews while the call is under way, and forgets to write it."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        answer = good(ledger, hold, duration)
        if task is not None and task.submission_started:
            ledger.keep(task)
        return answer

    patch.setattr(steps, "renew", renew)


@breaks_store("STORE-LEASE-3")
def renewal_shortens(patch: pytest.MonkeyPatch) -> None:
    """Sets the end of a lease where it only may move it on."""

    def renewed(task, until):
        assert task.lease is not None
        return evolve(task, lease=evolve(task.lease, until=until))

    patch.setattr(lifecycle, "renewed", renewed)


@breaks_store("STORE-LEASE-4")
def renewal_revives(patch: pytest.MonkeyPatch) -> None:
    """Renews a lease that has ended, if nobody has taken the task since."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        lease = task.lease if task is not None else None
        if task is None or lease is None or lease.nonce != hold.lease.nonce or lease.until > ledger.now:
            return good(ledger, hold, duration)
        until = ledger.now + duration
        ledger.keep(lifecycle.renewed(task, until))
        return Renewal(task.id, held=True, until=until)

    patch.setattr(steps, "renew", renew)


@breaks_store("STORE-LEASE-5")
def renewal_ignores_token(patch: pytest.MonkeyPatch) -> None:
    """Looks at the nonce alone."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        if task is not None and task.lease is not None:
            hold = evolve(hold, lease=evolve(hold.lease, token=task.lease.token))
        return good(ledger, hold, duration)

    patch.setattr(steps, "renew", renew)


@breaks_store("STORE-LEASE-6")
def renewal_by_past_holder(patch: pytest.MonkeyPatch) -> None:
    """Takes who settled last for the holder, as settling does for a repeated outcome."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        if task is not None and task.lease is not None and task.settled_by == hold.lease.nonce:
            hold = evolve(hold, lease=task.lease)
        return good(ledger, hold, duration)

    patch.setattr(steps, "renew", renew)


@breaks_store("STORE-LEASE-7")
def lost_renewals_come_last(patch: pytest.MonkeyPatch) -> None:
    """Answers what it could renew, and then what it could not."""
    good = MemoryStore.renew

    async def renew(self, holds, lease):
        return sorted(await good(self, holds, lease), key=lambda answer: not answer.held)

    patch.setattr(MemoryStore, "renew", renew)


@breaks_store("STORE-LEASE-8")
def queries_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    """Renews leases of submissions only."""
    good = steps.renew

    def renew(ledger, hold, duration):
        task = ledger.load(hold.task_id)
        if task is not None and task.status is not Status.SUBMITTING:
            return Renewal(hold.task_id, held=False)
        return good(ledger, hold, duration)

    patch.setattr(steps, "renew", renew)
