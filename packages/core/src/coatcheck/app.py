"""The app: one object that composes a store, handlers and policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from coatcheck.catalog import create_store
from coatcheck.errors import ConfigurationError
from coatcheck.fleet import StoreFleet
from coatcheck.gates import AdmissionPolicy, StandardAdmission, TaskChange
from coatcheck.handler import AnyHandler
from coatcheck.loops import HandlerLoops
from coatcheck.manager import Manager
from coatcheck.observing import Observers
from coatcheck.registry import Registry
from coatcheck.retry import ExponentialRetry, RetryPolicy
from coatcheck.selector import Selector
from coatcheck.standing import StoreStanding
from coatcheck.store import Store
from coatcheck.worker import Worker, WorkerSettings

__all__ = ["App"]


class App:
    """Composes a store, handlers and policies; web processes, workers and scripts share one.

    Making it does no I/O. Open it with ``async with app:``, which opens the store; `manager` is what
    application code calls, and `worker()` makes a worker.
    """

    def __init__(  # noqa: PLR0913 - the one place where everything comes together
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
        """Compose.

        Args:
            store: a store, or its URL, such as ``sqlite:///jobs.db`` or ``memory://``.
            handlers: what this app can submit; a worker works for all of them.
            selector: chooses where several handlers take the same params.
            admission: names the gates of a task; by default the standard ones.
            retry: when to ask again, unless a handler brings its own.
            observers: functions of committed changes. A selector or retry policy, also a handler's own, that has
                `coatcheck_tasks_changed` is one, too.
            priority_ageing: how much waiting one point of priority is worth; None is strict priority.
            callback_url: where providers may send callbacks; ``{handler_key}`` in it is replaced.
        """
        if priority_ageing is not None and priority_ageing <= timedelta():
            message = f"priority_ageing must be positive or None, not {priority_ageing!r}"
            raise ConfigurationError(message)
        self.store = create_store(store) if isinstance(store, str) else store
        self.registry = Registry(handlers)
        self._admission = admission or StandardAdmission()
        self._retry = retry or ExponentialRetry()
        self._callback_url = callback_url
        self._observers = Observers(self._observing(observers, selector))
        self._loops = HandlerLoops(self.registry)
        self._entered = 0
        standing = StoreStanding(self.store)
        self.manager = Manager(
            self.store,
            self.registry,
            self._loops,
            standing=standing,
            admission=self._admission,
            selector=selector,
            priority_ageing=priority_ageing,
            on_change=self._changed,
        )
        self._admission.attach(StoreFleet(self.store, standing))

    def _observing(self, observers: Iterable[object], selector: object) -> list[object]:
        """Return the observers, and the policies that want to know what was committed, each once."""
        handlers = (self.registry[key] for key in self.registry)
        policies = [selector, self._retry, *(handler.retry for handler in handlers)]
        given = list(observers)
        for each in policies:
            if hasattr(each, "coatcheck_tasks_changed") and not any(each is known for known in given):
                given.append(each)
        return given

    async def __aenter__(self) -> Self:
        """Open the store; entering an open app again only counts."""
        if self._entered == 0:
            await self.store.open()
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store after the last use, once the observers have seen what was committed."""
        self._entered -= 1
        if self._entered == 0:
            self._observers.close()
            await self.store.close()

    def worker(
        self,
        *,
        submissions: int = 50,
        queries: int = 200,
        **settings: object,
    ) -> Worker:
        """Return a new worker for all handlers of this app.

        Args:
            submissions: submit calls at once.
            queries: queries at once.
            settings: the other fields of `WorkerSettings`.
        """
        return Worker(
            self.store,
            self.registry,
            self._loops,
            admission=self._admission,
            retry=self._retry,
            on_change=self._changed,
            settings=WorkerSettings(
                submissions=submissions,
                queries=queries,
                **{"callback_url": self._callback_url, **settings},  # type: ignore[arg-type]  # attrs checks
            ),
        )

    def _changed(self, changes: Sequence[TaskChange]) -> None:
        self.manager.notice(changes)
        self._observers.emit(changes)
