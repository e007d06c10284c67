"""Where a task stands: in which lane and at what turn, asleep until when, and when it needs a decision."""

from __future__ import annotations

from typing import NamedTuple

from coatcheck.task import Schedule, Status, Task, as_millis, millis
from coatcheck_store_sql.words import named

__all__ = [
    "ANYONE",
    "NOWHERE",
    "QUERY",
    "SUBMIT",
    "Place",
    "place_of",
    "time_of_turn",
    "time_turn",
    "turn_of",
]

SUBMIT = "submit"
"""The kind of lane in which tasks wait to be submitted, in rank order."""
QUERY = "query"
"""The kind of lane in which tasks wait to be queried, in order of time."""
ANYONE = ""
"""Who may take a stale task back that needs no handler."""

_OFFSET = 2**63
_DIGITS = 16


class Place(NamedTuple):
    """The columns of a task that the indexes of claims are made of; times in milliseconds."""

    lane: int | None = None
    """In which lane it stands; None: it is not to be claimed by turn."""
    turn: str | None = None
    """Its place in the lane, in the order of the text."""
    asleep_until: int | None = None
    """When it is to be put into its lane."""
    stale_for: str | None = None
    """Whose workers may decide about it from `stale_at` on: a handler key, or `ANYONE`."""
    stale_at: int | None = None
    expires_at: int | None = None
    """Its deadline, until it has ended."""


NOWHERE = Place()
"""Where an ended task stands."""


def turn_of(schedule: Schedule, task_id: str) -> str:
    """Return the turn of a submission: sorts like (band, scheduled_at - credit, created_at, id)."""
    rank = schedule.rank
    since = as_millis(schedule.scheduled_at) - millis(rank.credit)
    return f"{_sortable(rank.band)}{_sortable(since)}{as_millis(schedule.created_at):013x}{task_id}"


def time_turn(at: int, task_id: str = "") -> str:
    """Return the turn of a query that is due at `at`; without an id, what stands before all of that time."""
    return f"{_sortable(at)}{task_id}"


def time_of_turn(turn: str) -> int:
    """Return when a query with this turn is due."""
    return int(turn[:_DIGITS], 16) - _OFFSET


def _sortable(number: int) -> str:
    return f"{min(max(number + _OFFSET, 0), 2 * _OFFSET - 1):0{_DIGITS}x}"


def place_of(task: Task, submit_lane: int, query_lane: int, now: int) -> Place:
    """Return where `task` stands, as seen at `now`.

    Past its deadline it stands in no lane: only a decision is left. A leased query stands at the end of its
    lease, so that a dead worker's tasks come back by themselves.
    """
    if task.status.terminal:
        return NOWHERE
    deadline = as_millis(task.schedule.deadline_at)
    if task.status is Status.SUBMITTING:
        who = named(task.route.handler_key) if task.submission_started else ANYONE
        return Place(stale_for=who, stale_at=_lease_end(task) or now, expires_at=deadline)
    if task.status is Status.PENDING_SUBMIT:
        return _pending(task, submit_lane, deadline, now)
    due = max(as_millis(task.schedule.due_at), _lease_end(task) or 0)
    if task.cancellation_requested_at is not None:
        since = max(as_millis(task.cancellation_requested_at), _lease_end(task) or 0)
        return Place(stale_for=named(task.route.handler_key), stale_at=since, expires_at=deadline)
    if deadline <= now:
        return Place(expires_at=deadline)
    return Place(lane=query_lane, turn=time_turn(due, task.id), expires_at=deadline)


def _pending(task: Task, lane: int, deadline: int, now: int) -> Place:
    if deadline <= now or task.lease is not None:
        return Place(expires_at=deadline)
    due = as_millis(task.schedule.due_at)
    if due > now:
        return Place(asleep_until=due, expires_at=deadline)
    return Place(lane=lane, turn=turn_of(task.schedule, task.id), expires_at=deadline)


def _lease_end(task: Task) -> int | None:
    return as_millis(task.lease.until) if task.lease is not None else None
