"""The wire protocols of real providers, one module each."""

from coatcheck_sandbox.protocol import WireProtocol
from coatcheck_sandbox.providers.azure import AzureProtocol
from coatcheck_sandbox.providers.baidu import BaiduProtocol
from coatcheck_sandbox.providers.datalab import DatalabProtocol
from coatcheck_sandbox.providers.docling import DoclingProtocol
from coatcheck_sandbox.providers.documentai import DocumentAiProtocol
from coatcheck_sandbox.providers.gitee import GiteeProtocol
from coatcheck_sandbox.providers.llamaparse import LlamaParseProtocol
from coatcheck_sandbox.providers.mineru import MinerUProtocol
from coatcheck_sandbox.providers.mistral import MistralProtocol
from coatcheck_sandbox.providers.paddleocr import PaddleOcrProtocol
from coatcheck_sandbox.providers.reducto import ReductoProtocol
from coatcheck_sandbox.providers.textract import TextractProtocol
from coatcheck_sandbox.providers.unstructured import UnstructuredProtocol
from coatcheck_sandbox.providers.zhipu import ZhipuProtocol

__all__ = ["PROTOCOLS", "all_protocols"]

PROTOCOLS = (
    AzureProtocol,
    BaiduProtocol,
    DatalabProtocol,
    DoclingProtocol,
    DocumentAiProtocol,
    GiteeProtocol,
    LlamaParseProtocol,
    MinerUProtocol,
    MistralProtocol,
    PaddleOcrProtocol,
    ReductoProtocol,
    TextractProtocol,
    UnstructuredProtocol,
    ZhipuProtocol,
)
"""Every protocol, as classes that take a `key`."""


def all_protocols(*, key: str = "sandbox-key") -> list[WireProtocol]:
    """Every protocol, with `key` as the credential that each asks for."""
    return [protocol(key=key) for protocol in PROTOCOLS]
