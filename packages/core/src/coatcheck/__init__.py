"""Hand the job over, keep the ticket, come back for the result.

coatcheck durably tracks jobs at external providers behind a "submit once, query many times" API. Start with
`App`; write providers as `Handler`. Names are loaded when they are first used, so importing this is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck.app import App
    from coatcheck.catalog import create_store, discover
    from coatcheck.errors import (
        AmbiguousHandler,
        CallbackRejected,
        CoatcheckError,
        ConfigurationError,
        DedupConflict,
        DuplicateTask,
        HandlerError,
        InvalidParams,
        InvalidTransition,
        LeaseLost,
        NoHandler,
        NotPersistable,
        ParamsMismatch,
        PluginError,
        QueryFailed,
        RoutingError,
        SchemaOutdated,
        StoreError,
        StoreUnavailable,
        SubmitDeferred,
        SubmitRejected,
        TaskNotFound,
        TaskUnsuccessful,
        UnknownAccount,
        Unsupported,
        VersionConflict,
        WaitTimeout,
    )
    from coatcheck.gates import (
        AdmissionPolicy,
        Admit,
        Gate,
        Gates,
        Postpone,
        Rate,
        StandardAdmission,
        TaskChange,
    )
    from coatcheck.handler import (
        BlockingHandler,
        Callback,
        CallbackRequest,
        CancelContext,
        Handler,
        QueryContext,
        SubmitContext,
    )
    from coatcheck.hooks import hookimpl
    from coatcheck.manager import Manager, Submission, SubmitOptions
    from coatcheck.results import QueryResult, SubmitResult
    from coatcheck.retry import ExponentialRetry, RetryPolicy
    from coatcheck.secret import Secret
    from coatcheck.selector import Load, Outcomes, Selection, Selector, Standing
    from coatcheck.store import Filter, Store
    from coatcheck.task import JSON, CancelOutcome, QueryParams, Status, Task, TaskError
    from coatcheck.worker import Worker, WorkerSettings

__all__ = [
    "JSON",
    "AdmissionPolicy",
    "Admit",
    "AmbiguousHandler",
    "App",
    "BlockingHandler",
    "Callback",
    "CallbackRejected",
    "CallbackRequest",
    "CancelContext",
    "CancelOutcome",
    "CoatcheckError",
    "ConfigurationError",
    "DedupConflict",
    "DuplicateTask",
    "ExponentialRetry",
    "Filter",
    "Gate",
    "Gates",
    "Handler",
    "HandlerError",
    "InvalidParams",
    "InvalidTransition",
    "LeaseLost",
    "Load",
    "Manager",
    "NoHandler",
    "NotPersistable",
    "Outcomes",
    "ParamsMismatch",
    "PluginError",
    "Postpone",
    "QueryContext",
    "QueryFailed",
    "QueryParams",
    "QueryResult",
    "Rate",
    "RetryPolicy",
    "RoutingError",
    "SchemaOutdated",
    "Secret",
    "Selection",
    "Selector",
    "StandardAdmission",
    "Standing",
    "Status",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Submission",
    "SubmitContext",
    "SubmitDeferred",
    "SubmitOptions",
    "SubmitRejected",
    "SubmitResult",
    "Task",
    "TaskChange",
    "TaskError",
    "TaskNotFound",
    "TaskUnsuccessful",
    "UnknownAccount",
    "Unsupported",
    "VersionConflict",
    "WaitTimeout",
    "Worker",
    "WorkerSettings",
    "create_store",
    "discover",
    "hookimpl",
]

_ROOMS = {
    "app": ("App",),
    "catalog": ("create_store", "discover"),
    "gates": (
        "AdmissionPolicy",
        "Admit",
        "Gate",
        "Gates",
        "Postpone",
        "Rate",
        "StandardAdmission",
        "TaskChange",
    ),
    "handler": (
        "BlockingHandler",
        "Callback",
        "CallbackRequest",
        "CancelContext",
        "Handler",
        "QueryContext",
        "SubmitContext",
    ),
    "hooks": ("hookimpl",),
    "manager": ("Manager", "Submission", "SubmitOptions"),
    "results": ("QueryResult", "SubmitResult"),
    "retry": ("ExponentialRetry", "RetryPolicy"),
    "secret": ("Secret",),
    "selector": ("Load", "Outcomes", "Selection", "Selector", "Standing"),
    "store": ("Filter", "Store"),
    "task": ("JSON", "CancelOutcome", "QueryParams", "Status", "Task", "TaskError"),
    "worker": ("Worker", "WorkerSettings"),
}
_TOLD = {name for names in _ROOMS.values() for name in names}

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{f".{room}": names for room, names in _ROOMS.items()},
        ".errors": [name for name in __all__ if name not in _TOLD],
    },
)
