"""The SQL of steps, as SQLAlchemy Core constructs that are compiled once per store.

A statement takes its parameters by the names of its `bindparam`s; what stands in a WHERE beside a column that
is written begins with an underscore.
"""

from __future__ import annotations

from functools import cached_property

from sqlalchemy import bindparam, delete, func, or_, select, update

from coatcheck_store_sql.lane_statements import LaneStatements
from coatcheck_store_sql.statement import PLACE, Statement
from coatcheck_store_sql.task_statements import TaskStatements

__all__ = ["PLACE", "Statement", "Statements"]

_BY_KEY = "FORCE INDEX (PRIMARY)"


class Statements(TaskStatements, LaneStatements):
    """Every statement of a store."""

    # ------------------------------------------------------------------ the store

    @cached_property
    def clock(self) -> Statement:
        """The last stamp: number."""
        meta = self.schema.meta
        return self._make(select(meta.c.number).where(meta.c.name == "clock"))

    @cached_property
    def stamp_clock(self) -> Statement:
        """Raise the last stamp to `now`."""
        meta = self.schema.meta
        return self._make(
            update(meta)
            .where(meta.c.name == "clock", meta.c.number < bindparam("now"))
            .values(number=bindparam("now"))
        )

    @cached_property
    def lock(self) -> Statement:
        """Change nothing, but take the write lock of a transaction that somebody else began."""
        meta = self.schema.meta
        return self._make(update(meta).where(meta.c.name == "clock").values(number=meta.c.number))

    @cached_property
    def rank_mode(self) -> Statement:
        """The ranking mode: text."""
        meta = self.schema.meta
        return self._make(select(meta.c.text).where(meta.c.name == "rank_mode"))

    @cached_property
    def set_rank_mode(self) -> Statement:
        """Remember `text` as the ranking mode, if none is."""
        return self._make(
            self.dialect.insert_if_new(self.schema.meta).values(name="rank_mode", text=bindparam("text"))
        )

    # ------------------------------------------------------------------ nudges, attendance

    @cached_property
    def nudge(self) -> Statement:
        """One row if the nudge `external_key` came after `since`."""
        nudge = self.schema.nudge
        return self._make(
            select(nudge.c.at).where(
                nudge.c.external_key == bindparam("external_key"), nudge.c.at >= bindparam("since")
            )
        )

    @cached_property
    def any_nudge(self) -> Statement:
        """One row if any nudge is remembered."""
        return self._make(select(self.schema.nudge.c.at).limit(1))

    @cached_property
    def put_nudge(self) -> Statement:
        """Remember a nudge."""
        return self._make(
            self.dialect.upsert(self.schema.nudge).values(
                external_key=bindparam("external_key"), at=bindparam("at"), number=bindparam("number")
            )
        )

    @cached_property
    def drop_nudge(self) -> Statement:
        """Forget the nudge for `_external_key`."""
        nudge = self.schema.nudge
        return self._make(delete(nudge).where(nudge.c.external_key == bindparam("_external_key")))

    @cached_property
    def last_nudge(self) -> Statement:
        """The last nudge's number: number."""
        return self._make(select(func.max(self.schema.nudge.c.number)))

    @cached_property
    def drop_old_nudges(self) -> Statement:
        """Forget nudges before `since`, and those up to the number `first`."""
        nudge = self.schema.nudge
        return self._make(
            delete(nudge).where(or_(nudge.c.at < bindparam("since"), nudge.c.number <= bindparam("first")))
        )

    @cached_property
    def attend(self) -> Statement:
        """Note that a worker claims for a handler."""
        return self._make(
            self.dialect.upsert(self.schema.attendance).values(
                handler_key=bindparam("handler_key"), at=bindparam("at")
            )
        )

    # ------------------------------------------------------------------ histories, tallies

    @cached_property
    def gate_history(self) -> Statement:
        """What was done to gate `name`: entries."""
        history = self.schema.gate_history
        return self._make(select(history.c.entries).where(history.c.name == bindparam("name")))

    @cached_property
    def put_gate_history(self) -> Statement:
        """Write what was done to gate `name`."""
        return self._make(
            self.dialect.upsert(self.schema.gate_history).values(
                name=bindparam("name"), entries=bindparam("entries")
            )
        )

    @cached_property
    def tallies_by_name(self) -> Statement:
        """The tallies whose name is in `names`, locked in the order of their names: name, total, expires_at."""
        tally = self.schema.tally
        return self._make(
            select(tally.c.name, tally.c.total, tally.c.expires_at)
            # a scan would wait for rows that are none of its business
            .with_hint(tally, _BY_KEY, "mysql")
            .with_hint(tally, _BY_KEY, "mariadb")
            .where(self.dialect.among(tally.c.name, "names"))
            .order_by(tally.c.name)
            .with_for_update()
        )

    @cached_property
    def tallies_seen(self) -> Statement:
        """The same, not locked."""
        tally = self.schema.tally
        return self._make(
            select(tally.c.name, tally.c.total, tally.c.expires_at).where(
                self.dialect.among(tally.c.name, "names")
            )
        )

    @cached_property
    def tallies_between(self) -> Statement:
        """The first `limit` tallies from `first` to `last` that live after `now`: name, total, expires_at."""
        tally = self.schema.tally
        return self._make(
            select(tally.c.name, tally.c.total, tally.c.expires_at)
            .where(tally.c.name.between(bindparam("first"), bindparam("last")))
            .where(tally.c.expires_at > bindparam("now"))
            .order_by(tally.c.name)
            .limit(bindparam("limit"))
        )

    @cached_property
    def insert_tally(self) -> Statement:
        """Make a tally that nobody has counted on, unless it is there."""
        return self._make(
            self.dialect.insert_if_new(self.schema.tally).values(
                name=bindparam("name"), total=0, expires_at=0
            )
        )

    @cached_property
    def put_tally(self) -> Statement:
        """Write a tally."""
        tally = self.schema.tally
        return self._make(
            self.dialect.upsert(tally).values({column.name: bindparam(column.name) for column in tally.c})
        )

    @cached_property
    def forgotten_tallies(self) -> Statement:
        """The first `limit` tallies that expired by `now`, locked unless others have locked them: name."""
        tally = self.schema.tally
        return self._make(
            select(tally.c.name)
            .where(tally.c.expires_at <= bindparam("now"))
            .order_by(tally.c.expires_at)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def drop_tally(self) -> Statement:
        """Delete tally `_name`."""
        tally = self.schema.tally
        return self._make(delete(tally).where(tally.c.name == bindparam("_name")))

    # ------------------------------------------------------------------ waiting

    @cached_property
    def first_open_lane(self) -> Statement:
        """The first head of lanes of `kind` and `handler_key` that are not parked: head."""
        lane = self.schema.lane
        return self._make(
            select(lane.c.head)
            .where(
                lane.c.kind == bindparam("kind"),
                lane.c.handler_key == bindparam("handler_key"),
                lane.c.parked_by.is_(None),
                lane.c.head.is_not(None),
            )
            .order_by(lane.c.head)
            .limit(1)
        )

    @cached_property
    def first_asleep(self) -> Statement:
        """When the first task of `handler_key` becomes due: asleep_until."""
        task = self.schema.task
        return self._make(
            select(task.c.asleep_until)
            .where(task.c.handler_key == bindparam("handler_key"), task.c.asleep_until.is_not(None))
            .order_by(task.c.asleep_until)
            .limit(1)
        )

    @cached_property
    def first_wake(self) -> Statement:
        """When the first gate with parked lanes of `handler_key` is to be looked at: wake_at."""
        parking = self.schema.parking
        return self._make(
            select(func.min(parking.c.wake_at))
            .where(parking.c.handler_key == bindparam("handler_key"), parking.c.wake_at.is_not(None))
            .group_by(parking.c.kind)
        )

    @cached_property
    def next_stale(self) -> Statement:
        """When the next task after `since` becomes stale for `stale_for`: stale_at."""
        task = self.schema.task
        return self._make(
            select(task.c.stale_at)
            .where(task.c.stale_for == bindparam("stale_for"), task.c.stale_at > bindparam("since"))
            .order_by(task.c.stale_at)
            .limit(1)
        )

    @cached_property
    def next_expiry(self) -> Statement:
        """When the next deadline after `since` passes: expires_at."""
        task = self.schema.task
        return self._make(
            select(task.c.expires_at)
            .where(task.c.expires_at > bindparam("since"))
            .order_by(task.c.expires_at)
            .limit(1)
        )
