"""Gitee AI: videos.

Read in 2026 from the adapter of agents-flex (`agents-flex-video-gitee` at 08a4f43d) and its page
`docs/zh/video/gitee.md`; nothing was tried against the live service. What is asked for decides which of four endpoints
is called; one of them takes files and no URLs, so the worker downloads and uploads them. The provider knows no
idempotency key, cancel or callback. Not documented: which names the choices of the models have (so they are left to
`options`), the HTTP statuses of errors, limits of size, and which model belongs to which endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from attrs import evolve

from coatcheck.errors import InvalidParams
from coatcheck.handler import QueryContext, SubmitContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler
from coatcheck_handler_video.request import MATERIALS, VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    FilePart,
    HttpRequest,
    HttpResponse,
    Prepared,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    first,
    first_object,
    first_text,
    form_text,
    number,
    shown,
)

__all__ = ["GiteeVideo"]

LINKS_LIVE = timedelta(days=1)
"""How long the URLs of videos work."""
_ENDPOINTS = {
    VideoMode.TEXT: "generations",
    VideoMode.FIRST_FRAME: "image-to-video",
    VideoMode.VIDEO_TO_VIDEO: "image-video-to-video",
    VideoMode.AUDIO_DRIVEN: "audio-video-to-video",
}
_PLACES = {
    VideoMode.TEXT: set[str](),
    VideoMode.FIRST_FRAME: {"first_frame"},
    VideoMode.VIDEO_TO_VIDEO: {"source_video", "first_frame", "reference_images"},
    VideoMode.AUDIO_DRIVEN: {"source_video", "audio_url"},
}
"""The materials that an endpoint takes."""
_MODELS = {
    VideoMode.TEXT: "Wan2.1-T2V-14B",
    VideoMode.FIRST_FRAME: "Wan2_2-I2V-A14B",
    VideoMode.AUDIO_DRIVEN: "Duix.Heygem",
}
"""For requests and settings that name none; none is known to take an image and a video."""
_FILES = ("ref_image", "drive_video")
_URLS = ("file_url", "video_url", "url")
_INNER = ("videos", "data", "output")
"""Where a result may have further ones."""


class GiteeVideo(VideoHandler):
    """Videos by the models of Gitee AI."""

    key = "video:gitee"
    default_base_url = "https://ai.gitee.com/v1"
    facts = ProviderFacts(
        name="Gitee AI",
        sources=(
            "agents-flex/agents-flex at 08a4f43d, agents-flex-video-gitee",
            "docs/zh/video/gitee.md there",
        ),
        links_live=LINKS_LIVE,
    )
    modes = frozenset(_ENDPOINTS)
    supports = frozenset({"model", "audio_url"})
    id_paths = ("task_id", "id")
    query_path = "/task/{id}"
    failure_code_paths = ("error_code", "code", "error.code", "error.type")
    failure_message_paths = ("error_message", "message", "error.message")
    # words of the adapters of agents-flex, those of its OCR among them, since the query is the same
    statuses = StatusMap(
        waiting="waiting pending queued",
        running="in_progress running processing",
        succeeded="success succeeded done",
        failed="failure failed",
        canceled="cancelled canceled",
    )

    def model_of(self, params: VideoRequest) -> str | None:
        """Return the model that makes this video; where nobody names one, it goes by the mode."""
        return super().model_of(params) or _MODELS.get(params.resolved_mode)

    def modes_of(self, model: str | None) -> frozenset[VideoMode]:
        """Return what a model makes videos from: one with ``T2V`` or ``I2V`` in its name does one thing."""
        name = (model or "").casefold()
        for word, mode in (("t2v", VideoMode.TEXT), ("i2v", VideoMode.FIRST_FRAME)):
            if word in name:
                return frozenset({mode})
        return self.modes

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider does not have, and what its endpoints cannot do without.

        Raises:
            InvalidParams: the request asks for such a thing, or lacks one; the message names it.
        """
        super().validate(params)
        mode = params.resolved_mode
        if self.model_of(params) is None:
            message = f"{self.key} has no default model for {mode}; name one in `model`"
            raise InvalidParams(message)
        foreign = [name for name in MATERIALS if getattr(params, name) and name not in _PLACES[mode]]
        if foreign:
            message = f"{self.key} has no place for {', '.join(foreign)} in mode {mode}"
            if "audio_url" in foreign and mode is VideoMode.VIDEO_TO_VIDEO:
                message += f"; a video that sound drives is of the mode {VideoMode.AUDIO_DRIVEN}"
            raise InvalidParams(message)
        if mode in {VideoMode.TEXT, VideoMode.FIRST_FRAME}:
            if not params.prompt.strip():
                message = f"{self.key} needs a prompt in mode {mode}"
                raise InvalidParams(message)
        elif params.prompt:
            message = f"{self.key} has no place for a prompt in mode {mode}; leave it out, or use `options`"
            raise InvalidParams(message)
        if mode is VideoMode.VIDEO_TO_VIDEO:
            _driven_image(params)
        if mode is VideoMode.AUDIO_DRIVEN and params.source_video is None:
            message = f"{self.key} needs source_video in mode {mode}"
            raise InvalidParams(message)

    async def prepare(self, params: VideoRequest, context: SubmitContext) -> Prepared:
        """Download the image and the video of the endpoint that takes files.

        Raises:
            InvalidParams: one of them is empty.
            DownloadFailed: one cannot be had.
        """
        if params.resolved_mode is not VideoMode.VIDEO_TO_VIDEO or params.source_video is None:
            return Prepared()
        urls = {"ref_image": _driven_image(params), "drive_video": params.source_video}
        files = {name: await self.download(url) for name, url in urls.items()}
        for name, file in files.items():
            if not file.content:
                message = f"what is at {shown(urls[name])} is empty"
                raise InvalidParams(message)
        return Prepared(files=files)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the request to the endpoint of the mode; options can't replace what is set here."""
        mode = params.resolved_mode
        path = f"/async/videos/{_ENDPOINTS[mode]}"
        model = self.model_of(params) or ""
        if mode is VideoMode.VIDEO_TO_VIDEO:
            options = {name: form_text(each) for name, each in params.options.items() if name not in _FILES}
            files = [
                FilePart(
                    name=name,
                    file_name=context.prepared.files[name].file_name,
                    content=context.prepared.files[name].content,
                    content_type=context.prepared.files[name].content_type,
                )
                for name in _FILES
            ]
            return HttpRequest.post(path, form={**options, "model": model}, files=files)
        own: dict[str, JSON] = {"model": model}
        if mode is VideoMode.AUDIO_DRIVEN:
            own |= {"ref_audio": params.audio_url, "ref_video": params.source_video}
        else:
            own["prompt"] = params.prompt
        if mode is VideoMode.FIRST_FRAME:
            own["image_url"] = params.first_frame
        return HttpRequest.post(path, json={**params.options, **own})

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer that has one and no job; a job's own error is its result."""
        if response.ok:
            body = response.json()
            if first_text(body, "task_id", "id") is not None or not first_object(body, "error"):
                return None
        return self.error_of(response)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos, wherever in `output` they are; it is null until there are any."""
        body = response.json()
        found: dict[str, Video] = {}
        covers: list[str] = []
        for part in _parts(first(body, "output")):
            video = _video(part, context.now + LINKS_LIVE)
            if video is not None:
                # of two that lead to the same file, the one that says more about it
                found[video.url] = _fuller(found.get(video.url), video)
            cover = first_text(part, "cover_url", "poster_url")
            covers += [cover] if cover is not None else []
        price = first(body, "price")
        if not found:
            return None
        return VideoResult(
            videos=tuple(found.values()),
            cover_url=covers[0] if covers else None,
            usage={} if price is None else {"price": price},
        )


def _driven_image(params: VideoRequest) -> str:
    """Return the one image that a video is to move.

    Raises:
        InvalidParams: there is none, or more than one.
    """
    images = [*params.reference_images, *([params.first_frame] if params.first_frame is not None else [])]
    if len(images) != 1:
        message = f"source_video needs one image, as first_frame or in reference_images, not {len(images)}"
        raise InvalidParams(message)
    return images[0]


def _parts(output: JSON) -> Iterator[JSON]:
    """Yield what may be a video, in order, at any depth: texts, and objects with those inside them."""
    waiting = [output]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting.extend(part.get(name) for name in reversed(_INNER))
        elif isinstance(part, str):
            yield part
        elif isinstance(part, Sequence):
            waiting.extend(reversed(part))


def _video(part: JSON, expires_at: datetime) -> Video | None:
    """Return a video, if there is a URL; a body in its place is not taken."""
    url = part.strip() if isinstance(part, str) else first_text(part, *_URLS)
    if url is None or not url.lower().startswith(("http://", "https://")):
        return None
    width, height = number(part, "width"), number(part, "height")
    return Video(
        url=url,
        expires_at=expires_at,
        duration_seconds=number(part, "duration"),
        width=None if width is None else int(width),
        height=None if height is None else int(height),
    )


def _fuller(known: Video | None, video: Video) -> Video:
    if known is None:
        return video
    return evolve(
        known,
        duration_seconds=known.duration_seconds or video.duration_seconds,
        width=known.width or video.width,
        height=known.height or video.height,
    )
