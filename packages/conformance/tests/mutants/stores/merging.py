"""Mutants of S7: flags that come while a task is leased."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from coatcheck import lifecycle
from coatcheck.events import Event, Finished, GaveBack, GaveUp, Rejected, StillGoing
from coatcheck.evolving import evolve
from coatcheck.task import ErrorCode, Task, TaskError
from mutants.stores import breaks_store


def _before_settling(patch: pytest.MonkeyPatch, change: Callable[[Task, Event], Task]) -> None:
    """Let each settle see what `change` makes of the stored task."""
    good = lifecycle.settled

    def settled(task, settlement, now):
        return good(change(task, settlement.event), settlement, now)

    patch.setattr(lifecycle, "settled", settled)


def _after_settling(patch: pytest.MonkeyPatch, change: Callable[[Task, Task, Event, datetime], Task]) -> None:
    """Let each settle of a flagged task write what `change` makes of before and after."""
    good = lifecycle.settled

    def settled(task, settlement, now):
        after = good(task, settlement, now)
        if not isinstance(after, Task) or task.cancellation_requested_at is None or after is task:
            return after
        return change(task, after, settlement.event, now)

    patch.setattr(lifecycle, "settled", settled)


def _unflagged(task: Task) -> Task:
    return evolve(task, cancellation_requested_at=None)


@breaks_store("STORE-MERGE-1")
def flag_lost_on_rejection(patch: pytest.MonkeyPatch) -> None:
    """Lets a flagged task end as FAILED when the provider refuses it."""
    _before_settling(patch, lambda task, event: _unflagged(task) if isinstance(event, Rejected) else task)


@breaks_store("STORE-MERGE-2")
def flag_lost_on_giving_up(patch: pytest.MonkeyPatch) -> None:
    """Lets a flagged task end as FAILED when querying it is given up."""
    _before_settling(patch, lambda task, event: _unflagged(task) if isinstance(event, GaveUp) else task)


@breaks_store("STORE-MERGE-3")
def flag_lost_on_giving_back(patch: pytest.MonkeyPatch) -> None:
    """Puts a flagged claim that is given back into the queue."""
    _before_settling(patch, lambda task, event: _unflagged(task) if isinstance(event, GaveBack) else task)


@breaks_store("STORE-MERGE-4")
def flag_hides_provider_error(patch: pytest.MonkeyPatch) -> None:
    """Writes over what the provider said was wrong."""

    def change(_before, after, event, _now):
        if not isinstance(event, Finished) or event.error is None:
            return after
        error = TaskError(code=ErrorCode.CANCELED, message="cancelled")
        return evolve(after, outcome=evolve(after.outcome, error=error))

    _after_settling(patch, change)


@breaks_store("STORE-MERGE-5")
def flagged_query_waits_its_turn(patch: pytest.MonkeyPatch) -> None:
    """Makes a flagged task due when the handler says, not at once."""

    def change(_before, after, event, now):
        if not after.status.queryable or not isinstance(event, StillGoing):
            return after
        due = min(now + event.delay, after.schedule.deadline_at)
        return evolve(after, schedule=evolve(after.schedule, due_at=due))

    _after_settling(patch, change)


@breaks_store("STORE-MERGE-6")
def settle_flags_anew(patch: pytest.MonkeyPatch) -> None:
    """Writes a flag of its own over the one that is there."""
    _after_settling(patch, lambda _before, after, _event, now: evolve(after, cancellation_requested_at=now))


@breaks_store("STORE-MERGE-7")
def settle_overwrites_nudge(patch: pytest.MonkeyPatch) -> None:
    """Writes the snapshot that was claimed over a nudge that came since."""
    _before_settling(patch, lambda task, _event: evolve(task, nudged=False))
