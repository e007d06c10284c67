"""Servers that speak OpenAI's protocol for videos, ``/v1/videos``.

Read in 2026 from openai/openai-python at e43b4224 (`resources/videos.py`, `types/video.py`, `video_create_params.py`);
nothing was tried against a live service. OpenAI's own service is deprecated, and announced to end on 2026-09-24; the
shape lives on in gateways and servers, which is why there is no default address. The content of a video is at a second
endpoint, and takes the credentials. There is no idempotency key, no look-up, no callback, and no cancel: DELETE removes
a video. What a server of yours takes and refuses beyond this, it has to tell itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from attrs import frozen

from coatcheck.errors import InvalidParams
from coatcheck.handler import CallContext, QueryContext, SubmitContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
from coatcheck_handler_video.images import check_image
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    FilePart,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    first_text,
    segment,
)
from coatcheck_http.extract import form_text, number

__all__ = ["OpenAiCompatibleVideo", "OpenAiVideoSettings"]

_FRAME = "input_reference"
_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
_MILLISECONDS = re.compile(r"\d{1,12}(\.\d+)?")
_PERCENT = 100


@frozen(kw_only=True)
class OpenAiVideoSettings(VideoSettings):
    """Settings of `OpenAiCompatibleVideo`. `base_url` is the server, with its ``/v1``."""

    upload_first_frame: bool = True
    """Whether the worker downloads a first frame and uploads it, as every such server takes it; False sends its URL,
    for servers that fetch images themselves."""


class OpenAiCompatibleVideo(VideoHandler):
    """Videos by any server with OpenAI's ``/v1/videos``; `base_url` has to be set."""

    key = "video:openai"
    facts = ProviderFacts(name="OpenAI-compatible servers", sources=("openai/openai-python at e43b4224",))
    modes = frozenset({VideoMode.TEXT, VideoMode.FIRST_FRAME})
    supports = frozenset({"duration", "size", "model"})
    query_path = "/videos/{id}"
    # the words of `Video` in the SDK
    statuses = StatusMap(waiting="queued", running="in_progress", succeeded="completed", failed="failed")

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings, which name the server.

        Raises:
            ConfigurationError: there is no `base_url`, or it must not see credentials.
        """
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, OpenAiVideoSettings) else OpenAiVideoSettings()
        self._uploads = own.upload_first_frame

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the protocol does not have.

        Raises:
            InvalidParams: it asks for such a thing, or there is no prompt; the message names it.
        """
        super().validate(params)
        if not params.prompt.strip():
            raise InvalidParams(
                "this provider makes no video without a prompt; give one beside the first_frame"
            )
        if params.duration is not None:
            whole_seconds(params.duration)

    async def prepare(self, params: VideoRequest, context: SubmitContext) -> Prepared:
        """Download the first frame, if it is to be uploaded.

        Raises:
            DownloadFailed: it cannot be had.
        """
        if params.first_frame is None or not self._uploads:
            return Prepared()
        return Prepared(files={_FRAME: await self.download(params.first_frame)})

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request: JSON, or a form with a first frame that is uploaded; options go beneath.

        Raises:
            InvalidParams: the first frame is no image.
        """
        own: dict[str, JSON] = {
            "prompt": params.prompt,
            "model": self.model_of(params),
            "seconds": None if params.duration is None else str(whole_seconds(params.duration)),
            "size": None if params.size is None else f"{params.size[0]}x{params.size[1]}",
        }
        if params.first_frame is not None and not self._uploads:
            own[_FRAME] = {"image_url": params.first_frame}
        body = {**params.options, **{name: each for name, each in own.items() if each is not None}}
        frame = context.prepared.files.get(_FRAME)
        if frame is None:
            return HttpRequest.post("/videos", json=body)
        return HttpRequest.post(
            "/videos",
            form={name: form_text(each) for name, each in body.items() if name != _FRAME},
            files=[
                FilePart(
                    name=_FRAME,
                    file_name=frame.file_name,
                    content=frame.content,
                    content_type=check_image(frame),
                )
            ],
        )

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the progress as a share of 1; the provider tells it in percent."""
        told = number(response.json(), "progress")
        return told / _PERCENT if told is not None and 0 <= told <= _PERCENT else None

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return where the content of the video is, which takes the credentials."""
        body = response.json_object()
        size = _SIZE.fullmatch(first_text(body, "size") or "")
        seconds = None
        with suppress(ValueError):
            seconds = float(first_text(body, "seconds") or "")
        video = Video(
            url=f"{self.base_url}/videos/{segment(params.external_task_id)}/content",
            expires_at=_expiry(body),
            duration_seconds=seconds,
            width=None if size is None else int(size[1]),
            height=None if size is None else int(size[2]),
            needs_credentials=True,
        )
        return VideoResult(videos=(video,))

    def retry_after(self, response: HttpResponse, context: CallContext) -> timedelta | None:
        """Return how long to wait: in milliseconds, if the server says so, or else as all providers tell it."""
        for name in ("openai-poll-after-ms", "retry-after-ms"):
            told = response.header(name) or ""
            if _MILLISECONDS.fullmatch(told):
                return min(timedelta(milliseconds=float(told)), self.settings.max_retry_after)
        return super().retry_after(response, context)


def _expiry(body: Mapping[str, JSON]) -> datetime | None:
    """Return when the content goes, or None if it is not told, or makes no sense."""
    told = number(body, "expires_at")
    with suppress(ValueError, OverflowError, OSError):
        return None if told is None else datetime.fromtimestamp(told, UTC)
    return None
