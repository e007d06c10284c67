"""A store that fails on demand, around any other."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from coatcheck.errors import StoreUnavailable
from coatcheck.events import Proof, Resolution
from coatcheck.gates import GateRecord, GateUsage, Rate
from coatcheck.lifecycle import Settlement
from coatcheck.store import (
    Added,
    Capability,
    Claims,
    Filter,
    Hold,
    Refused,
    Renewal,
    SetAside,
    Settled,
    Started,
    Stats,
    Store,
)
from coatcheck.tallies import Count, Counted, Tally
from coatcheck.task import Status, Task, TaskDraft

__all__ = ["FaultyStore"]

T = TypeVar("T")


class FaultyStore(Store):
    """Wraps a store and fails on demand: before a step, or after it is committed (a lost answer)."""

    def __init__(self, inner: Store) -> None:
        """Wrap `inner`."""
        self._inner = inner
        self._faults: dict[str, deque[tuple[bool, BaseException]]] = {}
        self.calls: list[str] = []
        """Names of the methods called, in order."""

    def fail(
        self, method: str, *, times: int = 1, after: bool = False, error: BaseException | None = None
    ) -> None:
        """Let the next calls of `method` fail: before they do anything, or after they have done it.

        Raises:
            AttributeError: a store has no such step.
        """
        if method not in Store.__abstractmethods__:
            message = (
                f"a store has no step {method!r}; there are: {', '.join(sorted(Store.__abstractmethods__))}"
            )
            raise AttributeError(message)
        fault = (after, error or StoreUnavailable("made unavailable by a test"))
        self._faults.setdefault(method, deque()).extend([fault] * times)

    def recover(self) -> None:
        """Forget the faults that have not happened yet."""
        self._faults.clear()

    async def _do(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        faults = self._faults.get(name)
        after, error = faults.popleft() if faults else (False, None)
        if error is not None and not after:
            raise error
        answer = await step()
        if error is not None:
            raise error
        return answer

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Those of the wrapped store."""
        return self._inner.capabilities

    @property
    def url(self) -> str:
        """That of the wrapped store."""
        return self._inner.url

    def join(self, drafts: Sequence[TaskDraft], transaction: object) -> list[Added]:
        """As the wrapped store."""
        return self._inner.join(drafts, transaction)

    async def open(self) -> None:
        """As the wrapped store, or fail."""
        await self._do("open", self._inner.open)

    async def close(self) -> None:
        """As the wrapped store, or fail."""
        await self._do("close", self._inner.close)

    async def setup(self) -> None:
        """As the wrapped store, or fail."""
        await self._do("setup", self._inner.setup)

    async def now(self) -> datetime:
        """As the wrapped store, or fail."""
        return await self._do("now", self._inner.now)

    async def add(self, drafts: Sequence[TaskDraft], *, transaction: object = None) -> list[Added]:
        """As the wrapped store, or fail."""
        return await self._do("add", lambda: self._inner.add(drafts, transaction=transaction))

    async def get_many(self, task_ids: Collection[str]) -> dict[str, Task]:
        """As the wrapped store, or fail."""
        return await self._do("get_many", lambda: self._inner.get_many(task_ids))

    async def find(self, query: Filter, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """As the wrapped store, or fail."""
        return await self._do("find", lambda: self._inner.find(query, limit=limit, after=after))

    async def claim_submissions(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """As the wrapped store, or fail."""
        return await self._do(
            "claim_submissions", lambda: self._inner.claim_submissions(worker_id, handler_keys, limit, lease)
        )

    async def claim_queries(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """As the wrapped store, or fail."""
        return await self._do(
            "claim_queries", lambda: self._inner.claim_queries(worker_id, handler_keys, limit, lease)
        )

    async def claim_stale(
        self, worker_id: str, handler_keys: Collection[str], limit: int, lease: timedelta
    ) -> Claims:
        """As the wrapped store, or fail."""
        return await self._do(
            "claim_stale", lambda: self._inner.claim_stale(worker_id, handler_keys, limit, lease)
        )

    async def start(self, tasks: Sequence[Task], lease: timedelta) -> list[Started | Refused]:
        """As the wrapped store, or fail."""
        return await self._do("start", lambda: self._inner.start(tasks, lease))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """As the wrapped store, or fail."""
        return await self._do("settle", lambda: self._inner.settle(settlements))

    async def renew(self, holds: Sequence[Hold], lease: timedelta) -> list[Renewal]:
        """As the wrapped store, or fail."""
        return await self._do("renew", lambda: self._inner.renew(holds, lease))

    async def request_cancellation(self, task_id: str) -> bool:
        """As the wrapped store, or fail."""
        return await self._do("request_cancellation", lambda: self._inner.request_cancellation(task_id))

    async def nudge(self, handler_key: str, external_task_id: str) -> int:
        """As the wrapped store, or fail."""
        return await self._do("nudge", lambda: self._inner.nudge(handler_key, external_task_id))

    async def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        only_if_new: bool = False,
        who: str | None = None,
        reason: str | None = None,
    ) -> None:
        """As the wrapped store, or fail."""
        await self._do(
            "set_gate",
            lambda: self._inner.set_gate(
                name, concurrency=concurrency, rate=rate, only_if_new=only_if_new, who=who, reason=reason
            ),
        )

    async def pause_gate(
        self, name: str, *, reason: str, who: str | None = None, duration: timedelta | None = None
    ) -> None:
        """As the wrapped store, or fail."""
        await self._do(
            "pause_gate", lambda: self._inner.pause_gate(name, reason=reason, who=who, duration=duration)
        )

    async def resume_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """As the wrapped store, or fail."""
        await self._do("resume_gate", lambda: self._inner.resume_gate(name, who=who, reason=reason))

    async def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """As the wrapped store, or fail."""
        await self._do("delete_gate", lambda: self._inner.delete_gate(name, who=who, reason=reason))

    async def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """As the wrapped store, or fail."""
        return await self._do("gates", lambda: self._inner.gates(names))

    async def gate_history(self, name: str) -> list[GateRecord]:
        """As the wrapped store, or fail."""
        return await self._do("gate_history", lambda: self._inner.gate_history(name))

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """As the wrapped store, or fail."""
        return await self._do("count", lambda: self._inner.count(counts))

    async def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """As the wrapped store, or fail."""
        return await self._do("tallies", lambda: self._inner.tallies(prefix, limit=limit))

    async def wait(self, handler_keys: Collection[str], timeout: timedelta) -> bool:
        """As the wrapped store, or fail."""
        return await self._do("wait", lambda: self._inner.wait(handler_keys, timeout))

    async def stats(self) -> Stats:
        """As the wrapped store, or fail."""
        return await self._do("stats", self._inner.stats)

    async def purge(
        self, finished_before: datetime, *, statuses: Collection[Status] | None = None, limit: int = 1000
    ) -> int:
        """As the wrapped store, or fail."""
        return await self._do(
            "purge", lambda: self._inner.purge(finished_before, statuses=statuses, limit=limit)
        )

    async def attest(self, task_id: str, token: int, proof: Proof) -> Task:
        """As the wrapped store, or fail."""
        return await self._do("attest", lambda: self._inner.attest(task_id, token, proof))

    async def resolve(self, task_id: str, expected_version: int, resolution: Resolution) -> Task:
        """As the wrapped store, or fail."""
        return await self._do("resolve", lambda: self._inner.resolve(task_id, expected_version, resolution))

    async def set_aside(self, *, limit: int = 100) -> list[SetAside]:
        """As the wrapped store, or fail."""
        return await self._do("set_aside", lambda: self._inner.set_aside(limit=limit))

    async def release_set_aside(self, task_ids: Collection[str] | None = None) -> int:
        """As the wrapped store, or fail."""
        return await self._do("release_set_aside", lambda: self._inner.release_set_aside(task_ids))
