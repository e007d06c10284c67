"""The wire protocols of real providers, one module each."""

from coatcheck_sandbox.protocol import WireProtocol
from coatcheck_sandbox.providers.aliyun_video import AliyunVideoProtocol
from coatcheck_sandbox.providers.azure import AzureProtocol
from coatcheck_sandbox.providers.baidu import BaiduProtocol
from coatcheck_sandbox.providers.datalab import DatalabProtocol
from coatcheck_sandbox.providers.docling import DoclingProtocol
from coatcheck_sandbox.providers.documentai import DocumentAiProtocol
from coatcheck_sandbox.providers.fal_video import FalVideoProtocol
from coatcheck_sandbox.providers.gitee import GiteeProtocol
from coatcheck_sandbox.providers.gitee_video import GiteeVideoProtocol
from coatcheck_sandbox.providers.jimeng_video import JimengVideoProtocol
from coatcheck_sandbox.providers.kling_video import KlingVideoProtocol
from coatcheck_sandbox.providers.llamaparse import LlamaParseProtocol
from coatcheck_sandbox.providers.luma_video import LumaVideoProtocol
from coatcheck_sandbox.providers.mineru import MinerUProtocol
from coatcheck_sandbox.providers.minimax_video import MinimaxVideoProtocol
from coatcheck_sandbox.providers.mistral import MistralProtocol
from coatcheck_sandbox.providers.openai_video import OpenAiVideoProtocol
from coatcheck_sandbox.providers.openrouter_video import OpenRouterVideoProtocol
from coatcheck_sandbox.providers.paddleocr import PaddleOcrProtocol
from coatcheck_sandbox.providers.pixverse_video import PixverseVideoProtocol
from coatcheck_sandbox.providers.reducto import ReductoProtocol
from coatcheck_sandbox.providers.replicate_video import ReplicateVideoProtocol
from coatcheck_sandbox.providers.runway_video import RunwayVideoProtocol
from coatcheck_sandbox.providers.textract import TextractProtocol
from coatcheck_sandbox.providers.unstructured import UnstructuredProtocol
from coatcheck_sandbox.providers.veo_video import VeoVideoProtocol
from coatcheck_sandbox.providers.vertex_video import VertexVideoProtocol
from coatcheck_sandbox.providers.vidu_video import ViduVideoProtocol
from coatcheck_sandbox.providers.volcengine_video import VolcengineVideoProtocol
from coatcheck_sandbox.providers.zhipu import ZhipuProtocol
from coatcheck_sandbox.providers.zhipu_video import ZhipuVideoProtocol

__all__ = ["PROTOCOLS", "all_protocols"]

PROTOCOLS = (
    AliyunVideoProtocol,
    AzureProtocol,
    BaiduProtocol,
    DatalabProtocol,
    DoclingProtocol,
    DocumentAiProtocol,
    FalVideoProtocol,
    GiteeProtocol,
    GiteeVideoProtocol,
    JimengVideoProtocol,
    KlingVideoProtocol,
    LlamaParseProtocol,
    LumaVideoProtocol,
    MinerUProtocol,
    MinimaxVideoProtocol,
    MistralProtocol,
    OpenAiVideoProtocol,
    OpenRouterVideoProtocol,
    PaddleOcrProtocol,
    PixverseVideoProtocol,
    ReductoProtocol,
    ReplicateVideoProtocol,
    RunwayVideoProtocol,
    TextractProtocol,
    UnstructuredProtocol,
    VeoVideoProtocol,
    VertexVideoProtocol,
    ViduVideoProtocol,
    VolcengineVideoProtocol,
    ZhipuProtocol,
    ZhipuVideoProtocol,
)
"""Every protocol, as classes that take a `key`."""


def all_protocols(*, key: str = "sandbox-key") -> list[WireProtocol]:
    """Every protocol, with `key` as the credential that each asks for."""
    return [protocol(key=key) for protocol in PROTOCOLS]
