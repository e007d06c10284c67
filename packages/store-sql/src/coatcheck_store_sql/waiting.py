"""When there may be work for some handlers, as far as the store knows (S12)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attrs import frozen

from coatcheck_store_sql.places import ANYONE, QUERY, SUBMIT, time_of_turn
from coatcheck_store_sql.step import Step

__all__ = ["Watched", "next_time", "watch"]


@frozen
class Watched:
    """What one look found."""

    now: int
    """The store's time, in milliseconds."""
    state: int
    """Differs from the last look's if another connection has changed anything in between."""
    next_time: int | None
    """See `next_time`."""


def watch(step: Step, state: int, handler_keys: Collection[str], since: int, last: Watched | None) -> Watched:
    """Look when there may be work; if nothing has changed since `last`, its answer stands."""
    if last is not None and last.state == state:
        return Watched(step.now_ms, state, last.next_time)
    return Watched(step.now_ms, state, next_time(step, handler_keys, since))


def next_time(step: Step, handler_keys: Collection[str], since: int) -> int | None:
    """Return from when on there may be work, in milliseconds; now or before: at once; None: nothing is known.

    Tasks that need a decision count from the moment on that they need it, if that is after `since`: a worker
    looks for them in its own rhythm, and may have to leave them to others.
    """
    return min(_times(step, handler_keys, since), default=None)


def _times(step: Step, handler_keys: Collection[str], since: int) -> Iterator[int]:
    sql = step.sql
    for handler_key in handler_keys:
        if step.rows(sql.first_open_lane, kind=SUBMIT, handler_key=handler_key):
            yield step.now_ms
            return
    for handler_key in handler_keys:
        for (turn,) in step.rows(sql.first_open_lane, kind=QUERY, handler_key=handler_key):
            yield time_of_turn(turn)
        for (at,) in step.rows(sql.first_asleep, handler_key=handler_key):
            yield at
        for (at,) in step.rows(sql.first_wake, handler_key=handler_key):
            yield at
    for who in (ANYONE, *handler_keys):
        for (at,) in step.rows(sql.next_stale, stale_for=who, since=since):
            yield at
    for (at,) in step.rows(sql.next_expiry, since=since):
        yield at
