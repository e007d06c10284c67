"""What was made: the result of every video-generation handler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import field, frozen

from coatcheck.task import JSON

__all__ = ["Copy", "Video", "VideoResult"]


@frozen(kw_only=True)
class Copy:
    """A copy of a video in a place of one's own, whole and checked."""

    location: str
    """The URL or path of the file."""
    size_bytes: int
    sha256: str
    """Of the content, in hexadecimal."""


@frozen(kw_only=True)
class Video:
    """One video."""

    url: str
    """Where the provider keeps it, often for a short time."""
    expires_at: datetime | None = None
    """When the URL, or the file, ends, if the provider's documentation tells."""
    duration_seconds: float | None = None
    width: int | None = None
    """In pixels."""
    height: int | None = None
    fps: float | None = None
    content_type: str | None = None
    needs_credentials: bool = False
    """Whether the URL can be fetched only with the account's credentials."""
    copy: Copy | None = None
    """Where it was captured to, if the handler was told to."""


@frozen(kw_only=True)
class VideoResult:
    """The videos of a job, mostly one. Providers give more or less of the rest."""

    videos: tuple[Video, ...]
    cover_url: str | None = None
    """An image that stands for the video."""
    last_frame_url: str | None = None
    seed: int | None = None
    """With which it can be made again."""
    usage: Mapping[str, JSON] = field(factory=dict)
    """What the provider counted or charged, under its own names."""
    warnings: tuple[str, ...] = ()
    """What went wrong without making the result useless."""
