"""Adding tasks without SQLAlchemy, as from Django: SQL for a cursor of the caller's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from attrs import frozen
from sqlalchemy import ColumnElement, insert, literal, or_, select, update
from sqlalchemy.sql.elements import ClauseElement

from coatcheck.clock import SystemClock
from coatcheck.lifecycle import created
from coatcheck.task import Task, TaskDraft, as_millis
from coatcheck_store_sql.adding import spill_new
from coatcheck_store_sql.insert_dialects import InsertDialect, insert_dialect
from coatcheck_store_sql.lanes import Lane, query_lane, submit_lane
from coatcheck_store_sql.places import Place, place_of
from coatcheck_store_sql.rows import new_columns
from coatcheck_store_sql.schema import Schema

__all__ = ["ParamStyle", "Ready", "Written", "insert_statements", "statements"]

ParamStyle = Literal["qmark", "format", "numeric_dollar"]
Written = list[tuple[str, tuple[Any, ...]]]

_SUBMIT_PLACE, _QUERY_PLACE = 1, 2
"""Stand for the lanes' ids, which only the database knows."""


@frozen
class Ready:
    """What a store knows of drafts that are to be added by others."""

    now: datetime
    """The store's time."""
    lanes: Mapping[Lane, int]
    """The ids of their lanes, which are there; the store ranks by their mode."""


def insert_statements(
    drafts: Sequence[TaskDraft],
    dialect: str = "sqlite",
    *,
    table_prefix: str = "coatcheck_",
    schema: str | None = None,
    paramstyle: ParamStyle | None = None,
    now: datetime | None = None,
) -> Written:
    """Return statements with their parameters that add the drafts, to be executed in this order in one transaction.

    For a caller whose transaction is not SQLAlchemy's; `Manager.prepare` makes the drafts, and the tables have
    to be there. The database refuses, by an integrity error, an id or a dedup key that is taken, and a ranking
    mode that is not the store's; nothing of it is kept if the caller rolls back then. Workers see the tasks
    when the transaction commits, and on PostgreSQL they are told.

    Where the store is at hand, `SqlStore.insert_statements` is better: it stamps by the server's clock, and the
    first task of a handler with new gates makes nobody wait who adds another one of that kind meanwhile.

    Args:
        drafts: what `Manager.prepare` returned.
        dialect: the kind of database: ``"sqlite"``, ``"postgresql"``, ``"mysql"`` or ``"mariadb"``.
        table_prefix: that of the store.
        schema: that of the store.
        paramstyle: ``"qmark"`` (``?``) as sqlite3 takes it, ``"format"`` (``%s``) as Django, psycopg and the drivers
            of MySQL take it, or ``"numeric_dollar"`` (``$1``) as asyncpg takes it; None is ``"qmark"`` for SQLite,
            else ``"format"``.
        now: the store's time; None is this host's, which has to be in step with the server's: a task is created,
            and late, by as much as the clocks differ.

    Raises:
        ConfigurationError: the dialect is not served.
        NotPersistable: something in a draft cannot be stored.
    """
    found = insert_dialect(dialect, table_prefix, schema, paramstyle)
    return statements(found, drafts, now or SystemClock().now())


def statements(
    dialect: InsertDialect, drafts: Sequence[TaskDraft], now: datetime, ready: Ready | None = None
) -> Written:
    """Return the statements for a dialect; `ready` is what a store knows of the drafts.

    Raises:
        NotPersistable: something in a draft cannot be stored.
    """
    if not drafts:
        return []
    return [dialect.compiled(construct) for construct in _constructs(dialect, drafts, now, ready)]


def _constructs(
    dialect: InsertDialect, drafts: Sequence[TaskDraft], now: datetime, ready: Ready | None
) -> Iterator[ClauseElement]:
    ids: Mapping[Lane, ColumnElement[int]]
    modes = sorted({draft.rank.mode for draft in drafts})
    if ready is None:
        lanes = {lane(draft.route) for draft in drafts for lane in (submit_lane, query_lane)}
        # in one order everywhere, since an insert waits for another transaction's insert of the same lane
        ordered = sorted(lanes, key=lambda lane: lane.digest)
        yield from dialect.lanes(ordered)
        for mode in modes:
            yield from dialect.rank_mode(mode)
        ids = {lane: dialect.lane_id(lane, number) for number, lane in enumerate(ordered)}
    else:
        ids = {lane: literal(lane_id) for lane, lane_id in ready.lanes.items()}
    for draft in drafts:
        task = created(draft, now)
        rank = None if ready is not None else draft.rank.mode
        yield from _task(dialect, task, _place(dialect, task, now, ready), ids, rank)
    if dialect.announcement is not None:
        yield dialect.announcement


def _place(dialect: InsertDialect, task: Task, now: datetime, ready: Ready | None) -> Place:
    """Return where a task stands at first; on a server it sleeps, so that the transaction locks no lane."""
    at = as_millis(now)
    place = place_of(task, _SUBMIT_PLACE, _QUERY_PLACE, at)
    if place.lane is None or not dialect.concurrent:
        return place
    # this host's clock may be ahead of the server's
    return place._replace(lane=None, turn=None, asleep_until=0 if ready is None else at)


def _task(
    dialect: InsertDialect,
    task: Task,
    place: Place,
    ids: Mapping[Lane, ColumnElement[int]],
    mode: str | None,
) -> Iterator[ClauseElement]:
    schema: Schema = dialect.schema
    columns = new_columns(task)
    bodies = spill_new(columns)
    submit = ids[submit_lane(task.route)]
    values = {
        **columns,
        **place._asdict(),
        "submit_lane": submit,
        "query_lane": ids[query_lane(task.route)],
        "lane": submit if place.lane is not None else None,
    }
    if mode is not None:
        # null, and refused, if the store ranks by another mode
        values["rank"] = dialect.if_mode(mode, columns["rank"])
    yield insert(schema.task).values(values)
    seq = select(schema.task.c.seq).where(schema.task.c.id == columns["id"]).scalar_subquery()
    for part, text in bodies:
        yield insert(schema.body).values(task=seq, part=part, text=text)
    if place.turn is not None:
        head = schema.lane.c.head
        digest = submit_lane(task.route).digest
        yield (
            update(schema.lane)
            .where(schema.lane.c.digest == digest, or_(head.is_(None), head > place.turn))
            .values(head=place.turn)
        )
