"""What tests run in processes of their own; a module, so that it can be named across a spawn."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

from coatcheck.events import Accepted, Finished
from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import QueryParams, Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import adding, create
from coatcheck_store_sql.step import Step

LEASE = timedelta(seconds=60)


def hammer(url: str, name: str, count: int) -> list[str]:
    """Add `count` tasks one by one while claiming whatever there is, and bring it to its end; return its ids."""
    return asyncio.run(_hammer(url, name, count))


async def _hammer(url: str, name: str, count: int) -> list[str]:
    ended: list[str] = []
    async with create(url) as store:
        for number in range(count):
            await store.add([make_draft(gates=["g"], dedup_key=f"shared-{number}"), make_draft(gates=["g"])])
            await store.set_gate("g", concurrency=5 + number % 3)
            claimed = await store.claim_submissions(name, [HANDLER], 4, LEASE)
            begun = await store.start(claimed.tasks, LEASE)
            answers = await store.settle(
                [
                    Settlement(
                        task=each.task,
                        event=Accepted(
                            query_params=QueryParams(external_task_id=each.task.id), delay=timedelta()
                        ),
                    )
                    for each in begun
                    if isinstance(each, Started)
                ]
            )
            assert all(isinstance(answer, Task) for answer in answers), answers
            queries = await store.claim_queries(name, [HANDLER], 4, LEASE)
            answers = await store.settle(
                [
                    Settlement(task=task, event=Finished(status=Status.SUCCEEDED, result=name))
                    for task in queries.tasks
                ]
            )
            assert all(isinstance(answer, Task) for answer in answers), answers
            ended += [answer.id for answer in answers if isinstance(answer, Task)]
            await store.get(queries.tasks[0].id if queries.tasks else "none")
    return ended


def open_and_close(url: str) -> None:
    """Open a store at a place that may not exist yet."""

    async def run() -> None:
        async with create(url) as store:
            await store.stats()

    asyncio.run(run())


def die_inside_a_step(url: str) -> None:
    """Write a task inside a step, and be killed before the step is committed."""

    def write_and_die(step: Step) -> None:
        adding.add(step, [make_draft(id="half", gates=["g"])])
        os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        async with create(url) as store:
            await store.set_gate("g", concurrency=1)
            await store.add([make_draft(id="whole", gates=["g"])])
            await store.claim_submissions("doomed", [HANDLER], 1, timedelta(milliseconds=1))
            await store._write(write_and_die)

    asyncio.run(run())


def set_up(url: str) -> None:
    """Set a store up."""
    asyncio.run(create(url).setup())
