"""Records: tasks read with what the store knows of their rows, and what a step changes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from coatcheck.codec import isolated
from coatcheck.errors import UndecodableRow
from coatcheck.task import Task
from coatcheck_store_sql.gates import GateState, lock_gates, released, return_grants
from coatcheck_store_sql.lanes import lanes_of, lower_heads
from coatcheck_store_sql.places import NOWHERE, SUBMIT, Place, place_of
from coatcheck_store_sql.rows import Record, changed_columns, read_row
from coatcheck_store_sql.schema import PARTS
from coatcheck_store_sql.statements import PLACE
from coatcheck_store_sql.step import Step
from coatcheck_store_sql.words import written

__all__ = ["Changes", "read_records", "read_rows", "records_by_id", "records_by_seq"]

SPILL_CHARACTERS = 2_000
"""A part longer than this moves to a row of its own, so that steps don't write it again and again."""


# ------------------------------------------------------------------ reading


def records_by_id(step: Step, ids: Iterable[str], *, lock: bool = True) -> dict[str, Record]:
    """Return the tasks of these ids that exist; what cannot be read is set aside, and left out.

    They are locked, in one order everywhere, unless they are only looked at.
    """
    marked = step.sql.lock_by_id if lock else step.sql.marks_by_id
    marks = list(step.rows_among(marked, "ids", sorted(set(ids))))
    return {record.task.id: record for record in read_records(step, marks)}


def records_by_seq(step: Step, seqs: Iterable[int]) -> list[Record]:
    """Return the tasks of these rows, in this order; what cannot be read is set aside, and left out.

    Whoever changes them has locked them.
    """
    wanted = list(seqs)
    marks = {mark[1]: mark for mark in step.rows_among(step.sql.marks_by_seq, "seqs", wanted)}
    return read_records(step, [marks[seq] for seq in wanted if seq in marks])


def read_records(step: Step, marks: Sequence[tuple[Any, ...]]) -> list[Record]:
    """Return the records of `marks` (id, seq, rev, place), from memory where it is up to date."""
    found: dict[int, Record] = {}
    unknown = []
    for task_id, seq, rev, *place in marks:
        record = step.memory.recall(task_id, rev)
        if record is None:
            unknown.append(seq)
        else:
            record.place = Place(*place)
            found[seq] = record
    if unknown:
        records, broken = read_rows(step, step.rows_among(step.sql.tasks_by_seq, "seqs", unknown))
        found |= {record.seq: record for record in records}
        set_aside(step, broken)
    return [found[mark[1]] for mark in marks if mark[1] in found]


def read_rows(step: Step, rows: Iterable[tuple[Any, ...]]) -> tuple[list[Record], list[tuple[int, str]]]:
    """Return the records of whole rows, and (seq, reason) of those that cannot be read."""
    documents = [dict(zip(step.sql.columns, row, strict=True)) for row in rows]
    spilled = [document["seq"] for document in documents if document["spilled"]]
    by_seq = {document["seq"]: document for document in documents}
    for seq, part, body in step.rows_among(step.sql.bodies, "seqs", spilled):
        by_seq[seq][part] = body
    records, broken = [], []
    for document in documents:
        try:
            records.append(_record(document))
        except UndecodableRow as error:
            broken.append((document["seq"], str(error)))
    return records, broken


def _record(document: dict[str, Any]) -> Record:
    return Record(
        task=read_row(document),
        seq=document["seq"],
        rev=document["rev"],
        submit_lane=document["submit_lane"],
        query_lane=document["query_lane"],
        place=Place(*(document[name] for name in PLACE)),
        spilled=frozenset((document["spilled"] or "").split()),
    )


def set_aside(step: Step, broken: Sequence[tuple[int, str]]) -> None:
    """Take rows that cannot be read out of the way, with the reasons (S20)."""
    step.many(
        step.sql.set_aside,
        [{"_seq": seq, "reason": written(reason), "now": step.now_ms} for seq, reason in broken],
    )


# ------------------------------------------------------------------ writing


class Changes:
    """Collects what a step makes of tasks, and writes it: rows, lanes, slots, grants."""

    def __init__(self, step: Step, gates: Mapping[str, GateState] | None = None) -> None:
        """Begin.

        Args:
            step: the step.
            gates: all that may be concerned, if they are locked already.
        """
        self._step = step
        self._gates = gates
        self._rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        self._bodies: list[dict[str, Any]] = []
        self._dropped: list[dict[str, Any]] = []
        self._heads: dict[int, str] = {}
        self._holding: Counter[int] = Counter()
        self._grants: list[tuple[str, datetime]] = []

    def put(self, record: Record, after: Task) -> Record:
        """Let the task of `record` become `after`, which shares no container with a caller; return its record.

        Raises:
            NotPersistable: something in it cannot be stored; nothing of it is collected.
        """
        before = record.task
        columns = changed_columns(before, after)
        place = place_of(after, record.submit_lane, record.query_lane, self._step.now_ms)
        columns |= {
            name: new for name, old, new in zip(PLACE, record.place, place, strict=True) if new != old
        }
        spilled = self._spill(record, columns)
        columns["_seq"] = record.seq
        self._rows.setdefault(tuple(columns), []).append(columns)
        self.enter(place, record.place)
        if after.holds_slots != before.holds_slots:
            self._holding[record.submit_lane] += int(after.holds_slots) - int(before.holds_slots)
        written = Record(
            after, record.seq, record.rev + 1, record.submit_lane, record.query_lane, place, spilled
        )
        self._step.memory.keep(written)
        return written

    def _spill(self, record: Record, columns: dict[str, Any]) -> frozenset[str]:
        """Move long parts out of `columns`; return which parts stand in `body` then."""
        if not record.spilled and not any(
            type(value) is str and len(value) > SPILL_CHARACTERS for value in columns.values()
        ):
            return record.spilled
        spilled = set(record.spilled)
        for part in PARTS:
            if part not in columns:
                continue
            text = columns[part]
            if text is not None and len(text) > SPILL_CHARACTERS:
                self._step.dialect.check_part(part, text)
                self._bodies.append({"task": record.seq, "part": part, "text": text})
                columns[part] = None
                spilled.add(part)
            elif part in spilled:
                self._dropped.append({"_task": record.seq, "_part": part})
                spilled.discard(part)
        if spilled != record.spilled:
            columns["spilled"] = " ".join(sorted(spilled)) or None
        return frozenset(spilled)

    def enter(self, place: Place, before: Place = NOWHERE) -> None:
        """Note that a task stands at `place`: its lane begins there at the latest.

        Who moves back in its lane is no reason: until this step is committed, others see it where it stood before.
        """
        if place.lane is not None and place.turn is not None:
            if place.lane == before.lane and before.turn is not None and before.turn <= place.turn:
                return
            head = self._heads.get(place.lane)
            if head is None or place.turn < head:
                self._heads[place.lane] = place.turn

    def give_back(self, gates: Iterable[str], at: datetime) -> None:
        """Return the rate grants that these gates gave at `at`."""
        self._grants += ((gate, at) for gate in gates)

    def write(self) -> None:
        """Write what was collected."""
        step, sql = self._step, self._step.sql
        for shape, rows in self._rows.items():
            step.many(sql.update_tasks(shape[:-1]), rows)
        step.many(sql.put_body, self._bodies)
        step.many(sql.drop_body, self._dropped)
        lower_heads(step, self._heads)
        self._write_gates()

    def _write_gates(self) -> None:
        """Count slots that were taken and released, give grants back, and wake what waits for either."""
        step = self._step
        moved = {lane: count for lane, count in self._holding.items() if count}
        by_gate: Counter[str] = Counter()
        for lane_id, lane in lanes_of(step, moved).items():
            if lane.kind == SUBMIT:
                by_gate.update(dict.fromkeys(lane.gates, moved[lane_id]))
        names = {*by_gate, *(gate for gate, _ in self._grants)}
        if not names:
            return
        gates = self._gates if self._gates is not None else lock_gates(step, names)
        used = sorted((name, count) for name, count in by_gate.items() if count and gates[name].defined)
        step.many(step.sql.use_gate, [{"_name": gate, "count": count} for gate, count in used])
        released(step, [gate for gate, count in used if count < 0])
        return_grants(step, gates, self._grants)


def hand_out(task: Task) -> Task:
    """Return a snapshot for a caller, who may do with it what they like."""
    return isolated(task)
