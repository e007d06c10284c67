"""What to make: the params of every video-generation handler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON
from coatcheck_http import check_document_url, check_fields, refuse_local, text_tuple

__all__ = ["MATERIALS", "VideoMode", "VideoRequest"]

URL_SCHEMES = ("http", "https", "gs")
"""Of materials; the last one only where the provider reads from such a bucket."""
MATERIALS = ("first_frame", "last_frame", "reference_images", "reference_videos", "source_video", "audio_url")
"""The fields of a request that hold URLs."""
_RATIO = re.compile(r"[1-9]\d{0,3}:[1-9]\d{0,3}")


class VideoMode(StrEnum):
    """What a video is made from."""

    TEXT = "text"
    "A prompt alone."
    FIRST_FRAME = "first_frame"
    "An image that the video begins with."
    FIRST_LAST_FRAME = "first_last_frame"
    "Two images that it begins and ends with."
    REFERENCE_IMAGES = "reference_images"
    "Images of what is to appear in it."
    OMNI_REFERENCE = "omni_reference"
    "References of several kinds: images with videos or sound."
    VIDEO_TO_VIDEO = "video_to_video"
    "A video that is changed."
    AUDIO_DRIVEN = "audio_driven"
    "Sound, such as speech, that an image or a video is moved by."


def _urls(values: Sequence[str]) -> tuple[str, ...]:
    return text_tuple(values, of="URLs")


def _mode(value: str | None) -> VideoMode | None:
    try:
        return None if value is None else VideoMode(value)
    except ValueError as error:
        message = f"mode: {error}; possible are {', '.join(VideoMode)}"
        raise InvalidParams(message) from error


@frozen(kw_only=True)
class VideoRequest:
    """One video to make. Every material is named by a URL that the provider, or the worker, can fetch.

    None leaves a choice to the provider. A handler whose provider or model lacks something refuses a request that
    asks for it, rather than make another video than asked.
    """

    prompt: str = ""
    """What is to be seen."""
    negative_prompt: str | None = None
    """What is not."""
    mode: VideoMode | None = field(default=None, converter=_mode)
    """None goes by the materials that there are: see `resolved_mode`."""
    first_frame: str | None = None
    last_frame: str | None = None
    reference_images: tuple[str, ...] = field(default=(), converter=_urls)
    reference_videos: tuple[str, ...] = field(default=(), converter=_urls)
    source_video: str | None = None
    audio_url: str | None = None
    duration: timedelta | None = None
    """How long the video is to be; most providers take whole seconds, and few of them."""
    resolution: str | None = None
    """As the provider names it, such as ``720p``; not beside `width` and `height`."""
    width: int | None = None
    """In pixels, with `height`."""
    height: int | None = None
    aspect_ratio: str | None = None
    """Such as ``16:9``."""
    fps: int | None = None
    """Frames in a second."""
    seed: int | None = None
    """Makes it repeatable, as far as the provider can."""
    watermark: bool | None = None
    audio: bool | None = None
    """Whether sound is made."""
    model: str | None = None
    """The provider's name of a model; None is the handler's default."""
    options: Mapping[str, JSON] = field(factory=dict)
    """Handed to the provider as they are, under its own names, beneath what the handler sets itself."""

    def __attrs_post_init__(self) -> None:
        """Refuse what no provider could make, or could fetch later and elsewhere.

        Raises:
            InvalidParams: a material is a local path, `file:`, `data:` or base64; there is neither prompt nor
                material; the materials are not those of the mode; or a field makes no sense.
        """
        for name in MATERIALS:
            value = getattr(self, name)
            if isinstance(value, tuple):
                for index, each in enumerate(value):
                    check_document_url(each, name=f"{name}[{index}]", schemes=URL_SCHEMES)
            elif value is not None:
                check_document_url(value, name=name, schemes=URL_SCHEMES)
        check_fields(self)
        refuse_local(self.options, path="options")
        self._check_numbers()
        _check_materials(self)

    @property
    def resolved_mode(self) -> VideoMode:
        """The mode that was asked for, or else that of the materials."""
        return self.mode or _mode_of(self)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height in pixels, if they were given."""
        return None if self.width is None or self.height is None else (self.width, self.height)

    def _check_numbers(self) -> None:
        wrong = {
            "duration must be positive": self.duration is not None and self.duration <= timedelta(),
            "width and height go together": (self.width is None) is not (self.height is None),
            "width and height must be positive": any(
                each is not None and each < 1 for each in (self.width, self.height)
            ),
            "give resolution, or width and height": self.resolution is not None and self.width is not None,
            "fps must be positive": self.fps is not None and self.fps < 1,
            "seed must not be negative": self.seed is not None and self.seed < 0,
            "aspect_ratio must look like '16:9'": self.aspect_ratio is not None
            and not _RATIO.fullmatch(self.aspect_ratio),
            "model must not be blank; leave it out": self.model is not None and not self.model.strip(),
            "resolution must not be blank; leave it out": self.resolution is not None
            and not self.resolution.strip(),
        }
        for rule, broken in wrong.items():
            if broken:
                raise InvalidParams(f"{rule}: {self!r}")


_NEEDED = {
    VideoMode.TEXT: (),
    VideoMode.FIRST_FRAME: ("first_frame",),
    VideoMode.FIRST_LAST_FRAME: ("first_frame", "last_frame"),
    VideoMode.REFERENCE_IMAGES: ("reference_images",),
    VideoMode.OMNI_REFERENCE: (),
    VideoMode.VIDEO_TO_VIDEO: ("source_video",),
    VideoMode.AUDIO_DRIVEN: ("audio_url",),
}
"""The materials without which a mode is nothing."""
_TAKEN = {
    VideoMode.TEXT: ("audio_url",),
    VideoMode.FIRST_FRAME: ("first_frame", "audio_url"),
    VideoMode.FIRST_LAST_FRAME: ("first_frame", "last_frame", "audio_url"),
    VideoMode.REFERENCE_IMAGES: ("reference_images", "audio_url"),
    VideoMode.OMNI_REFERENCE: MATERIALS,
    VideoMode.VIDEO_TO_VIDEO: ("source_video", "reference_images", "first_frame", "audio_url"),
    VideoMode.AUDIO_DRIVEN: ("audio_url", "first_frame", "reference_images", "source_video"),
}
"""The materials that make sense in a mode."""


def _mode_of(request: VideoRequest) -> VideoMode:
    """Return the narrowest mode that takes all materials of a request."""
    given = {name for name in MATERIALS if getattr(request, name)}
    order = (
        VideoMode.FIRST_LAST_FRAME,
        VideoMode.VIDEO_TO_VIDEO,
        VideoMode.REFERENCE_IMAGES,
        VideoMode.FIRST_FRAME,
        VideoMode.TEXT,
    )
    for mode in order:
        if given.issuperset(_NEEDED[mode]) and given.issubset(_TAKEN[mode]):
            return mode
    return VideoMode.OMNI_REFERENCE


def _check_materials(request: VideoRequest) -> None:
    given = [name for name in MATERIALS if getattr(request, name)]
    if not given and not request.prompt.strip():
        raise InvalidParams("a video is made from a prompt or from materials; there is neither")
    if request.last_frame is not None and request.first_frame is None:
        raise InvalidParams("last_frame needs a first_frame beside it")
    if request.mode is None:
        return
    missing = [name for name in _NEEDED[request.mode] if name not in given]
    if missing:
        message = f"mode {request.mode} needs {' and '.join(missing)}"
        raise InvalidParams(message)
    foreign = [name for name in given if name not in _TAKEN[request.mode]]
    if foreign:
        message = f"mode {request.mode} does not go with {', '.join(foreign)}; leave the mode out, or these"
        raise InvalidParams(message)
