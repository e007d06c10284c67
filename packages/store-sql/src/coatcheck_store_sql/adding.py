"""Adding tasks, once each (S2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define

from coatcheck.codec import isolated
from coatcheck.errors import ConfigurationError, DedupConflict, DuplicateTask
from coatcheck.lifecycle import created
from coatcheck.store import Added
from coatcheck.task import Task, TaskDraft
from coatcheck_store_sql.lanes import lane_ids, query_lane, submit_lane
from coatcheck_store_sql.places import place_of
from coatcheck_store_sql.records import SPILL_CHARACTERS, records_by_id, records_by_seq
from coatcheck_store_sql.rows import dedup_digest, new_columns
from coatcheck_store_sql.schema import PARTS
from coatcheck_store_sql.statements import PLACE
from coatcheck_store_sql.step import Step

__all__ = ["add", "spill_new"]


@define
class NewTask:
    """A task on its way into the table."""

    task: Task
    columns: dict[str, Any]
    """All but the lanes and the place."""


def add(step: Step, drafts: Sequence[TaskDraft]) -> list[Added]:
    """Add tasks, all or none, under the write lock.

    Conflicts are found before anything is written: no statement fails, and a caller's transaction stays whole.

    Raises:
        DuplicateTask, DedupConflict, ConfigurationError, NotPersistable: see `Store.add`.
    """
    if not drafts:
        return []
    _check_rank_mode(step, drafts)
    known = {task_id: record.task for task_id, record in records_by_id(step, [d.id for d in drafts]).items()}
    holders = _holders(step, drafts)
    new: list[NewTask] = []
    added: list[Added] = []
    for draft in drafts:
        known_task = _same_task(known.get(draft.id), draft) or _same_job(holders, draft)
        if known_task is not None:
            added.append(Added(isolated(known_task), created=False))
            continue
        task = created(draft, step.now)
        new.append(NewTask(task, new_columns(task)))
        added.append(Added(isolated(task), created=True))
        known[draft.id] = task
        if draft.identity.dedup_key is not None:
            holders[_holder_key(draft)] = task
    _insert(step, new)
    return added


def _check_rank_mode(step: Step, drafts: Sequence[TaskDraft]) -> None:
    modes = {draft.rank.mode for draft in drafts}
    held = step.memory.rank_mode
    if held is None:
        first = drafts[0].rank.mode
        rows = step.rows(step.sql.rank_mode)
        if not rows:
            step.run(step.sql.set_rank_mode, text=first)
        held = step.memory.rank_mode = rows[0][0] if rows else first
    if modes != {held}:
        other = ", ".join(sorted(modes - {held}))
        message = (
            f"the store ranks its tasks by {held!r} and refuses {other!r}; use one setting of "
            "priority_ageing everywhere, or another store"
        )
        raise ConfigurationError(message)


def _same_task(known: Task | None, draft: TaskDraft) -> Task | None:
    if known is not None and known.identity.params_digest != draft.identity.params_digest:
        message = f"task {draft.id} exists, with other params; give each submission an id of its own"
        raise DuplicateTask(message)
    return known


def _holder_key(draft: TaskDraft) -> tuple[str | None, str | None]:
    return draft.route.tenant_id, draft.identity.dedup_key


def _holders(step: Step, drafts: Sequence[TaskDraft]) -> dict[tuple[str | None, str | None], Task]:
    """Return the tasks that hold the drafts' dedup keys, by tenant and key."""
    digests = {dedup_digest(*_holder_key(draft)) for draft in drafts if draft.identity.dedup_key is not None}
    if not digests:
        return {}
    seqs = [seq for (seq,) in step.rows_among(step.sql.dedup_holders, "digests", digests)]
    tasks = [record.task for record in records_by_seq(step, seqs)]
    return {(task.route.tenant_id, task.identity.dedup_key): task for task in tasks}


def _same_job(holders: Mapping[tuple[str | None, str | None], Task], draft: TaskDraft) -> Task | None:
    if draft.identity.dedup_key is None:
        return None
    holder = holders.get(_holder_key(draft))
    if holder is not None and holder.identity.params_digest != draft.identity.params_digest:
        message = (
            f"dedup key {draft.identity.dedup_key!r} is held by task {holder.id} ({holder.status}) with other "
            "params; use another key, or cancel that task"
        )
        raise DedupConflict(message, holder.id)
    return holder


def _insert(step: Step, new: Sequence[NewTask]) -> None:
    if not new:
        return
    ids = lane_ids(step, (lane(each.task.route) for each in new for lane in (submit_lane, query_lane)))
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    heads: dict[int, str] = {}
    spilled: list[tuple[str, str, str]] = []
    for each in new:
        columns, route = each.columns, each.task.route
        columns["submit_lane"], columns["query_lane"] = ids[submit_lane(route)], ids[query_lane(route)]
        place = place_of(each.task, columns["submit_lane"], columns["query_lane"], step.now_ms)
        columns.update(zip(PLACE, place, strict=True))
        if place.lane is not None and place.turn is not None:
            heads[place.lane] = min(place.turn, heads.get(place.lane, place.turn))
        spilled += ((each.task.id, part, body) for part, body in spill_new(columns))
        rows.setdefault(tuple(columns), []).append(columns)
    for shape, batch in rows.items():
        step.many(step.sql.insert_tasks(shape), batch)
    _insert_bodies(step, spilled)
    step.many(step.sql.lower_head, [{"_id": lane, "head": head} for lane, head in heads.items()])


def spill_new(columns: dict[str, Any]) -> list[tuple[str, str]]:
    """Take parts that are too long out of the columns of a new task; return them with their names."""
    long = [part for part in PARTS if len(columns.get(part) or "") > SPILL_CHARACTERS]
    if not long:
        return []
    bodies = [(part, columns[part]) for part in long]
    columns.update(dict.fromkeys(long), spilled=" ".join(sorted(long)))
    return bodies


def _insert_bodies(step: Step, spilled: Sequence[tuple[str, str, str]]) -> None:
    if not spilled:
        return
    ids = {task_id for task_id, _, _ in spilled}
    seqs = {task_id: seq for task_id, seq, *_ in step.rows_among(step.sql.marks_by_id, "ids", ids)}
    step.many(
        step.sql.put_body,
        [{"task": seqs[task_id], "part": part, "text": body} for task_id, part, body in spilled],
    )
