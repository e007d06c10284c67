"""Mutants of S19: people's decisions."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from coatcheck import lifecycle
from coatcheck.errors import VersionConflict
from coatcheck.events import Abandon, Adopt, Extend, Resolution, Resubmit
from coatcheck.evolving import evolve
from coatcheck.lifecycle import Settlement
from coatcheck.locked import steps
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.task import Status, Task, new_task_id
from mutants.stores import breaks_store


def _takes_slots(patch: pytest.MonkeyPatch, kind: type) -> None:
    good = steps.resolve

    def resolve(ledger: Ledger, task_id: str, expected_version: int, resolution: Resolution):
        task = good(ledger, task_id, expected_version, resolution)
        if isinstance(resolution, kind) and task.status.queryable:
            for name in task.route.gates:
                state = ledger.gates.state(name)
                state.used, state.counted_anew = state.used + 1, True
        return task

    patch.setattr(steps, "resolve", resolve)


@breaks_store("STORE-RESOLVE-1")
def adopted_tasks_take_slots(patch: pytest.MonkeyPatch) -> None:
    """Counts an adopted task in its gates, which may be full."""
    _takes_slots(patch, Adopt)


@breaks_store("STORE-RESOLVE-2")
def resubmission_has_a_new_key(patch: pytest.MonkeyPatch) -> None:
    """Sends it again under an idempotency key that the provider has never seen."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        after = good(task, resolution, now)
        if isinstance(resolution, Resubmit):
            after = evolve(after, identity=evolve(after.identity, idempotency_key=new_task_id()))
        return after

    patch.setattr(lifecycle, "resolved", resolved)


@breaks_store("STORE-RESOLVE-3")
def abandoned_with_the_old_error(patch: pytest.MonkeyPatch) -> None:
    """Lets an abandoned task fail with the error that was there before."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        after = good(task, resolution, now)
        if isinstance(resolution, Abandon):
            after = evolve(after, outcome=evolve(after.outcome, error=task.error))
        return after

    patch.setattr(lifecycle, "resolved", resolved)


@breaks_store("STORE-RESOLVE-4")
def extended_tasks_take_slots(patch: pytest.MonkeyPatch) -> None:
    """Counts an extended task in its gates, which may be full."""
    _takes_slots(patch, Extend)


@breaks_store("STORE-RESOLVE-5")
def extended_tasks_keep_their_end(patch: pytest.MonkeyPatch) -> None:
    """Leaves on an extended task how and when it had ended."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        after = good(task, resolution, now)
        return evolve(after, outcome=task.outcome) if isinstance(resolution, Extend) else after

    patch.setattr(lifecycle, "resolved", resolved)


@breaks_store("STORE-RESOLVE-6")
def adopted_under_the_old_deadline(patch: pytest.MonkeyPatch) -> None:
    """Keeps the deadline of an adopted task, though it has passed."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        after = good(task, resolution, now)
        if isinstance(resolution, Adopt):
            after = evolve(after, schedule=evolve(after.schedule, deadline_at=task.schedule.deadline_at))
        return after

    patch.setattr(lifecycle, "resolved", resolved)


@breaks_store("STORE-RESOLVE-7")
def resolve_ignores_version(patch: pytest.MonkeyPatch) -> None:
    """Carries out a decision about a task as it was, whatever has become of it."""
    good = steps.resolve

    def resolve(ledger: Ledger, task_id: str, expected_version: int, resolution: Resolution):
        task = ledger.load(task_id)
        return good(ledger, task_id, task.version if task else expected_version, resolution)

    patch.setattr(steps, "resolve", resolve)


@breaks_store("STORE-RESOLVE-8")
def failures_can_be_resubmitted(patch: pytest.MonkeyPatch) -> None:
    """Sends a task again that has failed, as if its outcome were in doubt."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        if task.status is Status.FAILED and isinstance(resolution, Resubmit):
            task = evolve(task, status=Status.SUBMIT_UNKNOWN)
        return good(task, resolution, now)

    patch.setattr(lifecycle, "resolved", resolved)


@breaks_store("STORE-RESOLVE-9")
def resubmitted_heeds_its_zombie(patch: pytest.MonkeyPatch) -> None:
    """Takes the outcome of the attempt before, though somebody has decided to send the task again."""
    good = lifecycle.settled

    def settled(task: Task, settlement: Settlement, now: datetime):
        lease, attempt = settlement.task.lease, task.attempt
        if task.status is not Status.PENDING_SUBMIT or lease is None or attempt is None:
            return good(task, settlement, now)
        if attempt.token == lease.token and task.settled_by != lease.nonce:
            held = evolve(lease, until=now + timedelta(seconds=1))
            task = evolve(task, status=Status.SUBMITTING, version=settlement.task.version, lease=held)
        return good(task, settlement, now)

    patch.setattr(lifecycle, "settled", settled)


@breaks_store("STORE-RESOLVE-10")
def resolve_compares_too_early(patch: pytest.MonkeyPatch) -> None:
    """Compares the version in one step, and writes in the next."""
    good = MemoryStore.resolve

    async def resolve(self: MemoryStore, task_id: str, expected_version: int, resolution: Resolution):
        task = await self.get(task_id)
        if task is not None and task.version != expected_version:
            message = f"task {task_id} is at version {task.version}"
            raise VersionConflict(message)
        await asyncio.sleep(0)
        task = await self.get(task_id)
        return await good(self, task_id, task.version if task else expected_version, resolution)

    patch.setattr(MemoryStore, "resolve", resolve)


@breaks_store("STORE-RESOLVE-11")
def extending_sends_again(patch: pytest.MonkeyPatch) -> None:
    """Puts a task back into the queue that may have been sent, for it has no id."""
    good = lifecycle.resolved

    def resolved(task: Task, resolution: Resolution, now: datetime):
        if isinstance(resolution, Extend) and task.query_params is None:
            task = evolve(task, attempt=None)
        return good(task, resolution, now)

    patch.setattr(lifecycle, "resolved", resolved)
