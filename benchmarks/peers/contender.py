"""What the contenders share: an app with a handler that calls the harness's provider in this process."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.metadata import version

from attrs import frozen
from common import Peer  # type: ignore[import-not-found]  # the harness's, found on its own path

from benchmarks.gated import Gated, set_limits
from coatcheck import (
    App,
    ExponentialRetry,
    Handler,
    QueryContext,
    QueryParams,
    QueryResult,
    Submission,
    SubmitContext,
    SubmitOptions,
    SubmitResult,
)
from coatcheck.store import Store

DAYS = timedelta(days=3)
TENANTS = int(os.environ.get("BENCH_TENANTS", "0"))
"""How many tenants the tasks are of, each with a limit of its own, beside a rate and a concurrency for all."""
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "0")) or 200


@frozen
class Job:
    """Params of a job."""

    number: int


class Provider(Handler[Job]):
    """Calls the harness's provider."""

    key = "bench"
    marks_wire = True

    def __init__(self, provider: object) -> None:
        self._provider = provider

    async def submit(self, params: Job, context: SubmitContext) -> SubmitResult:
        """Submit."""
        return SubmitResult.accepted(await self._provider.submit(params.number))  # type: ignore[attr-defined]

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Query."""
        result = await self._provider.query(params.external_task_id)  # type: ignore[attr-defined]
        return QueryResult.running() if result is None else QueryResult.succeeded(result)


class AtOnce(ExponentialRetry):
    """Asks again at once, as the other contenders do."""

    def next_query_delay(self, task: object, result: object) -> timedelta:
        """Wait for nothing."""
        return timedelta()


class Contender(Peer):  # type: ignore[misc]  # the harness is not typed
    """One store under the whole of coatcheck."""

    name, version = "coatcheck", version("coatcheck")
    how = f"1 worker, {CONCURRENCY} submissions, {CONCURRENCY} queries at once" + (
        f", gates: concurrency 1,000, rate 1,000,000/s, {TENANTS:,} tenants of 50 each" if TENANTS else ""
    )

    @abstractmethod
    async def make_store(self) -> Store:
        """Return the closed store, empty, with its tables."""

    async def open(self) -> None:
        """Compose the app."""
        store = await self.make_store()
        policy = {"admission": Gated()} if TENANTS else {}
        self.app = App(store, [Provider(self.provider)], retry=AtOnce(), **policy)  # type: ignore[arg-type]
        self.stack = AsyncExitStack()
        await self.stack.enter_async_context(self.app)
        if TENANTS:
            await set_limits(store, TENANTS)
        self.ids: dict[int, str] = {}

    def _submission(self, number: int, delay: timedelta | None = None) -> Submission:
        tenant = str(number % TENANTS) if TENANTS else None
        return Submission(
            params=Job(number),
            tracking_timeout=DAYS,
            options=SubmitOptions(tenant_id=tenant, delay=delay),
        )

    async def enqueue(self, i: int) -> None:
        """Submit one."""
        (task,) = await self.app.manager.submit_many([self._submission(i)])
        self.ids[i] = task.id

    async def bulk(self, numbers: Sequence[int]) -> None:
        """Submit many."""
        tasks = await self.app.manager.submit_many([self._submission(i) for i in numbers])
        self.ids.update(zip(numbers, [task.id for task in tasks], strict=True))

    async def backlog(self, n: int) -> None:
        """Submit many for tomorrow."""
        for first in range(0, n, 2000):
            later = [self._submission(-1, timedelta(days=1)) for _ in range(first, min(n, first + 2000))]
            await self.app.manager.submit_many(later)

    async def start(self) -> None:
        """Start the worker."""
        self.worker = self.app.worker(submissions=CONCURRENCY, queries=CONCURRENCY)
        await self.stack.enter_async_context(self.worker)

    async def stop(self) -> None:
        """Stop it."""
        self.worker.stop()

    async def result(self, i: int) -> object:
        """Read a result back."""
        task = await self.app.manager.get(self.ids[i])
        return task.result if task is not None and task.status.terminal else None

    async def close(self) -> None:
        """Close all."""
        await self.stack.aclose()
