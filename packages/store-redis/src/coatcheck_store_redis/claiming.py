"""Claims (S4-S6): a script grants turns; what needs a decision is decided here, and written if it still holds."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from attrs import define, frozen

from coatcheck.codec import isolated
from coatcheck.errors import StoreUnavailable, UndecodableRow
from coatcheck.evolving import constructor
from coatcheck.lifecycle import claimed_stale, lease_ended
from coatcheck.store import STALE_GRACE, Claims
from coatcheck.task import Lease, Status, Task, from_millis
from coatcheck_store_redis.calls import Calls, Words
from coatcheck_store_redis.records import Change, claimed_since, decode, nonce_of, revision_of
from coatcheck_store_redis.rows import Known, Rows
from coatcheck_store_redis.words import written

__all__ = ["Claimant", "claim_stale", "claim_turns"]

_AT_ONCE = 100
"""How many tasks one script claims at most, so that it holds up nobody."""
_ROUNDS = 16
"""How many rounds that give nothing, or are short, one claim makes before it says "again"."""
_new_lease = constructor(Lease)


@frozen
class Claimant:
    """Who claims, and where."""

    calls: Calls
    rows: Rows
    worker_id: str
    handlers: tuple[str, ...]
    lease: int
    """For how long, in milliseconds."""


async def claim_turns(claimant: Claimant, kind: str, limit: int) -> Claims:
    """Claim up to `limit` turns to submit ("s") or to query ("d"), in rounds, each a step of its own."""
    tasks: list[Task] = []
    again, short = True, 0
    while again and len(tasks) < limit and short < _ROUNDS:
        wanted = min(limit - len(tasks), _AT_ONCE)
        try:
            got, again = await _round(claimant, kind, wanted)
        except StoreUnavailable:
            if not tasks:
                raise
            break  # what earlier rounds claimed is the caller's
        tasks += got
        short += len(got) < wanted
    return Claims(tuple(tasks), again=again and len(tasks) < limit)


async def _round(claimant: Claimant, kind: str, wanted: int) -> tuple[list[Task], bool]:
    """Claim once, and tell whether there may be more."""
    rows, who = claimant.rows, written(claimant.worker_id)
    words: Words = (kind, who, secrets.token_hex(8), claimant.lease, wanted, *claimant.handlers)
    answer = await claimant.calls.step("claim", words)
    tasks: list[Task] = []
    broken: dict[str, str] = {}
    nonces: dict[str, str] = {}
    told = iter(answer[2:])
    for name, record, document in zip(told, told, told, strict=True):
        task_id = name.decode()
        known = rows.known(task_id)
        task = None if known is None else claimed_since(known.task, known.revision, record)
        if task is None:
            try:
                _, task = decode(task_id, record, document)
            except UndecodableRow as error:
                broken[task_id], nonces[task_id] = str(error), nonce_of(record)
                continue
        rows.remember(task_id, revision_of(record), task)
        tasks.append(isolated(task))
    await rows.set_aside(broken, nonces)
    full = len(tasks) + len(broken) >= wanted
    return tasks, bool(answer[1]) or bool(broken) or full


# ------------------------------------------------------------------ decisions


@define
class _Deciding:
    """One claim of what needs a decision."""

    worker_id: str
    handlers: frozenset[str]
    lease: timedelta
    now: datetime
    nonce: str
    leases: int = 0

    def claimed(self, task: Task) -> Task:
        """Return the task as claimed."""
        self.leases += 1
        lease = _new_lease(
            worker_id=self.worker_id,
            token=task.token + 1,
            nonce=f"{self.nonce}-{self.leases}",
            until=self.now + self.lease,
        )
        return claimed_stale(task, lease, self.now)

    def is_mine(self, task: Task) -> bool:
        """Whether this claim is to decide about a task now, on which no live lease is."""
        if task.status.terminal:
            return False
        if task.schedule.deadline_at <= self.now:
            return True
        since = task.lease.until if task.lease is not None else task.schedule.created_at
        flagged_at = task.cancellation_requested_at
        if task.status.queryable and flagged_at is not None:
            since = max(since, flagged_at)
        elif task.status is not Status.SUBMITTING:
            return False
        return task.route.handler_key in self.handlers or since + STALE_GRACE <= self.now


async def claim_stale(claimant: Claimant, limit: int) -> Claims:
    """Claim up to `limit` tasks that need a decision, and take back submissions that were never started."""
    tasks: list[Task] = []
    again = True
    for _ in range(_ROUNDS):
        wanted = min(limit - len(tasks), _AT_ONCE)
        if wanted <= 0:
            break
        now, more, *told = await claimant.calls.step("stale", (wanted, *claimant.handlers))
        deciding = _Deciding(
            claimant.worker_id,
            frozenset(claimant.handlers),
            timedelta(milliseconds=claimant.lease),
            from_millis(now),
            secrets.token_hex(8),
        )
        found = await _decoded(claimant.rows, told)
        tasks += await _claimed(claimant.rows, deciding, found)
        again = bool(more) or bool(found)
        if not again:
            break
    return Claims(tuple(tasks), again=again and len(tasks) < limit)


async def _decoded(rows: Rows, answer: list[bytes]) -> list[Known]:
    found: list[Known] = []
    broken: dict[str, str] = {}
    told = iter(answer)
    for name, *stored in zip(told, told, told, strict=True):
        task_id = name.decode()
        try:
            found.append(Known(*decode(task_id, *stored)))
        except UndecodableRow as error:
            broken[task_id] = str(error)
    await rows.set_aside(broken)
    return found


async def _claimed(rows: Rows, deciding: _Deciding, found: list[Known]) -> list[Task]:
    """Put back what was never started, claim what is to be decided, and return what was claimed."""
    changes: list[Change] = []
    claims: list[bool] = []
    for known in found:
        before = after = known.task
        grant = None
        if before.status is Status.SUBMITTING and not before.submission_started:
            grant = before.lease.granted_at if before.lease is not None else None
            after = lease_ended(before, deciding.now)
        mine = deciding.is_mine(after)
        after = deciding.claimed(after) if mine else after
        # one that is not to be decided is written as it is, so that it is found no more until it is
        changes.append(Change(known.revision, before, after, returned_grant=grant))
        claims.append(mine)
    claimed = []
    for change, mine, revision in zip(changes, claims, await rows.write(changes), strict=True):
        rows.forget(change.after.id)
        if mine and revision > 0:
            rows.remember(change.after.id, revision, change.after)
            claimed.append(isolated(change.after))
    return claimed
