"""What both of Google's APIs for Veo have in common: the request, and the operation that makes the videos.

Read in 2026 from googleapis/python-genai at 66807187 (`models.py`, `operations.py`, `_operations_converters.py`) and
Google's pages "VideoGenerationModelInstance" and "Veo video generation API"; nothing was tried against a live service.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import ClassVar

from coatcheck.errors import InvalidParams
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoHandler, whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    ErrorClass,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    StatusMap,
    first_object,
    first_text,
    lookup,
    segment,
)
from coatcheck_http.extract import items, number
from coatcheck_http.google_status import ERROR_CLASSES, code_of

__all__ = ["VeoHandler", "resource_path"]

RUNNING, DONE, ERROR = "running", "done", "error"
"""Words of ours: an operation has none, but says whether it is done, and has an error or a response then."""
_ASPECT_RATIOS = ("16:9", "9:16")


class VeoHandler(VideoHandler):
    """A handler of Veo. Subclasses say how materials are handed over and where the videos are."""

    modes = frozenset(
        {
            VideoMode.TEXT,
            VideoMode.FIRST_FRAME,
            VideoMode.FIRST_LAST_FRAME,
            VideoMode.REFERENCE_IMAGES,
            VideoMode.VIDEO_TO_VIDEO,
        }
    )
    id_paths = ("name",)
    status_paths = ("name", "done")
    statuses = StatusMap(running=RUNNING, succeeded=DONE, failed=ERROR)
    error_code_paths = ("error.status", "error")
    error_codes = ERROR_CLASSES
    instance_options: ClassVar[AbstractSet[str]] = frozenset()
    """Options that go into the instance; the rest go into the parameters."""

    @abstractmethod
    def submit_path(self, params: VideoRequest) -> str:
        """Return where the creating request goes, below the base URL. Pure."""

    @abstractmethod
    def image_of(self, url: str, context: PreparedContext) -> JSON:
        """Return an image as the API takes it. Pure."""

    @abstractmethod
    def video_of(self, url: str) -> JSON:
        """Return a video as the API takes it. Pure.

        Raises:
            InvalidParams: it takes no such one.
        """

    @abstractmethod
    def read_videos(self, reply: Mapping[str, JSON]) -> Iterator[Video]:
        """Return the videos in the reply of an operation that is done; those without a URL are left out. Pure."""

    def parameters_of(self, params: VideoRequest, task_id: str) -> dict[str, JSON]:
        """Return the parameters that the request sets; None is not sent. Pure."""
        return {
            "durationSeconds": None if params.duration is None else whole_seconds(params.duration),
            "aspectRatio": params.aspect_ratio,
            "resolution": params.resolution,
            "negativePrompt": params.negative_prompt,
        }

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the API does not have, or does not take together.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self.submit_path(params)
        self.parameters_of(params, "")
        if params.aspect_ratio not in (None, *_ASPECT_RATIOS):
            message = f"aspect_ratio {params.aspect_ratio!r} is none of {', '.join(_ASPECT_RATIOS)}"
            raise InvalidParams(message)
        if params.reference_images and not params.prompt.strip():
            raise InvalidParams("reference_images need a prompt; say what is to be seen of them")
        if params.source_video is None:
            return
        if params.first_frame is not None or params.reference_images:
            raise InvalidParams(
                "a source_video goes with no image; leave first_frame and reference_images out"
            )
        self.video_of(params.source_video)

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request; options go beneath what is set here."""

        def image(url: str | None) -> JSON:
            return None if url is None else self.image_of(url, context)

        references: list[JSON] = [
            {"image": image(each), "referenceType": "asset"} for each in params.reference_images
        ]
        own: dict[str, JSON] = {
            "prompt": params.prompt if params.prompt.strip() else None,
            "image": image(params.first_frame),
            "lastFrame": image(params.last_frame),
            "referenceImages": references or None,
            "video": None if params.source_video is None else self.video_of(params.source_video),
        }
        instance, parameters = _given(own), _given(self.parameters_of(params, context.task_id))
        for name, each in params.options.items():
            (instance if name in self.instance_options else parameters).setdefault(name, each)
        body: dict[str, JSON] = {"instances": [instance]}
        if parameters:
            body["parameters"] = parameters
        return HttpRequest.post(self.submit_path(params), json=body)

    def status_word(self, response: HttpResponse) -> str | None:
        """Return a word for how the operation is, or None if the answer is none: `done` is left out while false."""
        body = response.json_object()
        done = body.get("done")
        if done is None and first_text(body, *self.id_paths) is None:
            return None
        if done is None or done is False:
            return RUNNING
        if done is not True:
            return str(done)
        return ERROR if first_object(body, "error") else DONE

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return the error of an operation, with Google's word for its code; somebody may have cancelled it."""
        error = lookup(response.json(), "error")
        code = first_text(error, "status") or code_of(error)
        if code == "CANCELLED":
            return QueryResult.canceled(provider_status=word)
        return QueryResult.failed(
            code, first_text(error, "message") or "the job failed", provider_status=word
        )

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos; if all of them were filtered out, the job has failed for its content."""
        reply = first_object(response.json(), "response.generateVideoResponse", "response")
        videos = tuple(self.read_videos(reply))
        reasons = [each for each in items(reply, "raiMediaFilteredReasons") if isinstance(each, str)]
        count = int(number(reply, "raiMediaFilteredCount") or len(reasons))
        why = "; ".join(reasons) or "it gives no reason"
        if videos:
            warnings = (f"videos that the provider filtered out: {count} ({why})",) if count else ()
            return VideoResult(videos=videos, warnings=warnings)
        if not count:
            return None
        message = f"the provider refuses the content ({ErrorClass.MODERATION}): {why}"
        return QueryResult.failed(str(ErrorClass.MODERATION), message, provider_status=DONE)


def resource_path(name: str) -> str:
    """Return a resource's name, such as that of an operation, as a path below the base URL.

    Raises:
        InvalidParams: a part of it is empty, ``.`` or ``..``.
    """
    return "".join(f"/{segment(each)}" for each in name.split("/"))


def _given(values: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: each for name, each in values.items() if each is not None}
