"""Statements about tasks: reading and writing rows, and who is next."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sqlalchemy import bindparam, delete, insert, or_, select, update

from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.schema import Schema
from coatcheck_store_sql.statement import PLACE, Maker, Statement

__all__ = ["TaskStatements"]


class TaskStatements(Maker):
    """What steps ask and tell the tables `task` and `body`."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        super().__init__(schema, dialect)
        self.columns = tuple(column.name for column in schema.task.c)
        """What statements with whole rows return, in order."""
        self._updates: dict[tuple[str, ...], Statement] = {}
        self._inserts: dict[tuple[str, ...], Statement] = {}

    # ------------------------------------------------------------------ tasks

    @cached_property
    def marks_by_id(self) -> Statement:
        """Of the tasks whose id is in `ids`: id, seq, rev and the place."""
        task = self.schema.task
        return self._make(
            select(task.c.id, task.c.seq, task.c.rev, *(task.c[name] for name in PLACE)).where(
                self.dialect.among(task.c.id, "ids")
            )
        )

    @cached_property
    def lock_by_id(self) -> Statement:
        """The same, locked in the order of seq."""
        task = self.schema.task
        return self._make(
            select(task.c.id, task.c.seq, task.c.rev, *(task.c[name] for name in PLACE))
            .where(self.dialect.among(task.c.id, "ids"))
            .order_by(task.c.seq)
            .with_for_update()
        )

    @cached_property
    def marks_by_seq(self) -> Statement:
        """Of the tasks whose seq is in `seqs`: id, seq, rev and the place."""
        task = self.schema.task
        return self._make(
            select(task.c.id, task.c.seq, task.c.rev, *(task.c[name] for name in PLACE)).where(
                self.dialect.among(task.c.seq, "seqs")
            )
        )

    @cached_property
    def tasks_by_seq(self) -> Statement:
        """The whole rows whose seq is in `seqs`."""
        task = self.schema.task
        return self._make(select(task).where(self.dialect.among(task.c.seq, "seqs")))

    @cached_property
    def tasks_by_id(self) -> Statement:
        """The whole rows whose id is in `ids`."""
        task = self.schema.task
        return self._make(select(task).where(self.dialect.among(task.c.id, "ids")))

    @cached_property
    def dedup_holders(self) -> Statement:
        """Of the tasks that hold a dedup digest in `digests`: seq."""
        task = self.schema.task
        return self._make(select(task.c.seq).where(self.dialect.among(task.c.dedup_holder, "digests")))

    @cached_property
    def tasks_by_external_key(self) -> Statement:
        """Of the tasks of `handler_key` with the external key `external_key`, locked: seq."""
        task = self.schema.task
        return self._make(
            select(task.c.seq)
            .where(
                task.c.external_key == bindparam("external_key"),
                task.c.handler_key == bindparam("handler_key"),
            )
            .order_by(task.c.seq)
            .with_for_update()
        )

    def insert_tasks(self, columns: tuple[str, ...]) -> Statement:
        """Insert tasks with these columns."""
        made = self._inserts.get(columns)
        if made is None:
            values: dict[str, Any] = {name: bindparam(name) for name in columns}
            made = self._inserts[columns] = self._make(insert(self.schema.task).values(values))
        return made

    def update_tasks(self, columns: tuple[str, ...]) -> Statement:
        """Write these columns of the task `_seq`, and raise its rev."""
        made = self._updates.get(columns)
        if made is None:
            task = self.schema.task
            values: dict[str, Any] = {name: bindparam(name) for name in columns}
            raised = (
                update(task).where(task.c.seq == bindparam("_seq")).values({**values, "rev": task.c.rev + 1})
            )
            made = self._updates[columns] = self._make(raised)
        return made

    @cached_property
    def bodies(self) -> Statement:
        """Of the tasks whose seq is in `seqs`: task, part, text."""
        body = self.schema.body
        return self._make(
            select(body.c.task, body.c.part, body.c.text).where(self.dialect.among(body.c.task, "seqs"))
        )

    @cached_property
    def put_body(self) -> Statement:
        """Set the text of `part` of `task`."""
        return self._make(
            self.dialect.upsert(self.schema.body).values(
                task=bindparam("task"), part=bindparam("part"), text=bindparam("text")
            )
        )

    @cached_property
    def drop_body(self) -> Statement:
        """Delete the text of part `_part` of task `_task`."""
        body = self.schema.body
        return self._make(
            delete(body).where(body.c.task == bindparam("_task"), body.c.part == bindparam("_part"))
        )

    @cached_property
    def set_aside(self) -> Statement:
        """Take the task `_seq` out of every place, with `reason` and `now`."""
        task = self.schema.task
        nowhere: dict[str, Any] = dict.fromkeys(PLACE)
        return self._make(
            update(task)
            .where(task.c.seq == bindparam("_seq"))
            .values({**nowhere, "set_aside_at": bindparam("now"), "set_aside_reason": bindparam("reason")})
        )

    @cached_property
    def set_aside_rows(self) -> Statement:
        """All rows that are set aside: seq, id."""
        task = self.schema.task
        return self._make(select(task.c.seq, task.c.id).where(task.c.set_aside_at.is_not(None)))

    @cached_property
    def unset_aside(self) -> Statement:
        """Put the set-aside task `_seq` at a place."""
        task = self.schema.task
        place: dict[str, Any] = {name: bindparam(name) for name in PLACE}
        return self._make(
            update(task)
            .where(task.c.seq == bindparam("_seq"))
            .values({**place, "set_aside_at": None, "set_aside_reason": None})
        )

    @cached_property
    def finished(self) -> Statement:
        """The first `limit` tasks with `status` that finished before `before`: seq."""
        task = self.schema.task
        return self._make(
            select(task.c.seq)
            .where(task.c.status == bindparam("status"), task.c.finished_at < bindparam("before"))
            .order_by(task.c.finished_at)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def drop_task(self) -> Statement:
        """Delete the task `_seq`."""
        task = self.schema.task
        return self._make(delete(task).where(task.c.seq == bindparam("_seq")))

    @cached_property
    def drop_bodies(self) -> Statement:
        """Delete all texts of the task `_task`."""
        body = self.schema.body
        return self._make(delete(body).where(body.c.task == bindparam("_task")))

    # ------------------------------------------------------------------ turns

    @cached_property
    def asleep(self) -> Statement:
        """The first `limit` tasks of `handler_key` that are due at `now`: seq, submit_lane, rank."""
        task = self.schema.task
        return self._make(
            select(task.c.seq, task.c.submit_lane, task.c.rank)
            .where(task.c.handler_key == bindparam("handler_key"), task.c.asleep_until <= bindparam("now"))
            .order_by(task.c.asleep_until)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def wake(self) -> Statement:
        """Put the task `_seq` into its lane."""
        task = self.schema.task
        return self._make(
            update(task)
            .where(task.c.seq == bindparam("_seq"))
            .values(lane=task.c.submit_lane, turn=task.c.rank, asleep_until=None)
        )

    @cached_property
    def turns(self) -> Statement:
        """The first `limit` tasks in `lane` from `turn` on that nobody else has locked, locked: seq, turn, deadline."""
        task = self.schema.task
        return self._make(
            select(task.c.seq, task.c.turn, task.c.expires_at)
            .where(task.c.lane == bindparam("lane"), task.c.turn >= bindparam("turn"))
            .order_by(task.c.turn)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def any_turn(self) -> Statement:
        """One row if a task stands in one of `lanes` before `bound`, locked or not."""
        task = self.schema.task
        return self._make(
            select(task.c.seq)
            .where(self.dialect.among(task.c.lane, "lanes"), task.c.turn < bindparam("bound"))
            .limit(1)
        )

    @cached_property
    def leave_lane(self) -> Statement:
        """Take the task `_seq` out of its lane."""
        task = self.schema.task
        return self._make(update(task).where(task.c.seq == bindparam("_seq")).values(lane=None, turn=None))

    @cached_property
    def stale(self) -> Statement:
        """The first `limit` tasks that are stale for `stale_for` at `now`, after `after`: seq, stale_at."""
        task = self.schema.task
        return self._make(
            select(task.c.seq)
            .where(task.c.stale_for == bindparam("stale_for"), task.c.stale_at <= bindparam("now"))
            .order_by(task.c.stale_at)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )

    @cached_property
    def expired(self) -> Statement:
        """The first `limit` tasks past their deadline at `now` that nobody holds: seq."""
        task = self.schema.task
        return self._make(
            select(task.c.seq)
            .where(
                task.c.expires_at <= bindparam("now"),
                or_(task.c.lease_until.is_(None), task.c.lease_until <= bindparam("now")),
            )
            .order_by(task.c.expires_at)
            .limit(bindparam("limit"))
            .with_for_update(skip_locked=True)
        )
