"""Statements about lanes and gates: where tasks wait, and what lets them pass."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)

from coatcheck_store_sql.statement import Maker, Statement

__all__ = ["LaneStatements"]


class LaneStatements(Maker):
    """What steps ask and tell the tables `lane`, `lane_gate`, `gate` and `parking`."""

    # ------------------------------------------------------------------ lanes

    @cached_property
    def lanes_by_digest(self) -> Statement:
        """Of the lanes whose digest is in `digests`: id, kind, handler_key, gates."""
        lane = self.schema.lane
        return self._make(
            select(lane.c.id, lane.c.kind, lane.c.handler_key, lane.c.gates).where(
                self.dialect.among(lane.c.digest, "digests")
            )
        )

    @cached_property
    def lanes_by_id(self) -> Statement:
        """Of the lanes whose id is in `ids`: id, kind, handler_key, gates."""
        lane = self.schema.lane
        return self._make(
            select(lane.c.id, lane.c.kind, lane.c.handler_key, lane.c.gates).where(
                self.dialect.among(lane.c.id, "ids")
            )
        )

    @cached_property
    def insert_lane(self) -> Statement:
        """Add a lane, unless it is there."""
        return self._make(
            self.dialect.insert_if_new(self.schema.lane).values(
                digest=bindparam("digest"),
                kind=bindparam("kind"),
                handler_key=bindparam("handler_key"),
                gates=bindparam("gates"),
            )
        )

    @cached_property
    def insert_lane_gate(self) -> Statement:
        """Note that `gate` stands before `lane`."""
        return self._make(
            self.dialect.insert_if_new(self.schema.lane_gate).values(
                gate=bindparam("gate"), lane=bindparam("lane")
            )
        )

    @cached_property
    def handlers(self) -> Statement:
        """Every handler key that has lanes: handler_key."""
        return self._make(select(self.schema.attendance.c.handler_key))

    @cached_property
    def insert_handler(self) -> Statement:
        """Note that there is a handler, unless it is known."""
        return self._make(
            self.dialect.insert_if_new(self.schema.attendance).values(
                handler_key=bindparam("handler_key"), at=0
            )
        )

    @cached_property
    def open_lanes(self) -> Statement:
        """The first `limit` lanes by head below `bound` that are not parked: id, head."""
        return self._heads(self.schema.lane.c.parked_by.is_(None))

    @cached_property
    def parked_lanes(self) -> Statement:
        """The first `limit` lanes by head below `bound` that are parked under `gate`: id, head."""
        return self._heads(self.schema.lane.c.parked_by == bindparam("gate"))

    def _heads(self, condition: Any) -> Statement:  # noqa: ANN401 - a clause
        lane = self.schema.lane
        return self._make(
            select(lane.c.id, lane.c.head)
            .where(
                lane.c.kind == bindparam("kind"),
                lane.c.handler_key == bindparam("handler_key"),
                condition,
                lane.c.head < bindparam("bound"),
            )
            .order_by(lane.c.head)
            .limit(bindparam("limit"))
        )

    @cached_property
    def lower_head(self) -> Statement:
        """Make `head` the head of lane `_id` if it is before the present one."""
        lane = self.schema.lane
        return self._make(
            update(lane)
            .where(lane.c.id == bindparam("_id"), or_(lane.c.head.is_(None), lane.c.head > bindparam("head")))
            .values(head=bindparam("head"))
        )

    @cached_property
    def heads(self) -> Statement:
        """Of the lanes whose id is in `ids`: id, head."""
        lane = self.schema.lane
        return self._make(select(lane.c.id, lane.c.head).where(self.dialect.among(lane.c.id, "ids")))

    @cached_property
    def lock_lanes(self) -> Statement:
        """The lanes whose id is in `ids`, locked in the order of their ids: id."""
        lane = self.schema.lane
        return self._make(
            select(lane.c.id)
            .where(self.dialect.among(lane.c.id, "ids"))
            .order_by(lane.c.id)
            .with_for_update()
        )

    @cached_property
    def park_lane(self) -> Statement:
        """Write `parked_by` of lane `_id`."""
        lane = self.schema.lane
        return self._make(
            update(lane).where(lane.c.id == bindparam("_id")).values(parked_by=bindparam("parked_by"))
        )

    @cached_property
    def raise_head(self) -> Statement:
        """Let the lane `_id` begin at its first task, null if it is empty; if it still begins at `_after`."""
        lane, head = self.schema.lane, bindparam("_after", type_=self.schema.lane.c.head.type)
        first = self._first_turn(self.schema.task.c.turn >= head)
        return self._make(
            update(lane).where(lane.c.id == bindparam("_id"), lane.c.head == head).values(head=first)
        )

    @cached_property
    def follow_lane(self) -> Statement:
        """Let the lane `_id` begin at `turn`, or at its first task if that is before; if it still begins at `_after`.

        It may begin before its first task then; so who comes after `turn` finds nothing to lower.
        """
        lane, task = self.schema.lane, self.schema.task
        head, turn = bindparam("_after", type_=task.c.turn.type), bindparam("turn", type_=task.c.turn.type)
        before = self._first_turn(task.c.turn >= head, task.c.turn < turn)
        return self._make(
            update(lane)
            .where(lane.c.id == bindparam("_id"), lane.c.head == head)
            .values(head=func.coalesce(before, turn))
        )

    def _first_turn(self, *conditions: ColumnElement[bool]) -> ScalarSelect[Any]:
        """Return the first turn of lane `_id`, between bounds that are given: MariaDB takes no others for a range."""
        task = self.schema.task
        lane = bindparam("_id", type_=task.c.lane.type)
        return (
            select(task.c.turn)
            .where(task.c.lane == lane, *conditions)
            .order_by(task.c.turn)
            .limit(1)
            .scalar_subquery()
        )

    # ------------------------------------------------------------------ gates

    @cached_property
    def gates_by_name(self) -> Statement:
        """The whole rows of the gates whose name is in `names`, locked in the order of their names."""
        gate = self.schema.gate
        return self._make(
            select(gate)
            .where(self.dialect.among(gate.c.name, "names"))
            .order_by(gate.c.name)
            .with_for_update()
        )

    @cached_property
    def all_gates(self) -> Statement:
        """The whole rows of all gates."""
        return self._make(select(self.schema.gate))

    @cached_property
    def put_gate(self) -> Statement:
        """Write a whole gate."""
        gate = self.schema.gate
        return self._make(
            self.dialect.upsert(gate).values({column.name: bindparam(column.name) for column in gate.c})
        )

    @cached_property
    def drop_gate(self) -> Statement:
        """Delete gate `_name`."""
        gate = self.schema.gate
        return self._make(delete(gate).where(gate.c.name == bindparam("_name")))

    @cached_property
    def use_gate(self) -> Statement:
        """Add `count` to what is used of gate `_name`, if it is defined."""
        gate = self.schema.gate
        return self._make(
            update(gate)
            .where(gate.c.name == bindparam("_name"))
            .values(used=gate.c.used + bindparam("count"))
        )

    @cached_property
    def set_grants(self) -> Statement:
        """Write the grants of gate `_name`."""
        gate = self.schema.gate
        return self._make(
            update(gate).where(gate.c.name == bindparam("_name")).values(grants=bindparam("grants"))
        )

    @cached_property
    def slots_of_gate(self) -> Statement:
        """How many slots tasks hold that name `gate`: count."""
        task, lane_gate = self.schema.task, self.schema.lane_gate
        return self._make(
            select(func.count())
            .select_from(lane_gate)
            .join(task, task.c.submit_lane == lane_gate.c.lane)
            .where(lane_gate.c.gate == bindparam("gate"), task.c.holds_slots == literal_column("1"))
        )

    @cached_property
    def awake(self) -> Statement:
        """The first `limit` gates whose parked lanes are to be looked at by `now`: gate, wake_at."""
        parking = self.schema.parking
        return self._make(
            select(parking.c.gate, parking.c.wake_at)
            .where(
                parking.c.kind == bindparam("kind"),
                parking.c.handler_key == bindparam("handler_key"),
                parking.c.wake_at <= bindparam("now"),
            )
            .order_by(parking.c.wake_at)
            .limit(bindparam("limit"))
        )

    @cached_property
    def put_parking(self) -> Statement:
        """Say when to look at the lanes that are parked under a gate."""
        parking = self.schema.parking
        return self._make(
            self.dialect.upsert(parking).values({column.name: bindparam(column.name) for column in parking.c})
        )

    @cached_property
    def wake_parking(self) -> Statement:
        """Look at the lanes parked under `_gate` at `now`."""
        parking = self.schema.parking
        return self._make(
            update(parking).where(parking.c.gate == bindparam("_gate")).values(wake_at=bindparam("now"))
        )

    @cached_property
    def clear_parking(self) -> Statement:
        """Forget the parking of `_gate`, `_kind` and `_handler_key` if no lane is parked there any more.

        And if it is as it was found: somebody else may be parking there at this moment.
        """
        parking, lane = self.schema.parking, self.schema.lane
        parked = select(lane.c.id).where(
            lane.c.kind == bindparam("_kind"),
            lane.c.handler_key == bindparam("_handler_key"),
            lane.c.parked_by == bindparam("_gate"),
        )
        return self._make(
            delete(parking).where(
                and_(
                    parking.c.gate == bindparam("_gate"),
                    parking.c.kind == bindparam("_kind"),
                    parking.c.handler_key == bindparam("_handler_key"),
                    parking.c.wake_at == bindparam("_wake_at"),
                    ~parked.exists(),
                )
            )
        )
