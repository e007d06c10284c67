"""Lanes: a handler and an exact set of gates. Their ids never change, so a process remembers them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from coatcheck.codec import dumps, loads
from coatcheck.task import Route
from coatcheck_store_sql.places import QUERY, SUBMIT
from coatcheck_store_sql.words import named

if TYPE_CHECKING:
    from coatcheck_store_sql.step import Step

__all__ = ["Lane", "Lanes", "lane_ids", "lanes_of", "lower_heads", "query_lane", "submit_lane"]


class Lane(NamedTuple):
    """What a lane is; immutable. Handler and gates are named as in columns, see `words`."""

    kind: str
    """`SUBMIT` or `QUERY`."""
    handler_key: str
    gates: tuple[str, ...]
    """Sorted, each once."""

    @property
    def gates_text(self) -> str:
        """The gates as JSON."""
        return dumps(list(self.gates), path="route.gates")

    @property
    def digest(self) -> str:
        """What the lane is found by."""
        return hashlib.sha256(
            dumps([self.kind, self.handler_key, *self.gates], path="route").encode()
        ).hexdigest()


@lru_cache(maxsize=4096)
def submit_lane(route: Route) -> Lane:
    """Return the lane in which a task waits to be submitted."""
    return Lane(SUBMIT, named(route.handler_key), tuple(sorted(set(map(named, route.gates)))))


@lru_cache(maxsize=4096)
def query_lane(route: Route) -> Lane:
    """Return the lane in which a task waits to be queried."""
    return Lane(
        QUERY, named(route.handler_key), () if route.query_gate is None else (named(route.query_gate),)
    )


class Lanes:
    """The lanes that a process has met, by id and back."""

    def __init__(self, base: Lanes | None = None) -> None:
        self._by_id: dict[int, Lane] = {}
        self._ids: dict[Lane, int] = {}
        self._base = base

    def id_of(self, lane: Lane) -> int | None:
        """Return its id, if it is known."""
        found = self._ids.get(lane)
        return self._base.id_of(lane) if found is None and self._base is not None else found

    def get(self, lane_id: int) -> Lane | None:
        """Return the lane, if it is known."""
        found = self._by_id.get(lane_id)
        return self._base.get(lane_id) if found is None and self._base is not None else found

    def merge(self, others: Lanes) -> None:
        """Learn what others have learnt."""
        self._by_id.update(others._by_id)
        self._ids.update(others._ids)

    def learn(self, lane_id: int, lane: Lane) -> None:
        """Remember it."""
        self._by_id[lane_id] = lane
        self._ids[lane] = lane_id

    def clear(self) -> None:
        """Forget all."""
        self._by_id.clear()
        self._ids.clear()


def lane_ids(step: Step, lanes: Iterable[Lane]) -> dict[Lane, int]:
    """Return the ids of these lanes, adding those that are new."""
    wanted = list(dict.fromkeys(lanes))
    known = {lane: lane_id for lane in wanted if (lane_id := step.memory.lanes.id_of(lane)) is not None}
    missing = [lane for lane in wanted if lane not in known]
    if not missing:
        return known
    found = _found(step, missing)
    # in one order everywhere, since an insert waits for another step's insert of the same lane
    new = sorted((lane for lane in missing if lane not in found), key=lambda lane: lane.digest)
    if new:
        step.many(
            step.sql.insert_lane,
            [
                {
                    "digest": lane.digest,
                    "kind": lane.kind,
                    "handler_key": lane.handler_key,
                    "gates": lane.gates_text,
                }
                for lane in new
            ],
        )
        step.many(
            step.sql.insert_handler,
            [{"handler_key": key} for key in sorted({lane.handler_key for lane in new})],
        )
        found |= _found(step, new)
        step.many(
            step.sql.insert_lane_gate,
            [
                {"gate": gate, "lane": found[lane]}
                for lane in new
                if lane.kind == SUBMIT
                for gate in lane.gates
            ],
        )
    for lane, lane_id in found.items():
        step.memory.lanes.learn(lane_id, lane)
    return known | found


def lanes_of(step: Step, ids: Iterable[int]) -> dict[int, Lane]:
    """Return the lanes of these ids."""
    wanted = set(ids)
    known = {lane_id: lane for lane_id in wanted if (lane := step.memory.lanes.get(lane_id)) is not None}
    for lane_id, kind, handler_key, gates in step.rows_among(
        step.sql.lanes_by_id, "ids", wanted - known.keys()
    ):
        known[lane_id] = _lane(kind, handler_key, gates)
        step.memory.lanes.learn(lane_id, known[lane_id])
    return known


def lower_heads(step: Step, heads: Mapping[int, str]) -> None:
    """Let these lanes begin at these turns at the latest: tasks have come to stand there."""
    if not heads:
        return
    step.news = True
    step.enter_lanes(heads)
    low = sorted(heads)
    if len(low) > 1 and step.dialect.concurrent:
        held = dict(step.rows_among(step.sql.heads, "ids", low))
        low = [lane for lane in low if _begins_after(held.get(lane), heads[lane])]
        # in one order everywhere, since others may be lowering some of them, too
        for _ in step.rows_among(step.sql.lock_lanes, "ids", low):
            pass
    step.many(step.sql.lower_head, [{"_id": lane, "head": heads[lane]} for lane in low])


def _begins_after(head: str | None, turn: str) -> bool:
    return head is None or head > turn


def _found(step: Step, lanes: Iterable[Lane]) -> dict[Lane, int]:
    digests = [lane.digest for lane in lanes]
    return {
        _lane(kind, handler_key, gates): lane_id
        for lane_id, kind, handler_key, gates in step.rows_among(step.sql.lanes_by_digest, "digests", digests)
    }


def _lane(kind: str, handler_key: str, gates: str) -> Lane:
    return Lane(kind, handler_key, tuple(cast("list[str]", loads(gates))))
