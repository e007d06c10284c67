"""Replicate.

Read in 2026 from replicate/replicate-python at 0110c2c5 and replicate-javascript (endpoints, prediction, its words),
from replicate.com/docs (webhooks, limits, how long data is kept), and, for the names of inputs, from
replicate.com/google/veo-3.1/versions (table of the input schema); nothing was tried against the live service. The
input of a prediction is whatever the model has, so the names of inputs are settings. The answer to a submission has
absolute URLs for the query and the cancel; they see the token only if they are of the base URL's origin or a trusted
one. There is no idempotency key and no look-up by a reference of ours. Not documented are codes of errors, and what a
cancel of a prediction that has ended is answered with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import urlsplit

from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.gates import Rate
from coatcheck.handler import Callback, CallbackRequest, CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.inputs import check_input_names, read_inputs
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    as_secret,
    callback_ids,
    callback_json,
    check_standard_webhook,
    first_object,
    first_text,
    header_value,
    lookup,
    segment,
)
from coatcheck_http.accounts import find_account

__all__ = ["ReplicateAccount", "ReplicateVideo", "ReplicateVideoSettings"]

LINKS_LIVE = timedelta(hours=1)
"""After this the provider deletes what a prediction took and made."""
GET, CANCEL = "get", "cancel"
"""The names among the query params of the URLs that the provider gave."""
_INPUT_NAMES: Mapping[str, str] = {
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "first_frame": "image",
    "last_frame": "last_frame",
    "reference_images": "reference_images",
    "duration": "duration",
    "resolution": "resolution",
    "aspect_ratio": "aspect_ratio",
    "seed": "seed",
    "audio": "generate_audio",
}
_VIDEO_NAME = re.compile(r"\.(mp4|webm|mov|mkv|gif)$")
_ENDED = frozenset({"succeeded", "failed"})
_RESET = re.compile(r"resets in ~?(\d{1,6})s")


@frozen
class ReplicateAccount:
    """One API token, and what its webhooks are signed with."""

    api_key: Secret = field(converter=as_secret)
    """The API token. Prints as ``***``."""
    webhook_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """The ``whsec_...`` that the provider tells at ``/v1/webhooks/default/secret``. None asks for no callbacks, and
    takes none."""

    @classmethod
    def from_env(cls, name: str) -> ReplicateAccount:
        """Return the account whose token is in the environment variable `name`."""
        return cls(Secret.from_env(name))


@frozen(kw_only=True)
class ReplicateVideoSettings(VideoSettings):
    """Settings of `ReplicateVideo`."""

    input_names: Mapping[str, str] = field(factory=dict)
    """What the model calls the fields of a request, such as ``{"first_frame": "start_image"}``; goes before the usual
    names. An empty name says that the model has no such input, so that a request with it is refused."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigurationError: `input_names` has what is no field of a request, or a setting of all handlers means
                nothing.
        """
        super().__attrs_post_init__()
        check_input_names(self.input_names)


class ReplicateVideo(VideoHandler):
    """Videos by any model on Replicate."""

    key = "video:replicate"
    default_base_url = "https://api.replicate.com"
    default_model = "google/veo-3.1"
    facts = ProviderFacts(
        name="Replicate",
        sources=(
            "replicate/replicate-python at 0110c2c5",
            "replicate/replicate-javascript",
            "replicate.com/docs",
            "replicate.com/google/veo-3.1, input schema",
        ),
        submit_rate=Rate(600, timedelta(minutes=1)),
        query_rate=Rate(3000, timedelta(minutes=1)),
        links_live=LINKS_LIVE,
        jobs_live=LINKS_LIVE,
    )
    modes = frozenset(VideoMode)
    query_path = "/v1/predictions/{id}"
    # the words of `Prediction` in the SDKs; "aborted" is one whose deadline passed before it started
    statuses = StatusMap(
        waiting="starting",
        running="processing",
        succeeded="succeeded",
        failed="failed aborted",
        canceled="canceled",
    )
    error_code_paths = ()
    """Errors are told in words; `type` and `title` are no codes."""
    error_message_paths = ("detail", "title")
    failure_code_paths = ()
    failure_message_paths = ("error",)

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own inputs have the usual names."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, ReplicateVideoSettings) else ReplicateVideoSettings()
        self._input_names = {**_INPUT_NAMES, **own.input_names}

    def validate(self, params: VideoRequest) -> None:
        """Refuse what has no name among the inputs, and a model that cannot be found.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._input_of(params)
        _place_of(self.model_of(params) or "")

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request, to the model, version or deployment; options are inputs, beneath the others."""
        path, version = _place_of(self.model_of(params) or "")
        body: dict[str, JSON] = {"input": self._input_of(params)}
        if version is not None:
            body["version"] = version
        if context.callback_url is not None and self._webhook_secret(context.account_id) is not None:
            body["webhook"] = context.callback_url
            body["webhook_events_filter"] = ["completed"]
        return HttpRequest.post(path, json=body)

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the prediction's id, and the URLs for its query and its cancel."""
        made = super().create_query_params(response, params)
        urls = {name: first_text(response.json(), f"urls.{name}") for name in (GET, CANCEL)}
        kept: dict[str, JSON] = {name: url for name, url in urls.items() if url is not None}
        return QueryParams(external_task_id=made.external_task_id, provider_params=kept)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the URL that the provider gave, or else of the prediction by its id."""
        url = first_text(params.provider_params, GET)
        return super().build_query(params, context) if url is None else HttpRequest.get(url)

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the request that cancels, to the URL that the provider gave, or else by the id."""
        by_id = f"/v1/predictions/{segment(params.external_task_id)}/cancel"
        return HttpRequest.post(first_text(params.provider_params, CANCEL) or by_id)

    def parse_cancel(
        self, response: HttpResponse, params: QueryParams, context: CancelContext
    ) -> CancelOutcome:
        """Return what the answer to a cancel says: it is too late if the prediction in it had ended."""
        if response.ok and self.status_word(response) in _ENDED:
            return CancelOutcome.REFUSED
        return super().parse_cancel(response, params, context)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the token as a bearer token."""
        token = header_value(self.account(context, ReplicateAccount).api_key)
        return request.with_headers(authorization=f"Bearer {token}")

    def retry_after(self, response: HttpResponse, context: CallContext) -> timedelta | None:
        """Return how long to wait: by `Retry-After`, or else by the words in which a limit is told."""
        hint = super().retry_after(response, context)
        if hint is not None or response.status != HTTPStatus.TOO_MANY_REQUESTS:
            return hint
        told = _RESET.search(self.error_of(response).message)
        return None if told is None else min(timedelta(seconds=int(told[1])), self.settings.max_retry_after)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos among the output, which is a URL, a list or an object, as the model likes."""
        body = response.json()
        urls = list(dict.fromkeys(_urls(lookup(body, "output"))))
        if not urls:
            return None
        videos = [each for each in urls if _VIDEO_NAME.search(urlsplit(each).path.lower())]
        expires_at = _expires_at(first_text(body, "completed_at"), context.now)
        return VideoResult(
            videos=tuple(Video(url=each, expires_at=expires_at) for each in videos or urls),
            usage=first_object(body, "metrics"),
            warnings=() if videos else ("no URL of the output has the name of a video; all are given",),
        )

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a prediction failed."""
        told = first_text(response.json(), *self.failure_message_paths)
        if told is None and word == "aborted":
            message = "the prediction was aborted: its deadline passed before it started"
            return QueryResult.failed(None, message, provider_status=word)
        return super().read_failure(response, word)

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which prediction a callback is about, if it is signed with the account's webhook secret.

        Raises:
            CallbackRejected: it is not, or it is old, or makes no sense.
            ConfigurationError: the webhook secret is none.
        """
        secret = self._webhook_secret(account_id)
        if secret is None:
            name = account_id or "default"
            message = f"{self.key}: account {name!r} has no webhook_secret, so no callback can be authentic"
            raise CallbackRejected(message)
        check_standard_webhook(request, [secret.reveal()])
        return Callback(external_task_ids=callback_ids(callback_json(request), "id"))

    def _webhook_secret(self, account_id: str | None) -> Secret | None:
        account = find_account(self.key, self._accounts, account_id)
        return account.webhook_secret if isinstance(account, ReplicateAccount) else None

    def _input_of(self, params: VideoRequest) -> dict[str, JSON]:
        """Return the input: options, and over them what the request says under the model's names."""
        seconds = None if params.duration is None else whole_seconds(params.duration)
        return read_inputs(self.key, params, self._input_names, duration=seconds)


def _place_of(model: str) -> tuple[str, str | None]:
    """Return the path for a model's predictions, and the version for the body where the path has none.

    A model is ``owner/name``, ``owner/name:version``, a version's id, or ``deployments/owner/name``.
    """
    name, _, version = model.partition(":")
    parts = name.split("/")
    if not all(parts) or (":" in model and not version):
        parts = []
    match parts:
        case [only] if not version:
            return "/v1/predictions", only
        case [_, _] if version:
            return "/v1/predictions", version
        case [owner, short_name]:
            return f"/v1/models/{segment(owner)}/{segment(short_name)}/predictions", None
        case ["deployments", owner, short_name] if not version:
            return f"/v1/deployments/{segment(owner)}/{segment(short_name)}/predictions", None
    message = f"model {model!r} must be 'owner/name', 'owner/name:version', a version's id or 'deployments/owner/name'"
    raise InvalidParams(message)


def _urls(output: JSON) -> Iterator[str]:
    """Yield the URLs in an output, in order; files in base64 are none."""
    if isinstance(output, str):
        if output.strip().lower().startswith(("http://", "https://")):
            yield output.strip()
    elif isinstance(output, Mapping):
        for each in output.values():
            yield from _urls(each)
    elif isinstance(output, Sequence):
        for each in output:
            yield from _urls(each)


def _expires_at(completed_at: str | None, now: datetime) -> datetime:
    """Return when the output is deleted: an hour after the end, if that is told, and no later than from now."""
    with suppress(ValueError):
        ended = datetime.fromisoformat(completed_at or "")
        if ended.tzinfo is not None:
            return min(ended, now) + LINKS_LIVE
    return now + LINKS_LIVE
