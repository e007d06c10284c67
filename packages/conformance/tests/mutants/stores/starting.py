"""Mutants of S17: starting."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.events import LeftUnknown
from coatcheck.evolving import evolve
from coatcheck.lifecycle import outcomes
from coatcheck.lifecycle.moving import move
from coatcheck.locked import steps
from coatcheck.memory import MemoryStore
from coatcheck.store import STALE_GRANT, Refusal, Refused
from coatcheck.task import Status
from mutants.stores import breaks_store

_MS = timedelta(milliseconds=1)


@breaks_store("STORE-START-1")
def start_is_stamped_like_the_claim(patch: pytest.MonkeyPatch) -> None:
    """Stamps the start with the time at which the task was claimed."""
    good = lifecycle.started

    def started(task, now, until):
        after = good(task, now, until)
        claimed_at = now if task.status.queryable else task.history[-1].at
        return evolve(after, lease=evolve(after.lease, started_at=claimed_at))

    patch.setattr(lifecycle, "started", started)


@breaks_store("STORE-START-2")
def each_start_counts(patch: pytest.MonkeyPatch) -> None:
    """Counts a start that is repeated as another attempt."""
    good = lifecycle.started

    def started(task, now, until):
        return good(evolve(task, lease=evolve(task.lease, started_at=None)), now, until)

    patch.setattr(lifecycle, "started", started)


@breaks_store("STORE-START-3")
def start_revives_an_expired_lease(patch: pytest.MonkeyPatch) -> None:
    """Lets a call through whose lease has ended, because nobody has taken the task yet."""
    good = steps.start

    def start(ledger, claimed, duration):
        task = ledger.load(claimed.id)
        lease = task.lease if task is not None else None
        if lease is not None and claimed.lease is not None and lease.nonce == claimed.lease.nonce:
            ledger.keep(evolve(task, lease=evolve(lease, until=max(lease.until, ledger.now + _MS))))
        return good(ledger, claimed, duration)

    patch.setattr(steps, "start", start)


@breaks_store("STORE-START-4")
def reported_cancellation_ends_the_claim(patch: pytest.MonkeyPatch) -> None:
    """Takes the lease away together with its report of a cancellation."""
    good = steps.start

    def start(ledger, claimed, duration):
        answer = good(ledger, claimed, duration)
        if isinstance(answer, Refused) and answer.reason is Refusal.CANCELED:
            ledger.keep(evolve(ledger.load(claimed.id), lease=None))
        return answer

    patch.setattr(steps, "start", start)


def _never(patch: pytest.MonkeyPatch, reason: Refusal) -> None:
    good = steps._refusal

    def refusal(task, lease, now):
        found = good(task, lease, now)
        return None if found is reason else found

    patch.setattr(steps, "_refusal", refusal)


@breaks_store("STORE-START-5")
def start_ignores_the_deadline(patch: pytest.MonkeyPatch) -> None:
    """Lets a call through whose task is past its deadline."""
    _never(patch, Refusal.OVERDUE)


@breaks_store("STORE-START-6")
def refusals_are_told_last(patch: pytest.MonkeyPatch) -> None:
    """Answers the claims that it lets through, and then the others."""
    good = MemoryStore.start

    async def start(self, tasks, lease):
        return sorted(await good(self, tasks, lease), key=lambda answer: isinstance(answer, Refused))

    patch.setattr(MemoryStore, "start", start)


@breaks_store("STORE-START-7")
def started_query_is_an_attempt(patch: pytest.MonkeyPatch) -> None:
    """Counts the start of a query as another submission."""
    good = lifecycle.started

    def started(task, now, until):
        after = good(task, now, until)
        attempts = task.progress.submit_attempts + 1
        if not task.status.queryable:
            return after
        return evolve(after, progress=evolve(after.progress, submit_attempts=attempts))

    patch.setattr(lifecycle, "started", started)


@breaks_store("STORE-START-8")
def start_ignores_the_age_of_a_grant(patch: pytest.MonkeyPatch) -> None:
    """Lets a call through whose rate grant was counted in another window."""
    _never(patch, Refusal.GRANT_AGED)


@breaks_store("STORE-START-9")
def start_minds_the_age_of_any_claim(patch: pytest.MonkeyPatch) -> None:
    """Has old claims given back, whether they took a rate grant or not."""
    good = steps._refusal

    def refusal(task, lease, now):
        aged = task.status is Status.SUBMITTING and now - task.history[-1].at > STALE_GRANT
        return good(task, lease, now) or (Refusal.GRANT_AGED if aged else None)

    patch.setattr(steps, "_refusal", refusal)


@breaks_store("STORE-START-10")
def each_attempt_opens_the_window_anew(patch: pytest.MonkeyPatch) -> None:
    """Forgets when the first attempt was started."""
    good = lifecycle.started

    def started(task, now, until):
        answered = task.attempt is not None and not task.attempt.open
        if task.status is Status.SUBMITTING and answered:
            task = evolve(task, attempt=None)
        return good(task, now, until)

    patch.setattr(lifecycle, "started", started)


@breaks_store("STORE-START-11")
def an_earlier_start_will_do(patch: pytest.MonkeyPatch) -> None:
    """Takes it that nobody knows the outcome of what was started only under an earlier lease."""
    good = outcomes.STEPS[LeftUnknown]

    def left_unknown(task, event, now):
        if task.submission_started or task.attempt is None:
            return good(task, event, now)
        outcome = evolve(task.outcome, error=event.error)
        return move(task, "LeftUnknown", Status.SUBMIT_UNKNOWN, now, outcome=outcome)

    patch.setitem(outcomes.STEPS, LeftUnknown, left_unknown)
