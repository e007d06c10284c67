"""Mutants of S13: how the store stands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coatcheck.evolving import evolve
from coatcheck.locked import reading
from coatcheck.task import Status
from mutants.stores import breaks_store


@breaks_store("STORE-STATS-1")
def doubt_counts_as_failure(patch: pytest.MonkeyPatch) -> None:
    """Counts what is in doubt among the failed."""
    good = reading.statistics

    def statistics(ledger):
        stats = good(ledger)
        handlers = []
        for each in stats.handlers:
            counts = dict(each.by_status)
            doubtful = counts.pop(Status.SUBMIT_UNKNOWN, 0)
            counts[Status.FAILED] = counts.get(Status.FAILED, 0) + doubtful
            handlers.append(evolve(each, by_status=counts))
        return evolve(stats, handlers=handlers)

    patch.setattr(reading, "statistics", statistics)


@breaks_store("STORE-STATS-2")
def shortest_wait_is_told(patch: pytest.MonkeyPatch) -> None:
    """Tells how long the last in the queue has waited, not the first."""
    good = reading._queue

    def queue(ledger):
        told = []
        for each in good(ledger):
            last = ledger.records.under(("waiting", -each.priority))[-1]
            told.append(evolve(each, longest_wait=ledger.now - last[2]))
        return told

    patch.setattr(reading, "_queue", queue)


@breaks_store("STORE-STATS-3")
def youngest_submission_is_told(patch: pytest.MonkeyPatch) -> None:
    """Tells how long the latest submission has been under way, not the oldest."""

    def oldest_submitting(ledger):
        keys = ledger.records.under(("submitting",))
        return ledger.now - keys[-1][1] if keys else None

    patch.setattr(reading, "_oldest_submitting", oldest_submitting)


@breaks_store("STORE-STATS-4")
def what_is_not_due_is_not_late_at_all(patch: pytest.MonkeyPatch) -> None:
    """Says that queries are late by nothing, where none is due."""
    good = reading._query_lateness

    def query_lateness(ledger, handlers):
        tracked = any(ledger.queries.heads(key) for key in handlers)
        late = good(ledger, handlers)
        return timedelta() if late is None and tracked else late

    patch.setattr(reading, "_query_lateness", query_lateness)


@breaks_store("STORE-STATS-5")
def everybody_is_unattended(patch: pytest.MonkeyPatch) -> None:
    """Never notices that somebody claims for a handler."""
    patch.setattr(reading, "ATTENDED", timedelta())


@breaks_store("STORE-STATS-6")
def nothing_is_late_by_nothing(patch: pytest.MonkeyPatch) -> None:
    """Computes the lateness of a query from the store's time where there is no query."""
    good = reading._query_lateness

    def query_lateness(ledger, handlers):
        late = good(ledger, handlers)
        return late if any(ledger.queries.heads(key) for key in handlers) else timedelta()

    patch.setattr(reading, "_query_lateness", query_lateness)
