"""Every error that coatcheck raises.

::

    CoatcheckError
    ├─ ConfigurationError
    │  ├─ PluginError
    │  ├─ UnknownAccount (LookupError)
    │  └─ SchemaOutdated
    ├─ InvalidParams (ValueError)
    │  └─ NotPersistable (.path)
    ├─ RoutingError (LookupError)
    │  ├─ NoHandler
    │  ├─ AmbiguousHandler (.candidates)
    │  └─ ParamsMismatch
    ├─ TaskNotFound (LookupError)
    ├─ TaskUnsuccessful (.task)
    ├─ WaitTimeout (TimeoutError, .task)
    ├─ InvalidTransition
    ├─ StoreError
    │  ├─ DuplicateTask
    │  ├─ DedupConflict
    │  ├─ VersionConflict
    │  ├─ LeaseLost
    │  ├─ UndecodableRow
    │  ├─ Unsupported
    │  └─ StoreUnavailable (ConnectionError)
    └─ HandlerError
       ├─ SubmitRejected
       ├─ SubmitDeferred
       ├─ QueryFailed
       └─ CallbackRejected
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from coatcheck.task import Task

__all__ = [
    "AmbiguousHandler",
    "CallbackRejected",
    "CoatcheckError",
    "ConfigurationError",
    "DedupConflict",
    "DuplicateTask",
    "HandlerError",
    "InvalidParams",
    "InvalidTransition",
    "LeaseLost",
    "NoHandler",
    "NotPersistable",
    "ParamsMismatch",
    "PluginError",
    "QueryFailed",
    "RoutingError",
    "SchemaOutdated",
    "StoreError",
    "StoreUnavailable",
    "SubmitDeferred",
    "SubmitRejected",
    "TaskNotFound",
    "TaskUnsuccessful",
    "UndecodableRow",
    "UnknownAccount",
    "Unsupported",
    "VersionConflict",
    "WaitTimeout",
]


class CoatcheckError(Exception):
    """The root of every error that coatcheck raises."""


class ConfigurationError(CoatcheckError):
    """Something was put together in a way that cannot work."""


class PluginError(ConfigurationError):
    """A plugin that was asked for is broken, incompatible, blocked or in conflict."""


class UnknownAccount(ConfigurationError, LookupError):
    """A task names an account that its handler was not given."""


class SchemaOutdated(ConfigurationError):
    """The store's schema is older or newer than this version of coatcheck can use."""


class InvalidParams(CoatcheckError, ValueError):
    """The caller's params or options cannot be accepted; nothing was written."""


class NotPersistable(InvalidParams):
    """A value cannot be stored as JSON and read back equal.

    `path` leads to the culprit, as in ``params.pages[3].image``.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class RoutingError(CoatcheckError, LookupError):
    """No single handler can be found for what was submitted."""


class NoHandler(RoutingError):
    """No registered handler fits."""


class AmbiguousHandler(RoutingError):
    """Several handlers accept these params; `candidates` are their keys, sorted."""

    def __init__(self, message: str, candidates: Sequence[str]) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class ParamsMismatch(RoutingError):
    """The handler that was named, or chosen, takes params of another type."""


class TaskNotFound(CoatcheckError, LookupError):
    """There is no such task, or it belongs to another tenant."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"there is no task {task_id!r} here; check the id, the tenant, and whether the task was purged"
        )
        self.task_id = task_id


class TaskUnsuccessful(CoatcheckError):
    """A result was asked of a task that ended without one; `task` is its last snapshot."""

    def __init__(self, task: Task) -> None:
        why = f": {task.error.message}" if task.error else ""
        super().__init__(f"task {task.id} ended as {task.status}{why}")
        self.task = task


class WaitTimeout(CoatcheckError, TimeoutError):
    """The time to wait ran out before the task ended; `task` is its snapshot at that time."""

    def __init__(self, task: Task, timeout: timedelta) -> None:
        super().__init__(
            f"task {task.id} is still {task.status} after {timeout.total_seconds():g} s of waiting; "
            "it goes on, so wait again or look later"
        )
        self.task = task


class InvalidTransition(CoatcheckError):
    """The lifecycle has no such step from the status that the task has."""


class StoreError(CoatcheckError):
    """The store refused or failed."""


class DuplicateTask(StoreError):
    """A task with this id exists and has other params."""


class DedupConflict(StoreError):
    """The dedup key is held by a task with other params; `holder` is that task's id."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class VersionConflict(StoreError):
    """The task has moved on since the snapshot that was to be replaced."""


class LeaseLost(StoreError):
    """The lease has ended or belongs to somebody else; the outcome was not written."""


class UndecodableRow(StoreError):
    """A stored task cannot be read by this version; it is set aside, not lost."""


class Unsupported(StoreError):
    """The store does not have this capability."""


class StoreUnavailable(StoreError, ConnectionError):
    """The store cannot be reached now. Retry; never go round the store."""


class HandlerError(CoatcheckError):
    """What a handler raises to tell the worker what a provider call came to."""

    def __init__(
        self, message: str, *, code: str | None = None, retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class SubmitRejected(HandlerError):
    """The provider answered: not created, and trying again is of no use."""


class SubmitDeferred(HandlerError):
    """Certainly not created, but may be tried again, after `retry_after` if given.

    `rate_limited` tells that the provider asked this caller to slow down (429), which also pauses
    the gate of the account or else of the provider. `blames_provider` is False where something else is
    the reason, such as a key, a balance, or a document that cannot be fetched: no circuit breaker counts it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after: timedelta | None = None,
        rate_limited: bool = False,
        blames_provider: bool = True,
    ) -> None:
        super().__init__(message, code=code, retry_after=retry_after)
        self.rate_limited = rate_limited
        self.blames_provider = blames_provider


class QueryFailed(HandlerError):
    """A query did not answer the question; the task stays tracked and is queried again.

    With ``rate_limited=True`` the provider asked to slow down (429): the query gate is paused for `retry_after`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after: timedelta | None = None,
        rate_limited: bool = False,
    ) -> None:
        super().__init__(message, code=code, retry_after=retry_after)
        self.rate_limited = rate_limited


class CallbackRejected(HandlerError):
    """A callback is not authentic or not understood; nothing was done."""
