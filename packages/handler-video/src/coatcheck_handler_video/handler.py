"""The base of video-generation handlers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from attrs import evolve, frozen

from coatcheck.errors import InvalidParams, QueryFailed
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import QueryParams
from coatcheck_handler_video.capture import Capture, CaptureSettings, Save
from coatcheck_handler_video.request import MATERIALS, VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    Accounts,
    DownloadFailed,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobHandler,
    SavedFile,
    UntrustedUrl,
    check_document_url,
)

__all__ = ["VideoHandler", "VideoSettings", "whole_seconds"]

_CHOICES = (
    "negative_prompt", "audio_url", "duration", "resolution", "size", "aspect_ratio", "fps", "seed", "watermark",
    "audio", "model",
)  # fmt: skip
_NO_TIME_LEFT = timedelta(minutes=5)
"""So shortly before the deadline a video that could not be copied is told without its copy, rather than lost."""


@frozen(kw_only=True)
class VideoSettings(HttpSettings):
    """Settings that every video handler has."""

    model: str | None = None
    """For requests that name none; None is the handler's own."""
    capture: CaptureSettings | None = None
    """Where to copy finished videos to; None leaves them at the provider."""


class VideoHandler(JobHandler[VideoRequest]):
    """An HTTP handler that takes `VideoRequest` and gives `VideoResult`.

    Subclasses write `build_submit` and `read_result`, and say which modes and choices the provider has.
    """

    default_model: ClassVar[str | None] = None
    """For requests and settings that name none."""
    modes: ClassVar[AbstractSet[VideoMode]] = frozenset({VideoMode.TEXT})
    """What the provider makes videos from, with one model or another."""
    supports: AbstractSet[str] = frozenset(_CHOICES)
    """Which of these choices of a request the provider has; ``size`` is width and height."""
    url_schemes: ClassVar[Sequence[str]] = ("http", "https")
    """Of which kind the URLs of materials may be."""

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than `VideoSettings` nothing is copied."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, VideoSettings) else VideoSettings()
        self._model = own.model
        self._capture = None if own.capture is None else Capture(own.capture)

    def model_of(self, params: VideoRequest) -> str | None:
        """Return the model that makes this video."""
        return params.model or self._model or self.default_model

    def modes_of(self, model: str | None) -> AbstractSet[VideoMode]:
        """Return what this model makes videos from; by default what the provider does."""
        return self.modes

    def validate(self, params: VideoRequest) -> None:
        """Refuse a request for what the provider or the model does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        mode, model = params.resolved_mode, self.model_of(params)
        possible = self.modes_of(model)
        if mode not in possible:
            what = f"{self.key} with model {model!r}" if model else self.key
            message = f"{what} makes no video from {mode}; it makes one from {', '.join(sorted(possible))}"
            raise InvalidParams(message)
        for name in _CHOICES:
            if name not in self.supports and getattr(params, name) is not None:
                message = (
                    f"{self.key} has no choice of `{name}`; leave it out, or use the provider's own `options`"
                )
                if name != "audio_url" or mode is not VideoMode.AUDIO_DRIVEN:
                    raise InvalidParams(message)
        for name in MATERIALS:
            value = getattr(params, name)
            for each in value if isinstance(value, tuple) else (value,):
                if each is not None:
                    check_document_url(each, name=name, schemes=self.url_schemes)

    @abstractmethod
    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos of a job that is done; None if the answer has none. Pure.

        A `QueryResult` is taken as it is, for jobs that are done and failed all the same.
        """

    def build_download(self, video: Video) -> HttpRequest | str:
        """Return how the content of a video is fetched: its URL, without credentials, or a request with them."""
        return HttpRequest.get(video.url) if video.needs_credentials else video.url

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Copy the videos, if the settings say where to.

        Raises:
            QueryFailed: one cannot be had now; it is asked for again, until shortly before the deadline.
        """
        if self._capture is None or not isinstance(result.result, VideoResult):
            return result
        return evolve(result, result=await self._captured(self._capture, result.result, context))

    async def _captured(self, capture: Capture, made: VideoResult, context: QueryContext) -> VideoResult:
        videos: list[Video] = []
        warnings = list(made.warnings)
        for index, video in enumerate(made.videos):
            name = _file_name(context.task_id, index, len(made.videos))
            try:
                copy = await capture.copy(video, name, self._saver(video, context))
            except (DownloadFailed, UntrustedUrl, OSError) as error:
                if not self._must_go_on(error, context):
                    message = f"the video is done, and cannot be copied now: {error}"
                    raise QueryFailed(message, code="capture_failed") from error
                warnings.append(f"the video at the provider was not copied: {error}")
                videos.append(video)
            else:
                videos.append(evolve(video, copy=copy))
        return evolve(made, videos=tuple(videos), warnings=tuple(warnings))

    def _must_go_on(self, error: Exception, context: QueryContext) -> bool:
        """Whether another try is of no use, or would come too late."""
        final = isinstance(error, UntrustedUrl) or (isinstance(error, DownloadFailed) and error.final)
        return final or context.deadline_at - context.now < _NO_TIME_LEFT

    def _saver(self, video: Video, context: QueryContext) -> Save:
        async def save(path: Path, limit_bytes: int) -> SavedFile:
            return await self.save(self.build_download(video), path, context, limit_bytes=limit_bytes)

        return save


def whole_seconds(duration: timedelta) -> int:
    """Return a duration as providers take it.

    Raises:
        InvalidParams: it is no whole number of seconds.
    """
    seconds = duration.total_seconds()
    if not seconds.is_integer():
        message = f"duration must be whole seconds, not {seconds:g} s"
        raise InvalidParams(message)
    return int(seconds)


def _file_name(task_id: str, index: int, count: int) -> str:
    plain = re.sub(r"[^\w.-]", "_", task_id)
    return plain if count == 1 else f"{plain}-{index + 1}"
