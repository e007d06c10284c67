"""What coatcheck finds by the entry point; light, so that a listing of plugins imports no HTTP client."""

from coatcheck.hooks import HandlerDescriptor, hookimpl

__all__ = ["coatcheck_handlers"]

_KEY = "coatcheck_http.accounts:ApiKey"
_VIDEO = "handler:VideoSettings"
_HANDLERS = (
    (
        "video:aliyun",
        "aliyun:AliyunVideo",
        "aliyun:AliyunVideoSettings",
        _KEY,
        "videos by Wan and HappyHorse, of Alibaba Cloud Model Studio",
    ),
    ("video:fal", "fal:FalVideo", "fal:FalVideoSettings", "fal:FalAccount", "videos by the models of fal"),
    ("video:gitee", "gitee:GiteeVideo", _VIDEO, _KEY, "videos by the models of Gitee AI"),
    (
        "video:jimeng",
        "jimeng:JimengVideo",
        "jimeng:JimengVideoSettings",
        "jimeng_signing:VolcengineAccount",
        "videos by Jimeng, of Volcengine",
    ),
    ("video:kling", "kling:KlingVideo", _VIDEO, "kling:KlingKeys", "videos by Kling"),
    ("video:luma", "luma:LumaVideo", _VIDEO, _KEY, "videos by Luma Dream Machine"),
    ("video:minimax", "minimax:MinimaxVideo", _VIDEO, _KEY, "videos by MiniMax Hailuo"),
    (
        "video:openai",
        "openai_compatible:OpenAiCompatibleVideo",
        "openai_compatible:OpenAiVideoSettings",
        _KEY,
        "videos by any server with OpenAI's interface",
    ),
    (
        "video:openrouter",
        "openrouter:OpenRouterVideo",
        _VIDEO,
        "openrouter:OpenRouterAccount",
        "videos by the models of OpenRouter",
    ),
    ("video:pixverse", "pixverse:PixverseVideo", _VIDEO, _KEY, "videos by PixVerse"),
    (
        "video:replicate",
        "replicate:ReplicateVideo",
        "replicate:ReplicateVideoSettings",
        "replicate:ReplicateAccount",
        "videos by the models of Replicate",
    ),
    ("video:runway", "runway:RunwayVideo", "runway:RunwayVideoSettings", _KEY, "videos by Runway"),
    ("video:veo", "veo:GeminiVeo", "veo:GeminiVeoSettings", _KEY, "videos by Veo, through the Gemini API"),
    (
        "video:vertex",
        "vertex:VertexVeo",
        "vertex:VertexVeoSettings",
        "coatcheck_http.google:GoogleServiceAccount",
        "videos by Veo, through Vertex AI",
    ),
    ("video:vidu", "vidu:ViduVideo", _VIDEO, _KEY, "videos by Vidu"),
    ("video:volcengine", "volcengine:VolcengineVideo", _VIDEO, _KEY, "videos by Seedance, of Volcengine Ark"),
    ("video:zhipu", "zhipu:ZhipuVideo", "zhipu:ZhipuVideoSettings", _KEY, "videos by CogVideoX, of Zhipu AI"),
)
"""Key, factory, settings, account and summary; what has no package before it is a module of this one."""


@hookimpl
def coatcheck_handlers() -> list[HandlerDescriptor]:
    """Return the handlers of this distribution."""
    return [
        HandlerDescriptor(
            key=key,
            factory=_placed(factory),
            settings=_placed(settings),
            account=_placed(account),
            params="coatcheck_handler_video.request:VideoRequest",
            summary=summary,
        )
        for key, factory, settings, account, summary in _HANDLERS
    ]


def _placed(name: str) -> str:
    return name if name.startswith("coatcheck_") else f"coatcheck_handler_video.{name}"
