"""What DashScope's two families of models take: Wan, and HappyHorse.

Each has a function that refuses what the family lacks, and one that returns `input` and `parameters` of a body. All is
pure. The sources are those of `aliyun`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON
from coatcheck_handler_video.handler import whole_seconds
from coatcheck_handler_video.request import MATERIALS, VideoMode, VideoRequest

__all__ = [
    "MODELS",
    "Parts",
    "check_happyhorse",
    "check_wan",
    "happyhorse_parts",
    "is_happyhorse",
    "modes_of",
    "wan_parts",
]

Parts: TypeAlias = "tuple[Mapping[str, JSON], Mapping[str, JSON]]"
"""`input` and `parameters` of a body."""

MODELS = {
    VideoMode.TEXT: "wan2.6-t2v",
    VideoMode.FIRST_FRAME: "wan2.6-i2v",
    VideoMode.FIRST_LAST_FRAME: "wanx2.1-kf2v-plus",
    VideoMode.REFERENCE_IMAGES: "wan2.6-r2v",
    VideoMode.OMNI_REFERENCE: "wan2.6-r2v",
    VideoMode.VIDEO_TO_VIDEO: "happyhorse-1.0-video-edit",
}
"""A model for each mode: each of them does one thing, and its name says which."""
_BY_NAME = (
    ("kf2v", frozenset({VideoMode.FIRST_LAST_FRAME})),
    ("t2v", frozenset({VideoMode.TEXT})),
    ("i2v", frozenset({VideoMode.FIRST_FRAME})),
    ("r2v", frozenset({VideoMode.REFERENCE_IMAGES, VideoMode.OMNI_REFERENCE})),
    ("video-edit", frozenset({VideoMode.VIDEO_TO_VIDEO})),
)
_WAN_PLACES = {
    VideoMode.TEXT: {"audio_url"},
    VideoMode.FIRST_FRAME: {"first_frame", "audio_url"},
    VideoMode.FIRST_LAST_FRAME: {"first_frame", "last_frame", "audio_url"},
    VideoMode.REFERENCE_IMAGES: {"reference_images", "audio_url"},
    VideoMode.OMNI_REFERENCE: {"reference_images", "reference_videos", "audio_url"},
    VideoMode.VIDEO_TO_VIDEO: {"source_video"},
}
"""The materials for which a body of Wan has a place."""
_HAPPYHORSE_PLACES = {
    VideoMode.TEXT: set[str](),
    VideoMode.FIRST_FRAME: {"first_frame"},
    VideoMode.REFERENCE_IMAGES: {"reference_images"},
    VideoMode.VIDEO_TO_VIDEO: {"source_video", "reference_images"},
}
_HAPPYHORSE_LACKS = ("negative_prompt", "size", "fps", "audio")
_HAPPYHORSE_RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4", "4:5", "5:4", "9:21", "21:9")
_HAPPYHORSE_RESOLUTIONS = ("720P", "1080P")
_HAPPYHORSE_SECONDS = range(3, 16)
_MOST_REFERENCES, _MOST_EDIT_REFERENCES = 9, 5
_MAX_SEED = 2147483647


def is_happyhorse(model: str) -> bool:
    """Whether a model is of the family HappyHorse; all others are taken for Wan."""
    return "happyhorse" in model.casefold()


def modes_of(model: str) -> AbstractSet[VideoMode]:
    """Return what a model makes videos from, as its name says; if that says nothing, all that its family does."""
    places = _HAPPYHORSE_PLACES if is_happyhorse(model) else _WAN_PLACES
    for word, modes in _BY_NAME:
        if word in model.casefold():
            return modes & places.keys()
    return places.keys()


def check_wan(params: VideoRequest, model: str) -> None:
    """Refuse what a model of Wan does not have.

    Raises:
        InvalidParams: the request asks for such a thing.
    """
    mode = params.resolved_mode
    _check_places(params, model, _WAN_PLACES[mode])
    if mode is VideoMode.OMNI_REFERENCE and not (params.reference_images or params.reference_videos):
        _refuse(model, "needs reference_images or reference_videos for omni_reference")
    name = model.casefold()
    if "kf2v" not in name and "i2v" in name and params.size is not None:
        _refuse(model, "takes the shape of its image; give resolution instead of width and height")
    sized = "2.7" not in name and ("t2v" in name or "r2v" in name)
    if sized and params.resolution is not None:
        _refuse(model, f"has no choice of resolution; give width and height instead of {params.resolution!r}")


def wan_parts(params: VideoRequest, model: str) -> Parts:
    """Return `input` and `parameters` for a model of Wan."""
    size = params.size
    return (
        _given(
            prompt=params.prompt or None,
            negative_prompt=params.negative_prompt,
            audio_url=params.audio_url,
            video_url=params.source_video,
            **_wan_frames(params),
            **_wan_references(params, model),
        ),
        _given(
            size=None if size is None else f"{size[0]}*{size[1]}",
            resolution=_resolution(params),
            ratio=params.aspect_ratio,
            duration=None if params.duration is None else whole_seconds(params.duration),
            fps=params.fps,
            seed=params.seed,
            watermark=params.watermark,
            generate_audio=params.audio,
        ),
    )


def check_happyhorse(params: VideoRequest, model: str) -> None:
    """Refuse what a model of HappyHorse does not have.

    Raises:
        InvalidParams: the request asks for such a thing.
    """
    mode = params.resolved_mode
    _check_places(params, model, _HAPPYHORSE_PLACES[mode])
    for name in _HAPPYHORSE_LACKS:
        if getattr(params, name) is not None:
            _refuse(model, f"has no choice of `{name}`; leave it out")
    if mode in {VideoMode.TEXT, VideoMode.REFERENCE_IMAGES} and not params.prompt.strip():
        _refuse(model, "needs a prompt")
    most = _MOST_EDIT_REFERENCES if mode is VideoMode.VIDEO_TO_VIDEO else _MOST_REFERENCES
    if len(params.reference_images) > most:
        _refuse(model, f"takes at most {most} reference_images, not {len(params.reference_images)}")
    _check_happyhorse_shape(params, model)
    if params.duration is not None:
        if mode is VideoMode.VIDEO_TO_VIDEO:
            _refuse(model, "keeps the length of the video that it is given; leave duration out")
        if whole_seconds(params.duration) not in _HAPPYHORSE_SECONDS:
            _refuse(model, f"makes 3 to 15 seconds, not {whole_seconds(params.duration)}")
    if params.seed is not None and params.seed > _MAX_SEED:
        _refuse(model, f"takes a seed of {_MAX_SEED} at most, not {params.seed}")


def _check_happyhorse_shape(params: VideoRequest, model: str) -> None:
    if _resolution(params) not in {None, *_HAPPYHORSE_RESOLUTIONS}:
        _refuse(model, f"takes resolution {' or '.join(_HAPPYHORSE_RESOLUTIONS)}, not {params.resolution!r}")
    if params.aspect_ratio is None:
        return
    if params.resolved_mode in {VideoMode.FIRST_FRAME, VideoMode.VIDEO_TO_VIDEO}:
        _refuse(model, "keeps the shape of what it is given; leave aspect_ratio out")
    if params.aspect_ratio not in _HAPPYHORSE_RATIOS:
        _refuse(model, f"takes aspect_ratio {', '.join(_HAPPYHORSE_RATIOS)}, not {params.aspect_ratio!r}")


def happyhorse_parts(params: VideoRequest) -> Parts:
    """Return `input` and `parameters` for a model of HappyHorse."""
    media = [
        *_media("first_frame", [params.first_frame]),
        *_media("video", [params.source_video]),
        *_media("reference_image", params.reference_images),
    ]
    return (
        _given(prompt=params.prompt or None, media=media or None),
        _given(
            resolution=_resolution(params),
            ratio=params.aspect_ratio,
            duration=None if params.duration is None else whole_seconds(params.duration),
            watermark=params.watermark,
            seed=params.seed,
        ),
    )


def _wan_frames(params: VideoRequest) -> Mapping[str, JSON]:
    if params.last_frame is None:
        return {"img_url": params.first_frame}
    return {"first_frame_url": params.first_frame, "last_frame_url": params.last_frame}


def _wan_references(params: VideoRequest, model: str) -> Mapping[str, JSON]:
    if "wan2.7" in model.casefold():
        media = [
            *_media("reference_image", params.reference_images),
            *_media("reference_video", params.reference_videos),
        ]
        return {"media": media or None}
    return {
        "reference_urls": list(params.reference_images) or None,
        "reference_video_urls": list(params.reference_videos) or None,
    }


def _media(kind: str, urls: Sequence[str | None]) -> list[JSON]:
    return [{"type": kind, "url": url} for url in urls if url is not None]


def _resolution(params: VideoRequest) -> str | None:
    """Return the resolution as the provider writes it: ``720p`` is its ``720P``."""
    told = params.resolution
    return told.upper() if told is not None and re.fullmatch(r"\d+[pP]", told) else told


def _given(**fields: JSON) -> Mapping[str, JSON]:
    return {name: value for name, value in fields.items() if value is not None}


def _check_places(params: VideoRequest, model: str, places: AbstractSet[str]) -> None:
    foreign = [name for name in MATERIALS if getattr(params, name) and name not in places]
    if foreign:
        _refuse(model, f"has no place for {', '.join(foreign)} in mode {params.resolved_mode}")


def _refuse(model: str, why: str) -> None:
    message = f"model {model!r} {why}"
    raise InvalidParams(message)
