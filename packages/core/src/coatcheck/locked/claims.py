"""The claims of a `LockedStore`: who gets which tasks, inside one exclusive section."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import cast

from coatcheck import lifecycle
from coatcheck.evolving import constructor
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import MILLISECOND, Key, above
from coatcheck.locked.snapshots import snapshot
from coatcheck.locked.walk import EFFORT, Walk
from coatcheck.store import STALE_GRACE, Claims
from coatcheck.task import Lease, Status, Task, millis

__all__ = ["Claimant", "claim_queries", "claim_stale", "claim_submissions", "next_time"]


_new_lease = constructor(Lease)


class Claimant:
    """A worker that claims, once."""

    def __init__(self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta) -> None:
        self.worker_id = worker_id
        self.handler_keys = tuple(dict.fromkeys(handler_keys))
        self.limit = limit
        self.duration = millis(lease) * MILLISECOND
        self.nonce = secrets.token_hex(8)
        """What the nonces of the claim's leases begin with."""
        self._leases = 0

    def lease(self, task: Task, until: datetime, granted_at: datetime | None = None) -> Lease:
        """Return the lease that this claim gives on a task."""
        self._leases += 1
        return _new_lease(
            worker_id=self.worker_id,
            token=task.token + 1,
            nonce=f"{self.nonce}-{self._leases}",
            until=until,
            granted_at=granted_at,
        )


def claim_submissions(ledger: Ledger, claimant: Claimant) -> Claims:
    """Claim what is ready behind open gates (S4)."""
    _begin(ledger, claimant)
    walk = Walk(ledger.submissions, claimant.handler_keys, claimant.limit, ledger.submission_at)
    walk.go()
    return _claimed(ledger, claimant, walk)


def claim_queries(ledger: Ledger, claimant: Claimant) -> Claims:
    """Claim what is due for a query (S5)."""
    _begin(ledger, claimant)
    horizon = (ledger.now + MILLISECOND,)
    walk = Walk(ledger.queries, claimant.handler_keys, claimant.limit, ledger.query_at, horizon=horizon)
    walk.go()
    return _claimed(ledger, claimant, walk)


def _begin(ledger: Ledger, claimant: Claimant) -> None:
    ledger.attend(claimant.handler_keys)
    ledger.catch_up(claimant.handler_keys)


def _claimed(ledger: Ledger, claimant: Claimant, walk: Walk) -> Claims:
    """Lease out what was granted."""
    now, until = ledger.now, ledger.now + claimant.duration
    tasks: list[Task] = []
    for turn in walk.granted:
        lease = claimant.lease(turn.task, until, turn.at)
        claim = (
            lifecycle.claimed_for_query if turn.task.status.queryable else lifecycle.claimed_for_submission
        )
        tasks.append(ledger.write(turn.task, claim(turn.task, lease, now), taken=not turn.task.lease))
    return _leased(ledger, claimant, until, tasks, again=walk.again)


def _leased(ledger: Ledger, claimant: Claimant, until: datetime, tasks: list[Task], *, again: bool) -> Claims:
    if tasks:
        ledger.lease_out(until, claimant.nonce, [task.id for task in tasks])
    short = len(tasks) < claimant.limit
    return Claims(tuple(map(snapshot, tasks)), again=short and (again or ledger.behind))


# ------------------------------------------------------------------ what needs a decision


def claim_stale(ledger: Ledger, claimant: Claimant) -> Claims:
    """Claim what needs a decision, and put back what was claimed and never started (S6)."""
    _begin(ledger, claimant)
    now, until = ledger.now, ledger.now + claimant.duration
    tasks: list[Task] = []
    effort = EFFORT + claimant.limit
    while len(tasks) < claimant.limit and effort > 0:
        keys = _stale_keys(ledger, claimant)
        if not keys:
            break
        for key in keys[: claimant.limit - len(tasks)]:
            effort -= 1
            ledger.records.delete(key)
            task = ledger.load(str(key[-1]))
            needy = task and _needing(ledger, claimant, task)
            if needy:
                after = lifecycle.claimed_stale(needy, claimant.lease(needy, until), now)
                tasks.append(ledger.write(needy, after))
    return _leased(ledger, claimant, until, tasks, again=effort <= 0)


def _stale_keys(ledger: Ledger, claimant: Claimant) -> list[Key]:
    """Return entries of tasks that may need a decision by now, the oldest first."""
    indexes: list[Key] = [("any",), *(("own", handler_key) for handler_key in claimant.handler_keys)]
    keys: list[Key] = []
    for index in indexes:
        keys += ledger.records.scan(index, above((*index, ledger.now)), claimant.limit)
    return sorted(keys, key=lambda key: key[-2:])


def _needing(ledger: Ledger, claimant: Claimant, task: Task) -> Task | None:
    """Return the task if this claimant is to decide about it now; one that was never started goes back first."""
    now, lease = ledger.now, task.lease
    if task.status.terminal or (lease is not None and lease.until > now):
        return None
    if task.status is Status.SUBMITTING and not task.submission_started:
        task = put_back(ledger, task)
        if task.status.terminal:
            return None
    if task.schedule.deadline_at <= now:
        return task
    since = lease.until if lease is not None else task.schedule.created_at
    if task.status.queryable and task.cancellation_requested_at is not None:
        since = max(since, task.cancellation_requested_at)
    elif task.status is not Status.SUBMITTING:
        return None
    mine = task.route.handler_key in claimant.handler_keys
    return task if mine or since + STALE_GRACE <= now else None


def put_back(ledger: Ledger, task: Task) -> Task:
    """Put a claimed submission that was never started back into the queue, with its slots and its grant."""
    granted_at = task.lease.granted_at if task.lease is not None else None
    if granted_at is not None:
        ledger.gates.take_back(task.route.gates, granted_at)
    return ledger.write(task, lifecycle.lease_ended(task, ledger.now))


# ------------------------------------------------------------------ when to look again


def next_time(ledger: Ledger, handler_keys: Iterable[str], since: datetime) -> datetime | None:
    """Return from when on there may be work for these handlers, which may be now; None if nothing is known.

    Tasks that need a decision count from the moment on that they need it, if that is after `since`.
    """
    after = since + MILLISECOND
    records = ledger.records
    anybody = records.scan(("any", after), above(("any",)), 1)
    times = [ledger.next_lease_end(), _instant(anybody[0] if anybody else None, 1)]
    for handler_key in handler_keys:
        if ledger.submissions.first_open(handler_key) is not None:
            return ledger.now
        own = records.scan(("own", handler_key, after), above(("own", handler_key)), 1)
        times += [
            _instant(ledger.queries.first_open(handler_key), 0),
            ledger.submissions.next_wake(handler_key),
            ledger.queries.next_wake(handler_key),
            _instant(records.first(("delayed", handler_key)), 2),
            _instant(own[0] if own else None, 2),
        ]
    return min((at for at in times if at is not None), default=None)


def _instant(key: Key | None, place: int) -> datetime | None:
    return None if key is None else cast("datetime", key[place])
