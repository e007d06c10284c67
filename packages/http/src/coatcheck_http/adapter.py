"""What an HTTP handler says: how requests are built and answers read, what errors mean, which account to use.

Most of it is pure, so that handlers are tested with nothing but samples of answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar, Self, TypeVar, overload

from attrs import field, fields, frozen

from coatcheck.errors import CallbackRejected, ConfigurationError, InvalidParams, Unsupported
from coatcheck.gates import Gate
from coatcheck.handler import (
    CallbackRequest,
    CallContext,
    CancelContext,
    Capability,
    Handler,
    QueryContext,
    SubmitContext,
)
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.secret import Secret
from coatcheck.task import CancelOutcome, QueryParams
from coatcheck_http.accounts import Accounts, ApiKey, find_account, header_value
from coatcheck_http.callbacks import check_own_callback, own_callback_url
from coatcheck_http.classify import ErrorClass, ProviderError, classify
from coatcheck_http.download import Download
from coatcheck_http.errors import UnreadableAnswer
from coatcheck_http.extract import first_text
from coatcheck_http.facts import ProviderFacts
from coatcheck_http.messages import HttpRequest, HttpResponse
from coatcheck_http.redaction import short
from coatcheck_http.retry_after import parse_retry_after
from coatcheck_http.settings import HttpSettings
from coatcheck_http.urls import check_base_url, is_trusted, shown

__all__ = ["HttpAdapter", "Prepared", "PreparedContext"]

P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - named as in `Handler`
A = TypeVar("A")


@frozen(kw_only=True)
class Prepared:
    """What `HttpHandler.prepare` got ready for `build_submit`."""

    files: Mapping[str, Download] = field(factory=dict)
    """Documents that were downloaded to be uploaded, by whatever name the handler likes."""
    values: Mapping[str, str] = field(factory=dict, repr=False)
    """Such as a URL that was signed for this attempt."""


@frozen(kw_only=True)
class PreparedContext(SubmitContext):
    """The context of a submit call, with what was prepared for it."""

    prepared: Prepared = field(factory=Prepared)

    @classmethod
    def of(cls, context: SubmitContext, prepared: Prepared | None = None) -> Self:
        """Return a context of a submit call with what was prepared for it; to test `build_submit` with."""
        known = {each.name: getattr(context, each.name) for each in fields(SubmitContext)}
        return cls(**known, prepared=Prepared() if prepared is None else prepared)


class HttpAdapter(Handler[P]):
    """The half of `HttpHandler` that subclasses fill in and use. Subclass `HttpHandler`, not this."""

    facts: ClassVar[ProviderFacts | None] = None
    """What is known of the provider beyond its wire format."""
    default_base_url: ClassVar[str | None] = None
    """Where the provider is, unless the settings say otherwise."""
    not_created_statuses: ClassVar[AbstractSet[int]] = frozenset()
    """HTTP statuses, such as 503, that the provider documents as "not created". Else 5xx proves nothing."""
    not_created_codes: ClassVar[AbstractSet[str]] = frozenset()
    """Codes in error bodies that mean "not created" though their class alone would not prove it."""
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {}
    """What the provider's codes mean; goes before words in codes and the HTTP status."""
    error_code_paths: tuple[str, ...] = ("error.code", "error.type", "code", "error_code", "error")
    """Where error bodies have their code; the first that is not empty counts."""
    error_message_paths: tuple[str, ...] = (
        "error.message", "message", "error_msg", "msg", "detail", "error_description", "error",
    )  # fmt: skip
    """Where error bodies have their message."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Keep the poll floor that the provider documents, unless the class says otherwise."""
        super().__init_subclass__(**kwargs)
        if "facts" in vars(cls) and "poll_floor" not in vars(cls):
            cls.poll_floor = None if cls.facts is None else cls.facts.poll_floor

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; no I/O, and no credentials needed in processes that only submit tasks.

        Raises:
            ConfigurationError: there is no base URL, or it or a trusted origin must not see credentials.
        """
        if key is not None:
            self.key = self.provider_key = key
        self.settings = HttpSettings() if settings is None else settings
        base_url = self.settings.base_url or self.default_base_url
        if base_url is None:
            message = f"handler {self.key!r} needs the setting base_url, the URL of the server"
            raise ConfigurationError(message)
        self.base_url = check_base_url(base_url, allow_http=self.settings.allow_http)
        self._trusted = tuple(
            check_base_url(each, allow_http=self.settings.allow_http)
            for each in (self.base_url, *self.settings.trusted_origins)
        )
        self._accounts = accounts

    async def prepare(self, params: P, context: SubmitContext) -> Prepared:
        """Do what a creating request needs beforehand, such as downloading the document. Nothing by default.

        Whatever it raises is certain to have created nothing: `InvalidParams` ends the task, anything else
        defers it.
        """
        return Prepared()

    @abstractmethod
    def build_submit(self, params: P, context: PreparedContext) -> HttpRequest:
        """Return the creating request; `context.prepared` has what `prepare` returned. Pure.

        Raises:
            InvalidParams: no request can be made of these params.
        """

    @abstractmethod
    def parse_submit(self, response: HttpResponse, params: P, context: PreparedContext) -> SubmitResult:
        """Return what an answer without an error says. Pure; what it raises leaves the outcome unknown."""

    @abstractmethod
    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return the query. Pure."""

    @abstractmethod
    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return what an answer without an error says. Pure."""

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Complete a result that takes more requests, with `download` or `ask`. By default it is complete."""
        return result

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the request that cancels. Pure. To override it is to have the capability."""
        raise Unsupported(self._lacks(Capability.CANCEL))

    def parse_cancel(
        self, response: HttpResponse, params: QueryParams, context: CancelContext
    ) -> CancelOutcome:
        """Return what the answer to a cancel says: by default its status alone. Pure."""
        if response.ok:
            return CancelOutcome.CONFIRMED
        later = {ErrorClass.PROVIDER_UNAVAILABLE, ErrorClass.AUTH, ErrorClass.RATE_LIMITED}
        unknown = not 400 <= response.status < 500 or self.classify(None, response.status, "") in later  # noqa: PLR2004
        return CancelOutcome.UNKNOWN if unknown else CancelOutcome.REFUSED

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error that an answer is, or None for a good one. Pure.

        By default every status but 2xx is one. Override it for providers that put errors into good answers,
        or to let `parse_submit` have the "already exists" of a provider that takes our reference.
        """
        return None if response.ok else self.error_of(response)

    def classify(self, code: str | None, http_status: int, message: str) -> ErrorClass:
        """Return what an error means: by `error_codes` first, then by `coatcheck_http.classify.classify`."""
        found = self.error_codes.get(code) if code is not None else None
        return classify(code, http_status, message) if found is None else found

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request, which is encoded, with credentials: by default the key as a bearer token.

        It may sign the body, add to the query, or await a `TokenCache`.
        """
        return request.with_headers(authorization=f"Bearer {header_value(self.account(context).api_key)}")

    def credentials_refused(self, context: CallContext) -> bool:
        """Drop minted credentials that the provider refused; True if others can be had, so try again soon."""
        return False

    def own_callback_url(self, context: CallContext) -> str | None:
        """Return where the provider may call back about this task, with a proof in it that it was told by us.

        None if the application has no such address, or the account no `callback_secret`. For providers that sign
        nothing, or only with what the account does not hold.
        """
        if context.callback_url is None:
            return None
        secret = self._callback_secret(context.account_id)
        if secret is None:
            return None
        return own_callback_url(context.callback_url, context.task_id, secret.reveal())

    def check_own_callback(self, request: CallbackRequest, account_id: str | None) -> None:
        """Let a callback pass that came to an address of `own_callback_url`.

        Raises:
            CallbackRejected: it did not, or the account has no `callback_secret`.
        """
        secret = self._callback_secret(account_id)
        if secret is None:
            name = account_id or "default"
            message = f"{self.key}: account {name!r} has no callback_secret, so no callback can be authentic"
            raise CallbackRejected(message)
        check_own_callback(request, secret.reveal())

    def _callback_secret(self, account_id: str | None) -> Secret | None:
        found = getattr(find_account(self.key, self._accounts, account_id), "callback_secret", None)
        return found if isinstance(found, Secret) else None

    def suggested_gates(self) -> Sequence[Gate]:
        """Return gates that keep to the limits which the provider documents, as `facts` have them."""
        return () if self.facts is None else self.facts.suggested_gates(self.provider_key)

    @overload
    def account(self, context: CallContext) -> ApiKey: ...
    @overload
    def account(self, context: CallContext, kind: type[A]) -> A: ...
    def account(self, context: CallContext, kind: type[A] | None = None) -> A | ApiKey:
        """Return the account of a call, an `ApiKey` or of the `kind` that the handler takes.

        Raises:
            UnknownAccount: the handler was not given it.
            ConfigurationError: it is of another kind.
        """
        found = find_account(self.key, self._accounts, context.account_id)
        wanted: type[A | ApiKey] = ApiKey if kind is None else kind
        if isinstance(found, wanted):
            return found
        message = (
            f"an account of handler {self.key!r} is of {wanted.__qualname__}, not {type(found).__qualname__}"
        )
        raise ConfigurationError(message)

    def trusts(self, url: str) -> bool:
        """Whether an absolute URL may see the credentials: of the base URL's origin, or of a trusted one."""
        try:
            return is_trusted(url, self._trusted)
        except InvalidParams:
            return False

    def error_of(self, response: HttpResponse) -> ProviderError:
        """Return code and message of an error body, by `error_code_paths` and `error_message_paths`."""
        code = message = None
        with suppress(UnreadableAnswer):
            body = response.json()
            code, message = (
                first_text(body, *self.error_code_paths),
                first_text(body, *self.error_message_paths),
            )
        if message is None:
            location = response.header("location")
            message = f"redirect to {shown(location)}" if location else response.text[:500]
        return ProviderError(status=response.status, code=code and short(code, 100), message=short(message))

    def retry_after(self, response: HttpResponse, context: CallContext) -> timedelta | None:
        """Return how long the provider asks to wait: `Retry-After`, within bounds, or None."""
        return parse_retry_after(
            response.header("retry-after"),
            now=context.now,
            maximum=self.settings.max_retry_after,
            date=response.header("date"),
        )
