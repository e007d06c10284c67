"""OpenRouter: videos by the models of many providers.

Read in 2026 from ``guides/overview/multimodal/video-generation.mdx`` of OpenRouterTeam/docs at 192ba148 (requests,
answers, webhooks), ``skills/openrouter-video/SKILL.md`` of OpenRouterTeam/skills at 1c6d7ef7 (words, content), and the
pages on the reference of videos and on errors of openrouter.ai/docs; nothing was tried against the live service. The
polling URL of an answer may be relative; it sees the key only if it is of the base URL's origin or a trusted one.
Videos are fetched with the key. There is no idempotency key, no look-up by a reference of ours, and no cancel. Not
documented where we read are limits of rate, and how long jobs and videos are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar
from urllib.parse import urljoin

from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.retry import ExponentialRetry
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    ErrorClass,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    as_secret,
    callback_header,
    callback_ids,
    callback_json,
    check_hmac_sha256,
    check_timestamp,
    first_object,
    first_text,
    header_value,
)
from coatcheck_http.accounts import find_account
from coatcheck_http.extract import items

__all__ = ["OpenRouterAccount", "OpenRouterVideo"]

POLLING_URL = "polling_url"
"""The name, in answers and among the query params, of the URL at which a job is asked about."""
_SIGNATURE = "x-openrouter-signature"


@frozen
class OpenRouterAccount:
    """One API key, and what the workspace's webhooks are signed with."""

    api_key: Secret = field(converter=as_secret)
    """Prints as ``***``."""
    webhook_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """The signing secret of the workspace. None asks for no callbacks, and takes none."""

    @classmethod
    def from_env(cls, name: str) -> OpenRouterAccount:
        """Return the account whose key is in the environment variable `name`."""
        return cls(Secret.from_env(name))


class OpenRouterVideo(VideoHandler):
    """Videos by any model that OpenRouter offers."""

    key = "video:openrouter"
    default_base_url = "https://openrouter.ai/api/v1"
    default_model = "google/veo-3.1"
    facts = ProviderFacts(
        name="OpenRouter",
        sources=(
            "OpenRouterTeam/docs at 192ba148, guides/overview/multimodal/video-generation.mdx",
            "OpenRouterTeam/skills at 1c6d7ef7, skills/openrouter-video/SKILL.md",
            "openrouter.ai/docs: reference of videos, errors and debugging",
        ),
    )
    retry = ExponentialRetry(initial=timedelta(seconds=10), maximum=timedelta(seconds=30))
    """The provider recommends to ask every 10 to 30 seconds."""
    modes = frozenset(
        {VideoMode.TEXT, VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME, VideoMode.REFERENCE_IMAGES}
    )
    supports = frozenset({"duration", "resolution", "size", "aspect_ratio", "seed", "audio", "model"})
    query_path = "/videos/{id}"
    # the table of statuses of the guide, and the events of its webhooks
    statuses = StatusMap(
        waiting="pending",
        running="in_progress",
        succeeded="completed",
        failed="failed expired",
        canceled="cancelled",
    )
    error_code_paths = ("error.code",)
    error_message_paths = ("error.message", "error", "message")
    failure_code_paths = ()
    """A job that failed has a text, and no code."""
    failure_message_paths = ("error.message", "error")
    # the list on the page on errors; they are those of HTTP
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "400": ErrorClass.INVALID_REQUEST,
        "401": ErrorClass.AUTH,
        "402": ErrorClass.QUOTA_OR_BILLING,
        "403": ErrorClass.MODERATION,
        "408": ErrorClass.PROVIDER_UNAVAILABLE,
        "429": ErrorClass.RATE_LIMITED,
        "502": ErrorClass.PROVIDER_UNAVAILABLE,
        "503": ErrorClass.PROVIDER_UNAVAILABLE,
    }

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        if params.size is not None and params.aspect_ratio is not None:
            raise InvalidParams("the size says the aspect ratio, too; leave aspect_ratio out")
        if params.duration is not None:
            whole_seconds(params.duration)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request; options go beneath what is set here."""
        frames = {"first_frame": params.first_frame, "last_frame": params.last_frame}
        frame_images: list[JSON] = [
            {**_image(url), "frame_type": name} for name, url in frames.items() if url is not None
        ]
        references: list[JSON] = [_image(url) for url in params.reference_images]
        own: dict[str, JSON] = {
            "model": self.model_of(params),
            "prompt": params.prompt if params.prompt.strip() else None,
            "duration": None if params.duration is None else whole_seconds(params.duration),
            "resolution": params.resolution,
            "size": None if params.size is None else f"{params.size[0]}x{params.size[1]}",
            "aspect_ratio": params.aspect_ratio,
            "seed": params.seed,
            "generate_audio": params.audio,
            "frame_images": frame_images or None,
            "input_references": references or None,
            "callback_url": self._callback_url(context),
        }
        given = {name: each for name, each in own.items() if each is not None}
        return HttpRequest.post("/videos", json={**params.options, **given})

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the job's id, and the URL at which it is asked about."""
        made = super().create_query_params(response, params)
        url = first_text(response.json(), POLLING_URL)
        kept: dict[str, JSON] = {} if url is None else {POLLING_URL: urljoin(self.base_url, url)}
        return QueryParams(external_task_id=made.external_task_id, provider_params=kept)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the URL that the provider gave, or else of the job by its id."""
        url = first_text(params.provider_params, POLLING_URL)
        return super().build_query(params, context) if url is None else HttpRequest.get(url)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos, which are fetched with the key where they are the provider's own."""
        body = response.json()
        told = [each for each in items(body, "unsigned_urls") if isinstance(each, str) and each.strip()]
        urls = [urljoin(self.base_url, each.strip()) for each in told]
        if not urls:
            return None
        videos = tuple(Video(url=each, needs_credentials=self.trusts(each)) for each in urls)
        return VideoResult(videos=videos, usage=first_object(body, "usage"))

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key as a bearer token."""
        key = header_value(self.account(context, OpenRouterAccount).api_key)
        return request.with_headers(authorization=f"Bearer {key}")

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if it is signed with the workspace's secret.

        Raises:
            CallbackRejected: it is not, or it is old, or makes no sense.
        """
        secret = self._webhook_secret(account_id)
        if secret is None:
            name = account_id or "default"
            message = f"{self.key}: account {name!r} has no webhook_secret, so no callback can be authentic"
            raise CallbackRejected(message)
        parts = dict(
            each.strip().partition("=")[::2] for each in callback_header(request, _SIGNATURE).split(",")
        )
        timestamp = parts.get("t", "")
        check_timestamp(timestamp)
        signed = f"{timestamp},".encode("utf-8", "surrogatepass") + request.body
        check_hmac_sha256(signed, parts.get("v1", ""), secret.reveal())
        return Callback(external_task_ids=callback_ids(callback_json(request), "data.id"))

    def _callback_url(self, context: PreparedContext) -> str | None:
        """Return where the provider may call back; it refuses requests with an address that is not https."""
        url = context.callback_url
        if url is None or self._webhook_secret(context.account_id) is None:
            return None
        return url if url.lower().startswith("https:") else None

    def _webhook_secret(self, account_id: str | None) -> Secret | None:
        account = find_account(self.key, self._accounts, account_id)
        return account.webhook_secret if isinstance(account, OpenRouterAccount) else None


def _image(url: str) -> dict[str, JSON]:
    return {"type": "image_url", "image_url": {"url": url}}
