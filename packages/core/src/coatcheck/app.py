"""The app: one object that composes a store, handlers and policies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

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

if TYPE_CHECKING:
    from coatcheck.configuration import Configuration
    from coatcheck.configuration.making import Unusable

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
        self._worker_settings: Mapping[str, object] = {}
        self.configuration: Configuration | None = None
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

    @classmethod
    def from_config(
        cls,
        file: str | os.PathLike[str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        observers: Iterable[object] = (),
        unusable: Unusable | None = None,
    ) -> Self:
        """Return the app that a configuration describes; `coatcheck.configuration` says where it is looked for.

        Nothing is connected to, and no secret is read. Its workers are as configured, unless `worker` is told
        otherwise.

        Args:
            file: where it is written; None looks in the usual places.
            environ: variables that go before the file; None is the environment of this process.
            observers: functions of committed changes.
            unusable: is told key and error of each handler that cannot be made; then the app is made without it, and
                its tasks wait. None raises the error.

        Raises:
            ConfigurationError: there is none, or something in it is wrong; the message begins with its place.
            PluginError: a plugin that it names cannot be used.
        """
        from coatcheck.configuration import read_written  # noqa: PLC0415 - apps of code have no use for it
        from coatcheck.configuration.making import parts_of, worker_settings_of  # noqa: PLC0415
        from coatcheck.configuration.reading import configuration_of  # noqa: PLC0415

        written = read_written(file, environ=environ)
        configuration = configuration_of(written)
        app = cls(**parts_of(configuration, written=written, unusable=unusable), observers=observers)
        app.configuration = configuration
        app._worker_settings = worker_settings_of(configuration)
        return app

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
        self, *, submissions: int | None = None, queries: int | None = None, **settings: object
    ) -> Worker:
        """Return a new worker for all handlers of this app.

        Args:
            submissions: submit calls at once; None is as configured, or 50.
            queries: queries at once; None is as configured, or 200.
            settings: the other fields of `WorkerSettings`.
        """
        told = {"submissions": submissions, "queries": queries}
        given = {**{name: value for name, value in told.items() if value is not None}, **settings}
        return Worker(
            self.store,
            self.registry,
            self._loops,
            admission=self._admission,
            retry=self._retry,
            on_change=self._changed,
            settings=WorkerSettings(
                **{"callback_url": self._callback_url, **self._worker_settings, **given},  # type: ignore[arg-type]  # attrs checks
            ),
        )

    def _changed(self, changes: Sequence[TaskChange]) -> None:
        self.manager.notice(changes)
        self._observers.emit(changes)
