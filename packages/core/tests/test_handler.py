"""The contract of handlers: which params they take, what they can, and what they are told."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NewType, TypedDict, TypeVar

import pytest
from attrs import frozen

from coatcheck.errors import ConfigurationError, UnknownAccount, Unsupported
from coatcheck.handler import (
    BlockingHandler,
    CallbackRequest,
    CancelContext,
    CancelOutcome,
    Capability,
    Handler,
    QueryContext,
    SubmitContext,
    params_type_of,
    pick_account,
)
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import QueryParams

T0 = datetime(2030, 1, 1, tzinfo=UTC)
JOB = QueryParams(external_task_id="remote-1")
A = TypeVar("A")
B = TypeVar("B")


@frozen
class Request:
    """What a caller submits."""

    url: str = "https://example.com/a.pdf"


class Named(TypedDict):
    """A dictionary with a name, which no object has as its class."""

    url: str


class Whole(Handler[A], Generic[A]):
    """A handler of whatever params its subclasses say."""

    key = "whole"

    async def submit(self, params: A, context: SubmitContext) -> SubmitResult:
        """Accept."""
        return SubmitResult.accepted("remote-1")

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Say that it runs."""
        return QueryResult.running()


class Direct(Whole[Request]):
    """Says its params in its base."""


class Inheriting(Direct):
    """Says nothing of its own."""


class Swapped(Whole[B], Generic[A, B]):
    """Hands the second of two variables down."""


class Half(Swapped[int, A]):
    """Binds one of two variables."""


class Bound(Half[Request]):
    """Binds the other."""


class Plain:
    """A mixin without variables."""


class Generous(Generic[A]):
    """A mixin with a variable of its own."""


class Mixed(Plain, Generous[int], Bound):
    """Has its handler last among its bases."""


class Beside(Generous[Any], Half[Request]):
    """Has a generic mixin before its handler."""


class Blocking(BlockingHandler[Request]):
    """Runs in threads."""

    key = "blocking"

    def submit_blocking(self, params: Request, context: SubmitContext) -> SubmitResult:
        """Accept, and tell which thread did."""
        return SubmitResult.accepted(threading.current_thread().name)

    def query_blocking(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Say which thread did."""
        return QueryResult.succeeded(threading.current_thread().name)


class Declared(Whole):  # type: ignore[type-arg] # that is the point
    """Says its params in an attribute."""

    params_type = Request


@pytest.mark.parametrize("cls", [Direct, Inheriting, Bound, Mixed, Beside, Blocking, Declared])
def test_the_params_type_is_found(cls: type) -> None:
    """The generic argument is followed through any depth of inheritance, variables and mixins."""
    assert params_type_of(cls) is Request


class Bare(Whole):  # type: ignore[type-arg] # that is the point
    """Does not say which params it takes."""


class Unbound(Whole[B]):
    """Leaves its variable open."""


class Wild(Handler, Generic[A]):  # type: ignore[type-arg] # that is the point
    """Has a variable that is not its params."""


class Tame(Wild[Request]):
    """Binds that variable."""


class Anything(Whole[Any]):
    """Takes whatever comes."""


class Vague(Whole[object]):
    """Takes everything there is."""


class Listed(Whole[list[Request]]):
    """Takes a container."""


class ListOf(Whole[list[A]]):
    """Takes a container of something."""


class ListOfRequests(ListOf[Request]):
    """Says of what."""


class Either(Whole[Request | str]):
    """Takes one of two."""


Alias = NewType("Alias", Request)


class Renamed(Whole[Alias]):
    """Takes a name that exists only for the type checker."""


class Typed(Whole[Named]):
    """Takes a typed dictionary."""


@pytest.mark.parametrize(
    ("cls", "hint"),
    [
        (Bare, "params_type = YourRequest"),
        (Unbound, "params_type = YourRequest"),
        (Wild, "params_type = YourRequest"),
        (Tame, "params_type = YourRequest"),
        (Anything, "params_type = YourRequest"),
        (Handler, "params_type = YourRequest"),
        (Vague, "define a request class"),
        (Listed, "define a request class"),
        (ListOf, "define a request class"),
        (ListOfRequests, "define a request class"),
        (Either, "define a request class"),
        (Renamed, "define a request class"),
        (Typed, "define a request class"),
    ],
)
def test_what_cannot_be_routed_by_is_refused(cls: type, hint: str) -> None:
    """A type that no object's class can equal is refused with the fix; it never degrades to `object`."""
    with pytest.raises(ConfigurationError, match=hint):
        params_type_of(cls)


class Keyed(Direct):
    """Gives only a key."""

    key = "ocr:a"


class Rekeyed(Keyed):
    """Gives another key."""

    key = "ocr:b"


class Shared(Direct):
    """Gives a provider of its own."""

    key = "ocr:c"
    provider_key = "provider"


class SharedToo(Shared):
    """Belongs to the same provider."""

    key = "ocr:d"


class Computed(Direct):
    """Computes its key."""

    @property
    def key(self) -> str:  # type: ignore[override] # another way to give it
        """Return it."""
        return "ocr:e"


def test_the_provider_is_the_key_unless_given() -> None:
    """Each key is a provider of its own, until a class says that it shares one."""
    assert (Keyed.provider_key, Rekeyed.provider_key) == ("ocr:a", "ocr:b")
    assert (Shared.provider_key, SharedToo.provider_key) == ("provider", "provider")
    assert Computed().key == "ocr:e"


class Able(Direct):
    """Can cancel and find."""

    idempotency_window = timedelta(hours=1)

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Confirm."""
        return CancelOutcome.CONFIRMED

    async def find_submission(self, params: Request, context: SubmitContext) -> SubmitResult | None:
        """Find nothing."""


class Abler(Able):
    """Can what its base can."""


def test_capabilities_are_what_is_overridden() -> None:
    """A handler can what it or a base class implements, and deduplicates if it declares a window."""
    assert Direct().capabilities == Direct().capabilities == frozenset()
    able = {Capability.CANCEL, Capability.FIND_SUBMISSION, Capability.IDEMPOTENT_SUBMIT}
    assert Able().capabilities == able
    assert Abler().capabilities == able


def context(kind: Callable[..., Any]) -> Any:
    """Return a context made by hand."""
    return kind(
        task_id="t",
        idempotency_key="t",
        account_id=None,
        now=T0,
        created_at=T0,
        deadline_at=T0,
        metadata={"a": 1},
    )


async def test_what_is_not_overridden_is_unsupported() -> None:
    """Calling what a handler has not says so, and names the handler."""
    handler = Direct()
    request = CallbackRequest(method="POST", path="/", headers={})
    for call in (
        handler.query_many([JOB], {}),
        handler.cancel(JOB, context(CancelContext)),
        handler.find_submission(Request(), context(SubmitContext)),
        handler.parse_callback(request, None),
    ):
        with pytest.raises(Unsupported, match="handler 'whole' has no "):
            await call


async def test_optional_steps_do_nothing() -> None:
    """Validation, upgrades, opening and closing are there to be overridden."""
    handler = Direct()
    handler.validate(Request())
    assert handler.upgrade_params({"a": 1}, 1) == {"a": 1}
    assert handler.upgrade_query_params(JOB, 1) is JOB
    await handler.open()
    await handler.close()


async def test_a_blocking_handler_runs_in_threads() -> None:
    """Neither of its calls runs on the event loop's thread."""
    own = threading.current_thread().name
    submitted = await Blocking().submit(Request(), context(SubmitContext))
    assert submitted.query_params is not None
    assert submitted.query_params.external_task_id != own
    assert (await Blocking().query(JOB, context(QueryContext))).result != own


def test_a_context_made_by_hand_holds() -> None:
    """A handler can be tried without a worker: metadata is read-only, and nothing is lost."""
    given: SubmitContext = context(SubmitContext)
    given.ensure_held()
    with pytest.raises(TypeError):
        given.metadata["a"] = 2  # type: ignore[index] # that is the point


def test_accounts_are_picked_by_id() -> None:
    """None is the default account; an unknown one is named beside those that there are."""
    accounts = {"default": 1, "cn": 2}
    assert pick_account("h", accounts, None) == 1
    assert pick_account("h", accounts, "cn") == 2
    with pytest.raises(UnknownAccount, match="handler 'h' has no account 'us'; configured: cn, default"):
        pick_account("h", accounts, "us")
    with pytest.raises(UnknownAccount, match="configured: none"):
        pick_account("h", {}, None)
