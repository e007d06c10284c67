"""Veo by Vertex AI.

Read in 2026 from googleapis/python-genai at 66807187 (`models.py`, `operations.py`, `_operations_converters.py`) and
Google's pages "VideoGenerationModelInstance" and "Veo video generation API"; nothing was tried against the live
service. Materials and results are objects in Cloud Storage: where results go is a setting that has to be given, since
without it they would come as base64. An operation is asked about with a POST, which creates nothing. There is no
idempotency key and no look-up; whether an operation of Veo can be cancelled is not documented there, and Pub/Sub topics
are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

from attrs import evolve, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import QueryContext
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_video.handler import VideoSettings
from coatcheck_handler_video.request import VideoRequest
from coatcheck_handler_video.result import Video
from coatcheck_handler_video.veo_handler import VeoHandler, resource_path
from coatcheck_http import (
    Accounts,
    GoogleCalls,
    HttpRequest,
    HttpSettings,
    PreparedContext,
    ProviderFacts,
    first_text,
    segment,
)
from coatcheck_http.extract import items

__all__ = ["VertexVeo", "VertexVeoSettings"]

_GS = "gs://"
_BUCKET = re.compile(r"gs://[^/\s]+(?:/[^\s]*)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_IMAGES = {".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png"}
_VIDEOS = {".mp4": "video/mp4"}


@frozen(kw_only=True)
class VertexVeoSettings(VideoSettings):
    """Settings of `VertexVeo`; `project` and `storage_uri` have to be given."""

    project: str = ""
    """The id or number of the project."""
    storage_uri: str = ""
    """Where the provider writes videos, such as ``gs://my-bucket/videos``; each task has a folder below it."""
    location: str = "us-central1"
    """Where the model runs; unless `base_url` is given, this is a part of it."""
    storage_url: str = "https://storage.googleapis.com"
    """Cloud Storage, which sees the credentials, too, if videos are captured."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that mean nothing.

        Raises:
            ConfigurationError: project, location or bucket is none, or a setting of all handlers means nothing.
        """
        super().__attrs_post_init__()
        for name in ("project", "location"):
            if not _NAME.fullmatch(getattr(self, name)):
                message = f"Veo by Vertex AI needs the setting {name}, not {getattr(self, name)!r}"
                raise ConfigurationError(message)
        if not _BUCKET.fullmatch(self.storage_uri):
            message = (
                "Veo by Vertex AI needs the setting storage_uri, where it writes videos, such as "
                f"'gs://my-bucket/videos', not {self.storage_uri!r}"
            )
            raise ConfigurationError(message)


class VertexVeo(GoogleCalls[VideoRequest], VeoHandler):
    """Videos by Google's Veo, with Vertex AI."""

    key = "video:vertex"
    default_model = "veo-3.1-generate-001"
    facts = ProviderFacts(
        name="Google Veo (Vertex AI)",
        sources=(
            "googleapis/python-genai at 66807187, google/genai",
            "Google's pages VideoGenerationModelInstance and Veo video generation API",
        ),
    )
    supports = frozenset(
        {"negative_prompt", "duration", "resolution", "aspect_ratio", "fps", "seed", "audio", "model"}
    )
    url_schemes = ("gs",)
    instance_options = frozenset({"cameraControl", "mask"})

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts, of `GoogleServiceAccount` or `ApiKey` with a ready access token, and settings.

        Raises:
            ConfigurationError: the settings are not `VertexVeoSettings`, or one of them must not be.
        """
        if not isinstance(settings, VertexVeoSettings):
            message = f"{key or self.key!r} needs VertexVeoSettings with project and storage_uri"
            raise ConfigurationError(message)
        self._own = settings
        self._storage_url = settings.storage_url.rstrip("/")
        known = evolve(
            settings,
            base_url=settings.base_url or f"https://{settings.location}-aiplatform.googleapis.com/v1beta1",
            trusted_origins=(*settings.trusted_origins, self._storage_url),
        )
        super().__init__(accounts, key=key, settings=known)

    def submit_path(self, params: VideoRequest) -> str:
        """Return the path of the model's method."""
        own, model = self._own, segment(self.model_of(params) or "")
        place = f"/projects/{segment(own.project)}/locations/{own.location}"
        return f"{place}/publishers/google/models/{model}:predictLongRunning"

    def validate(self, params: VideoRequest) -> None:
        """Refuse, beside what every handler of Veo refuses, a material whose name does not tell its type.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        for each in (params.first_frame, params.last_frame, *params.reference_images):
            if each is not None:
                _object(each, _IMAGES)

    def parameters_of(self, params: VideoRequest, task_id: str) -> dict[str, JSON]:
        """Return the parameters that the request sets, and where the videos go: to a folder of the task's."""
        return {
            **super().parameters_of(params, task_id),
            "seed": params.seed,
            "fps": params.fps,
            "generateAudio": params.audio,
            "storageUri": f"{self._own.storage_uri.rstrip('/')}/{quote(task_id, safe='')}/",
        }

    def image_of(self, url: str, context: PreparedContext) -> JSON:
        """Return an image by its place in Cloud Storage."""
        return _object(url, _IMAGES)

    def video_of(self, url: str) -> JSON:
        """Return a video by its place in Cloud Storage."""
        return _object(url, _VIDEOS)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a POST that asks the model for the operation; it creates nothing.

        Raises:
            InvalidParams: what is stored is no operation's name.
        """
        name = params.external_task_id
        model, found, _ = name.rpartition("/operations/")
        if not found:
            message = f"{name!r} is no name of an operation, which has '/operations/' in it"
            raise InvalidParams(message)
        return HttpRequest.post(f"{resource_path(model)}:fetchPredictOperation", json={"operationName": name})

    def read_videos(self, reply: Mapping[str, JSON]) -> Iterator[Video]:
        """Return the videos, by their places in Cloud Storage; none that is inline."""
        for video in items(reply, "videos"):
            uri = first_text(video, "gcsUri")
            if uri is not None:
                yield Video(url=uri, content_type=first_text(video, "mimeType"), needs_credentials=True)

    def build_download(self, video: Video) -> HttpRequest | str:
        """Return how the object of a video is read, by Cloud Storage's JSON API with the same credentials."""
        if not video.url.startswith(_GS):
            return super().build_download(video)
        bucket, _, name = video.url.removeprefix(_GS).partition("/")
        url = f"{self._storage_url}/storage/v1/b/{segment(bucket)}/o/{segment(name)}"
        return HttpRequest.get(url, query={"alt": "media"})


def _object(url: str, types: Mapping[str, str]) -> JSON:
    """Return an object as the API takes it, with the type that its name tells.

    Raises:
        InvalidParams: its name tells none that the API takes.
    """
    kind = types.get(PurePosixPath(url).suffix.lower())
    if kind is None:
        message = f"the type of {url!r} cannot be told: its name has to end in {', '.join(types)}"
        raise InvalidParams(message)
    return {"gcsUri": url, "mimeType": kind}
