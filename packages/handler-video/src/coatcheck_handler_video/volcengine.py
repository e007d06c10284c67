"""Volcengine Ark, and BytePlus ModelArk: videos by Seedance.

Read in 2026 from volcengine/volcengine-python-sdk at b5be43b5 (`volcenginesdkarkruntime`, content_generation), the
adapter of agents-flex (agents-flex-video-volcengine at 08a4f43d), vercel/ai at ed857f50 (`packages/bytedance`), pages
of docs.byteplus.com (ModelArk/1520757), docs.composio.dev and docs.ai-tokenhub.com, and a copy of the provider's page
on queries (`docs/zh-CN/video_task_info.md` of bolecodex/volcano-ai-workshop, the page being of 2025-09-17). Nothing
was tried against the live service. There is no idempotency key. Jobs can be listed by status, model and id, none of
which is ours, so nothing is looked up. Callbacks are not signed. Not documented: codes of errors, how often a callback
is repeated, the body that answers a DELETE.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import timedelta

from attrs import frozen

from coatcheck.errors import HandlerError, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    JobState,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    callback_ids,
    callback_json,
    first_object,
    first_text,
    number,
    segment,
)

__all__ = ["VolcengineVideo"]

logger = logging.getLogger("coatcheck.http")
LINKS_LIVE = timedelta(hours=24)
"""How long the URLs of a video and its last frame work."""
_TASKS = "/contents/generations/tasks"
_SEEDANCE_2_SECONDS = range(4, 16)


@frozen
class _Kind:
    """How one kind of material stands in `content`."""

    type: str
    role: str

    def part(self, url: str) -> JSON:
        return {"type": self.type, self.type: {"url": url}, "role": self.role}


_KINDS = {
    "first_frame": _Kind("image_url", "first_frame"),
    "last_frame": _Kind("image_url", "last_frame"),
    "reference_images": _Kind("image_url", "reference_image"),
    "reference_videos": _Kind("video_url", "reference_video"),
    "audio_url": _Kind("audio_url", "reference_audio"),
}
"""By the field of a request; there is no place for a video that is to be changed but among the references."""


class VolcengineVideo(VideoHandler):
    """Videos by Seedance, of Volcengine Ark or BytePlus ModelArk."""

    key = "video:volcengine"
    default_base_url = "https://ark.cn-beijing.volces.com/api/v3"
    default_model = "doubao-seedance-2-0-260128"
    facts = ProviderFacts(
        name="Volcengine Ark",
        sources=(
            "volcengine/volcengine-python-sdk at b5be43b5",
            "agents-flex/agents-flex at 08a4f43d, agents-flex-video-volcengine",
            "vercel/ai at ed857f50, packages/bytedance",
            "docs.byteplus.com ModelArk/1520757, docs.composio.dev, docs.ai-tokenhub.com",
            "bolecodex/volcano-ai-workshop, docs/zh-CN/video_task_info.md, a page of 2025-09-17",
        ),
        links_live=LINKS_LIVE,
        jobs_live=timedelta(days=7),
    )
    modes = frozenset(
        {
            VideoMode.TEXT,
            VideoMode.FIRST_FRAME,
            VideoMode.FIRST_LAST_FRAME,
            VideoMode.REFERENCE_IMAGES,
            VideoMode.OMNI_REFERENCE,
        }
    )
    supports = frozenset(
        {
            "audio_url",
            "duration",
            "resolution",
            "aspect_ratio",
            "fps",
            "seed",
            "watermark",
            "audio",
            "model",
        }
    )
    # words of the SDK and of the page on queries; "expired" is the end of execution_expires_after
    statuses = StatusMap(
        waiting="queued",
        running="running",
        succeeded="succeeded",
        failed="failed expired",
        canceled="cancelled",
    )
    query_path = f"{_TASKS}/{{id}}"
    error_code_paths = ("error.code", "error.type")
    error_message_paths = ("error.message",)
    failure_code_paths = error_code_paths
    failure_message_paths = error_message_paths

    def modes_of(self, model: str | None) -> frozenset[VideoMode]:
        """Return what a model makes videos from: one with ``t2v`` in its name takes text alone."""
        return frozenset({VideoMode.TEXT}) if "t2v" in (model or "").casefold() else self.modes

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have.

        Raises:
            InvalidParams: the request asks for such a thing; the message names it.
        """
        super().validate(params)
        if params.source_video is not None:
            message = f"{self.key} has no place for source_video; put it among reference_videos"
            raise InvalidParams(message)
        if params.duration is None:
            return
        seconds, model = whole_seconds(params.duration), self.model_of(params) or ""
        if "seedance-2-0" in model and seconds not in _SEEDANCE_2_SECONDS:
            message = f"model {model!r} makes 4 to 15 seconds, not {seconds}"
            raise InvalidParams(message)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the request; options first, so that they can't replace what the request says."""
        body = dict(params.options)
        own: dict[str, JSON] = {
            "resolution": _resolution(params),
            "ratio": params.aspect_ratio,
            "duration": None if params.duration is None else whole_seconds(params.duration),
            "fps": params.fps,
            "seed": params.seed,
            "watermark": params.watermark,
            "generate_audio": params.audio,
            "callback_url": self.own_callback_url(context),
        }
        body.update({name: value for name, value in own.items() if value is not None})
        return HttpRequest.post(
            _TASKS, json={**body, "model": self.model_of(params), "content": list(_content(params))}
        )

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed; one that waited too long has expired."""
        if word.casefold() == "expired":
            message = "the job was not done within its execution_expires_after"
            told = first_text(response.json(), *self.failure_message_paths)
            return QueryResult.failed("expired", told or message, provider_status=word)
        return super().read_failure(response, word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the video, and its last frame if that was asked for."""
        body = response.json()
        url = first_text(body, "content.video_url")
        if url is None:
            return None
        video = Video(
            url=url,
            expires_at=context.now + LINKS_LIVE,
            duration_seconds=number(body, "duration"),
            fps=number(body, "framespersecond"),
        )
        seed = number(body, "seed")
        return VideoResult(
            videos=(video,),
            last_frame_url=first_text(body, "content.last_frame_url"),
            seed=None if seed is None else int(seed),
            usage=first_object(body, "usage"),
        )

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Cancel a job that is queued, and leave any other alone; see `Handler.cancel`.

        One and the same DELETE cancels a queued job and deletes the record of one that has ended, and its answer does
        not tell which of them it was. So the job is asked about first: a video that was paid for stays, and "confirmed"
        never means that it was thrown away. Between the two requests a queued job would have to begin and to end for
        this to be wrong.
        """
        asked = HttpRequest.get(self.query_path.replace("{id}", segment(params.external_task_id)))
        try:
            answer = await self.ask(asked, context)
        except HandlerError as error:
            logger.warning(
                "%s: cancel of %r: nobody can tell how the job is (%s), so nothing was deleted",
                self.key,
                params.external_task_id,
                error.code or type(error).__name__,
            )
            return CancelOutcome.UNKNOWN
        if not answer.ok:
            return self.parse_cancel(answer, params, context)
        match self.statuses.state_of(self.status_word(answer) or ""):
            case JobState.WAITING:
                return await super().cancel(params, context)
            case JobState.CANCELED:
                return CancelOutcome.CONFIRMED
            case None:
                return CancelOutcome.UNKNOWN
            case _:
                return CancelOutcome.REFUSED

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the DELETE, for a job that is queued."""
        return HttpRequest(method="DELETE", url=f"{_TASKS}/{segment(params.external_task_id)}")

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if it came to an address that we gave.

        Raises:
            CallbackRejected: it did not, or makes no sense.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "id"))


def _content(params: VideoRequest) -> Iterator[JSON]:
    """Yield the parts of `content`: the prompt, and then the materials by their roles."""
    if params.prompt:
        yield {"type": "text", "text": params.prompt}
    for name, kind in _KINDS.items():
        value = getattr(params, name)
        for url in value if isinstance(value, tuple) else (value,):
            if url is not None:
                yield kind.part(url)


def _resolution(params: VideoRequest) -> str | None:
    """Return the resolution as the provider writes it: ``720P`` is its ``720p``."""
    told = params.resolution
    return told.lower() if told is not None and re.fullmatch(r"\d+[pPkK]", told) else told
