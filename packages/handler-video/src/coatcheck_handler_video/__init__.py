"""Handlers for video-generation providers, for coatcheck.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_handler_video.capture import CaptureSettings
    from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
    from coatcheck_handler_video.request import VideoMode, VideoRequest
    from coatcheck_handler_video.result import Copy, Video, VideoResult
    from coatcheck_http import ApiKey

__all__ = [
    "ApiKey",
    "CaptureSettings",
    "Copy",
    "Video",
    "VideoHandler",
    "VideoMode",
    "VideoRequest",
    "VideoResult",
    "VideoSettings",
    "whole_seconds",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".capture": ("CaptureSettings",),
        ".handler": ("VideoHandler", "VideoSettings", "whole_seconds"),
        ".request": ("VideoMode", "VideoRequest"),
        ".result": ("Copy", "Video", "VideoResult"),
        "coatcheck_http": ("ApiKey",),
    },
)
