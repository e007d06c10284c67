"""One provider call of a worker: its hold on the task, its context, and the coroutine that makes it.

The coroutines run on the handler's own loop. They turn stored params into the handler's types and the
handler's results into JSON there, so that a slow or broken conversion stalls nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import define, field

from coatcheck.errors import LeaseLost, NotPersistable, QueryFailed
from coatcheck.evolving import constructor
from coatcheck.handler import (
    AnyHandler,
    CallContext,
    CancelContext,
    QueryContext,
    SubmitContext,
)
from coatcheck.persistable import from_json, to_json
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, CancelOutcome, QueryParams, Task

__all__ = ["Call", "Purpose", "cancel", "find", "query", "query_together", "submit"]

logger = logging.getLogger("coatcheck.worker")
C = TypeVar("C", bound=CallContext)
_new_submit_context, _new_query_context = constructor(SubmitContext), constructor(QueryContext)
_new_cancel_context = constructor(CancelContext)

FIND_AFTER_SECONDS = (0.5, 2.0, 5.0)
"""How long to wait before each look-up of a submission whose answer was lost."""


class Purpose(StrEnum):
    """What a claim was made for."""

    SUBMIT = "submit"
    QUERY = "query"
    CANCEL = "cancel"
    RESCUE = "rescue"
    "A started submission whose worker is gone: look it up."

    __hash__ = str.__hash__  # an enum's own is written in Python, and calls are filed by purpose


@define(eq=False)
class Call:
    """A claimed task on its way through the worker."""

    task: Task
    """The snapshot that will be settled."""
    handler: AnyHandler
    purpose: Purpose
    held_until: float = 0.0
    """By `time.monotonic`; moved by the renewals. Past it nothing may be written to the wire."""
    in_doubt: bool = False
    """Whether it was claimed to be sent again, after a submission of unknown outcome."""
    callback_url: str | None = None
    give_up_at: float | None = None
    """When the worker stops waiting for the handler, by `time.monotonic`; None before the call."""
    answer: object = None
    result: JSON = None
    error: BaseException | None = None
    unstorable: NotPersistable | None = None
    reached_handler: bool = False
    """Whether the handler was called; what fails before is certain to have sent nothing."""
    over: bool = False
    """Whether the worker has taken its answer, or given it up."""
    _stamp: datetime | None = None
    """The store's last time of this task that the worker knows."""
    _stamped_at: float = field(factory=time.monotonic)
    """By `time.monotonic`, no later than the store made that stamp."""
    _on_wire: bool = False
    _lost: bool = False
    _lock: threading.Lock = field(factory=threading.Lock, repr=False)

    def ensure_held(self) -> None:
        """Raise `LeaseLost` once the claim is lost or given up; else the wire begins here."""
        with self._lock:
            if self._lost or time.monotonic() >= self.held_until:
                message = f"the claim on task {self.task.id} is lost; nothing may be sent for it any more"
                raise LeaseLost(message)
            self._on_wire = True

    def lose(self) -> None:
        """Let nothing be sent from now on."""
        with self._lock:
            self._lost = True

    @property
    def on_wire(self) -> bool:
        """Whether the handler has said that it is about to write to the wire."""
        with self._lock:
            return self._on_wire

    def leased(self, task: Task, duration: timedelta, asked_at: float) -> None:
        """Take in a snapshot whose lease the store has just made `duration` long, asked at that monotonic time."""
        self.task = task
        self.held_until = asked_at + duration.total_seconds()
        if task.lease is not None:
            self._stamp, self._stamped_at = task.lease.until - duration, asked_at

    def store_now(self) -> datetime:
        """Return the store's time as far as this worker can tell: its last stamp, and what passed since."""
        stamp = self._stamp or self.task.schedule.due_at
        return stamp + timedelta(seconds=time.monotonic() - self._stamped_at)

    def context(self, new: Callable[..., C]) -> C:
        """Return what the handler may know about the task, in the `new` context of a call."""
        task, progress = self.task, self.task.progress
        submitting = self.purpose is Purpose.SUBMIT
        return new(
            task_id=task.id,
            idempotency_key=task.identity.idempotency_key,
            account_id=task.route.account_id,
            now=self.store_now(),
            created_at=task.schedule.created_at,
            deadline_at=task.schedule.deadline_at,
            submit_attempts=progress.submit_attempts - 1 if submitting else progress.submit_attempts,
            query_count=progress.query_count,
            metadata=MappingProxyType(task.metadata),
            callback_url=self.callback_url,
            ensure_held=self.ensure_held,
        )

    def query_params(self) -> QueryParams:
        """Return the stored query params in the handler's present shape."""
        stored, version = self.task.query_params, self.task.identity.query_params_version
        if stored is None:
            message = f"task {self.task.id} has no query params"
            raise QueryFailed(message)
        if version != self.handler.params_version:
            return self.handler.upgrade_query_params(stored, version)
        return stored

    def params(self, params_type: type) -> Any:  # noqa: ANN401 - of the handler's own type
        """Return the stored params as the handler's type, in their present shape."""
        raw, version = self.task.params, self.task.identity.params_version
        if version != self.handler.params_version:
            raw = self.handler.upgrade_params(raw, version)
        return from_json(raw, params_type)


def _keep(call: Call, answer: object) -> None:
    """Keep the answer, with its result as JSON."""
    call.answer = answer
    if isinstance(answer, (SubmitResult, QueryResult)) and answer.result is not None:
        try:
            call.result = to_json(answer.result, path="result", prove=False)
        except NotPersistable as error:
            call.unstorable = error


async def submit(call: Call, params_type: type) -> None:
    """Submit the task."""
    params: Any = call.params(params_type)
    context = call.context(_new_submit_context)
    call.reached_handler = True
    _keep(call, await call.handler.submit(params, context))


async def query(call: Call) -> None:
    """Query the task."""
    _keep(call, await call.handler.query(call.query_params(), call.context(_new_query_context)))


async def query_together(calls: Sequence[Call]) -> None:
    """Query several tasks of one account in one request; each gets its own answer or error."""
    params: dict[str, QueryParams] = {}
    contexts: dict[str, QueryContext] = {}
    by_id: dict[str, list[Call]] = {}
    for call in calls:
        try:
            asked = call.query_params()
        except Exception as error:  # noqa: BLE001 - one task that cannot be asked about must not hurt the rest
            call.error = error
            continue
        by_id.setdefault(asked.external_task_id, []).append(call)
        params[asked.external_task_id] = asked
        contexts[asked.external_task_id] = call.context(_new_query_context)
    if not params:
        return
    answers: Mapping[str, QueryResult | Exception] = await calls[0].handler.query_many(
        list(params.values()), contexts
    )
    for external_id, asking in by_id.items():
        answer = answers.get(external_id)
        for call in asking:
            if answer is None:
                call.error = QueryFailed(f"the answer leaves out job {external_id!r}")
            elif isinstance(answer, Exception):
                call.error = answer
            else:
                _keep(call, answer)


async def find(call: Call, params_type: type) -> None:
    """Look for a submission whose answer was lost, a few spaced times; None means nothing was found."""
    params: Any = call.params(params_type)
    for seconds in FIND_AFTER_SECONDS:
        await asyncio.sleep(seconds)
        try:
            found = await call.handler.find_submission(params, call.context(_new_submit_context))
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - a look-up that fails proves nothing; the next may not
            logger.warning("look-up of task %s failed: %s: %s", call.task.id, type(error).__name__, error)
            continue
        if found is not None:
            _keep(call, found)
            return


async def cancel(call: Call) -> None:
    """Tell the provider to cancel."""
    answer = await call.handler.cancel(call.query_params(), call.context(_new_cancel_context))
    call.answer = CancelOutcome(answer)
