"""What claims ask PostgreSQL: all that they need to see in one statement, and the turns of many lanes in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, String, Text, bindparam, text

from coatcheck_store_sql.places import QUERY, SUBMIT
from coatcheck_store_sql.postgresql_arrays import array_text
from coatcheck_store_sql.sight import AWAKE_GATES, Sight, Turn
from coatcheck_store_sql.statement import PLACE, Statement

if TYPE_CHECKING:
    from sqlalchemy import Table

    from coatcheck_store_sql.postgresql import PostgresqlDialect

__all__ = ["ClaimStatements", "seen", "turn_of_mark"]

_PLAIN_LANES = 8
"""Up to how many lanes without defined gates are asked for their turns by the way."""
_DEPTH = 4
"""How many turns each of them is asked for, at least."""
_MICROS = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_MARK = ("id", "seq", "rev", *PLACE)
_TIME, _OPEN, _AWAKE, _PARKED, _TURN = range(5)
"""What the rows of a look are about, see `seen`."""


def turn_of_mark(mark: Sequence[Any]) -> Turn:
    """Return the turn of a task from its id, seq, rev and place."""
    return Turn(mark[3], mark[1], mark[4], mark[8], tuple(mark))


def seen(rows: Iterable[Sequence[Any]]) -> tuple[Sight, int]:
    """Return what the rows of a look tell, and the time in microseconds.

    The columns are those of a mark, after the kind of row: so that all kinds fit into one table.
    """
    kinds: dict[int, list[Sequence[Any]]] = {kind: [] for kind in (_TIME, _OPEN, _AWAKE, _PARKED, _TURN)}
    for row in rows:
        kinds[row[0]].append(row)
    ((_, _, micros, asleep, depth, *_),) = kinds[_TIME]
    sight = Sight(
        {row[4]: row[5] for row in sorted(kinds[_OPEN], key=_head)},
        {(row[1], row[7]): row[8] for row in kinds[_AWAKE]},
        {row[4]: (row[5], row[1]) for row in sorted(kinds[_PARKED], key=_head)},
        bool(asleep),
        depth,
        tuple(turn_of_mark(row[1:]) for row in kinds[_TURN]),
    )
    return sight, micros


def _head(row: Sequence[Any]) -> str:
    head: str = row[5]
    return head


class ClaimStatements:
    """The statements of one store."""

    def __init__(self, dialect: PostgresqlDialect) -> None:
        self._dialect = dialect
        schema = dialect.schema
        self._task, self._lane = self._named(schema.task), self._named(schema.lane)
        self._gate, self._parking = self._named(schema.gate), self._named(schema.parking)
        self._gate_columns = ", ".join(f"locked.{column.name}" for column in schema.gate.c)

    def _named(self, table: Table) -> str:
        return self._dialect.name_of(table)

    @cached_property
    def looks(self) -> dict[str, Statement]:
        """For each kind of lane: all that a claim for `handlers` is to see, of at most `most` lanes of each sort.

        If it is known by then that no gate is defined before any lane, and there are few, the first turns of all of
        them, about `limit` together. Nobody defines a gate while this step holds its guard, so no gate is to be
        locked before the tasks then. `now` is null where the server's clock counts.
        """
        return {kind: self._look(kind) for kind in (SUBMIT, QUERY)}

    def _look(self, kind: str) -> Statement:
        # a query's turn begins with its time, see `places.time_turn`
        bound = "'~'" if kind == SUBMIT else "to_hex((micros / 1000 + 1) # (-9223372036854775807 - 1))"
        asleep = (
            f"EXISTS (SELECT FROM wanted CROSS JOIN LATERAL (SELECT FROM {self._task} "  # noqa: S608 - a name of ours
            "WHERE handler_key = wanted.key AND asleep_until <= (SELECT now FROM edge) LIMIT 1) AS due)"
        )
        mark = ", ".join(f"task.{name}" for name in _MARK)
        heads = (
            f"SELECT id, head, gates FROM {self._lane} WHERE kind = '{kind}' "  # noqa: S608 - names of ours
            "AND handler_key = wanted.key AND head < (SELECT bound FROM edge) AND parked_by "
        )
        first = "ORDER BY head LIMIT :most"
        sql = f"""
WITH at AS MATERIALIZED (SELECT coalesce(:now * 1000, {_MICROS}) AS micros),
edge AS MATERIALIZED (SELECT micros, micros / 1000 AS now, {bound} AS bound FROM at),
wanted AS MATERIALIZED (SELECT key FROM unnest({array_text("handlers", "varchar")}) AS given(key)),
open AS MATERIALIZED (
 SELECT lane.* FROM wanted CROSS JOIN LATERAL ({heads} IS NULL {first}) AS lane {first}),
awake AS MATERIALIZED (
 SELECT wanted.key, due.* FROM wanted CROSS JOIN LATERAL (SELECT gate, wake_at FROM {self._parking}
  WHERE kind = '{kind}' AND handler_key = wanted.key AND wake_at <= (SELECT now FROM edge)
  ORDER BY wake_at LIMIT {AWAKE_GATES}) AS due),
parked AS MATERIALIZED (
 SELECT lane.*, wanted.gate FROM awake AS wanted CROSS JOIN LATERAL ({heads} = wanted.gate {first}) AS lane {first}),
waking AS MATERIALIZED (SELECT {asleep if kind == SUBMIT else "false"} AS due),
plain AS MATERIALIZED (
 SELECT count(*) AS lanes, CASE WHEN count(*) > {_PLAIN_LANES} OR EXISTS (SELECT FROM awake)
  OR (SELECT waking.due FROM waking) THEN 0
  WHEN EXISTS (SELECT FROM {self._gate} WHERE name = ANY (ARRAY(
   SELECT needed.name FROM open, jsonb_array_elements_text(open.gates::jsonb) AS needed(name)))) THEN 0
  ELSE greatest({_DEPTH}, :limit / greatest(count(*), 1) + 2) END AS depth FROM open),
first AS (
 SELECT task.* FROM open CROSS JOIN LATERAL (SELECT {mark} FROM {self._task} AS task
  WHERE task.lane = open.id AND task.turn >= open.head AND task.turn < (SELECT bound FROM edge)
  ORDER BY task.turn LIMIT (SELECT depth FROM plain) FOR UPDATE SKIP LOCKED) AS task
 WHERE (SELECT depth FROM plain) > 0)
SELECT {_TIME}::smallint AS what, NULL::varchar AS id, edge.micros AS seq,
 (SELECT waking.due FROM waking)::int::bigint AS rev, (SELECT depth FROM plain)::bigint AS lane,
 NULL::varchar AS turn, NULL::bigint AS asleep_until, NULL::varchar AS stale_for, NULL::bigint AS stale_at,
 NULL::bigint AS expires_at FROM edge
UNION ALL SELECT {_OPEN}, NULL, NULL, NULL, id, head, NULL, NULL, NULL, NULL FROM open
UNION ALL SELECT {_AWAKE}, gate, NULL, NULL, NULL, NULL, NULL, key, wake_at, NULL FROM awake
UNION ALL SELECT {_PARKED}, gate, NULL, NULL, id, head, NULL, NULL, NULL, NULL FROM parked
UNION ALL SELECT {_TURN}, first.* FROM first
"""  # noqa: S608 - names of ours
        return self._made(sql, handlers=Text, now=BigInteger, most=Integer, limit=Integer)

    @cached_property
    def next_turns(self) -> Statement:
        """Of each of `lanes`: as many turns as `limits` say, from `turns` on, before `bound`: marks, locked."""
        mark = ", ".join(f"task.{name}" for name in _MARK)
        arrays = ", ".join(
            array_text(name, kind)
            for name, kind in (("lanes", "bigint"), ("turns", "varchar"), ("limits", "int"))
        )
        sql = f"""
SELECT task.* FROM unnest({arrays}) AS asked(lane, turn, most)
CROSS JOIN LATERAL (SELECT {mark} FROM {self._task} AS task
 WHERE task.lane = asked.lane AND task.turn >= asked.turn AND task.turn < :bound
 ORDER BY task.turn LIMIT asked.most FOR UPDATE SKIP LOCKED) AS task
"""  # noqa: S608 - names of ours
        return self._made(sql, lanes=Text, turns=Text, limits=Text, bound=String)

    @cached_property
    def gates_and_time(self) -> Statement:
        """The gates in `names`, locked in this order: their rows, and the time when each was locked, microseconds."""
        sql = f"""
WITH locked AS MATERIALIZED (
 SELECT * FROM {self._gate} WHERE name = ANY ({array_text("names", "varchar")}) ORDER BY name FOR UPDATE)
SELECT {self._gate_columns}, {_MICROS} FROM locked
"""  # noqa: S608 - names of ours
        return self._made(sql, names=Text)

    def _made(self, sql: str, **types: Any) -> Statement:  # noqa: ANN401 - SQLAlchemy's types
        given = [bindparam(name, type_=kind) for name, kind in types.items()]
        return self._dialect.statement(text(sql).bindparams(*given))
