"""The ledger: a store's tasks inside one exclusive section, with everything that makes them found quickly.

`entries` tells which entries a task has. An entry is a hint, and the task decides: whoever meets an entry that
is not true any more deletes it. A task with a live lease stands in none of the turn and decision indexes, save
for its deadline: its lease's entry is met when the lease ends, and puts it back into them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import cast

from coatcheck import lifecycle
from coatcheck.errors import UndecodableRow
from coatcheck.locked import entries
from coatcheck.locked.gatekeeper import Gatekeeper, Moment
from coatcheck.locked.lanes import Lanes
from coatcheck.locked.nudges import Nudges
from coatcheck.locked.ordered import Key, Records, above
from coatcheck.task import Status, Task, as_millis, from_millis

__all__ = ["Ledger"]

SWEEP = 2000
"""How many ended leases, and how many delayed tasks, one claim looks at."""
SEEN_EVERY = timedelta(seconds=5)
"""How exactly it is known when somebody claimed for a handler last."""

_FREES_KEY = frozenset({Status.FAILED, Status.CANCELED})


class Ledger:
    """The tasks of a store, inside one section."""

    def __init__(self, records: Records, moment: Moment) -> None:
        self.records = records
        self.now = moment.now
        self.gates = Gatekeeper(records, moment)
        self.nudges = Nudges(records, moment.now)
        self.submissions = Lanes("ready", records, self.gates, moment.now, slots=True)
        self.queries = Lanes("due", records, self.gates, moment.now, slots=False)
        self.urgent: set[str] = set()
        """Handlers with a task that needs a decision now."""
        self.behind = False
        """Whether more leases have ended, or more times have come, than one section deals with."""
        self._counts: dict[Key, int] = defaultdict(int)

    @property
    def news(self) -> set[str]:
        """Handlers for which there may be work that was not there before."""
        return self.submissions.news | self.queries.news

    def flush(self) -> None:
        """Write what was gathered; nothing may be done with the ledger after it."""
        for gate in self.gates.eased:
            self.submissions.look_over(gate)
            self.queries.look_over(gate)
        self.gates.flush()
        for key, change in self._counts.items():
            count = cast("int | None", self.records.get(key)) or 0
            if count + change:
                self.records.put(key, count + change)
            else:
                self.records.delete(key)

    # -------------------------------------------------------------- tasks

    def load(self, task_id: str) -> Task | None:
        """Return the task, or None if there is none, or none that can be decoded; such a one is set aside."""
        try:
            return cast("Task | None", self.records.get(("task", task_id)))
        except UndecodableRow as error:
            key = ("aside", task_id)
            if self.records.get(key) is None:
                self.records.put(key, [str(error), as_millis(self.now)])
            return None

    def add(self, task: Task) -> Task:
        """Write a task that is new."""
        self.records.put(("task", task.id), task)
        self.records.mark(("any", task.schedule.deadline_at, task.id))
        if task.identity.dedup_key is not None:
            self.records.put(entries.dedup_key(task), task.id)
        self._counts["count", task.route.handler_key, task.status] += 1
        self._enter(task)
        return task

    def keep(self, task: Task) -> Task:
        """Write a task of which nothing has changed but what is under its live lease."""
        self.records.put(("task", task.id), task)
        return task

    def write(self, old: Task, new: Task, *, taken: bool = False) -> Task:
        """Write what a task has become, and return it: a callback may have come early for an id that it saves.

        With `taken`, the task has been taken out of where it waited.
        """
        if new.query_params is not old.query_params and new.external_task_id != old.external_task_id:
            new = self._save_external(old, new)
        if not taken:
            self._leave(old)
        if new.status is not old.status:
            self._change_status(old, new)
        deadline = new.schedule.deadline_at
        if deadline <= self.now and not new.status.terminal and self._free(new):
            self.records.mark(("any", deadline, new.id))
        if old.holds_slots and not new.holds_slots:
            self.gates.release(old.route.gates)
        self.records.put(("task", new.id), new)
        self._enter(new)
        return new

    def remove(self, task: Task) -> None:
        """Delete a task that has ended."""
        self._leave(task)
        self.records.delete(("task", task.id))
        self._counts["count", task.route.handler_key, task.status] -= 1
        if task.external_task_id is not None:
            self.records.delete(entries.external_key(task))
        if task.identity.dedup_key is not None and self.holder_of(task) == task.id:
            self.records.delete(entries.dedup_key(task))

    def place(self, task: Task) -> None:
        """Put a task into the indexes in which it belongs; doing it twice is doing it once."""
        if not task.status.terminal:
            self.records.mark(("any", task.schedule.deadline_at, task.id))
        if task.lease is not None and not self._free(task):
            self.lease_out(task.lease.until, task.lease.nonce.rpartition("-")[0], [task.id])
        self._enter(task)

    def holder_of(self, task: Task) -> str | None:
        """Return the id of the task that holds the dedup key of this one."""
        return cast("str | None", self.records.get(entries.dedup_key(task)))

    def _change_status(self, old: Task, new: Task) -> None:
        handler_key, records = new.route.handler_key, self.records
        self._counts["count", handler_key, old.status] -= 1
        self._counts["count", handler_key, new.status] += 1
        if old.status is Status.SUBMITTING:
            records.delete(("submitting", entries.claimed_at(old), old.id))
        elif new.status is Status.SUBMITTING:
            records.mark(("submitting", entries.claimed_at(new), new.id))
        if new.status.terminal and not old.status.terminal:
            records.delete(("any", old.schedule.deadline_at, old.id))
        elif old.status.terminal:
            records.mark(("any", new.schedule.deadline_at, new.id))
        if new.status in _FREES_KEY and new.identity.dedup_key is not None and self.holder_of(new) == new.id:
            records.delete(entries.dedup_key(new))

    # -------------------------------------------------------------- where a task is found

    def _free(self, task: Task) -> bool:
        """Whether no live lease is on the task."""
        return task.lease is None or task.lease.until <= self.now

    def _enter(self, task: Task) -> None:
        """Make a task found where it belongs as it is now."""
        status, schedule = task.status, task.schedule
        if status.terminal:
            finished_at = task.outcome.finished_at or schedule.created_at
            self.records.mark(("finished", status._value_, finished_at, task.id))
            return
        if not self._free(task):
            return
        handler_key = task.route.handler_key
        if status is Status.PENDING_SUBMIT and task.lease is None:
            if schedule.due_at <= self.now:
                self._enter_ready(task)
            else:
                self.records.mark(("delayed", handler_key, schedule.due_at, task.id))
                self.submissions.news.add(handler_key)
        elif status.queryable and task.cancellation_requested_at is None:
            name, rank = entries.query_turn(task)
            self.queries.enter(handler_key, name, rank)
        for key in entries.decisions(task):
            self.records.mark(key)
            if key[0] == "own" and key[2] <= self.now:  # type: ignore[operator]  # an instant
                self.urgent.add(handler_key)

    def _leave(self, task: Task) -> None:
        """Take a task out of where `_enter` has put it, if it has."""
        status = task.status
        if status.terminal:
            finished_at = task.outcome.finished_at or task.schedule.created_at
            self.records.delete(("finished", status._value_, finished_at, task.id))
            return
        if not self._free(task):
            return
        if status is Status.PENDING_SUBMIT and task.lease is None:
            self.leave_queue(task)
        elif status.queryable and task.cancellation_requested_at is None:
            self.queries.leave(*entries.query_turn(task))
        for key in entries.decisions(task):
            self.records.delete(key)

    def _enter_ready(self, task: Task) -> None:
        self.submissions.enter(task.route.handler_key, *entries.submit_turn(task))
        key = entries.waiting_key(task)
        if self.records.get(key) is None:
            self.records.mark(key)
            self._counts["queued", task.route.handler_key, -task.schedule.priority] += 1

    def leave_queue(self, task: Task) -> None:
        """Take a task that waits to be submitted out of the queue."""
        if not self.submissions.leave(*entries.submit_turn(task)):
            self.records.delete(("delayed", task.route.handler_key, task.schedule.due_at, task.id))
        self._leave_waiting(task)

    def _leave_waiting(self, task: Task) -> None:
        if self.records.delete(entries.waiting_key(task)):
            self._counts["queued", task.route.handler_key, -task.schedule.priority] -= 1

    # -------------------------------------------------------------- turns

    def submission_at(self, key: Key) -> Task | None:
        """Take the task that is ready under `key` out of its lane; None if it is not to be submitted now."""
        task = self.load(str(key[-1]))
        self.records.delete(key)
        if task is None or task.status is not Status.PENDING_SUBMIT or task.lease is not None:
            return None
        name, rank = entries.submit_turn(task)
        if key == ("ready", name, *rank):
            self._leave_waiting(task)
        else:
            self.leave_queue(task)
        return task if task.schedule.deadline_at > self.now else None

    def query_at(self, key: Key) -> Task | None:
        """Take the task that is due under `key` out of its lane; None if it is not to be queried now."""
        task = self.load(str(key[-1]))
        self.records.delete(key)
        if task is None or not task.status.queryable or not self._free(task):
            return None
        flagged = task.cancellation_requested_at is not None
        return None if flagged or task.schedule.deadline_at <= self.now else task

    def lease_out(self, until: datetime, nonce: str, task_ids: Collection[str]) -> None:
        """Remember that one claim has leased these tasks, so that they are met when the lease ends."""
        key = ("lease", until, nonce)
        known = cast("Sequence[str] | None", self.records.get(key)) or ()
        self.records.put(key, [*known, *task_ids])

    def catch_up(self, handler_keys: Collection[str]) -> None:
        """Let what time has done be done: delayed tasks become ready, and ended leases give their tasks back."""
        for handler_key in handler_keys:
            self.promote(handler_key)
        left = SWEEP
        for key in self.records.scan(("lease",), above(("lease", self.now)), SWEEP):
            if left <= 0:
                self.behind = True
                return
            left -= self._sweep(key)

    def promote(self, handler_key: str) -> bool:
        """Let delayed tasks whose time has come be ready; return whether there are more than a step deals with."""
        last = above(("delayed", handler_key, self.now))
        due = self.records.scan(("delayed", handler_key), last, SWEEP)
        for key in due:
            self.records.delete(key)
            task = self.load(str(key[-1]))
            if task is not None and task.status is Status.PENDING_SUBMIT and task.lease is None:
                self._enter_ready(task)
        self.behind |= len(due) == SWEEP
        return len(due) == SWEEP

    def _sweep(self, key: Key) -> int:
        """Give back the tasks of a lease's entry, and remember those that were renewed until later."""
        held = self._held(key)
        self.records.delete(key)
        renewed: dict[datetime, list[str]] = {}
        for task, until in held:
            if until > self.now:
                renewed.setdefault(until, []).append(task.id)
            else:
                self._enter(task)
        for until, ids in renewed.items():
            self.lease_out(until, str(key[2]), ids)
        return max(len(held), 1)

    def _held(self, key: Key) -> list[tuple[Task, datetime]]:
        """Return the tasks of a lease's entry that are still held under it, and until when."""
        task_ids = cast("Sequence[str] | None", self.records.get(key)) or ()
        tasks = (self.load(task_id) for task_id in task_ids)
        return [
            (task, task.lease.until)
            for task in tasks
            if task is not None and task.lease is not None and task.lease.nonce.startswith(f"{key[2]}-")
        ]

    def next_lease_end(self) -> datetime | None:
        """Return when the first lease ends, as far as is known; None if nothing is leased."""
        for key in self.records.under(("lease",), SWEEP):
            until = cast("datetime", key[1])
            if any(held_until == until for _, held_until in self._held(key)):
                return until
            self._sweep(key)  # settled, or renewed: not worth waking up for
        first = self.records.first(("lease",))
        return None if first is None else cast("datetime", first[1])

    def attend(self, handler_keys: Collection[str]) -> None:
        """Remember that somebody claims for these handlers."""
        for handler_key in handler_keys:
            key = ("seen", handler_key)
            seen = cast("int | None", self.records.get(key)) or 0
            if self.now - from_millis(seen) >= SEEN_EVERY:
                self.records.put(key, as_millis(self.now))

    def _save_external(self, old: Task, new: Task) -> Task:
        """Let a task be found under the id that the provider gave it, and apply a callback that came early."""
        if old.external_task_id is not None:
            self.records.delete(entries.external_key(old))
        if new.external_task_id is None:
            return new
        self.records.mark(entries.external_key(new))
        if not self.nudges.forget(new.route.handler_key, new.external_task_id):
            return new
        return lifecycle.nudged(new, self.now) or new
