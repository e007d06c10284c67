"""Handlers for OCR and document-parsing providers, for coatcheck.

Names are imported when they are first used: the plugin module beside this one must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOMES = {
    "coatcheck_handler_ocr.archives": ("ArchiveLimits", "ArchiveRefused", "read_markdown"),
    "coatcheck_handler_ocr.gitee": ("GiteeOcr", "GiteeOcrSettings"),
    "coatcheck_handler_ocr.handler": ("OcrHandler",),
    "coatcheck_handler_ocr.request": ("OcrRequest", "OutputFormat"),
    "coatcheck_handler_ocr.result": ("OcrAsset", "OcrBlock", "OcrPage", "OcrResult"),
    "coatcheck_handler_ocr.sources": ("OcrSources",),
    "coatcheck_http": ("ApiKey", "HttpSettings"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
