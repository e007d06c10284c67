"""Tallies: numbers that the whole fleet counts together (S21)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from coatcheck.tallies import Count, Counted, Tally, counted
from coatcheck.task import from_millis, millis
from coatcheck_store_sql.step import Outdated
from coatcheck_store_sql.words import LONGEST_NAME, sorted_name, sorted_name_of

if TYPE_CHECKING:
    from coatcheck_store_sql.statement import Statement
    from coatcheck_store_sql.step import Step

__all__ = ["count", "look", "only_looks", "tallies"]

_SWEEP = 100
"""How many forgotten tallies one step deletes at most, beside as many as it has made."""
_HIGHEST = "\U0010ffff"


@frozen
class _Row:
    """A tally as it is stored."""

    total: int
    expires_at: int


_NOTHING = _Row(0, 0)


def only_looks(counts: Iterable[Count]) -> bool:
    """Whether nothing is to be added, so that it can be read."""
    return not any(wanted.amount for wanted in counts)


def look(step: Step, counts: Sequence[Count]) -> list[Counted]:
    """Say what would come of counts that add nothing."""
    if not counts:
        return []
    names = {sorted_name(wanted.name) for wanted in counts}
    answers, _ = _counted(step, counts, _rows(step, step.sql.tallies_seen, names))
    return answers


def count(step: Step, counts: Sequence[Count]) -> list[Counted]:
    """Count, in order.

    Rows are made first and locked then, both by name: so whoever waits for a row that is being made has locked none
    that its maker may want. A hopeful step makes none if the process has seen them all; if not, then all are asked for,
    since MySQL locks also those that are there.

    Raises:
        InvalidParams: a total would leave the range; then none is counted.
        Outdated: somebody has swept a row that was to be there.
    """
    names = {sorted_name(wanted.name) for wanted in counts}
    added = {sorted_name(wanted.name) for wanted in counts if wanted.amount}
    made = {name for name in added if not (step.hopeful and step.memory.knows_tally(name))}
    if step.dialect.concurrent and made:
        step.many(step.sql.insert_tally, [{"name": name} for name in sorted(added)])
    rows = _rows(step, step.sql.tallies_by_name, names)
    if step.dialect.concurrent and added - rows.keys():
        raise Outdated
    answers, changed = _counted(step, counts, rows)
    step.many(
        step.sql.put_tally,
        [
            {"name": name, "total": changed[name].total, "expires_at": changed[name].expires_at}
            for name in sorted(changed)
        ],
    )
    if made:
        _sweep(step, len(made))
    step.memory.keep_tallies(changed)
    return answers


def _rows(step: Step, asked: Statement, names: Iterable[str]) -> dict[str, _Row]:
    found = step.rows_among(asked, "names", sorted(names))
    return {name: _Row(total, expires_at) for name, total, expires_at in found}


def _counted(
    step: Step, counts: Sequence[Count], rows: Mapping[str, _Row]
) -> tuple[list[Counted], dict[str, _Row]]:
    """Return what comes of the counts, and the rows that they change."""
    now = step.now_ms
    answers: list[Counted] = []
    changed: dict[str, _Row] = {}
    for wanted in counts:
        name = sorted_name(wanted.name)
        row = changed.get(name) or rows.get(name, _NOTHING)
        answer = counted(wanted, row.total if row.expires_at > now else 0, now)
        answers.append(answer)
        if answer.counted and wanted.amount:
            changed[name] = _Row(answer.total, max(row.expires_at, now + millis(wanted.lifetime)))
    return answers, changed


def _sweep(step: Step, made: int) -> None:
    """Delete some of those that are forgotten, without waiting for a lock."""
    rows = step.rows(step.sql.forgotten_tallies, now=step.now_ms, limit=_SWEEP + made)
    step.many(step.sql.drop_tally, [{"_name": name} for (name,) in sorted(rows)])


def tallies(step: Step, prefix: str, limit: int) -> list[Tally]:
    """Return the first by name of those whose names begin so."""
    first = sorted_name(prefix)
    # what begins so is not above the longest name that goes on with the last of all characters
    last = first.ljust(LONGEST_NAME, _HIGHEST)
    rows = step.rows(step.sql.tallies_between, first=first, last=last, now=step.now_ms, limit=limit)
    return [
        Tally(name=sorted_name_of(name), total=total, expires_at=from_millis(expires_at))
        for name, total, expires_at in rows
    ]
