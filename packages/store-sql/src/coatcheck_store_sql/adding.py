"""Adding tasks, once each (S2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, frozen

from coatcheck.codec import isolated
from coatcheck.errors import ConfigurationError, DedupConflict, DuplicateTask
from coatcheck.lifecycle import created
from coatcheck.store import Added
from coatcheck.task import Task, TaskDraft
from coatcheck_store_sql.lanes import Lane, lane_ids, lower_heads, query_lane, submit_lane
from coatcheck_store_sql.places import place_of
from coatcheck_store_sql.records import SPILL_CHARACTERS, records_by_id, records_by_seq
from coatcheck_store_sql.rows import dedup_digest, new_columns
from coatcheck_store_sql.schema import PARTS
from coatcheck_store_sql.statements import PLACE
from coatcheck_store_sql.step import Memory, Step

__all__ = ["Present", "add", "is_prepared", "needs_answers", "prepare", "present", "spill_new"]


_FEW = 4
"""For how many drafts it is hoped that nobody holds their keys: the more there are, the more is done in vain."""


@define
class NewTask:
    """A task on its way into the table."""

    task: Task
    columns: dict[str, Any]
    """All but the lanes and the place."""


@frozen
class Present:
    """What is there already."""

    known: Mapping[str, Task]
    """By id."""
    holders: Mapping[tuple[str | None, str | None], Task]
    """By tenant and dedup key."""


def add(step: Step, drafts: Sequence[TaskDraft], elsewhere: Present | None = None) -> list[Added]:
    """Add tasks, all or none; `elsewhere` is what the step's snapshot may not show.

    Conflicts are found before anything is written. A step that is `hopeful` does not look for ids that exist, nor for
    dedup keys that are held if there are few: unique indexes refuse them, and the step is repeated without hope.

    Raises:
        DuplicateTask, DedupConflict, ConfigurationError, NotPersistable: see `Store.add`.
    """
    if not drafts:
        return []
    _check_rank_mode(step, drafts)
    known = {} if step.hopeful else _known(step, drafts)
    holders = {} if step.hopeful and len(drafts) <= _FEW else _holders(step, drafts)
    if elsewhere is not None:
        known, holders = {**elsewhere.known, **known}, {**elsewhere.holders, **holders}
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


def present(step: Step, drafts: Sequence[TaskDraft]) -> Present:
    """Return the tasks that have ids of the drafts, or hold their dedup keys."""
    return Present(_known(step, drafts), _holders(step, drafts))


def prepare(step: Step, drafts: Sequence[TaskDraft]) -> dict[Lane, int]:
    """Make the lanes of the drafts, and see that the store ranks by their mode; return the lanes' ids.

    Raises:
        ConfigurationError: it ranks by another.
    """
    _check_rank_mode(step, drafts)
    return lane_ids(step, (lane(draft.route) for draft in drafts for lane in (submit_lane, query_lane)))


def is_prepared(memory: Memory, drafts: Sequence[TaskDraft]) -> bool:
    """Whether the process knows that `prepare` has been done."""
    return memory.rank_mode is not None and all(
        memory.lanes.id_of(lane(draft.route)) is not None
        for draft in drafts
        for lane in (submit_lane, query_lane)
    )


def needs_answers(memory: Memory, drafts: Sequence[TaskDraft]) -> bool:
    """Whether adding the drafts has to ask the database anything; if not, it may find so nevertheless."""
    several = len({submit_lane(draft.route) for draft in drafts}) > 1
    keys = len(drafts) > _FEW and any(draft.identity.dedup_key is not None for draft in drafts)
    modes = {draft.rank.mode for draft in drafts}
    return several or keys or modes != {memory.rank_mode} or not is_prepared(memory, drafts)


def _known(step: Step, drafts: Sequence[TaskDraft]) -> dict[str, Task]:
    """Return the tasks that have an id of the drafts already."""
    records = records_by_id(step, [draft.id for draft in drafts], lock=False)
    return {task_id: record.task for task_id, record in records.items()}


def _check_rank_mode(step: Step, drafts: Sequence[TaskDraft]) -> None:
    modes = {draft.rank.mode for draft in drafts}
    held = step.memory.rank_mode
    if held is None:
        first = drafts[0].rank.mode
        rows = step.rows(step.sql.rank_mode)
        if not rows:
            step.run(step.sql.set_rank_mode, text=first)
            rows = step.rows(step.sql.rank_mode)  # another step may have been first
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
        if step.joined and step.dialect.concurrent and place.lane is not None:
            # a caller's transaction may last: it must not keep others from the lane, so a claim lets the task in
            place = place._replace(lane=None, turn=None, asleep_until=step.now_ms)
        columns.update(zip(PLACE, place, strict=True))
        if place.lane is not None and place.turn is not None:
            heads[place.lane] = min(place.turn, heads.get(place.lane, place.turn))
        for part, body in spill_new(columns):
            step.dialect.check_part(part, body)
            spilled.append((each.task.id, part, body))
        rows.setdefault(tuple(columns), []).append(columns)
    for shape, batch in rows.items():
        step.many(step.sql.insert_tasks(shape), batch)
    _insert_bodies(step, spilled)
    lower_heads(step, heads)


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
