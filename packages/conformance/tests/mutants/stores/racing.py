"""Mutants of what the contract promises under concurrency."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from coatcheck.events import Proof
from coatcheck.evolving import evolve
from coatcheck.gates import GateUsage, Rate
from coatcheck.locked.gatekeeper import Gatekeeper, GateState
from coatcheck.locked.ledger import Ledger
from coatcheck.memory import MemoryStore
from coatcheck.store import Claims
from coatcheck.task import Task, TaskDraft
from mutants.stores import breaks_store


class _Looked(Exception):
    """Ends a claim that is only to see what it would get, so that it is undone."""


async def _seen(store: MemoryStore, claim: Callable[..., Awaitable[Claims]], *arguments: Any) -> list[str]:
    """Return the ids of what a claim would get."""
    seen: list[str] = []
    do = store._do

    async def look(work: Callable[[Ledger], Claims]):
        def looking(ledger: Ledger):
            seen.extend(task.id for task in work(ledger).tasks)
            raise _Looked

        return await do(looking)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_Looked):
        patch.setattr(store, "_do", look)
        await claim(store, *arguments)
    return seen


def _read_before_writing(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let a claim choose in one step and take in the next, without asking who has taken what since."""
    good = getattr(MemoryStore, name)

    async def claim(
        self: MemoryStore, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ):
        chosen = await _seen(self, good, worker_id, handler_keys, limit, lease)
        await asyncio.sleep(0)
        rows, now = await self.get_many(chosen), await self.now()
        taken = [task for task in rows.values() if task.lease is not None and task.lease.until > now]
        got = await good(self, worker_id, handler_keys, limit - len(taken), lease)
        return Claims((*taken, *got.tasks), again=got.again)

    patch.setattr(MemoryStore, name, claim)


@breaks_store("STORE-RACE-1")
def submissions_read_before_write(patch: pytest.MonkeyPatch) -> None:
    """Chooses the tasks in one step and claims them in the next, whoever has them by then."""
    _read_before_writing(patch, "claim_submissions")


@breaks_store("STORE-RACE-7")
def queries_read_before_write(patch: pytest.MonkeyPatch) -> None:
    """Chooses the tasks to be queried in one step and claims them in the next, whoever has them by then."""
    _read_before_writing(patch, "claim_queries")


_known: ContextVar[Mapping[str, GateUsage]] = ContextVar("_known")
"""How the gates stood when a claim looked."""


def _look_before_claiming(patch: pytest.MonkeyPatch) -> None:
    """Let a claim read how the gates stand in a step of its own."""
    good = MemoryStore.claim_submissions

    async def claim(
        self: MemoryStore, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ):
        known = {usage.gate.name: usage for usage in await self.gates()}
        await asyncio.sleep(0)
        token = _known.set(known)
        try:
            return await good(self, worker_id, handler_keys, limit, lease)
        finally:
            _known.reset(token)

    patch.setattr(MemoryStore, "claim_submissions", claim)


@breaks_store("STORE-RACE-2")
def slots_counted_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    """Counts the slots that are held in one step, and takes more in the next."""
    good = Gatekeeper._read

    def read(self: Gatekeeper, name: str):
        state, known = good(self, name), _known.get({}).get(name)
        if known is not None and state.gate is not None and state.gate.concurrency is not None:
            unseen = max(state.used - known.used, 0)
            state.gate = evolve(state.gate, concurrency=state.gate.concurrency + unseen)
        return state

    _look_before_claiming(patch)
    patch.setattr(Gatekeeper, "_read", read)


@breaks_store("STORE-RACE-3")
def grants_counted_before_the_claim(patch: pytest.MonkeyPatch) -> None:
    """Counts a window's grants in one step, and gives more in the next."""
    good = Gatekeeper._read

    def read(self: Gatekeeper, name: str):
        state, known = good(self, name), _known.get({}).get(name)
        if known is not None and state.gate is not None and state.gate.rate is not None:
            rate, unseen = state.gate.rate, max(state.granted - known.granted, 0)
            state.gate = evolve(state.gate, rate=Rate(rate.count + unseen, rate.per))
        return state

    _look_before_claiming(patch)
    patch.setattr(Gatekeeper, "_read", read)


@breaks_store("STORE-RACE-4")
def set_gate_writes_old_usage(patch: pytest.MonkeyPatch) -> None:
    """Reads a gate in one step, and writes it in the next with the slots that it had then."""
    good = MemoryStore.set_gate

    async def set_gate(self: MemoryStore, name: str, **limits: Any):
        before = await self._do(lambda ledger: ledger.gates.state(name).used)
        await asyncio.sleep(0)

        def write(ledger: Ledger):
            state: GateState = ledger.gates.state(name)
            state.used, state.counted_anew = min(state.used, before), True

        await self._do(write)
        await good(self, name, **limits)

    patch.setattr(MemoryStore, "set_gate", set_gate)


@breaks_store("STORE-RACE-5")
def add_writes_the_row_twice(patch: pytest.MonkeyPatch) -> None:
    """Adds the row in one step, and completes it in the next, as it was when it was added."""
    good = MemoryStore.add

    async def add(self: MemoryStore, drafts: Sequence[TaskDraft], *, transaction: object = None):
        answers = await good(self, drafts, transaction=transaction)
        await asyncio.sleep(0)

        def write(ledger: Ledger):
            for added in answers:
                task: Task | None = ledger.load(added.task.id)
                if added.created and task is not None and task.version != added.task.version:
                    ledger.write(task, added.task)

        await self._do(write)
        return answers

    patch.setattr(MemoryStore, "add", add)


@breaks_store("STORE-RACE-6")
def proof_gives_way_to_a_settle(patch: pytest.MonkeyPatch) -> None:
    """Drops late proof of a task that has moved between reading it and writing it."""
    good = MemoryStore.attest

    async def attest(self: MemoryStore, task_id: str, token: int, proof: Proof):
        before = await self.get(task_id)
        await asyncio.sleep(0)
        now = await self.get(task_id)
        if before is not None and now is not None and now.version != before.version:
            return now
        return await good(self, task_id, token, proof)

    patch.setattr(MemoryStore, "attest", attest)
