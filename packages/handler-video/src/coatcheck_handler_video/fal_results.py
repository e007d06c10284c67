"""What fal's models give: files, among whatever else they like. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from coatcheck.task import JSON
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import first_object, first_text
from coatcheck_http.extract import number

__all__ = ["read_videos"]

_VIDEO_NAME = re.compile(r"\.(mp4|webm|mov|mkv)$")


def read_videos(body: JSON) -> VideoResult | None:
    """Return the videos of a result; None if it has no file.

    Where no file is told to be a video, all are given, with a warning: what was paid for is not lost to a guess.
    """
    files = list({video.url: video for video in _files(body)}.values())
    if not files:
        return None
    videos = tuple(each for each in files if _is_video(each))
    seed = number(body, "seed")
    return VideoResult(
        videos=videos or tuple(files),
        seed=None if seed is None else int(seed),
        usage=first_object(body, "timings"),
        warnings=() if videos else ("no file of the result is told to be a video; all are given",),
    )


def _files(value: JSON) -> Iterator[Video]:
    """Yield the files in a result, in order; content in base64 is none."""
    if isinstance(value, Mapping):
        url = first_text(value, "url") or ""
        if url.lower().startswith(("http://", "https://")):
            yield _file(url, value)
        else:
            for each in value.values():
                yield from _files(each)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from _files(each)


def _file(url: str, told: JSON) -> Video:
    width, height = number(told, "width"), number(told, "height")
    return Video(
        url=url,
        content_type=first_text(told, "content_type"),
        duration_seconds=number(told, "duration"),
        width=None if width is None else int(width),
        height=None if height is None else int(height),
        fps=number(told, "fps"),
    )


def _is_video(file: Video) -> bool:
    if file.content_type is not None and file.content_type != "application/octet-stream":
        return file.content_type.lower().startswith("video/")
    return _VIDEO_NAME.search(urlsplit(file.url).path.lower()) is not None
