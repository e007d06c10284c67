"""Handlers for video-generation providers, for coatcheck.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_handler_video.aliyun import AliyunVideo, AliyunVideoSettings
    from coatcheck_handler_video.capture import CaptureSettings
    from coatcheck_handler_video.fal import FalAccount, FalVideo, FalVideoSettings
    from coatcheck_handler_video.gitee import GiteeVideo
    from coatcheck_handler_video.handler import VideoHandler, VideoSettings, whole_seconds
    from coatcheck_handler_video.jimeng import JimengVideo, JimengVideoSettings
    from coatcheck_handler_video.jimeng_signing import VolcengineAccount
    from coatcheck_handler_video.kling import KlingKeys, KlingVideo
    from coatcheck_handler_video.luma import LumaVideo
    from coatcheck_handler_video.minimax import MinimaxVideo
    from coatcheck_handler_video.openai_compatible import OpenAiCompatibleVideo, OpenAiVideoSettings
    from coatcheck_handler_video.openrouter import OpenRouterAccount, OpenRouterVideo
    from coatcheck_handler_video.pixverse import PixverseVideo
    from coatcheck_handler_video.replicate import ReplicateAccount, ReplicateVideo, ReplicateVideoSettings
    from coatcheck_handler_video.request import VideoMode, VideoRequest
    from coatcheck_handler_video.result import Copy, Video, VideoResult
    from coatcheck_handler_video.runway import RunwayVideo, RunwayVideoSettings
    from coatcheck_handler_video.veo import GeminiVeo, GeminiVeoSettings
    from coatcheck_handler_video.vertex import VertexVeo, VertexVeoSettings
    from coatcheck_handler_video.vidu import ViduVideo
    from coatcheck_handler_video.volcengine import VolcengineVideo
    from coatcheck_handler_video.zhipu import ZhipuVideo, ZhipuVideoSettings
    from coatcheck_http import ApiKey, GoogleServiceAccount

__all__ = [
    "AliyunVideo",
    "AliyunVideoSettings",
    "ApiKey",
    "CaptureSettings",
    "Copy",
    "FalAccount",
    "FalVideo",
    "FalVideoSettings",
    "GeminiVeo",
    "GeminiVeoSettings",
    "GiteeVideo",
    "GoogleServiceAccount",
    "JimengVideo",
    "JimengVideoSettings",
    "KlingKeys",
    "KlingVideo",
    "LumaVideo",
    "MinimaxVideo",
    "OpenAiCompatibleVideo",
    "OpenAiVideoSettings",
    "OpenRouterAccount",
    "OpenRouterVideo",
    "PixverseVideo",
    "ReplicateAccount",
    "ReplicateVideo",
    "ReplicateVideoSettings",
    "RunwayVideo",
    "RunwayVideoSettings",
    "VertexVeo",
    "VertexVeoSettings",
    "Video",
    "VideoHandler",
    "VideoMode",
    "VideoRequest",
    "VideoResult",
    "VideoSettings",
    "ViduVideo",
    "VolcengineAccount",
    "VolcengineVideo",
    "ZhipuVideo",
    "ZhipuVideoSettings",
    "whole_seconds",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".aliyun": ("AliyunVideo", "AliyunVideoSettings"),
        ".capture": ("CaptureSettings",),
        ".fal": ("FalVideo", "FalVideoSettings", "FalAccount"),
        ".gitee": ("GiteeVideo",),
        ".handler": ("VideoHandler", "VideoSettings", "whole_seconds"),
        ".jimeng": ("JimengVideo", "JimengVideoSettings"),
        ".jimeng_signing": ("VolcengineAccount",),
        ".kling": ("KlingVideo", "KlingKeys"),
        ".luma": ("LumaVideo",),
        ".minimax": ("MinimaxVideo",),
        ".openai_compatible": ("OpenAiCompatibleVideo", "OpenAiVideoSettings"),
        ".openrouter": ("OpenRouterAccount", "OpenRouterVideo"),
        ".pixverse": ("PixverseVideo",),
        ".replicate": ("ReplicateVideo", "ReplicateVideoSettings", "ReplicateAccount"),
        ".request": ("VideoMode", "VideoRequest"),
        ".result": ("Copy", "Video", "VideoResult"),
        ".runway": ("RunwayVideo", "RunwayVideoSettings"),
        ".veo": ("GeminiVeo", "GeminiVeoSettings"),
        ".vertex": ("VertexVeo", "VertexVeoSettings"),
        ".vidu": ("ViduVideo",),
        ".volcengine": ("VolcengineVideo",),
        ".zhipu": ("ZhipuVideo", "ZhipuVideoSettings"),
        "coatcheck_http": ("ApiKey", "GoogleServiceAccount"),
    },
)
