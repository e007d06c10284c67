"""Zhipu, also Z.ai: video generation with CogVideoX and the other models of that service.

Read in 2026 from zai-org/z-ai-sdk-python at d8d898bb (paths, fields, words; tokens at 43e25738), from docs.z.ai
(api-code), and from pages of docs.bigmodel.cn (CogVideoX-3; video generation, asynchronous). Nothing was tried against
the live service.

The task's idempotency key is sent as `request_id`, which Zhipu wants to be unique. It is no idempotency key: a second
request with it is refused, with code 1231 and without the job's id. Such a refusal proves that an earlier request with
our key was taken, one whose answer was lost on its way; so it is no rejection of the task, whose job most likely
exists, nor an acceptance, since nobody can say under which id. It leaves the outcome unknown, for a person to decide.
Whether Zhipu also remembers the `request_id` of a request that it refused, as for its rate, is not documented: if it
does, a task that was put off ends in that doubt, too, and never in a second job.

Not documented: cancel, callbacks, a look-up by `request_id`, why a job failed (it is looked for where errors have
it), the HTTP status of codes, the code for a job that is not there (HTTP 404 is taken for it), and how long videos
are kept. Code 1303 as a rate limit is not certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import ClassVar

from attrs import frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import CallContext, QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.jwt_tokens import sign_jwt, signed_tokens, unix_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    ApiKey,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    MintedToken,
    OutcomeUnknown,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    TokenCache,
    as_secret,
    first_text,
    items,
)

__all__ = ["ZhipuVideo", "ZhipuVideoSettings"]

TOKEN_LIVES = timedelta(seconds=210)
"""As long as in Zhipu's SDK, which uses one for three minutes."""
_DUPLICATE = "1231"
"""A request with this `request_id` was taken before."""
_COGVIDEO = "cogvideox"
_MAX_PROMPT_CHARACTERS = 512
_SECONDS = (5, 10)
_FPS = (30, 60)


@frozen(kw_only=True)
class ZhipuVideoSettings(VideoSettings):
    """Settings of `ZhipuVideo`; ``base_url="https://api.z.ai/api/paas/v4"`` is the service outside China."""

    signed_tokens: bool = False
    """Whether tokens that live for some minutes are made of the key, whose secret half is then not sent; needs the
    extra ``jwt``."""


class ZhipuVideo(VideoHandler):
    """Videos by Zhipu (bigmodel.cn) or Z.ai."""

    key = "video:zhipu"
    default_base_url = "https://open.bigmodel.cn/api/paas/v4"
    default_model = "cogvideox-3"
    facts = ProviderFacts(
        name="Zhipu CogVideoX",
        sources=(
            "zai-org/z-ai-sdk-python at d8d898bb and 43e25738",
            "docs.z.ai, api-code",
            "docs.bigmodel.cn, CogVideoX-3 and video generation (asynchronous)",
        ),
    )
    modes = frozenset({VideoMode.TEXT, VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME})
    supports = frozenset({"duration", "size", "aspect_ratio", "fps", "watermark", "audio", "model"})
    query_path = "/async-result/{id}"
    status_paths = ("task_status",)
    error_code_paths = ("error.code",)
    error_message_paths = ("error.message", "message")
    failure_code_paths = ("error.code",)
    failure_message_paths = ("error.message", "message")
    # zai-org/z-ai-sdk-python
    statuses = StatusMap(running="PROCESSING", succeeded="SUCCESS", failed="FAIL")
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        **dict.fromkeys(("1000", "1001", "1002", "1003", "1004"), ErrorClass.AUTH),
        # comes with HTTP 429, and no waiting helps
        "1113": ErrorClass.QUOTA_OR_BILLING,
        "1121": ErrorClass.AUTH,
        **dict.fromkeys(("1210", "1211", "1212", "1213", "1214", "1215"), ErrorClass.INVALID_REQUEST),
        "1234": ErrorClass.PROVIDER_UNAVAILABLE,
        "1301": ErrorClass.MODERATION,
        "1302": ErrorClass.CONCURRENCY_LIMITED,
        "1303": ErrorClass.RATE_LIMITED,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the key itself is sent."""
        super().__init__(accounts, key=key, settings=settings)
        self._signs = isinstance(settings, ZhipuVideoSettings) and settings.signed_tokens
        self._tokens: TokenCache[ApiKey] = signed_tokens(_signed)

    def modes_of(self, model: str | None) -> AbstractSet[VideoMode]:
        """Return what this model makes videos from: a last frame came with CogVideoX-3."""
        if model is not None and model.lower().startswith("cogvideox-2"):
            return self.modes - {VideoMode.FIRST_LAST_FRAME}
        return self.modes

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._body_of(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request; options go beneath what is set here."""
        own = {**self._body_of(params), "request_id": context.idempotency_key}
        return HttpRequest.post("/videos/generations", json={**params.options, **own})

    def parse_submit(
        self, response: HttpResponse, params: VideoRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return the accepted job.

        Raises:
            OutcomeUnknown: Zhipu has taken a request with our key before, so the job most likely exists.
        """
        if not response.ok:
            error = self.error_of(response)
            message = (
                f"Zhipu has a request with request_id {context.idempotency_key!r} already (code {error.code}: "
                f"{error.message}), so an earlier attempt of this task has reached it, and its job most likely "
                "exists; its id is not told. A resubmission would be refused in the same way"
            )
            raise OutcomeUnknown(message, code=error.code)
        return super().parse_submit(response, params, context)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key, or a token that was made of it, as a bearer token."""
        if not self._signs:
            return await super().authenticate(request, context)
        token = await self._tokens.get(self.account(context))
        return request.with_headers(authorization=f"Bearer {token.reveal()}")

    def credentials_refused(self, context: CallContext) -> bool:
        """Drop a token that the provider refused, as with 1003, unless it is new: that is our clock, or the key."""
        return self._tokens.refused(self.account(context))

    def known_secrets(self, context: CallContext) -> tuple[str, ...]:
        """Return the key, its secret half, and the token that was made of it."""
        secrets = super().known_secrets(context)
        token = secrets and self._tokens.peek(self.account(context))
        halves = [half for each in secrets if (half := each.partition(".")[2])]
        return (*secrets, *halves, token.reveal()) if token else (*secrets, *halves)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer; `parse_submit` tells what a duplicate is."""
        error = super().read_error(response)
        return None if error is not None and error.code == _DUPLICATE else error

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos, and the cover of the first that has one."""
        body = response.json()
        videos = tuple(_videos(body))
        covers = (first_text(each, "cover_image_url") for each in items(body, "video_result"))
        cover = next((each for each in covers if each is not None), None)
        return VideoResult(videos=videos, cover_url=cover) if videos else None

    def _body_of(self, params: VideoRequest) -> dict[str, JSON]:
        model = self.model_of(params)
        duration = None if params.duration is None else whole_seconds(params.duration)
        if model is not None and model.lower().startswith(_COGVIDEO):
            _check_cogvideo(params, duration, model)
        body: dict[str, JSON] = {
            "model": model,
            "prompt": params.prompt if params.prompt.strip() else None,
            "image_url": params.first_frame
            if params.last_frame is None
            else [params.first_frame, params.last_frame],
            "duration": duration,
            "size": None if params.size is None else "{}x{}".format(*params.size),
            "aspect_ratio": params.aspect_ratio,
            "fps": params.fps,
            "watermark_enabled": params.watermark,
            "with_audio": params.audio,
        }
        return {name: each for name, each in body.items() if each is not None}


def _signed(account: ApiKey) -> MintedToken:
    """Make a token of a key, which is an id and a secret with a dot between them.

    Raises:
        ConfigurationError: it is none such.
    """
    name, dot, secret = account.api_key.reveal().partition(".")
    if not dot or not name.strip() or not secret.strip():
        message = (
            "tokens are made of a key of the form id.secret, which the account's is not; "
            "copy it again, or leave signed_tokens out"
        )
        raise ConfigurationError(message)
    now = int(unix_seconds() * 1000)
    claims: dict[str, JSON] = {
        "api_key": name,
        "exp": now + int(TOKEN_LIVES.total_seconds() * 1000),
        "timestamp": now,
    }
    token = sign_jwt(claims, as_secret(secret), headers={"sign_type": "SIGN"})
    return MintedToken(token=token, lifetime=TOKEN_LIVES)


def _check_cogvideo(params: VideoRequest, duration: int | None, model: str) -> None:
    """Refuse what the pages about CogVideoX exclude; those of the other models are not known.

    Raises:
        InvalidParams: it asks for such a thing.
    """
    wrong = {
        f"takes prompts of {_MAX_PROMPT_CHARACTERS} characters at most, not {len(params.prompt)}": (
            len(params.prompt) > _MAX_PROMPT_CHARACTERS
        ),
        f"makes videos of 5 or 10 seconds, not of {duration}": duration not in {None, *_SECONDS},
        f"makes videos of 30 or 60 frames in a second, not of {params.fps}": params.fps not in {None, *_FPS},
    }
    for what, broken in wrong.items():
        if broken:
            message = f"model {model!r} {what}"
            raise InvalidParams(message)


def _videos(body: JSON) -> Iterator[Video]:
    for each in items(body, "video_result"):
        url = first_text(each, "url")
        if url is not None:
            yield Video(url=url)
