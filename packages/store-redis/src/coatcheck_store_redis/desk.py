"""Single steps on tasks: cancel, nudge, attest, resolve, purge, and letting set-aside rows in again."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from coatcheck.errors import TaskNotFound, UndecodableRow, VersionConflict
from coatcheck.events import Proof, Resolution
from coatcheck.lifecycle import attested, cancellation_requested, nudged, resolved
from coatcheck.store import MAX_NUDGES, NUDGE_MEMORY, SetAside
from coatcheck.task import Status, Task, as_millis, from_millis, millis
from coatcheck_store_redis.calls import Calls
from coatcheck_store_redis.records import Change, decode
from coatcheck_store_redis.rows import Known, Rows, busy
from coatcheck_store_redis.words import written

__all__ = [
    "attest",
    "nudge",
    "purge",
    "release_set_aside",
    "request_cancellation",
    "resolve",
    "set_aside_rows",
]

_PURGED_AT_ONCE = 100
_LISTED_AT_ONCE = 500
_ROUNDS = 100


async def request_cancellation(rows: Rows, task_id: str) -> bool:
    """Cancel a pending task, or flag one that is under way; return whether this changed anything."""
    done = False

    def decide(task: Task, now: datetime) -> Task:
        nonlocal done
        after = cancellation_requested(task, now)
        done = after is not None
        return task if after is None else after

    try:
        await rows.change(task_id, decide)
    except TaskNotFound:
        return False
    return done


async def nudge(calls: Calls, rows: Rows, handler_key: str, external_task_id: str) -> int:
    """Make every such task due now, or flag it; remember the id if no task has it yet."""
    words = (written(external_task_id), handler_key, MAX_NUDGES, millis(NUDGE_MEMORY))
    for _ in range(_ROUNDS):
        now, *told = await calls.step("named", words)
        found = await _readable(rows, told)
        live = [known for known in found if not known.task.status.terminal]
        changes = []
        for known in live:
            after = nudged(known.task, from_millis(now))
            if after is not None:
                changes.append(Change(known.revision, known.task, after))
        written_now = await rows.write(changes)
        for change in changes:
            rows.forget(change.after.id)
        if 0 not in written_now:
            return len(live)
    raise busy(f"with the external id {external_task_id!r}")


async def _readable(rows: Rows, told: list[bytes]) -> list[Known]:
    found: list[Known] = []
    broken: dict[str, str] = {}
    pairs = iter(told)
    for name, *stored in zip(pairs, pairs, pairs, strict=True):
        task_id = name.decode()
        try:
            found.append(Known(*decode(task_id, *stored)))
        except UndecodableRow as error:
            broken[task_id] = str(error)
    await rows.set_aside(broken)
    return found


async def attest(rows: Rows, task_id: str, token: int, proof: Proof) -> Task:
    """Take in late proof of a submission."""
    return await rows.change(task_id, lambda task, now: attested(task, token, proof, now))


async def resolve(rows: Rows, task_id: str, expected_version: int, resolution: Resolution) -> Task:
    """Carry out a person's decision."""

    def decide(task: Task, now: datetime) -> Task:
        if task.version != expected_version:
            message = (
                f"task {task_id} is at version {task.version} ({task.status}), no longer at "
                f"{expected_version}; look at it again before deciding"
            )
            raise VersionConflict(message)
        return resolved(task, resolution, now)

    return await rows.change(task_id, decide)


async def purge(calls: Calls, finished_before: datetime, statuses: Collection[Status], limit: int) -> int:
    """Delete at most `limit` ended tasks, some at a time; return how many."""
    # a fraction of a millisecond after a stamp is after it
    before = as_millis(finished_before) + (1 if finished_before.microsecond % 1000 else 0)
    codes = [list(Status).index(status) for status in sorted(statuses)]
    purged = 0
    while codes and purged < limit:
        some, more = await calls.step("purge", (before, min(limit - purged, _PURGED_AT_ONCE), *codes))
        purged += some
        if not more:
            break
    return purged


async def set_aside_rows(calls: Calls, limit: int) -> list[SetAside]:
    """Return the rows that are set aside, by id."""
    rows: list[SetAside] = []
    after = ""
    while len(rows) < limit:
        wanted = min(limit - len(rows), _LISTED_AT_ONCE)
        told = iter(await calls.look("asides", (after, wanted)))
        page = []
        for name, why in zip(told, told, strict=True):
            since, _, reason = why.decode().partition(" ")
            page.append(SetAside(task_id=name.decode(), reason=reason, since=from_millis(int(since))))
        rows += page
        if len(page) < wanted:
            break
        after = page[-1].task_id
    return rows


async def release_set_aside(calls: Calls, rows: Rows, task_ids: Collection[str] | None) -> int:
    """Let set-aside rows take part again that can be read now; return how many."""
    wanted = None if task_ids is None else set(task_ids)
    released = 0
    listed = [row.task_id for row in await set_aside_rows(calls, 1_000_000)]
    ids = [task_id for task_id in listed if wanted is None or task_id in wanted]
    for first in range(0, len(ids), _LISTED_AT_ONCE):
        read = await rows.read(ids[first : first + _LISTED_AT_ONCE])
        if read.found:
            released += await calls.step("unaside", list(read.found))
    return released
