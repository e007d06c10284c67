"""fal: the queue in front of its models.

Read in 2026 from fal-ai/fal at c6f0afaa (``projects/fal_client``), fal-js and docs.fal.ai (pages on the queue and on
webhooks), and, for the names of inputs and what a result holds, from ``packages/fal/src/fal-video-model.ts`` of
vercel/ai at 02ec605f; nothing was tried against the live service. The body of a request is the model's input, so the
names of inputs are settings. The answer has absolute URLs for status, result and cancel; they see the key only if they
are of the base URL's origin or a trusted one. "Completed" is not success: the result is a second request, and decides.
There is no idempotency key and no look-up by a reference of ours. Not documented where we read are limits of rate, how
long results are kept, and what becomes of the status after a cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Literal

from attrs import evolve, field, frozen

from coatcheck.errors import CallbackRejected, ConfigurationError, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.fal_results import read_videos
from coatcheck_handler_video.fal_webhooks import WebhookKeys, read_key
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.inputs import check_input_names, read_inputs
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import VideoResult
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    as_secret,
    callback_ids,
    callback_json,
    first_text,
    header_value,
    segment,
    short,
)
from coatcheck_http.accounts import find_account

__all__ = ["FalAccount", "FalVideo", "FalVideoSettings"]

STATUS, RESPONSE, CANCEL = "status_url", "response_url", "cancel_url"
"""The names, in answers and among the query params, of the URLs that the provider gives."""
_PLACES = {STATUS: "/status", RESPONSE: "", CANCEL: "/cancel"}
"""Where these are below a request, if an answer lacks them."""
_IN_PROGRESS = "request is still in progress"
_KEYS_BYTES = 256 * 1024
_INPUT_NAMES: Mapping[str, str] = {
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "first_frame": "image_url",
    "duration": "duration",
    "resolution": "resolution",
    "aspect_ratio": "aspect_ratio",
    "seed": "seed",
}
_NOT_THE_JOBS = frozenset(
    {
        HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)  # fmt: skip
"""Answers to a request for a result that say nothing of the job; the provider's SDK repeats most of them."""


@frozen
class FalAccount:
    """One key."""

    api_key: Secret = field(converter=as_secret)
    """Prints as ``***``."""
    user_id: str | None = field(default=None, kw_only=True)
    """Ours at the provider. The keys that sign webhooks are the same for all of its users, so with this callbacks that
    another user had sent are refused."""

    @classmethod
    def from_env(cls, name: str) -> FalAccount:
        """Return the account whose key is in the environment variable `name`."""
        return cls(Secret.from_env(name))


def _keys(values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        message = f"webhook_keys are a sequence of strings, not the string {values!r}; write ({values!r},)"
        raise ConfigurationError(message)
    return tuple(values)


@frozen(kw_only=True)
class FalVideoSettings(VideoSettings):
    """Settings of `FalVideo`."""

    input_names: Mapping[str, str] = field(factory=dict)
    """What the model calls the fields of a request, such as ``{"last_frame": "end_image_url"}``; goes before the usual
    names. An empty name says that the model has no such input, so that a request with it is refused."""
    duration_form: Literal["suffixed", "text", "number"] = "suffixed"
    """How the model takes a duration of 5 seconds: as ``"5s"``, ``"5"`` or ``5``."""
    callbacks: bool = False
    """Whether the provider is asked to call back, and callbacks are taken. Needs ``coatcheck-http[ed25519]``."""
    webhook_keys: tuple[str, ...] = field(default=(), converter=_keys)
    """The provider's public keys, as the ``x`` of its key set; without any the key set is fetched."""
    jwks_url: str = "https://rest.alpha.fal.ai/.well-known/jwks.json"
    """The provider's key set, fetched without credentials and kept for 24 hours at most."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigurationError: `input_names` has what is no field of a request, `duration_form` or a key is none, or a
                setting of all handlers means nothing.
        """
        super().__attrs_post_init__()
        check_input_names(self.input_names)
        if self.duration_form not in {"suffixed", "text", "number"}:
            message = f"duration_form must be 'suffixed', 'text' or 'number', not {self.duration_form!r}"
            raise ConfigurationError(message)
        for number, key in enumerate(self.webhook_keys, start=1):
            try:
                read_key(key)
            except ValueError as error:
                message = f"webhook key {number} of {len(self.webhook_keys)} is no public key: {error}"
                raise ConfigurationError(message) from error


@frozen(kw_only=True)
class _Unfetched(VideoResult):
    """A result that has to be asked for."""

    place: str


class FalVideo(VideoHandler):
    """Videos by any model in fal's queue."""

    key = "video:fal"
    default_base_url = "https://queue.fal.run"
    default_model = "fal-ai/hunyuan-video"
    facts = ProviderFacts(
        name="fal",
        sources=(
            "fal-ai/fal at c6f0afaa, projects/fal_client",
            "fal-ai/fal-js",
            "docs.fal.ai: queue, webhooks",
            "vercel/ai at 02ec605f, packages/fal",
        ),
    )
    modes = frozenset(VideoMode)
    id_paths = ("request_id",)
    # the words of the SDK's Queued, InProgress and Completed
    statuses = StatusMap(waiting="IN_QUEUE", running="IN_PROGRESS", succeeded="COMPLETED")
    error_code_paths = ("error_type", "detail.0.type")
    error_message_paths = ("detail", "detail.0.msg", "error.message", "message", "error")

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own inputs have the usual names."""
        super().__init__(accounts, key=key, settings=settings)
        self._own = settings if isinstance(settings, FalVideoSettings) else FalVideoSettings()
        self._input_names = {**_INPUT_NAMES, **self._own.input_names}
        self._webhook_keys = WebhookKeys(self._own.webhook_keys, self._own.jwks_url, self._fetch_keys)

    def validate(self, params: VideoRequest) -> None:
        """Refuse what has no name among the inputs, and what is no model's path.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._input_of(params)
        self._path_of(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request: the input is the body, options beneath the rest."""
        asks = self._own.callbacks and context.callback_url is not None
        return HttpRequest.post(
            "/" + "/".join(map(segment, self._path_of(params))),
            json=self._input_of(params),
            query={"fal_webhook": context.callback_url or ""} if asks else {},
        )

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the request's id, and the URLs for its status, its result and its cancel."""
        made = super().create_query_params(response, params)
        app = "/".join(map(segment, self._path_of(params)[:2]))  # not the rest, which the provider drops
        base = f"/{app}/requests/{segment(made.external_task_id)}"
        urls: dict[str, JSON] = {
            name: first_text(response.json(), name) or f"{base}{end}" for name, end in _PLACES.items()
        }
        return QueryParams(external_task_id=made.external_task_id, provider_params=urls)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the status, without logs."""
        return HttpRequest.get(params.read(STATUS, str), query={"logs": "0"})

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the request that cancels what has not started; the provider takes it, or says that it is too late."""
        return HttpRequest(method="PUT", url=params.read(CANCEL, str))

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return where the result is, or why there is none."""
        body = response.json()
        told = first_text(body, "error.message", "error")
        if told is not None:
            code, word = first_text(body, "error_type"), self.status_word(response)
            return QueryResult.failed(code, told, provider_status=word)
        return _Unfetched(videos=(), place=first_text(body, RESPONSE) or params.read(RESPONSE, str))

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Ask for the result, and copy its videos, if the settings say where to.

        Raises:
            QueryFailed: the provider refuses to tell, for a reason that is not the job's, or a video cannot be had now.
        """
        if isinstance(result.result, _Unfetched):
            response = await self.ask(HttpRequest.get(result.result.place), context)
            result = self._fetched(response, result, context)
        return await super().fetch_result(result, context)

    def error_of(self, response: HttpResponse) -> ProviderError:
        """Return code and message of an error; the code may be in a header alone."""
        error = super().error_of(response)
        told = response.header("x-fal-error-type")
        return error if told is None else evolve(error, code=short(told, 100))

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key."""
        key = header_value(self.account(context, FalAccount).api_key)
        return request.with_headers(authorization=f"Key {key}")

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which request a callback is about, if the provider has signed it.

        Raises:
            CallbackRejected: it has not, or long ago, or for another user; or it makes no sense; or the provider's
                public keys cannot be had now.
            ConfigurationError: the extra ``ed25519`` of coatcheck-http is not installed.
        """
        if not self._own.callbacks:
            message = f"{self.key} takes no callbacks; switch them on with the setting callbacks"
            raise CallbackRejected(message)
        account = find_account(self.key, self._accounts, account_id)
        await self._webhook_keys.check(request, account.user_id if isinstance(account, FalAccount) else None)
        return Callback(external_task_ids=callback_ids(callback_json(request), "request_id"))

    async def _fetch_keys(self, url: str) -> str:
        return (await self.download(url, limit_bytes=_KEYS_BYTES)).text

    def _fetched(self, response: HttpResponse, result: QueryResult, context: QueryContext) -> QueryResult:
        """Return what the answer to a request for a result comes to. An error in it is mostly the job's own."""
        word = result.provider_status
        if response.ok:
            made = read_videos(response.json_object())
            if made is None:
                return QueryResult.incomplete(provider_status=word)
            return QueryResult.succeeded(made, provider_status=word)
        error = self.error_of(response)
        if error.message.strip().casefold().startswith(_IN_PROGRESS):
            return QueryResult.incomplete(provider_status=word)
        found = self.classify(error.code, error.status, error.message)
        if error.status in _NOT_THE_JOBS:
            raise self.unanswered(response, context)
        if error.code is None and found is ErrorClass.NOT_FOUND_OR_EXPIRED:
            return QueryResult.not_found(f"the result is not there: {error.message}")
        if (
            error.code is None
            and not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        ):
            raise self.unanswered(response, context)
        message = error.message
        if found is ErrorClass.MODERATION:
            message = f"the provider refuses the content ({found}): {message}"
        return QueryResult.failed(error.code, message or "the job failed", provider_status=word)

    def _input_of(self, params: VideoRequest) -> dict[str, JSON]:
        """Return the input: options, and over them what the request says under the model's names."""
        duration: JSON = None
        if params.duration is not None:
            seconds = whole_seconds(params.duration)
            forms: Mapping[str, JSON] = {"suffixed": f"{seconds}s", "text": str(seconds), "number": seconds}
            duration = forms[self._own.duration_form]
        return read_inputs(self.key, params, self._input_names, duration=duration)

    def _path_of(self, params: VideoRequest) -> list[str]:
        model = self.model_of(params) or ""
        parts = model.split("/")
        if len(parts) < 2 or not all(parts):  # noqa: PLR2004 - owner and app
            message = f"model {model!r} must be 'owner/app', such as 'fal-ai/hunyuan-video', or longer"
            raise InvalidParams(message)
        for each in parts:
            segment(each)
        return parts
