"""The same app for code without an event loop, such as Django or Flask views.

Each process gets one background thread with an event loop, at its first call, so that servers that fork work.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from coatcheck import app as asynchronous
from coatcheck import manager as asynchronous_manager
from coatcheck.errors import ConfigurationError
from coatcheck.gates import AdmissionPolicy, Gate, GateRecord, GateUsage, Rate
from coatcheck.handler import AnyHandler, Callback, CallbackRequest
from coatcheck.manager import Submission, SubmitOptions
from coatcheck.retry import RetryPolicy
from coatcheck.selector import Selector
from coatcheck.store import Filter, Stats, Store
from coatcheck.tallies import Tally
from coatcheck.task import QueryParams, Task, TaskDraft

__all__ = ["App", "Manager"]

T = TypeVar("T")
R = TypeVar("R")

START_TIMEOUT_SECONDS = 30.0


class _Background:
    """One process's thread, event loop and open app."""

    def __init__(self, make: Callable[[], asynchronous.App]) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coatcheck-sync", daemon=True)
        self._thread.start()
        try:
            self.app = make()
            self.call(self.app.__aenter__())
        except BaseException:
            self._end()
            raise

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        try:
            self.call(self.app.__aexit__(None, None, None))
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_TIMEOUT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class App:
    """`coatcheck.App` with blocking methods. It opens at the first call; `close` it, or use ``with``."""

    def __init__(  # noqa: PLR0913 - as the asynchronous app
        self,
        store: Store | str,
        handlers: Iterable[AnyHandler] = (),
        *,
        selector: Selector | None = None,
        admission: AdmissionPolicy | None = None,
        retry: RetryPolicy | None = None,
        observers: Iterable[object] = (),
        priority_ageing: timedelta | None = None,
        callback_url: str | None = None,
    ) -> None:
        """Compose, as `coatcheck.App` does; no I/O and no thread yet."""
        handlers, observers = tuple(handlers), tuple(observers)

        def make() -> asynchronous.App:
            return asynchronous.App(
                store,
                handlers,
                selector=selector,
                admission=admission,
                retry=retry,
                observers=observers,
                priority_ageing=priority_ageing,
                callback_url=callback_url,
            )

        self._make = make
        self._make()  # refuses at once what cannot be composed
        self._lock = threading.Lock()
        self._background: _Background | None = None
        self.manager = Manager(self)

    def __enter__(self) -> Self:
        """Open at once rather than at the first call."""
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the store and end the thread. Closing twice is fine; a later call opens again."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None and background.pid == os.getpid():
            background.close()

    @property
    def store(self) -> Store:
        """The open store of this process."""
        return self._running().app.store

    def _running(self) -> _Background:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            message = (
                "coatcheck.sync would block the event loop that runs in this thread; "
                "use coatcheck.App and await its methods"
            )
            raise ConfigurationError(message)
        with self._lock:
            if self._background is None or self._background.pid != os.getpid():
                self._background = _Background(self._make)
            return self._background

    def _call(self, make: Callable[[asynchronous_manager.Manager], Coroutine[Any, Any, T]]) -> T:
        background = self._running()
        return background.call(make(background.app.manager))


class Manager:
    """`coatcheck.Manager` with blocking methods: same names, same arguments, same errors."""

    def __init__(self, app: App) -> None:
        self._app = app

    def submit(
        self,
        params: object,
        *,
        tracking_timeout: timedelta,
        options: SubmitOptions | None = None,
        transaction: object = None,
    ) -> Task:
        """Save a task and return its snapshot; `transaction` is a synchronous SQLAlchemy session or connection."""
        one = Submission(params=params, tracking_timeout=tracking_timeout, options=options or SubmitOptions())
        return self.submit_many([one], transaction=transaction)[0]

    def submit_many(self, submissions: Sequence[Submission], *, transaction: object = None) -> list[Task]:
        """Save several tasks, all or none, in order.

        A transaction is joined on the caller's connection, in the caller's thread.
        """
        if transaction is None:
            return self._app._call(lambda m: m.submit_many(submissions))  # noqa: SLF001 - its other half
        drafts = [self.prepare(each) for each in submissions]
        return [each.task for each in self._app.store.join(drafts, transaction)]

    def prepare(self, submission: Submission) -> TaskDraft:
        """Route and check a submission without adding it."""
        return self._app._call(lambda m: m.prepare(submission))  # noqa: SLF001

    def get(self, task_id: str, *, tenant_id: str | None = None) -> Task | None:
        """Return the task's snapshot; None if there is none, or if it is another tenant's."""
        return self._app._call(lambda m: m.get(task_id, tenant_id=tenant_id))  # noqa: SLF001

    def find(self, query: Filter | None = None, *, limit: int = 100, after: str | None = None) -> list[Task]:
        """Return tasks by id, the first `limit` after `after`."""
        return self._app._call(lambda m: m.find(query, limit=limit, after=after))  # noqa: SLF001

    def wait(self, task_id: str, timeout: timedelta, *, tenant_id: str | None = None) -> Task:
        """Return the task's snapshot once it has ended; raise `WaitTimeout` after `timeout`."""
        return self._app._call(lambda m: m.wait(task_id, timeout, tenant_id=tenant_id))  # noqa: SLF001

    def result(
        self, task_id: str, result_type: type[R], *, timeout: timedelta, tenant_id: str | None = None
    ) -> R:
        """Wait for the task and return its result as `result_type`."""
        return self._app._call(  # noqa: SLF001
            lambda m: m.result(task_id, result_type, timeout=timeout, tenant_id=tenant_id)
        )

    def read_result(self, task: Task, result_type: type[R]) -> R:
        """Return the result of a snapshot as `result_type`; no I/O."""
        return asynchronous_manager.read_result(task, result_type)

    def stats(self) -> Stats:
        """Return how the store stands."""
        return self._app._call(lambda m: m.stats())  # noqa: SLF001

    def cancel(self, task_id: str, *, tenant_id: str | None = None) -> bool:
        """Request cancellation. True only the first time, and only if the task had not ended."""
        return self._app._call(lambda m: m.cancel(task_id, tenant_id=tenant_id))  # noqa: SLF001

    def adopt(
        self,
        task_id: str,
        query_params: QueryParams,
        *,
        tracking_timeout: timedelta | None = None,
        who: str | None = None,
        note: str = "",
    ) -> Task:
        """Say that the provider has the job of a task in doubt under this id."""
        return self._app._call(  # noqa: SLF001
            lambda m: m.adopt(task_id, query_params, tracking_timeout=tracking_timeout, who=who, note=note)
        )

    def resubmit(
        self, task_id: str, *, tracking_timeout: timedelta, who: str | None = None, note: str = ""
    ) -> Task:
        """Say that sending a task of unknown outcome again is right."""
        return self._app._call(  # noqa: SLF001
            lambda m: m.resubmit(task_id, tracking_timeout=tracking_timeout, who=who, note=note)
        )

    def abandon(self, task_id: str, *, who: str | None = None, note: str = "") -> Task:
        """Give a task in doubt up: FAILED."""
        return self._app._call(lambda m: m.abandon(task_id, who=who, note=note))  # noqa: SLF001

    def extend(
        self, task_id: str, *, tracking_timeout: timedelta, who: str | None = None, note: str = ""
    ) -> Task:
        """Grant a timed-out task more time."""
        return self._app._call(  # noqa: SLF001
            lambda m: m.extend(task_id, tracking_timeout=tracking_timeout, who=who, note=note)
        )

    def set_gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        who: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Set a gate's limits across the fleet; None is no limit."""
        self._app._call(  # noqa: SLF001
            lambda m: m.set_gate(name, concurrency=concurrency, rate=rate, who=who, reason=reason)
        )

    def apply_suggested_gates(
        self, *, who: str | None = None, reason: str = "suggested by the handler"
    ) -> list[Gate]:
        """Set the limits that the handlers suggest at gates which have none yet; return these gates."""
        return self._app._call(lambda m: m.apply_suggested_gates(who=who, reason=reason))  # noqa: SLF001

    def delete_gate(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Forget a gate's limits and its pause; its history stays."""
        self._app._call(lambda m: m.delete_gate(name, who=who, reason=reason))  # noqa: SLF001

    def pause(
        self,
        name: str,
        *,
        reason: str,
        who: str | None = None,
        until: datetime | None = None,
        duration: timedelta | None = None,
    ) -> None:
        """Let a gate grant nothing until then, for `duration`, or until resumed."""
        self._app._call(  # noqa: SLF001
            lambda m: m.pause(name, reason=reason, who=who, until=until, duration=duration)
        )

    def resume(self, name: str, *, who: str | None = None, reason: str | None = None) -> None:
        """Let a paused gate grant again."""
        self._app._call(lambda m: m.resume(name, who=who, reason=reason))  # noqa: SLF001

    def gates(self, names: Collection[str] | None = None) -> list[GateUsage]:
        """Return the defined gates, or those of `names`, with live usage."""
        return self._app._call(lambda m: m.gates(names))  # noqa: SLF001

    def gate_history(self, name: str) -> list[GateRecord]:
        """Return who changed a gate when, how and why, the oldest first."""
        return self._app._call(lambda m: m.gate_history(name))  # noqa: SLF001

    def tallies(self, prefix: str = "", *, limit: int = 100) -> list[Tally]:
        """Return what admission policies have counted, by name."""
        return self._app._call(lambda m: m.tallies(prefix, limit=limit))  # noqa: SLF001

    def receive_callback(
        self, handler_key: str, request: CallbackRequest, *, account_id: str | None = None
    ) -> Callback:
        """Take a provider's callback: authenticate it, and make the jobs that it names due at once."""
        return self._app._call(  # noqa: SLF001
            lambda m: m.receive_callback(handler_key, request, account_id=account_id)
        )
