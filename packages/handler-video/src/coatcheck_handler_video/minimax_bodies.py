"""What MiniMax is sent to make a video: one body for each version of its API. Pure functions of the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Literal

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON
from coatcheck_handler_video.handler import whole_seconds
from coatcheck_handler_video.request import VideoMode, VideoRequest

__all__ = ["Api", "api_of", "body_of", "modes_of_model"]

Api = Literal["v1", "v2"]
"""The versions, which have paths, bodies and answers of their own."""

_V2_MODELS = "minimax-h3"
_MAX_V1_PROMPT_CHARACTERS = 2000
_V1_SECONDS = (6, 10)
_V2_SECONDS = range(4, 16)
_FRAMES = frozenset({VideoMode.FIRST_FRAME, VideoMode.FIRST_LAST_FRAME})
_V1_MODES = frozenset({VideoMode.TEXT, VideoMode.REFERENCE_IMAGES}) | _FRAMES
_V2_MODES = _V1_MODES | {VideoMode.OMNI_REFERENCE, VideoMode.VIDEO_TO_VIDEO}
_MODES: Mapping[str, AbstractSet[VideoMode]] = {
    _V2_MODELS: _V2_MODES,
    "minimax-hailuo-": frozenset({VideoMode.TEXT}) | _FRAMES,
    "t2v-": frozenset({VideoMode.TEXT}),
    "i2v-": frozenset({VideoMode.FIRST_FRAME}),
    "s2v-": frozenset({VideoMode.REFERENCE_IMAGES}),
}
"""By how the names of models begin, in lower case."""


def api_of(model: str) -> Api:
    """Return the version of the API that has this model."""
    return "v2" if model.lower().startswith(_V2_MODELS) else "v1"


def modes_of_model(model: str) -> AbstractSet[VideoMode]:
    """Return what a model makes videos from; of an unknown one, what others of its version do."""
    known = (modes for begin, modes in _MODES.items() if model.lower().startswith(begin))
    return next(known, _V1_MODES)


def body_of(params: VideoRequest, model: str) -> dict[str, JSON]:
    """Return what a request asks for, under the names of its model's version of the API.

    Raises:
        InvalidParams: that version does not have it.
    """
    body = _v1(params) if api_of(model) == "v1" else _v2(params)
    shared: dict[str, JSON] = {
        "model": model,
        "resolution": None if params.resolution is None else params.resolution.upper(),
        "aigc_watermark": params.watermark,
    }
    return {name: each for name, each in {**shared, **body}.items() if each is not None}


def _v1(params: VideoRequest) -> dict[str, JSON]:
    for name in ("aspect_ratio", "audio_url"):
        if getattr(params, name) is not None:
            message = (
                f"only models of MiniMax's v2, such as MiniMax-H3, have a choice of `{name}`; leave it out"
            )
            raise InvalidParams(message)
    if len(params.prompt) > _MAX_V1_PROMPT_CHARACTERS:
        message = (
            f"the prompt has {len(params.prompt)} characters, and this model takes "
            f"{_MAX_V1_PROMPT_CHARACTERS} at most"
        )
        raise InvalidParams(message)
    images: list[JSON] = list(params.reference_images)
    return {
        "prompt": params.prompt if params.prompt.strip() else None,
        "first_frame_image": params.first_frame,
        "last_frame_image": params.last_frame,
        "subject_reference": [{"type": "character", "image": images}] if images else None,
        "duration": _seconds(params, _V1_SECONDS, "6 or 10"),
    }


def _v2(params: VideoRequest) -> dict[str, JSON]:
    if not params.prompt.strip():
        raise InvalidParams("models of MiniMax's v2 need a prompt, also beside materials")
    references = (params.reference_images, params.reference_videos, params.audio_url)
    if params.first_frame is not None and any(references):
        raise InvalidParams(
            "MiniMax takes first_frame and last_frame, or references, not both in one request"
        )
    if (
        params.resolved_mode is VideoMode.TEXT
        and params.aspect_ratio is None
        and "ratio" not in params.options
    ):
        raise InvalidParams("MiniMax needs aspect_ratio, such as '16:9', for a video from text alone")
    return {
        "content": list(_content(params)),
        "duration": _seconds(params, _V2_SECONDS, "4 to 15"),
        "ratio": params.aspect_ratio,
    }


def _content(params: VideoRequest) -> Iterator[JSON]:
    yield {"type": "text", "text": params.prompt}
    images = [(params.first_frame, "first_frame"), (params.last_frame, "last_frame")]
    images += [(url, "reference_image") for url in params.reference_images]
    videos: list[tuple[str | None, str]] = [(params.source_video, "base_video")]
    videos += [(url, "reference_video") for url in params.reference_videos]
    kinds = {"image_url": images, "video_url": videos, "audio_url": [(params.audio_url, "reference_audio")]}
    for kind, materials in kinds.items():
        for url, role in materials:
            if url is not None:
                yield {"type": kind, kind: {"url": url}, "role": role}


def _seconds(params: VideoRequest, possible: range | tuple[int, ...], told: str) -> int | None:
    if params.duration is None:
        return None
    seconds = whole_seconds(params.duration)
    if seconds not in possible:
        message = f"this model makes videos of {told} seconds, not of {seconds}"
        raise InvalidParams(message)
    return seconds
