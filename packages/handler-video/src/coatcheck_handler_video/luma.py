"""Luma: Dream Machine.

Read in 2026 from lumalabs/lumaai-python at c00ac171 (`Generation` and the params of ``generations/video``) and from
docs.lumalabs.ai; nothing was tried against the live service. Callbacks are not signed, so the provider is told an
address with a proof in it. There is no idempotency key, no look-up, and no cancel: DELETE removes a generation. Not
documented are the form of error bodies (``{"detail"}`` is seen), limits of rate, and how long the URLs of videos work.
"""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck.errors import InvalidParams
from coatcheck.handler import Callback, CallbackRequest, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    callback_ids,
    callback_json,
    first_text,
)

__all__ = ["LumaVideo"]

_ASPECT_RATIOS = ("1:1", "16:9", "9:16", "4:3", "3:4", "21:9", "9:21")


class LumaVideo(VideoHandler):
    """Videos by Luma's Ray models."""

    key = "video:luma"
    default_base_url = "https://api.lumalabs.ai/dream-machine/v1"
    default_model = "ray-2"
    facts = ProviderFacts(
        name="Luma Dream Machine", sources=("lumalabs/lumaai-python at c00ac171", "docs.lumalabs.ai")
    )
    modes = frozenset({VideoMode.TEXT, VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME})
    supports = frozenset({"duration", "resolution", "aspect_ratio", "model"})
    query_path = "/generations/{id}"
    status_paths = ("state",)
    # the words of `Generation` in the SDK
    statuses = StatusMap(waiting="queued", running="dreaming", succeeded="completed", failed="failed")
    error_code_paths = ("code",)
    failure_code_paths = ()
    """A generation that failed has a reason for people, and no code."""
    failure_message_paths = ("failure_reason",)

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        if params.aspect_ratio not in (None, *_ASPECT_RATIOS):
            message = f"aspect_ratio {params.aspect_ratio!r} is none of {', '.join(_ASPECT_RATIOS)}"
            raise InvalidParams(message)
        if params.duration is not None:
            whole_seconds(params.duration)
        _keyframes(params)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request; options go beneath what is set here."""
        own: dict[str, JSON] = {
            "model": self.model_of(params),
            "prompt": params.prompt if params.prompt.strip() else None,
            "duration": None if params.duration is None else f"{whole_seconds(params.duration)}s",
            "resolution": params.resolution,
            "aspect_ratio": params.aspect_ratio,
            "keyframes": _keyframes(params) or None,
            "callback_url": self.own_callback_url(context),
        }
        given = {name: each for name, each in own.items() if each is not None}
        return HttpRequest.post("/generations/video", json={**params.options, **given})

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the video of a generation; how long its URL works is not documented."""
        body = response.json()
        url = first_text(body, "assets.video")
        if url is None:
            return None
        return VideoResult(videos=(Video(url=url),), cover_url=first_text(body, "assets.image"))

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which generation a callback is about, if it came to an address that we gave.

        Raises:
            CallbackRejected: it did not, or makes no sense.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "id"))


def _keyframes(params: VideoRequest) -> dict[str, JSON]:
    """Return the first and the last frame; beneath them those of the options, such as an earlier generation."""
    given = params.options.get("keyframes", {})
    if not isinstance(given, Mapping):
        message = f"options.keyframes must be an object with frame0 or frame1, not {given!r}"
        raise InvalidParams(message)
    frames = {"frame0": params.first_frame, "frame1": params.last_frame}
    own: dict[str, JSON] = {
        name: {"type": "image", "url": url} for name, url in frames.items() if url is not None
    }
    return {**given, **own}
