"""Mutants of S18: late proof."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from attrs import evolve

from coatcheck import lifecycle
from coatcheck.events import Finished, Proof
from coatcheck.lifecycle.moving import noted
from coatcheck.memory import MemoryStore
from coatcheck.task import ErrorCode, Status, Task
from mutants.stores import breaks_store

_Attested = Callable[[Task, int, Proof, datetime], Task]
_NOBODYS = -1
"""The token of no attempt: proof of it is noted, and no more."""


def _attests(
    patch: pytest.MonkeyPatch, broken: Callable[[_Attested, Task, int, Proof, datetime], Task]
) -> None:
    good = lifecycle.attested
    patch.setattr(
        lifecycle, "attested", lambda task, token, proof, now: broken(good, task, token, proof, now)
    )


@breaks_store("STORE-ATTEST-1")
def proof_needs_a_live_lease(patch: pytest.MonkeyPatch) -> None:
    """Only notes what comes after the lease has ended, as a settle would be refused."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        ended = task.status is Status.SUBMITTING and task.lease is not None and task.lease.until <= now
        return good(task, _NOBODYS if ended else token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-2")
def rescuer_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Leaves the lease of the worker that came to the rescue, with its version and token."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        after = good(task, token, proof, now)
        if task.lease is None or task.lease.token == token or not after.status.queryable:
            return after
        return evolve(after, lease=task.lease, version=task.version, token=task.token)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-3")
def doubt_leaves_its_error(patch: pytest.MonkeyPatch) -> None:
    """Leaves the error and the end of a doubt with the task that is tracked again."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        after = good(task, token, proof, now)
        doubted = task.status is Status.SUBMIT_UNKNOWN and after.status.queryable
        return evolve(after, outcome=task.outcome) if doubted else after

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-4")
def doubt_is_ended_by_ids_only(patch: pytest.MonkeyPatch) -> None:
    """Only notes a result of what is in doubt, as if it took an id to end that."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        result = isinstance(proof.event, Finished) and task.status is Status.SUBMIT_UNKNOWN
        return good(task, _NOBODYS if result else token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-5")
def cancelled_task_forgets_the_id(patch: pytest.MonkeyPatch) -> None:
    """Throws away what arrives for a task that has been cancelled."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        return task if task.status is Status.CANCELED else good(task, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-5")
def cancelled_task_wants_ids_only(patch: pytest.MonkeyPatch) -> None:
    """Throws away a result that arrives for a task that has been cancelled."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        result = isinstance(proof.event, Finished) and task.status is Status.CANCELED
        return task if result else good(task, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-6")
def any_attempt_counts_as_this_one(patch: pytest.MonkeyPatch) -> None:
    """Takes proof of an attempt that the history knows for proof of the present one."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        known = {entry.token for entry in task.history if entry.target is Status.SUBMITTING}
        if token in known and task.attempt is not None:
            token = task.attempt.token
        return good(task, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-7")
def proof_is_noted_each_time(patch: pytest.MonkeyPatch) -> None:
    """Notes proof that decides nothing each time that it is handed in."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        after = good(task, token, proof, now)
        if after is not task or task.status is not Status.FAILED:
            return after
        return noted(evolve(task, version=task.version + 1), now, task.history[-1].note, proof.worker_id)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-8")
def later_tokens_count_too(patch: pytest.MonkeyPatch) -> None:
    """Compares tokens by order, as where a fence is to be passed, and not by equality."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        if task.attempt is not None:
            token = min(token, task.attempt.token)
        return good(task, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-9")
def proof_overwrites_the_flag(patch: pytest.MonkeyPatch) -> None:
    """Forgets that the task has been cancelled when proof of its submission comes."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        if task.status is Status.SUBMITTING:
            task = evolve(task, cancellation_requested_at=None)
        return good(task, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-10")
def proof_undoes_a_decision(patch: pytest.MonkeyPatch) -> None:
    """Takes up again what a person has abandoned."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        if task.error is None or task.error.code != ErrorCode.ABANDONED or task.attempt is None:
            return good(task, token, proof, now)
        doubtful = evolve(task, status=Status.SUBMIT_UNKNOWN, attempt=evolve(task.attempt, open=True))
        return good(doubtful, token, proof, now)

    _attests(patch, attested)


@breaks_store("STORE-ATTEST-11")
def proof_of_nothing_is_a_key_error(patch: pytest.MonkeyPatch) -> None:
    """Fails on a task that is not there with whatever that raises."""
    good = MemoryStore.attest

    async def attest(self, task_id, token, proof):
        tasks = await self.get_many([task_id])
        return await good(self, tasks[task_id].id, token, proof)

    patch.setattr(MemoryStore, "attest", attest)


@breaks_store("STORE-ATTEST-12")
def proof_is_late_for_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Only notes proof of a submission that is in the queue to be sent again."""

    def attested(good: _Attested, task: Task, token: int, proof: Proof, now: datetime) -> Task:
        return good(task, _NOBODYS if task.status is Status.PENDING_SUBMIT else token, proof, now)

    _attests(patch, attested)
