"""Handlers for OCR and document-parsing providers, for coatcheck.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_handler_ocr.archives import ArchiveLimits, ArchiveRefused, read_markdown
    from coatcheck_handler_ocr.aws import AwsAccount
    from coatcheck_handler_ocr.azure import AzureOcr, AzureOcrSettings
    from coatcheck_handler_ocr.baidu import BaiduClient, BaiduOcr
    from coatcheck_handler_ocr.datalab import DatalabOcr, DatalabOcrSettings
    from coatcheck_handler_ocr.declaration import DeclaredOcrSettings, ErrorPaths, ResultPaths, Words
    from coatcheck_handler_ocr.declared import DeclaredOcr
    from coatcheck_handler_ocr.docling import DoclingAccount, DoclingOcr, DoclingOcrSettings
    from coatcheck_handler_ocr.documentai import DocumentAiOcr
    from coatcheck_handler_ocr.documentai_settings import DocumentAiOcrSettings
    from coatcheck_handler_ocr.gitee import GiteeOcr, GiteeOcrSettings
    from coatcheck_handler_ocr.handler import OcrHandler
    from coatcheck_handler_ocr.llamaparse import LlamaParseOcr, LlamaParseOcrSettings
    from coatcheck_handler_ocr.mineru import MinerUOcr, MinerUOcrSettings
    from coatcheck_handler_ocr.mistral import MistralOcr, MistralOcrSettings
    from coatcheck_handler_ocr.paddleocr import PaddleOcrApi, PaddleOcrApiSettings
    from coatcheck_handler_ocr.reducto import ReductoOcr
    from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
    from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage, OcrResult
    from coatcheck_handler_ocr.sources import OcrSources
    from coatcheck_handler_ocr.textract import TextractOcr, TextractOcrSettings
    from coatcheck_handler_ocr.unstructured import UnstructuredOcr, UnstructuredOcrSettings
    from coatcheck_handler_ocr.zhipu import ZhipuOcr, ZhipuOcrSettings
    from coatcheck_http import ApiKey, GoogleServiceAccount, HttpSettings, RequestTemplate

__all__ = [
    "ApiKey",
    "ArchiveLimits",
    "ArchiveRefused",
    "AwsAccount",
    "AzureOcr",
    "AzureOcrSettings",
    "BaiduClient",
    "BaiduOcr",
    "DatalabOcr",
    "DatalabOcrSettings",
    "DeclaredOcr",
    "DeclaredOcrSettings",
    "DoclingAccount",
    "DoclingOcr",
    "DoclingOcrSettings",
    "DocumentAiOcr",
    "DocumentAiOcrSettings",
    "ErrorPaths",
    "GiteeOcr",
    "GiteeOcrSettings",
    "GoogleServiceAccount",
    "HttpSettings",
    "LlamaParseOcr",
    "LlamaParseOcrSettings",
    "MinerUOcr",
    "MinerUOcrSettings",
    "MistralOcr",
    "MistralOcrSettings",
    "OcrAsset",
    "OcrBlock",
    "OcrHandler",
    "OcrPage",
    "OcrRequest",
    "OcrResult",
    "OcrSources",
    "OutputFormat",
    "PaddleOcrApi",
    "PaddleOcrApiSettings",
    "ReductoOcr",
    "RequestTemplate",
    "ResultPaths",
    "TextractOcr",
    "TextractOcrSettings",
    "UnstructuredOcr",
    "UnstructuredOcrSettings",
    "Words",
    "ZhipuOcr",
    "ZhipuOcrSettings",
    "read_markdown",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".archives": ("ArchiveLimits", "ArchiveRefused", "read_markdown"),
        ".aws": ("AwsAccount",),
        ".azure": ("AzureOcr", "AzureOcrSettings"),
        ".baidu": ("BaiduClient", "BaiduOcr"),
        ".datalab": ("DatalabOcr", "DatalabOcrSettings"),
        ".declaration": ("DeclaredOcrSettings", "ErrorPaths", "ResultPaths", "Words"),
        ".declared": ("DeclaredOcr",),
        ".docling": ("DoclingAccount", "DoclingOcr", "DoclingOcrSettings"),
        ".documentai": ("DocumentAiOcr",),
        ".documentai_settings": ("DocumentAiOcrSettings",),
        ".gitee": ("GiteeOcr", "GiteeOcrSettings"),
        ".handler": ("OcrHandler",),
        ".llamaparse": ("LlamaParseOcr", "LlamaParseOcrSettings"),
        ".mineru": ("MinerUOcr", "MinerUOcrSettings"),
        ".mistral": ("MistralOcr", "MistralOcrSettings"),
        ".paddleocr": ("PaddleOcrApi", "PaddleOcrApiSettings"),
        ".reducto": ("ReductoOcr",),
        ".request": ("OcrRequest", "OutputFormat"),
        ".result": ("OcrAsset", "OcrBlock", "OcrPage", "OcrResult"),
        ".sources": ("OcrSources",),
        ".textract": ("TextractOcr", "TextractOcrSettings"),
        ".unstructured": ("UnstructuredOcr", "UnstructuredOcrSettings"),
        ".zhipu": ("ZhipuOcr", "ZhipuOcrSettings"),
        "coatcheck_http": ("ApiKey", "GoogleServiceAccount", "HttpSettings", "RequestTemplate"),
    },
)
