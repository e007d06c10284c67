"""What tests of applications and handlers need: a clock of their own, scripted handlers, an app in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from attrs import evolve

from coatcheck import lifecycle
from coatcheck.app import App
from coatcheck.clock import ManualClock
from coatcheck.faulty import FaultyStore
from coatcheck.handler import (
    AnyHandler,
    CancelContext,
    Capability,
    Handler,
    QueryContext,
    SubmitContext,
)
from coatcheck.memory import MemoryStore
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.store import Filter, Store
from coatcheck.task import (
    CancelOutcome,
    Identity,
    QueryParams,
    Route,
    Task,
    TaskDraft,
    new_task_id,
)

__all__ = [
    "FaultyStore",
    "ManualClock",
    "QueryStep",
    "ScriptedHandler",
    "SubmitStep",
    "make_task",
    "memory_app",
    "run_to_end",
]

P = TypeVar("P")
SubmitFunction: TypeAlias = "Callable[[Any, SubmitContext], SubmitResult | Awaitable[SubmitResult]]"
QueryFunction: TypeAlias = "Callable[[QueryParams, QueryContext], QueryResult | Awaitable[QueryResult]]"
SubmitStep: TypeAlias = "SubmitResult | BaseException | SubmitFunction"
QueryStep: TypeAlias = "QueryResult | BaseException | QueryFunction"


class ScriptedHandler(Handler[P]):
    """A handler that answers by script and remembers what it was asked.

    A step is an answer, an error to raise, or a function, maybe async, that returns or raises one. When a script
    is over, submits are accepted under new ids, and queries succeed with the result ``{"id": external id}``.
    """

    def __init__(  # noqa: PLR0913 - each names one thing that a test may want to say
        self,
        key: str,
        params_type: type[P],
        *,
        submit: Iterable[SubmitStep] = (),
        query: Iterable[QueryStep] = (),
        cancel: Iterable[CancelOutcome | BaseException] | None = None,
        find: Iterable[SubmitResult | BaseException | None] | None = None,
        provider_key: str | None = None,
        idempotency_window: timedelta | None = None,
    ) -> None:
        self.key = key
        self.provider_key = provider_key or key
        self.params_type = params_type
        self.idempotency_window = idempotency_window  # type: ignore[misc]  # a class constant elsewhere
        self._submit = deque(submit)
        self._query = deque(query)
        self._cancel = None if cancel is None else deque(cancel)
        self._find = None if find is None else deque(find)
        self._ids = itertools.count(1)
        self.submitted: list[tuple[P, SubmitContext]] = []
        """Params and context of each submit call."""
        self.queried: list[tuple[QueryParams, QueryContext]] = []
        """Query params and context of each query."""
        self.cancelled: list[QueryParams] = []
        """Query params of each cancel call."""
        self.looked_up: list[SubmitContext] = []
        """Context of each look-up."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it was given a script for."""
        able = {
            Capability.CANCEL: self._cancel is not None,
            Capability.FIND_SUBMISSION: self._find is not None,
            Capability.IDEMPOTENT_SUBMIT: self.idempotency_window is not None,
        }
        return frozenset(each for each, has in able.items() if has)

    async def submit(self, params: P, context: SubmitContext) -> SubmitResult:
        """Do the next step of the script."""
        self.submitted.append((params, context))
        context.ensure_held()
        if not self._submit:
            return SubmitResult.accepted(f"{self.key}-{next(self._ids)}")
        step = self._submit.popleft()
        if isinstance(step, BaseException):
            raise step
        answer = step(params, context) if callable(step) else step
        return await answer if isinstance(answer, Awaitable) else answer

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Do the next step of the script."""
        self.queried.append((params, context))
        if not self._query:
            return QueryResult.succeeded({"id": params.external_task_id})
        step = self._query.popleft()
        if isinstance(step, BaseException):
            raise step
        answer = step(params, context) if callable(step) else step
        return await answer if isinstance(answer, Awaitable) else answer

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Do the next step of the script; CONFIRMED when it is over."""
        self.cancelled.append(params)
        step = self._cancel.popleft() if self._cancel else CancelOutcome.CONFIRMED
        if isinstance(step, BaseException):
            raise step
        return step

    async def find_submission(self, params: P, context: SubmitContext) -> SubmitResult | None:
        """Do the next step of the script; nothing is found when it is over."""
        self.looked_up.append(context)
        step = self._find.popleft() if self._find else None
        if isinstance(step, BaseException):
            raise step
        return step


def memory_app(*handlers: AnyHandler, clock: ManualClock | None = None, **options: Any) -> App:  # noqa: ANN401
    """Return an app over a memory store; `options` are those of `App`."""
    return App(MemoryStore(clock=clock), handlers, **options)


async def run_to_end(app: App, clock: ManualClock, *, rounds: int = 1000, **settings: Any) -> list[Task]:  # noqa: ANN401
    """Work until every task of the app has ended, letting the clock jump from one due time to the next.

    Returns the tasks, by id. Raises `AssertionError` if some have not ended after `rounds` rounds.
    """
    waiting: list[Task] = []
    for _ in range(rounds):
        await app.worker(**settings).drain()
        tasks = await _all_tasks(app.store)
        waiting = [task for task in tasks if not task.status.terminal]
        if not waiting:
            return tasks
        times = (task.lease.until if task.lease else task.schedule.due_at for task in waiting)
        coming = [each for each in times if each > clock.now()]
        # what is due and was not done waits for a gate
        clock.set(
            min([*coming, clock.now() + timedelta(seconds=1)]) if len(coming) < len(waiting) else min(coming)
        )
        await asyncio.sleep(0)
    message = f"{len(waiting)} tasks have not ended after {rounds} rounds: {waiting[:3]!r}"
    raise AssertionError(message)


async def _all_tasks(store: Store) -> list[Task]:
    tasks: list[Task] = []
    while page := await store.find(Filter(), limit=1000, after=tasks[-1].id if tasks else None):
        tasks += page
    return tasks


def make_task(
    *,
    handler_key: str = "test",
    clock: ManualClock | None = None,
    tracking_timeout: timedelta = timedelta(hours=1),
    **changes: Any,  # noqa: ANN401 - fields of Task
) -> Task:
    """Return a PENDING_SUBMIT task as a store would have made it, with `changes` to its fields."""
    task_id = new_task_id()
    draft = TaskDraft(
        id=task_id,
        route=Route(handler_key=handler_key, provider_key=handler_key),
        identity=Identity(params_digest="0" * 64, idempotency_key=task_id),
        params={},
        tracking_timeout=tracking_timeout,
    )
    return evolve(lifecycle.created(draft, (clock or ManualClock()).now()), **changes)
