"""The handlers with which the demo can be played, each made to talk to the sandbox."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen

from coatcheck.errors import ConfigurationError
from coatcheck.handler import AnyHandler

__all__ = ["KEY", "OCR", "VIDEO", "Provided", "make_handler", "provided"]

KEY = "sandbox-key"
"""What every protocol of the sandbox asks for."""


@frozen(kw_only=True)
class Provided:
    """How to talk to one provider of the sandbox."""

    factory: str
    """``module:class`` of the handler."""
    prefix: str
    """Where the sandbox speaks its protocol."""
    settings: str | None = None
    """``module:class`` of the settings; None takes those of every handler of its kind."""
    more: Mapping[str, object] = {}
    """Settings beside the base URL; ``{url}`` in texts is that of the sandbox."""
    account: Callable[[], object] | None = None
    """Makes an account; None is an `ApiKey`."""
    pages: str = "{url}/pages/"
    """Where the provider finds the documents."""


def _made(place: str, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - a class that is named by text
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*arguments, **named)


_OCR = "coatcheck_handler_ocr"
OCR: Mapping[str, Provided] = {
    "ocr:azure": Provided(factory=f"{_OCR}.azure:AzureOcr", prefix="/azure"),
    "ocr:baidu": Provided(factory=f"{_OCR}.baidu:BaiduOcr", prefix="/baidu"),
    "ocr:datalab": Provided(factory=f"{_OCR}.datalab:DatalabOcr", prefix="/datalab"),
    "ocr:docling": Provided(
        factory=f"{_OCR}.docling:DoclingOcr",
        prefix="/docling",
        account=lambda: _made(f"{_OCR}.docling:DoclingAccount", KEY),
    ),
    "ocr:documentai": Provided(
        factory=f"{_OCR}.documentai:DocumentAiOcr",
        prefix="/documentai",
        settings=f"{_OCR}.documentai_settings:DocumentAiOcrSettings",
        more={
            "project": "demo",
            "location": "us",
            "processor": "abc",
            "output_prefix": "gs://results/out",
            "storage_url": "{url}/documentai",
        },
        pages="gs://pages/",
    ),
    "ocr:gitee": Provided(factory=f"{_OCR}.gitee:GiteeOcr", prefix="/gitee/v1"),
    "ocr:llamaparse": Provided(factory=f"{_OCR}.llamaparse:LlamaParseOcr", prefix="/llamaparse"),
    "ocr:mineru": Provided(factory=f"{_OCR}.mineru:MinerUOcr", prefix="/mineru"),
    "ocr:mistral": Provided(factory=f"{_OCR}.mistral:MistralOcr", prefix="/mistral"),
    "ocr:paddleocr": Provided(factory=f"{_OCR}.paddleocr:PaddleOcrApi", prefix="/paddleocr"),
    "ocr:reducto": Provided(factory=f"{_OCR}.reducto:ReductoOcr", prefix="/reducto"),
    "ocr:textract": Provided(
        factory=f"{_OCR}.textract:TextractOcr",
        prefix="/textract",
        settings=f"{_OCR}.textract:TextractOcrSettings",
        more={"region": "us-east-1"},
        account=lambda: _made(f"{_OCR}.aws:AwsAccount", access_key_id="AKIASANDBOX", secret_access_key=KEY),
        pages="s3://pages/",
    ),
    "ocr:unstructured": Provided(factory=f"{_OCR}.unstructured:UnstructuredOcr", prefix="/unstructured"),
    "ocr:zhipu": Provided(factory=f"{_OCR}.zhipu:ZhipuOcr", prefix="/zhipu"),
}
"""By handler key. The declarative ``ocr:http`` is none of them: it needs a description of a service."""
_VIDEO = "coatcheck_handler_video"
VIDEO: Mapping[str, Provided] = {
    "video:aliyun": Provided(factory=f"{_VIDEO}.aliyun:AliyunVideo", prefix="/aliyun-video"),
    "video:fal": Provided(
        factory=f"{_VIDEO}.fal:FalVideo",
        prefix="/fal-video",
        settings=f"{_VIDEO}.fal:FalVideoSettings",
        account=lambda: _made(f"{_VIDEO}.fal:FalAccount", KEY),
    ),
    "video:gitee": Provided(factory=f"{_VIDEO}.gitee:GiteeVideo", prefix="/gitee-video"),
    "video:jimeng": Provided(
        factory=f"{_VIDEO}.jimeng:JimengVideo",
        prefix="/jimeng-video",
        settings=f"{_VIDEO}.jimeng:JimengVideoSettings",
        account=lambda: _made(
            f"{_VIDEO}.jimeng_signing:VolcengineAccount", access_key_id="AKSANDBOX", secret_access_key=KEY
        ),
    ),
    "video:kling": Provided(factory=f"{_VIDEO}.kling:KlingVideo", prefix="/kling-video"),
    "video:luma": Provided(factory=f"{_VIDEO}.luma:LumaVideo", prefix="/luma-video"),
    "video:minimax": Provided(factory=f"{_VIDEO}.minimax:MinimaxVideo", prefix="/minimax-video"),
    "video:openai": Provided(
        factory=f"{_VIDEO}.openai_compatible:OpenAiCompatibleVideo",
        prefix="/openai-video",
        settings=f"{_VIDEO}.openai_compatible:OpenAiVideoSettings",
    ),
    "video:openrouter": Provided(
        factory=f"{_VIDEO}.openrouter:OpenRouterVideo",
        prefix="/openrouter-video",
        account=lambda: _made(f"{_VIDEO}.openrouter:OpenRouterAccount", KEY),
    ),
    "video:pixverse": Provided(factory=f"{_VIDEO}.pixverse:PixverseVideo", prefix="/pixverse-video"),
    "video:replicate": Provided(
        factory=f"{_VIDEO}.replicate:ReplicateVideo",
        prefix="/replicate-video",
        settings=f"{_VIDEO}.replicate:ReplicateVideoSettings",
        account=lambda: _made(f"{_VIDEO}.replicate:ReplicateAccount", KEY),
    ),
    "video:runway": Provided(
        factory=f"{_VIDEO}.runway:RunwayVideo",
        prefix="/runway-video",
        settings=f"{_VIDEO}.runway:RunwayVideoSettings",
    ),
    "video:veo": Provided(
        factory=f"{_VIDEO}.veo:GeminiVeo",
        prefix="/veo-video",
        settings=f"{_VIDEO}.veo:GeminiVeoSettings",
    ),
    "video:vertex": Provided(
        factory=f"{_VIDEO}.vertex:VertexVeo",
        prefix="/vertex-video",
        settings=f"{_VIDEO}.vertex:VertexVeoSettings",
        more={
            "project": "demo",
            "storage_uri": "gs://results/videos",
            "storage_url": "{url}/vertex-video",
        },
    ),
    "video:vidu": Provided(factory=f"{_VIDEO}.vidu:ViduVideo", prefix="/vidu-video"),
    "video:volcengine": Provided(factory=f"{_VIDEO}.volcengine:VolcengineVideo", prefix="/volcengine-video"),
    "video:zhipu": Provided(
        factory=f"{_VIDEO}.zhipu:ZhipuVideo",
        prefix="/zhipu-video",
        settings=f"{_VIDEO}.zhipu:ZhipuVideoSettings",
    ),
}
"""By handler key."""


def provided(key: str) -> Provided:
    """How to talk to the provider with this handler key.

    Raises:
        ConfigurationError: the demo does not know it.
    """
    found = {**OCR, **VIDEO}.get(key)
    if found is None:
        message = f"the demo has no provider {key!r}; choose one of {', '.join(sorted({**OCR, **VIDEO}))}"
        raise ConfigurationError(message)
    return found


def make_handler(key: str, sandbox_url: str, *, capture: Path | None = None) -> AnyHandler:
    """The handler with this key, talking to the sandbox; `capture` is a folder for the copies of videos.

    Raises:
        ConfigurationError: the demo does not know it.
    """
    told = provided(key)
    more = {name: _filled(value, sandbox_url) for name, value in told.more.items()}
    if capture is not None:
        more["capture"] = _made("coatcheck_handler_video.capture:CaptureSettings", destination=str(capture))
    usual = "coatcheck_handler_video.handler:VideoSettings" if key in VIDEO else "coatcheck_http:HttpSettings"
    settings = _made(
        told.settings or usual, base_url=f"{sandbox_url}{told.prefix}", allow_private=True, **more
    )
    account = told.account() if told.account is not None else _made("coatcheck_http:ApiKey", KEY)
    handler: AnyHandler = _made(told.factory, account, settings=settings)
    return handler


def _filled(value: object, sandbox_url: str) -> object:
    return value.replace("{url}", sandbox_url) if isinstance(value, str) else value
