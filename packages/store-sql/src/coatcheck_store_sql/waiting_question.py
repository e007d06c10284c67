"""One statement that asks a server all that `waiting` wants to know, for some handlers at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    String,
    bindparam,
    func,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy import (
    cast as sql_cast,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter

from coatcheck_store_sql.places import ANYONE, QUERY, SUBMIT, time_of_turn
from coatcheck_store_sql.statements import Statement, Statements
from coatcheck_store_sql.step import Step

__all__ = ["look", "question"]

_NOW, _OPEN, _TURN, _AT = range(4)
"""What a row tells: the clock, that a submission waits, the turn of a query, a time."""


def look(
    step: Step, handler_keys: Sequence[str], since: int | None, now: int | None = None
) -> tuple[int, int | None]:
    """Return the store's time and from when on there may be work, as `waiting.next_time` does, in milliseconds.

    Args:
        step: the step.
        handler_keys: for whom.
        since: see `waiting.next_time`; None is now.
        now: the store's time, if it is not the server's.
    """
    statement = question(step.sql, len(handler_keys))
    given = {f"handler_{number}": key for number, key in enumerate(handler_keys)}
    rows = step.rows(statement, since=since, now=now, **given)
    now = next(int(at) for kind, _, at in rows if kind == _NOW)
    return now, min(_times(rows, now), default=None)


def _times(rows: Collection[tuple[Any, ...]], now: int) -> Iterator[int]:
    for kind, turn, at in rows:
        if kind == _OPEN:
            yield now
        elif kind == _TURN:
            yield time_of_turn(turn)
        elif kind == _AT:
            yield at


def question(sql: Statements, count: int) -> Statement:
    """Return the statement for so many handlers: ``handler_0`` and so on, `since` and `now`; rows of kind, turn, at."""
    made = sql.questions.get(count)
    if made is None:
        made = sql.questions[count] = Statement(_construct(sql, count), sql.dialect)
    return made


def _construct(sql: Statements, count: int) -> Any:  # noqa: ANN401 - a union
    now = func.coalesce(
        bindparam("now", type_=BigInteger), literal_column(f"({sql.dialect.now_text})", BigInteger)
    )
    since = func.coalesce(bindparam("since", type_=BigInteger), now)
    parts = [select(*_row(_NOW, at=now))]
    for number in range(count):
        key = bindparam(f"handler_{number}", type_=String)
        submit: ColumnElement[str] = literal_column(f"'{SUBMIT}'")
        query: ColumnElement[str] = literal_column(f"'{QUERY}'")
        parts += [
            _part(_OPEN, sql.first_open_lane, kind=submit, handler_key=key),
            _part(_TURN, sql.first_open_lane, kind=query, handler_key=key),
            _part(_AT, sql.first_asleep, handler_key=key),
            _part(_AT, sql.first_wake, handler_key=key),
            _part(_AT, sql.next_stale, stale_for=key, since=since),
        ]
    parts += [
        _part(_AT, sql.next_stale, stale_for=literal_column(f"'{ANYONE}'"), since=since),
        _part(_AT, sql.next_expiry, since=since),
    ]
    return union_all(*parts)


def _part(mark: int, statement: Statement, /, **values: ColumnElement[Any]) -> Select[Any]:
    """Return the rows of a statement with these values for its parameters, marked."""

    def replace(element: Any, **_: Any) -> Any:  # noqa: ANN401 - any part of a statement
        return values.get(element.key) if isinstance(element, BindParameter) else None

    asked = cast("Select[Any]", visitors.replacement_traverse(statement.construct, {}, replace)).subquery()
    (found,) = asked.c
    return select(*(_row(mark, turn=found) if mark in {_OPEN, _TURN} else _row(mark, at=found)))


def _row(
    kind: int, turn: ColumnElement[Any] | None = None, at: ColumnElement[Any] | None = None
) -> tuple[ColumnElement[Any], ...]:
    return (
        literal_column(str(kind)).label("kind"),
        (sql_cast(null(), String(160)) if turn is None else turn).label("turn"),
        (sql_cast(null(), BigInteger) if at is None else at).label("at"),
    )
