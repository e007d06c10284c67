"""Runway.

Read in 2026 from runwayml/sdk-python at c604e0ea (the endpoints, the task and its words), at 3114b00a (the params of
``video_to_video``) and at 0c120580 (those of ``text_to_video``), and from the page "errors" of docs.dev.runwayml.com;
nothing was tried against the live service.
The endpoint depends on what a video is made from. There is no idempotency key, no look-up and no callback. Not
documented are the codes of errors that answer a request, and what a job's output is after it was cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import ClassVar

from attrs import frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    segment,
)
from coatcheck_http.extract import items, number

__all__ = ["RunwayVideo", "RunwayVideoSettings"]

LINKS_LIVE = timedelta(hours=24)
"""How long the URLs of a result work at least; the provider says 24 to 48 hours, and gives new ones when asked."""
POLL_FLOOR = timedelta(seconds=5)
_ENDPOINTS = {
    VideoMode.TEXT: "/v1/text_to_video",
    VideoMode.FIRST_FRAME: "/v1/image_to_video",
    VideoMode.FIRST_LAST_FRAME: "/v1/image_to_video",
    VideoMode.VIDEO_TO_VIDEO: "/v1/video_to_video",
}
_FROM_IMAGES = frozenset({VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME})
_DURATIONS = {"veo3": (8,), "veo3.1": (4, 6, 8), "veo3.1_fast": (4, 6, 8)}
"""Seconds of videos from text, of the models for which the SDK lists them."""
_MODERATION = "SAFETY"
"""A part of the dotted failure codes of jobs whose input or output was refused for its content."""


@frozen(kw_only=True)
class RunwayVideoSettings(VideoSettings):
    """Settings of `RunwayVideo`."""

    version: str = "2024-11-06"
    """The version of the API, sent as ``X-Runway-Version``; the answers of this one are read."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigurationError: the version is blank, or a setting of all handlers means nothing.
        """
        super().__attrs_post_init__()
        if not self.version.strip():
            raise ConfigurationError("version is blank; the provider refuses requests without one")


class RunwayVideo(VideoHandler):
    """Videos by Runway, with its own models and those of others that it offers."""

    key = "video:runway"
    default_base_url = "https://api.dev.runwayml.com"
    default_model = "veo3.1"
    facts = ProviderFacts(
        name="Runway",
        sources=(
            "runwayml/sdk-python at c604e0ea, 3114b00a and 0c120580",
            "docs.dev.runwayml.com, page on errors",
        ),
        poll_floor=POLL_FLOOR,
        links_live=LINKS_LIVE,
    )
    """One job may be asked about every 5 seconds at most."""
    modes = frozenset(_ENDPOINTS)
    supports = frozenset({"duration", "size", "aspect_ratio", "seed", "audio", "model"})
    query_path = "/v1/tasks/{id}"
    # the words of `TaskRetrieveResponse` in the SDK
    statuses = StatusMap(
        waiting="PENDING THROTTLED",
        running="RUNNING",
        succeeded="SUCCEEDED",
        failed="FAILED",
        canceled="CANCELLED",
    )
    error_code_paths = ("code",)
    """`error` of an answer is a text for people."""
    error_message_paths = ("error", "message", "detail")
    failure_code_paths = ("failureCode",)
    failure_message_paths = ("failure",)
    _models_of: ClassVar[Mapping[str, AbstractSet[VideoMode]]] = {
        "veo": frozenset({VideoMode.TEXT}) | _FROM_IMAGES,
        "gen4_turbo": _FROM_IMAGES,
        "aleph": frozenset({VideoMode.VIDEO_TO_VIDEO}),
        "gen4_aleph": frozenset({VideoMode.VIDEO_TO_VIDEO}),
    }
    """By how the names of models begin."""

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the default version is sent."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, RunwayVideoSettings) else RunwayVideoSettings()
        self._version = own.version

    def modes_of(self, model: str | None) -> AbstractSet[VideoMode]:
        """Return what this model makes videos from, where the SDK tells; else what the provider does."""
        for begin, modes in self._models_of.items():
            if model is not None and model.startswith(begin):
                return modes
        return self.modes

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._body_of(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request, to the endpoint of the mode; options go beneath what is set here."""
        return HttpRequest.post(_ENDPOINTS[params.resolved_mode], json=self._body_of(params))

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key as a bearer token, and the version that the provider demands."""
        signed = await super().authenticate(request, context)
        return signed.with_headers(x_runway_version=self._version)

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the request that cancels a job that goes on; one that has ended is deleted by it."""
        return HttpRequest(method="DELETE", url=f"/v1/tasks/{segment(params.external_task_id)}")

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the progress of a job that runs, a share of 1."""
        told = number(response.json(), "progress")
        return told if told is not None and 0 <= told <= 1 else None

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos: a URL each in `output`."""
        urls = [each for each in items(response.json(), "output") if isinstance(each, str) and each.strip()]
        if not urls:
            return None
        expires_at = context.now + LINKS_LIVE
        return VideoResult(videos=tuple(Video(url=each, expires_at=expires_at) for each in urls))

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed, and that its content was refused if the code says so."""
        failed = super().read_failure(response, word)
        if self.classify(failed.error_code, response.status, "") is not ErrorClass.MODERATION:
            return failed
        message = f"the provider refuses the content ({ErrorClass.MODERATION}): {failed.error_message}"
        return QueryResult.failed(failed.error_code, message, provider_status=word)

    def classify(self, code: str | None, http_status: int, message: str) -> ErrorClass:
        """Return what an error means; codes with the part ``SAFETY`` are moderation."""
        if code is not None and _MODERATION in code.split("."):
            return ErrorClass.MODERATION
        return super().classify(code, http_status, message)

    def _body_of(self, params: VideoRequest) -> dict[str, JSON]:
        model = self.model_of(params) or ""
        own: dict[str, JSON] = {
            "model": model,
            "promptText": params.prompt.strip() and params.prompt,
            "ratio": _ratio(params),
            "duration": _duration(params, model),
            "seed": params.seed,
            "audio": params.audio,
            **_materials(params, model),
        }
        return {**params.options, **{name: each for name, each in own.items() if each not in (None, "")}}


def _ratio(params: VideoRequest) -> str | None:
    """Return the size as the provider writes it, or else the aspect ratio, which some models take in its place."""
    if params.size is not None and params.aspect_ratio is not None:
        raise InvalidParams("the provider has one field for size and aspect_ratio; give one of them")
    return params.aspect_ratio if params.size is None else f"{params.size[0]}:{params.size[1]}"


def _duration(params: VideoRequest, model: str) -> int | None:
    if params.duration is None:
        return None
    seconds = whole_seconds(params.duration)
    possible = _DURATIONS.get(model, (seconds,))
    if params.resolved_mode is VideoMode.TEXT and seconds not in possible:
        text = ", ".join(map(str, possible))
        message = f"model {model!r} makes videos of {text} seconds from text, not of {seconds}"
        raise InvalidParams(message)
    return seconds


def _materials(params: VideoRequest, model: str) -> dict[str, JSON]:
    """Return the materials under the names that the endpoint, or the model there, gives them."""
    if params.resolved_mode is not VideoMode.VIDEO_TO_VIDEO:
        if params.last_frame is None:
            return {"promptImage": params.first_frame}
        frames = {"first": params.first_frame, "last": params.last_frame}
        return {"promptImage": [{"uri": uri, "position": place} for place, uri in frames.items()]}
    if params.first_frame is not None:
        raise InvalidParams("the provider changes a video without a first_frame; leave it out")
    if "aleph" not in model:
        references: list[JSON] = [{"uri": uri} for uri in params.reference_images]
        return {"promptVideo": params.source_video, "references": references or None}
    if params.reference_images:
        message = f"model {model!r} takes no reference_images; use its `keyframes` in `options`"
        raise InvalidParams(message)
    return {"videoUri": params.source_video}
