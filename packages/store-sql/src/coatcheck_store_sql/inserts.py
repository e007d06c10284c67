"""Adding tasks without SQLAlchemy, as from Django: SQL for a cursor of the caller's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from sqlalchemy import ScalarSelect, insert, literal, or_, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.elements import ClauseElement

from coatcheck.clock import SystemClock
from coatcheck.errors import ConfigurationError
from coatcheck.lifecycle import created
from coatcheck.task import TaskDraft, as_millis
from coatcheck_store_sql.adding import spill_new
from coatcheck_store_sql.lanes import Lane, query_lane, submit_lane
from coatcheck_store_sql.places import SUBMIT, Place, place_of
from coatcheck_store_sql.rows import new_columns
from coatcheck_store_sql.schema import Schema

__all__ = ["insert_statements"]

_SUBMIT_PLACE, _QUERY_PLACE = 1, 2
"""Stand for the lanes' ids, which only the database knows."""


def insert_statements(
    drafts: Sequence[TaskDraft],
    dialect: str = "sqlite",
    *,
    table_prefix: str = "coatcheck_",
    paramstyle: Literal["qmark", "format"] = "qmark",
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return statements with their parameters that add the drafts, to be executed in this order in one transaction.

    For a caller whose transaction is not SQLAlchemy's; `Manager.prepare` makes the drafts, and the tables have
    to be there. The database refuses, by an integrity error, an id or a dedup key that is taken, and a ranking
    mode that is not the store's; nothing of it is kept if the caller rolls back then. Workers see the tasks
    when the transaction commits.

    Args:
        drafts: what `Manager.prepare` returned.
        dialect: the kind of database; ``"sqlite"``.
        table_prefix: that of the store.
        paramstyle: ``"qmark"`` (``?``) as sqlite3 takes it, or ``"format"`` (``%s``) as Django takes it.

    Raises:
        ConfigurationError: the dialect is not served.
        NotPersistable: something in a draft cannot be stored.
    """
    if dialect != "sqlite":
        message = f"there are no insert statements for {dialect!r} yet; there are: sqlite"
        raise ConfigurationError(message)
    compiler = sqlite.dialect(paramstyle=paramstyle)
    statements = []
    for construct in _constructs(Schema(table_prefix), drafts):
        compiled = construct.compile(dialect=compiler)
        names = getattr(compiled, "positiontup", None) or ()
        statements.append((str(compiled), tuple(compiled.params[name] for name in names)))
    return statements


def _constructs(schema: Schema, drafts: Sequence[TaskDraft]) -> Iterator[ClauseElement]:
    now = SystemClock().now()
    lanes = dict.fromkeys(lane(draft.route) for draft in drafts for lane in (submit_lane, query_lane))
    for lane in lanes:
        yield from _ensure_lane(schema, lane)
    for mode in sorted({draft.rank.mode for draft in drafts}):
        yield sqlite.insert(schema.meta).values(name="rank_mode", text=mode).on_conflict_do_nothing()
    for draft in drafts:
        task = created(draft, now)
        columns = new_columns(task)
        place = place_of(task, _SUBMIT_PLACE, _QUERY_PLACE, as_millis(now))
        mine = submit_lane(draft.route)
        bodies = spill_new(columns)
        values = {**columns, **place._asdict(), **_looked_up(schema, draft, place, columns["rank"])}
        yield insert(schema.task).values(values)
        seq = select(schema.task.c.seq).where(schema.task.c.id == draft.id).scalar_subquery()
        for part, text in bodies:
            yield insert(schema.body).values(task=seq, part=part, text=text)
        if place.turn is not None:
            head = schema.lane.c.head
            yield (
                update(schema.lane)
                .where(schema.lane.c.digest == mine.digest, or_(head.is_(None), head > place.turn))
                .values(head=place.turn)
            )


def _ensure_lane(schema: Schema, lane: Lane) -> Iterator[ClauseElement]:
    yield (
        sqlite.insert(schema.lane)
        .values(digest=lane.digest, kind=lane.kind, handler_key=lane.handler_key, gates=lane.gates_text)
        .on_conflict_do_nothing()
    )
    yield sqlite.insert(schema.attendance).values(handler_key=lane.handler_key, at=0).on_conflict_do_nothing()
    for gate in lane.gates if lane.kind == SUBMIT else ():
        found = select(literal(gate), schema.lane.c.id).where(schema.lane.c.digest == lane.digest)
        yield sqlite.insert(schema.lane_gate).from_select(["gate", "lane"], found).on_conflict_do_nothing()


def _looked_up(
    schema: Schema, draft: TaskDraft, place: Place, turn: str
) -> dict[str, ScalarSelect[Any] | None]:
    """Return the columns whose values only the database knows."""
    ids = {
        lane: select(schema.lane.c.id).where(schema.lane.c.digest == lane.digest).scalar_subquery()
        for lane in (submit_lane(draft.route), query_lane(draft.route))
    }
    submit, query = ids[submit_lane(draft.route)], ids[query_lane(draft.route)]
    meta = schema.meta
    # null, and refused, if the store ranks by another mode
    rank = select(literal(turn)).where(meta.c.name == "rank_mode", meta.c.text == draft.rank.mode)
    return {
        "submit_lane": submit,
        "query_lane": query,
        "lane": submit if place.lane == _SUBMIT_PLACE else None,
        "rank": rank.select_from(meta).scalar_subquery(),
    }
