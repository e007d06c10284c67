"""Handlers for OCR and document-parsing providers, for coatcheck.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coatcheck.lazy import lazy_names

if TYPE_CHECKING:
    from coatcheck_handler_ocr.archives import ArchiveLimits, ArchiveRefused, read_markdown
    from coatcheck_handler_ocr.gitee import GiteeOcr, GiteeOcrSettings
    from coatcheck_handler_ocr.handler import OcrHandler
    from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
    from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage, OcrResult
    from coatcheck_handler_ocr.sources import OcrSources
    from coatcheck_http import ApiKey, HttpSettings

__all__ = [
    "ApiKey",
    "ArchiveLimits",
    "ArchiveRefused",
    "GiteeOcr",
    "GiteeOcrSettings",
    "HttpSettings",
    "OcrAsset",
    "OcrBlock",
    "OcrHandler",
    "OcrPage",
    "OcrRequest",
    "OcrResult",
    "OcrSources",
    "OutputFormat",
    "read_markdown",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".archives": ("ArchiveLimits", "ArchiveRefused", "read_markdown"),
        ".gitee": ("GiteeOcr", "GiteeOcrSettings"),
        ".handler": ("OcrHandler",),
        ".request": ("OcrRequest", "OutputFormat"),
        ".result": ("OcrAsset", "OcrBlock", "OcrPage", "OcrResult"),
        ".sources": ("OcrSources",),
        "coatcheck_http": ("ApiKey", "HttpSettings"),
    },
)
