"""The contract of handlers: one submit, one query, and what is optional.

A handler adapts one provider API. It is found by its stable `key`; which params it takes is told by its
generic argument (`class Acme(Handler[ParseRequest])`), resolved through any depth of inheritance.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Never, TypeAlias, TypeVar, cast, get_args, get_origin, is_typeddict

from attrs import field, frozen

from coatcheck.errors import ConfigurationError, UnknownAccount, Unsupported
from coatcheck.gates import Gate
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.retry import RetryPolicy
from coatcheck.task import JSON, CancelOutcome, QueryParams, Task

__all__ = [
    "AnyHandler",
    "BlockingHandler",
    "CallContext",
    "Callback",
    "CallbackRequest",
    "CancelContext",
    "CancelOutcome",
    "Capability",
    "Handler",
    "QueryContext",
    "SubmitContext",
    "params_type_of",
    "pick_account",
]

P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - users read `Handler[P]`

DEFAULT_ACCOUNT = "default"
"""What `account_id=None` stands for."""


class Capability(StrEnum):
    """What a handler can do beyond submit and query."""

    QUERY_MANY = "query_many"
    "Several jobs in one query."
    CANCEL = "cancel"
    "Tell the provider to cancel."
    FIND_SUBMISSION = "find_submission"
    "Look up a job by our own reference, after a submission of unknown outcome."
    CALLBACK = "parse_callback"
    "Understand the provider's callbacks."
    IDEMPOTENT_SUBMIT = "idempotency_window"
    "The provider deduplicates on our key for a declared time."


def _held() -> None:
    """Hold for ever: what a context made by hand does."""


@frozen(kw_only=True)
class CallContext:
    """What a handler may know about the task of a call. Never the payload."""

    task_id: str
    """Ours."""
    idempotency_key: str
    """For providers that deduplicate: the same at every attempt of this task."""
    account_id: str | None
    """Which credential to use; None is the default account."""
    now: datetime
    """The store's time, shortly before the call."""
    created_at: datetime
    deadline_at: datetime
    submit_attempts: int = 0
    """Submissions started before this call."""
    query_count: int = 0
    """Queries before this call."""
    metadata: Mapping[str, JSON] = field(factory=dict, converter=MappingProxyType)
    """The caller's notes, read-only."""
    callback_url: str | None = None
    """Where the provider may send its callback, if the application has such an address."""
    ensure_held: Callable[[], None] = field(default=_held, repr=False, eq=False)
    """Raises `LeaseLost` once the claim is lost. Call it immediately before writing to the wire."""


@frozen(kw_only=True)
class SubmitContext(CallContext):
    """The context of a submit call."""


@frozen(kw_only=True)
class QueryContext(CallContext):
    """The context of a query."""


@frozen(kw_only=True)
class CancelContext(CallContext):
    """The context of a cancel."""


@frozen(kw_only=True)
class CallbackRequest:
    """An HTTP request that reached the application's callback address, as received."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    query: Mapping[str, str] = field(factory=dict)
    body: bytes = b""


@frozen(kw_only=True)
class Callback:
    """What an authentic callback says. It is only ever a nudge: the job is queried, never believed."""

    external_task_ids: Sequence[str]
    """Which jobs it is about."""
    reply_status: int = 200
    reply_body: bytes = b""
    reply_headers: Mapping[str, str] = field(factory=dict)


_keyed_by_default: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes whose `provider_key` is their key because nobody gave one; their subclasses don't inherit it."""


class Handler(ABC, Generic[P]):
    """Adapts one provider API. Subclass it with the params type: ``class Acme(Handler[ParseRequest])``.

    Constructors do no I/O and need no credentials. The methods of one handler run on an event loop of
    the handler's own, so a handler that blocks stalls only itself.
    """

    key: str
    """Stable, unique, persisted with every task."""
    provider_key: str
    """Whose limits count; by default the key."""
    retry: RetryPolicy | None = None
    """Goes before the worker's policy."""
    idempotency_window: ClassVar[timedelta | None] = None
    """How long the provider deduplicates on our idempotency key; None if it does not."""
    marks_wire: ClassVar[bool] = False
    """Whether `submit` calls `context.ensure_held()` right before it writes to the wire, always. Then whatever
    fails before that is certain to have created nothing; else any unexpected error leaves the outcome unknown."""
    query_batch_size: ClassVar[int] = 100
    """How many jobs one `query_many` takes at most."""
    poll_floor: timedelta | None = None
    """How long to wait at least between two queries of one job, whatever the retry policy says; None has no such
    limit. Only a callback goes before it."""
    not_found_grace: ClassVar[timedelta] = timedelta(seconds=60)
    """How long after acceptance "not found" means "not yet"."""
    params_version: ClassVar[int] = 1
    """Stored with params and query params; raise it when their shape changes, and write the upgrades."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Let `provider_key` be the key where it is not given."""
        super().__init_subclass__(**kwargs)
        if "key" in cls.__dict__ and not isinstance(cls.__dict__["key"], property):
            given = any(
                "provider_key" in vars(base) and base not in _keyed_by_default for base in cls.__mro__
            )
            if not given:
                cls.provider_key = cls.key
                _keyed_by_default.add(cls)

    def validate(self, params: P) -> None:
        """Raise `InvalidParams` for params that this provider cannot take; called before anything is written."""

    @abstractmethod
    async def submit(self, params: P, context: SubmitContext) -> SubmitResult:
        """Put at most one creating request on the wire and return the provider's answer.

        Raises:
            SubmitRejected: the provider answered: not created, final.
            SubmitDeferred: certainly not created, may be tried again.
            Exception: anything else leaves the outcome unknown, once the call was started.
        """

    @abstractmethod
    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Ask once how the job is, and return the answer.

        Raises:
            QueryFailed: the question was not answered; it is asked again later.
            Exception: treated alike, with the exception's name in the error.
        """

    async def query_many(
        self, batch: Sequence[QueryParams], contexts: Mapping[str, QueryContext]
    ) -> Mapping[str, QueryResult | Exception]:
        """Ask about several jobs of one account at once; answers by external id, a missing one is an error."""
        raise Unsupported(self._lacks(Capability.QUERY_MANY))

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Tell the provider to cancel; called at least once for a cancelled task that the provider has."""
        raise Unsupported(self._lacks(Capability.CANCEL))

    async def find_submission(self, params: P, context: SubmitContext) -> SubmitResult | None:
        """Look the job up by our own reference. None is "nothing found", which proves nothing."""
        raise Unsupported(self._lacks(Capability.FIND_SUBMISSION))

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Authenticate a callback and say which jobs it is about; raise `CallbackRejected` otherwise."""
        raise Unsupported(self._lacks(Capability.CALLBACK))

    def cost(self, task: Task) -> int | None:
        """Return what the provider charges for a task that has ended, as far as it shows: pages, tokens, cents.

        A whole number in a unit of the handler's own, the same for all its tasks; None if it cannot be told, which
        is the default. It reads the snapshot, its result above all, and does nothing else. Budgets count it.
        """
        return None

    def suggested_gates(self) -> Sequence[Gate]:
        """Return gates that keep to the limits which the provider documents; none by default.

        Nothing applies them by itself: `manager.apply_suggested_gates` does, to gates that are not there yet.
        """
        return ()

    def upgrade_params(self, raw: JSON, version: int) -> JSON:
        """Bring params that were stored under an older `params_version` to the present shape."""
        return raw

    def upgrade_query_params(self, params: QueryParams, version: int) -> QueryParams:
        """Bring query params that were stored under an older `params_version` to the present shape."""
        return params

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond submit and query; by default what it overrides."""
        return _overridden(type(self)) | (
            {Capability.IDEMPOTENT_SUBMIT} if self.idempotency_window is not None else frozenset()
        )

    async def open(self) -> None:
        """Acquire what calls need, such as an HTTP client; called before the first call, on its own loop."""

    async def close(self) -> None:
        """Release what `open` acquired; called after the last call, also if `open` failed half-way."""

    def _lacks(self, capability: Capability) -> str:
        return f"handler {self.key!r} has no {capability}"


AnyHandler: TypeAlias = Handler[Never]
"""A handler of whatever params: what lists of handlers are made of."""

_OPTIONAL = (Capability.QUERY_MANY, Capability.CANCEL, Capability.FIND_SUBMISSION, Capability.CALLBACK)
_overridden_cache: dict[type, frozenset[Capability]] = {}


def _overridden(cls: type) -> frozenset[Capability]:
    if cls not in _overridden_cache:
        _overridden_cache[cls] = frozenset(
            name for name in _OPTIONAL if getattr(cls, name.value) is not getattr(Handler, name.value)
        )
    return _overridden_cache[cls]


class BlockingHandler(Handler[P]):
    """A handler over a blocking SDK: its two methods run in threads, one call a thread."""

    @abstractmethod
    def submit_blocking(self, params: P, context: SubmitContext) -> SubmitResult:
        """As `Handler.submit`, blocking."""

    @abstractmethod
    def query_blocking(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """As `Handler.query`, blocking."""

    async def submit(self, params: P, context: SubmitContext) -> SubmitResult:
        """Run `submit_blocking` in a thread."""
        return await asyncio.to_thread(self.submit_blocking, params, context)

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Run `query_blocking` in a thread."""
        return await asyncio.to_thread(self.query_blocking, params, context)


def params_type_of(handler: type | AnyHandler) -> type:
    """Return the params type of a handler or its class, through any depth of inheritance and TypeVars.

    A `params_type` attribute goes first.

    Raises:
        ConfigurationError: the type is not told, is still a TypeVar, or is a parameterised container.
    """
    declared = getattr(handler, "params_type", None)
    cls = handler if isinstance(handler, type) else type(handler)
    found = declared if declared is not None else _generic_argument(cls)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if found is None or found is Any or isinstance(found, TypeVar):
        message = (
            f"{name} does not say which params it takes; write `class {cls.__name__}(Handler[YourRequest])`, "
            "or set `params_type = YourRequest`"
        )
        raise ConfigurationError(message)
    if get_origin(found) is not None or not isinstance(found, type) or is_typeddict(found):
        message = (
            f"{name} takes {found!r}, which is not a class of its own, so tasks cannot be routed by it; "
            "define a request class that holds it"
        )
        raise ConfigurationError(message)
    if found is object:
        message = f"{name} takes `object`, which fits everything; define a request class"
        raise ConfigurationError(message)
    return found


def _generic_argument(handler: type) -> object:
    """Follow Handler's argument down the chain of generic bases."""

    def resolve(cls: type, arguments: Mapping[object, object]) -> object:
        for base in getattr(cls, "__orig_bases__", ()):
            origin = get_origin(base)
            given = tuple(arguments.get(each, each) for each in get_args(base))
            if origin is Handler:
                return given[0]
            if inspect.isclass(origin) and issubclass(origin, Handler):
                parameters = cast("tuple[object, ...]", getattr(origin, "__parameters__", ()))
                found = resolve(origin, dict(zip(parameters, given, strict=False)))
                if found is not None:
                    return found
        for base in cls.__bases__:
            if base is not Handler and issubclass(base, Handler):
                found = resolve(base, {})
                if found is not None:
                    return found
        return None

    return resolve(handler, {})


A = TypeVar("A")


def pick_account(handler_key: str, accounts: Mapping[str, A], account_id: str | None) -> A:
    """Return the account called `account_id` (None: "default"); raise `UnknownAccount` naming those there are."""
    name = DEFAULT_ACCOUNT if account_id is None else account_id
    if name not in accounts:
        known = ", ".join(sorted(accounts)) or "none"
        message = f"handler {handler_key!r} has no account {name!r}; configured: {known}"
        raise UnknownAccount(message)
    return accounts[name]
