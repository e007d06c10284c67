"""Mutants of S5: claiming for querying."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import islice

import pytest

from coatcheck import lifecycle
from coatcheck.events import Event, StillGoing
from coatcheck.evolving import evolve
from coatcheck.lifecycle import Settlement
from coatcheck.locked import claims
from coatcheck.locked.claims import Claimant
from coatcheck.locked.lanes import Rank, lane_parts
from coatcheck.locked.ledger import Ledger
from coatcheck.locked.ordered import Key
from coatcheck.locked.walk import Walk, _Lane
from coatcheck.memory import MemoryStore
from coatcheck.store import Claims
from coatcheck.task import Lease, Status, Task
from mutants.stores import breaks_store
from mutants.stores.rates import cut_windows

_ROUND = timedelta(seconds=1)


@breaks_store("STORE-QUERY-1")
def query_claim_moves_due_at(patch: pytest.MonkeyPatch) -> None:
    """Hides a claimed task by making it due when the lease ends."""
    good = lifecycle.claimed_for_query

    def claimed(task: Task, lease: Lease, now: datetime):
        due_at = min(lease.until, task.schedule.deadline_at)
        return evolve(good(task, lease, now), schedule=evolve(task.schedule, due_at=due_at))

    patch.setattr(lifecycle, "claimed_for_query", claimed)


@breaks_store("STORE-QUERY-2")
def queries_are_claimed_ahead(patch: pytest.MonkeyPatch) -> None:
    """Claims what will be due in a moment, to save a round."""

    def claim_queries(ledger: Ledger, claimant: Claimant):
        claims._begin(ledger, claimant)
        horizon = (ledger.now + _ROUND,)
        walk = Walk(ledger.queries, claimant.handler_keys, claimant.limit, ledger.query_at, horizon=horizon)
        walk.go()
        return claims._claimed(ledger, claimant, walk)

    patch.setattr(claims, "claim_queries", claim_queries)


@breaks_store("STORE-QUERY-3")
def queries_come_in_order_of_ids(patch: pytest.MonkeyPatch) -> None:
    """Takes the tasks that are due first, and gives them in the order in which they were added."""
    good = claims.claim_queries

    def claim_queries(ledger: Ledger, claimant: Claimant):
        got = good(ledger, claimant)
        return evolve(got, tasks=tuple(sorted(got.tasks, key=lambda task: task.id)))

    patch.setattr(claims, "claim_queries", claim_queries)


@breaks_store("STORE-QUERY-4")
def no_handlers_means_all(patch: pytest.MonkeyPatch) -> None:
    """Takes no handler for no restriction."""
    good = MemoryStore.claim_queries

    async def claim_queries(
        self: MemoryStore, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ):
        known = [each.handler_key for each in (await self.stats()).handlers]
        return await good(self, worker_id, handler_keys or known, limit, lease)

    patch.setattr(MemoryStore, "claim_queries", claim_queries)


@breaks_store("STORE-QUERY-5")
def query_windows_in_whole_seconds(patch: pytest.MonkeyPatch) -> None:
    """Cuts the length of a query gate's window to whole seconds."""
    cut_windows(patch, slots=False)


@breaks_store("STORE-QUERY-6")
def resuming_forgets_queries(patch: pytest.MonkeyPatch) -> None:
    """Leaves the queries behind a gate where they are when it opens."""
    good = Ledger.flush

    def flush(self: Ledger):
        patched = pytest.MonkeyPatch()
        patched.setattr(self.queries, "look_over", lambda gate: None)
        good(self)

    patch.setattr(Ledger, "flush", flush)


@breaks_store("STORE-QUERY-7")
def pauses_stop_queries_too(patch: pytest.MonkeyPatch) -> None:
    """Does not query a task while a gate is paused that it had to pass to be submitted."""
    good = Ledger.query_at

    def query_at(self: Ledger, key: Key):
        task = good(self, key)
        gates = [self.gates.state(name).gate for name in task.route.gates] if task is not None else []
        return None if any(gate is not None and gate.paused_at(self.now) for gate in gates) else task

    patch.setattr(Ledger, "query_at", query_at)


@breaks_store("STORE-QUERY-8")
def only_500_queries_are_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Looks at the first 500 that are due, and gives nothing if their gates are closed."""
    good = claims.claim_queries

    def claim_queries(ledger: Ledger, claimant: Claimant):
        lanes = [name for key in claimant.handler_keys for name in ledger.queries._names(key)]
        waiting = heapq.merge(
            *([(key[2:], name) for key in ledger.records.under(("due", name))] for name in lanes)
        )
        first = {name for _, name in islice(waiting, 500)}
        rooms = [
            all(ledger.gates.state(gate).room(slots=False) for gate in lane_parts(name)[1:]) for name in first
        ]
        return good(ledger, claimant) if any(rooms) or not rooms else Claims()

    patch.setattr(claims, "claim_queries", claim_queries)


@breaks_store("STORE-QUERY-9")
def used_up_query_rate_ends_a_claim(patch: pytest.MonkeyPatch) -> None:
    """Ends the claim at the first task whose query gate has granted all that it may."""
    good = Walk._park

    def park(self: Walk, lane: _Lane, head: Rank):
        paused = any(state.gate is not None and state.gate.pause is not None for state in lane.gates)
        if self._lanes.kind == "due" and not paused:
            self._limit = len(self.granted)
        else:
            good(self, lane, head)

    patch.setattr(Walk, "_park", park)


@breaks_store("STORE-QUERY-10")
def lost_queries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Does not count the workers that a task has outlived."""
    good = lifecycle.claimed_for_query

    def claimed(task: Task, lease: Lease, now: datetime):
        return evolve(good(task, lease, now), progress=task.progress)

    patch.setattr(lifecycle, "claimed_for_query", claimed)


@breaks_store("STORE-QUERY-11")
def queries_keep_their_grant(patch: pytest.MonkeyPatch) -> None:
    """Gives back grants of submissions alone."""
    good = lifecycle.returned_grant

    def returned_grant(task: Task, event: Event):
        return None if task.status.queryable else good(task, event)

    patch.setattr(lifecycle, "returned_grant", returned_grant)


@breaks_store("STORE-QUERY-12")
def running_on_takes_a_slot(patch: pytest.MonkeyPatch) -> None:
    """Counts the slots of a task anew when it is still RUNNING."""
    good = Ledger.write

    def write(self: Ledger, old: Task, new: Task, *, taken: bool = False):
        if old.status is Status.RUNNING and new.status is Status.RUNNING and new.lease is None:
            for name in new.route.gates:
                state = self.gates.state(name)
                state.used, state.counted_anew = state.used + 1, True
        return good(self, old, new, taken=taken)

    patch.setattr(Ledger, "write", write)


@breaks_store("STORE-QUERY-13")
def next_query_counts_from_the_last(patch: pytest.MonkeyPatch) -> None:
    """Adds the delay until the next query to when the last one was due."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        after, event = good(task, settlement, now), settlement.event
        flagged = task.nudged or task.cancellation_requested_at is not None
        if isinstance(after, Task) and isinstance(event, StillGoing) and not flagged:
            due_at = min(task.schedule.due_at + event.delay, task.schedule.deadline_at)
            after = evolve(after, schedule=evolve(after.schedule, due_at=due_at))
        return after

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-QUERY-14")
def overdue_tasks_are_queried(patch: pytest.MonkeyPatch) -> None:
    """Queries a task whose deadline has passed."""
    good = Ledger.query_at

    def query_at(self: Ledger, key: Key):
        task = self.load(str(key[-1]))
        found = good(self, key)
        if task is not None and task.schedule.deadline_at <= self.now:
            return task if task.status.queryable and self._free(task) else None
        return found

    patch.setattr(Ledger, "query_at", query_at)


@breaks_store("STORE-QUERY-15")
def flagged_tasks_are_queried(patch: pytest.MonkeyPatch) -> None:
    """Leaves a task that is flagged for cancellation where it waits for its next query."""
    good_write, good_query_at = Ledger.write, Ledger.query_at

    def write(self: Ledger, old: Task, new: Task, *, taken: bool = False):
        flagged = old.cancellation_requested_at is None and new.cancellation_requested_at is not None
        return good_write(self, old, new, taken=taken or (flagged and new.status.queryable))

    def query_at(self: Ledger, key: Key):
        task = self.load(str(key[-1]))
        found = good_query_at(self, key)
        if task is not None and task.cancellation_requested_at is not None:
            return task if task.status.queryable and self._free(task) else None
        return found

    patch.setattr(Ledger, "write", write)
    patch.setattr(Ledger, "query_at", query_at)


@breaks_store("STORE-QUERY-16")
def queries_wait_for_start(patch: pytest.MonkeyPatch) -> None:
    """Starts no query by itself."""
    good = lifecycle.claimed_for_query

    def claimed(task: Task, lease: Lease, now: datetime):
        return evolve(good(task, lease, now), lease=lease)

    patch.setattr(lifecycle, "claimed_for_query", claimed)
