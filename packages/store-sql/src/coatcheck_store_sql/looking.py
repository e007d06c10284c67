"""How a claim looks around: in one statement where the database can, and else in one for each handler and gate."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from coatcheck_store_sql.lanes import lower_heads
from coatcheck_store_sql.places import SUBMIT, time_turn
from coatcheck_store_sql.sight import AWAKE_GATES, Sight

if TYPE_CHECKING:
    from coatcheck_store_sql.step import Step

__all__ = ["first_later_turn", "look"]

_WAKE_LIMIT = 10_000
"""How many tasks that became due one claim puts into their lanes."""
_ALL_TURNS = "~"
"""After every turn."""


def first_later_turn(step: Step, kind: str) -> str:
    """Return the turn before which all stand that may be claimed now."""
    return _ALL_TURNS if kind == SUBMIT else time_turn(step.now_ms + 1)


def look(step: Step, kind: str, handlers: Collection[str], limit: int, most: int) -> Sight:
    """Look at up to `most` lanes of each sort, having put what became due into them; `limit` tasks are wanted."""
    sight = step.dialect.look(step, kind, handlers, limit, most)
    if sight is None:
        if kind == SUBMIT:
            _wake(step, handlers)
        return _look_by_parts(step, kind, handlers, most)
    if sight.asleep and _wake(step, handlers):
        sight = step.dialect.look(step, kind, handlers, limit, most) or sight
    return sight


def _wake(step: Step, handlers: Collection[str]) -> bool:
    """Put tasks that have become due into their lanes; return whether there were any."""
    heads: dict[int, str] = {}
    for handler in handlers:
        woken = step.rows(step.sql.asleep, handler_key=handler, now=step.now_ms, limit=_WAKE_LIMIT)
        for _, lane, rank in woken:
            heads[lane] = min(rank, heads.get(lane, rank))
        step.many(step.sql.wake, [{"_seq": seq} for seq, _, _ in woken])
    lower_heads(step, heads)
    return bool(heads)


def _look_by_parts(step: Step, kind: str, handlers: Collection[str], most: int) -> Sight:
    sql, bound = step.sql, first_later_turn(step, kind)
    lanes: list[tuple[str, int]] = []
    parked: list[tuple[str, int, str]] = []
    awake: dict[tuple[str, str], int] = {}
    for handler in handlers:
        given = {"kind": kind, "handler_key": handler}
        heads = step.rows(sql.open_lanes, **given, bound=bound, limit=most)
        lanes += [(head, lane) for lane, head in heads]
        for gate, wake_at in step.rows(sql.awake, **given, now=step.now_ms, limit=AWAKE_GATES):
            awake[gate, handler] = wake_at
            heads = step.rows(sql.parked_lanes, **given, gate=gate, bound=bound, limit=most)
            parked += [(head, lane, gate) for lane, head in heads]
    return Sight(
        {lane: head for head, lane in sorted(lanes)[:most]},
        awake,
        {lane: (head, gate) for head, lane, gate in sorted(parked)[:most]},
    )
