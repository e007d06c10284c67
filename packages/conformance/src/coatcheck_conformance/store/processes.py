"""Other processes that open the store under test and work on it.

How long they may take is for the patience of the spec to say, which ends the rule: on a busy machine a new process
alone may take half a minute to import what it needs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeAlias

from attrs import frozen

from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Store
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_conformance.store.spec import StoreSpec
from coatcheck_conformance.store.time import LONG, SHORT

__all__ = [
    "CRASHED",
    "HOLD",
    "Crew",
    "Turn",
    "add_same_keys",
    "crash",
    "crew",
    "hold_two",
    "sleep_until_woken",
    "take_turns",
]

HOLD = 5 * SHORT
"""For how long `hold_two` claims."""
CRASHED = 70
"""The exit code of a process that did `crash`."""

Work: TypeAlias = Callable[[Store, int], Awaitable[object]]
"""What a process does; a function at the top of a module."""

_spawn = multiprocessing.get_context("spawn")


def _live(pipe: Connection, spec: StoreSpec, work: Work, number: int) -> None:
    """Be another process: open the store, say so, wait for the word, work, tell what came of it."""

    async def run() -> object:
        async with spec.create() as store:
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)
            return await work(store, number)

    try:
        pipe.send((True, asyncio.run(run())))
    except Exception as error:  # noqa: BLE001 - told to the rule, which fails with it
        last = traceback.extract_tb(error.__traceback__)[-1]
        pipe.send((False, f"{error!r} in {last.name}: {last.line}"))


@frozen
class Crew:
    """Processes that have opened the store and wait for the word."""

    members: tuple[tuple[BaseProcess, Connection], ...]

    def go(self) -> None:
        """Let all begin."""
        for _, pipe in self.members:
            pipe.send("go")

    async def results(self) -> list[object]:
        """Return what came of each one's work."""
        answers = [await asyncio.to_thread(pipe.recv) for _, pipe in self.members]
        for done, answer in answers:
            assert done, f"a process failed: {answer}"
        return [answer for _, answer in answers]

    async def exit_codes(self) -> list[int | None]:
        """Return with what each one ended, once all have."""
        for process, _ in self.members:
            await asyncio.to_thread(process.join)
        return [process.exitcode for process, _ in self.members]

    def kill(self) -> None:
        """Kill them all, as the kernel would (SIGKILL)."""
        for process, _ in self.members:
            process.kill()
            process.join()


@asynccontextmanager
async def crew(spec: StoreSpec, work: Work, size: int) -> AsyncIterator[Crew]:
    """Start `size` processes that will do `work`, and yield them when each has opened the store."""
    members = []
    for number in range(size):
        ours, theirs = _spawn.Pipe()
        process = _spawn.Process(target=_live, args=(theirs, spec, work, number), daemon=True)
        process.start()
        theirs.close()
        members.append((process, ours))
    made = Crew(tuple(members))
    try:
        for _, pipe in members:
            word = await asyncio.to_thread(pipe.recv)
            assert word == "ready", f"a process could not open the store: {word}"
        yield made
    finally:
        made.kill()
        for process, pipe in members:
            pipe.close()
            process.close()


# ------------------------------------------------------------------ what processes do


@frozen
class Turn:
    """One claim that a process had: certainly held from `begin` to `end`, by the host's monotonic clock."""

    task_id: str
    begin: float
    end: float
    granted_at: datetime | None


async def take_turns(store: Store, number: int) -> list[Turn]:
    """Claim, hold and settle until nothing is left for anybody."""
    turns: list[Turn] = []
    waiting = Filter(statuses=[Status.PENDING_SUBMIT])
    while True:
        batch = await store.claim_submissions(f"process-{number}", [HANDLER], 3, LONG)
        begin = time.monotonic()
        if not batch.tasks:
            if not await store.find(waiting, limit=1):
                return turns
            await asyncio.sleep(0.002)
            continue
        await asyncio.sleep(0.002)
        end = time.monotonic()
        for task in batch.tasks:
            granted_at = task.lease.granted_at if task.lease else None
            turns.append(Turn(task.id, begin, end, granted_at))
        answers = await store.settle([Settlement(task=task, event=succeeded()) for task in batch.tasks])
        assert not [answer for answer in answers if isinstance(answer, Exception)]


async def hold_two(store: Store, number: int) -> None:
    """Claim two tasks, start one of them, and never come back."""
    batch = await store.claim_submissions(f"process-{number}", [HANDLER], 2, HOLD)
    await store.start(batch.tasks[:1], HOLD)
    await asyncio.Event().wait()


async def add_same_keys(store: Store, number: int) -> list[tuple[str, bool]]:
    """Add a task for each of a few keys; return its id and whether it was created."""
    added: list[tuple[str, bool]] = []
    for n in range(20):
        (each,) = await store.add([make_draft(dedup_key=f"key-{n}", metadata={"process": number})])
        added.append((each.task.id, each.created))
    return added


async def sleep_until_woken(store: Store, _number: int) -> bool:
    """Wait for work."""
    return await store.wait([HANDLER], LONG)


async def crash(store: Store, number: int) -> None:
    """Add four tasks with dedup keys, claim two of them, start one, end it, set a gate, and crash."""
    drafts = [make_draft(dedup_key=f"key-{n}") for n in range(4)]
    assert len(await store.add(drafts)) == len(drafts)
    batch = await store.claim_submissions(f"process-{number}", [HANDLER], 2, LONG)
    await store.start(batch.tasks[:1], LONG)
    await store.settle([Settlement(task=batch.tasks[0], event=succeeded())])
    await store.set_gate("g", concurrency=3)
    os._exit(CRASHED)  # nothing is closed, flushed or cleaned up
