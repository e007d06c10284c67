"""Kling: video generation by Kuaishou.

Read in 2026 from mirrored pages of Kling's documentation (common information, rate limits, callbacks), the page of
docs.qingque.cn, and public clients: vercel/ai at ed857f50 (`packages/klingai`), QuantumNous/new-api
(`relay/channel/task/kling`) and tryAGI/KlingAI (`openapi.yaml`). Nothing was tried against the live service.

The endpoint depends on what a video is made from, and a job is asked about at the path to which it was submitted, so
the path is stored with its id. The task's idempotency key is sent as `external_task_id`, by which Kling finds a job
whose submission was not answered. It is no idempotency key: what happens to a second job with the same one is not
documented, so none is sent without a person's word.

Not documented: cancel, a signature of callbacks, the code for a job that is not there (1203, "no such resource", and
HTTP 404 are taken for it), the HTTP status of codes above 1103, and the limits of `external_task_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, cast

from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, QueryContext, SubmitContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.jwt_tokens import sign_jwt, signed_tokens, unix_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    MintedToken,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    TokenCache,
    as_secret,
    callback_ids,
    callback_json,
    first_text,
    items,
    segment,
)

__all__ = ["KlingKeys", "KlingVideo"]

LINKS_LIVE = timedelta(days=30)
"""How long videos are kept."""
TOKEN_LIVES = timedelta(minutes=30)
_CLOCK_SKEW_SECONDS = 5
"""So much earlier than now tokens begin, for a provider whose clock is behind."""
_MAX_PROMPT_CHARACTERS = 2500
_SECONDS = (5, 10)
_RATIOS = ("16:9", "9:16", "1:1")
_PATHS = {
    VideoMode.TEXT: "/v1/videos/text2video",
    VideoMode.FIRST_FRAME: "/v1/videos/image2video",
    VideoMode.FIRST_LAST_FRAME: "/v1/videos/image2video",
    VideoMode.REFERENCE_IMAGES: "/v1/videos/multi-image2video",
}


@frozen
class KlingKeys:
    """An account that is a pair of keys, from which short-lived tokens are made. Needs the extra ``jwt``."""

    access_key: Secret = field(converter=as_secret)
    """Names the account. Prints as ``***``."""
    secret_key: Secret = field(converter=as_secret)
    """Signs the tokens, and is never sent."""
    callback_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """Ours alone, as that of `ApiKey`."""

    @classmethod
    def from_env(cls, access_key: str, secret_key: str) -> KlingKeys:
        """Return the account whose keys are in these environment variables."""
        return cls(Secret.from_env(access_key), Secret.from_env(secret_key))


class KlingVideo(VideoHandler):
    """Videos by Kling. An account is an `ApiKey`, or `KlingKeys`."""

    key = "video:kling"
    default_base_url = "https://api-singapore.klingai.com"
    facts = ProviderFacts(
        name="Kling",
        sources=(
            "Kling's pages commonInfo, rateLimits and callbackProtocol, mirrored",
            "docs.qingque.cn, Kling",
            "vercel/ai at ed857f50, packages/klingai",
            "QuantumNous/new-api, relay/channel/task/kling",
            "tryAGI/KlingAI, openapi.yaml",
        ),
        links_live=LINKS_LIVE,
    )
    modes = frozenset(_PATHS)
    supports = frozenset({"negative_prompt", "duration", "aspect_ratio", "watermark", "audio", "model"})
    id_paths = ("data.task_id",)
    status_paths = ("data.task_status",)
    failure_code_paths = ()
    failure_message_paths = ("data.task_status_msg",)
    error_code_paths = ("code",)
    error_message_paths = ("message",)
    # Kling's pages; the last word of a good job is "succeed" indeed
    statuses = StatusMap(waiting="submitted", running="processing", succeeded="succeed", failed="failed")
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "1000": ErrorClass.AUTH,
        "1001": ErrorClass.AUTH,
        "1002": ErrorClass.AUTH,
        "1003": ErrorClass.AUTH,
        "1004": ErrorClass.AUTH,
        # these three come with HTTP 429, and no waiting helps
        "1100": ErrorClass.QUOTA_OR_BILLING,
        "1101": ErrorClass.QUOTA_OR_BILLING,
        "1102": ErrorClass.QUOTA_OR_BILLING,
        "1103": ErrorClass.AUTH,
        "1200": ErrorClass.INVALID_REQUEST,
        "1201": ErrorClass.INVALID_REQUEST,
        "1202": ErrorClass.INVALID_REQUEST,
        "1203": ErrorClass.NOT_FOUND_OR_EXPIRED,
        "1300": ErrorClass.MODERATION,
        "1301": ErrorClass.MODERATION,
        "1302": ErrorClass.RATE_LIMITED,
        "1303": ErrorClass.CONCURRENCY_LIMITED,
        "1304": ErrorClass.AUTH,
        "5000": ErrorClass.PROVIDER_UNAVAILABLE,
        "5001": ErrorClass.PROVIDER_UNAVAILABLE,
        "5002": ErrorClass.PROVIDER_UNAVAILABLE,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings."""
        super().__init__(accounts, key=key, settings=settings)
        self._tokens: TokenCache[KlingKeys] = signed_tokens(_signed)

    def validate(self, params: VideoRequest) -> None:
        """Refuse what Kling does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        _choices(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request, to the endpoint of the mode; options go beneath what is set here."""
        body: dict[str, JSON] = {
            "model_name": self.model_of(params),
            **_choices(params),
            **_materials(params),
            "external_task_id": context.idempotency_key,
            "callback_url": self.own_callback_url(context),
        }
        told = {name: each for name, each in body.items() if each is not None}
        return HttpRequest.post(_PATHS[params.resolved_mode], json={**params.options, **told})

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the id of the job, and the path at which it is asked about."""
        found = super().create_query_params(response, params)
        return found.evolve(path=_PATHS[params.resolved_mode])

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the job, below the path to which it was submitted."""
        return HttpRequest.get(f"{params.read('path', str)}/{segment(params.external_task_id)}")

    async def find_submission(self, params: VideoRequest, context: SubmitContext) -> SubmitResult | None:
        """Look the job up by our own `external_task_id`; None, as for any error, proves nothing.

        Raises:
            HandlerError: no answer came that can be read.
        """
        path = _PATHS[params.resolved_mode]
        ours = context.idempotency_key
        with self.without_secrets(context):
            response = await self.ask(HttpRequest.get(f"{path}/{segment(ours)}"), context)
            body = None if self.read_error(response) else response.json_object()
        external_id = first_text(body, *self.id_paths)
        if external_id is None or first_text(body, "data.task_info.external_task_id") not in {None, ours}:
            return None
        word = self.status_word(response)
        running = word is not None and self.statuses.state_of(word) is JobState.RUNNING
        return SubmitResult.accepted(external_id, {"path": path}, running=running, provider_status=word)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key, or a token that was made of the keys, as a bearer token."""
        account = self.account(context, object)
        if not isinstance(account, KlingKeys):
            return await super().authenticate(request, context)
        token = await self._tokens.get(account)
        return request.with_headers(authorization=f"Bearer {token.reveal()}")

    def credentials_refused(self, context: CallContext) -> bool:
        """Drop a token that the provider refused, as with 1003 and 1004, unless it is new: that is our clock."""
        return self._tokens.refused(cast("KlingKeys", self.account(context, object)))

    def known_secrets(self, context: CallContext) -> tuple[str, ...]:
        """Return the account's secrets, and the token that was made of them."""
        secrets = super().known_secrets(context)
        token = secrets and self._tokens.peek(cast("KlingKeys", self.account(context, object)))
        return (*secrets, token.reveal()) if token else secrets

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer, whose `code` is not 0."""
        if response.ok and first_text(response.json(), "code") in {None, "0"}:
            return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos."""
        expires_at = context.now + LINKS_LIVE
        videos = tuple(_videos(items(response.json(), "data.task_result.videos"), expires_at))
        return VideoResult(videos=videos) if videos else None

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Say which job a callback is about that came to the address which only Kling was told.

        Raises:
            CallbackRejected: it came elsewhere, or names no job.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "task_id"))


def _signed(account: KlingKeys) -> MintedToken:
    now = int(unix_seconds())
    claims: dict[str, JSON] = {
        "iss": account.access_key.reveal(),
        "exp": now + int(TOKEN_LIVES.total_seconds()),
        "nbf": now - _CLOCK_SKEW_SECONDS,
    }
    return MintedToken(token=sign_jwt(claims, account.secret_key), lifetime=TOKEN_LIVES)


def _choices(params: VideoRequest) -> dict[str, JSON]:
    """Return what the request chooses, under Kling's names.

    Raises:
        InvalidParams: Kling does not have it.
    """
    if len(params.prompt) > _MAX_PROMPT_CHARACTERS:
        message = (
            f"Kling takes prompts of {_MAX_PROMPT_CHARACTERS} characters at most, not {len(params.prompt)}"
        )
        raise InvalidParams(message)
    if params.aspect_ratio is not None and params.aspect_ratio not in _RATIOS:
        message = f"aspect_ratio is one of {', '.join(_RATIOS)} with Kling, not {params.aspect_ratio!r}"
        raise InvalidParams(message)
    duration = None if params.duration is None else whole_seconds(params.duration)
    if duration is not None and duration not in _SECONDS:
        message = (
            f"Kling makes videos of 5 or 10 seconds, not of {duration}; if a newer model does, "
            f"say so in options: {{'duration': '{duration}'}}"
        )
        raise InvalidParams(message)
    return {
        "prompt": params.prompt if params.prompt.strip() else None,
        "negative_prompt": params.negative_prompt,
        "duration": None if duration is None else str(duration),
        "aspect_ratio": params.aspect_ratio,
        "sound": None if params.audio is None else "on" if params.audio else "off",
        "watermark_info": None if params.watermark is None else {"enabled": params.watermark},
    }


def _materials(params: VideoRequest) -> dict[str, JSON]:
    if params.resolved_mode is VideoMode.REFERENCE_IMAGES:
        return {"image_list": [{"image": url} for url in params.reference_images]}
    return {"image": params.first_frame, "image_tail": params.last_frame}


def _videos(told: Iterable[JSON], expires_at: datetime) -> Iterator[Video]:
    for each in told:
        url = first_text(each, "url")
        if url is None:
            continue
        seconds = first_text(each, "duration") or ""
        known = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", seconds)
        yield Video(url=url, expires_at=expires_at, duration_seconds=float(seconds) if known else None)
