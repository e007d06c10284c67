"""Veo by the Gemini API.

Read in 2026 from googleapis/python-genai at 66807187 (`models.py`, `operations.py`, `_operations_converters.py`); the
reason of a refused key is that of answers quoted in public issues. Nothing was tried against the live service. The API
takes images as bytes only, so the worker downloads them, and no image is ever stored with a task. The URI of a video
takes the key, and may lead elsewhere. There is no idempotency key and no look-up. Whether an operation can be
cancelled, and how long videos are kept (two days are said), is not documented there. Its own webhooks are not used.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import ClassVar

from attrs import evolve, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import CallContext, QueryContext, SubmitContext
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoSettings
from coatcheck_handler_video.images import check_image
from coatcheck_handler_video.request import VideoRequest
from coatcheck_handler_video.result import Video
from coatcheck_handler_video.veo_handler import VeoHandler, resource_path
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    first_text,
    header_value,
    segment,
    shown,
)
from coatcheck_http.extract import items
from coatcheck_http.google_status import ERROR_CLASSES

__all__ = ["GeminiVeo", "GeminiVeoSettings"]

_BAD_KEY = "API_KEY_INVALID"
"""The reason in the details of an error that is an "invalid argument" by its status."""


@frozen(kw_only=True)
class GeminiVeoSettings(VideoSettings):
    """Settings of `GeminiVeo`."""

    max_image_bytes: int = 20 * 1024 * 1024
    """Of one image, before it is encoded; it is held in memory while it is handed on. A bound of ours."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigurationError: the bound is not positive, or a setting of all handlers means nothing.
        """
        super().__attrs_post_init__()
        if self.max_image_bytes < 1:
            message = f"max_image_bytes must be positive, not {self.max_image_bytes!r}"
            raise ConfigurationError(message)


class GeminiVeo(VeoHandler):
    """Videos by Google's Veo, with a key of the Gemini API."""

    key = "video:veo"
    default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    default_model = "veo-3.1-generate-preview"
    facts = ProviderFacts(
        name="Google Veo (Gemini API)", sources=("googleapis/python-genai at 66807187, google/genai",)
    )
    supports = frozenset({"negative_prompt", "duration", "resolution", "aspect_ratio", "model"})
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {**ERROR_CLASSES, _BAD_KEY: ErrorClass.AUTH}

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own images have the default bound."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, GeminiVeoSettings) else GeminiVeoSettings()
        self._max_image_bytes = own.max_image_bytes

    async def prepare(self, params: VideoRequest, context: SubmitContext) -> Prepared:
        """Download the images.

        Raises:
            DownloadFailed: one cannot be had, or is too large.
        """
        named = (params.first_frame, params.last_frame, *params.reference_images)
        urls = dict.fromkeys(each for each in named if each is not None)
        limit = self._max_image_bytes
        return Prepared(files={url: await self.download(url, limit_bytes=limit) for url in urls})

    def submit_path(self, params: VideoRequest) -> str:
        """Return the path of the model's method."""
        return f"/models/{segment(self.model_of(params) or '')}:predictLongRunning"

    def image_of(self, url: str, context: PreparedContext) -> JSON:
        """Return the bytes of an image that was downloaded, in base64.

        Raises:
            InvalidParams: it is no image.
        """
        image = context.prepared.files[url]
        kind = check_image(image)
        return {"bytesBase64Encoded": base64.b64encode(image.content).decode("ascii"), "mimeType": kind}

    def video_of(self, url: str) -> JSON:
        """Return a video that the API has made itself, by its URI.

        Raises:
            InvalidParams: it is elsewhere.
        """
        if not self.trusts(url):
            message = (
                f"source_video {shown(url)!r} is not of {self.base_url}: the API goes on with videos that it has "
                "made itself, so give the url of such a result"
            )
            raise InvalidParams(message)
        return {"uri": url}

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the operation, whose name is a path."""
        return HttpRequest.get(resource_path(params.external_task_id))

    def read_videos(self, reply: Mapping[str, JSON]) -> Iterator[Video]:
        """Return the videos; their URIs take the key, if they are of an origin that may see it."""
        for sample in items(reply, "generatedSamples"):
            uri = first_text(sample, "video.uri")
            if uri is not None:
                kind = first_text(sample, "video.encoding")
                yield Video(url=uri, content_type=kind, needs_credentials=True)

    def error_of(self, response: HttpResponse) -> ProviderError:
        """Return the error of an answer; a key that is not valid is told by a reason among its details."""
        found = super().error_of(response)
        if found.code is None:
            return found
        reasons = {first_text(each, "reason") for each in items(response.json(), "error.details")}
        return evolve(found, code=_BAD_KEY) if _BAD_KEY in reasons else found

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key in the API's own header."""
        return request.with_headers(x_goog_api_key=header_value(self.account(context).api_key))
