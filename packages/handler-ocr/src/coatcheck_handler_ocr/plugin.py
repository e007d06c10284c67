"""What coatcheck finds by the entry point; light, so that a listing of plugins imports no HTTP client."""

from coatcheck.hooks import HandlerDescriptor, hookimpl

__all__ = ["coatcheck_handlers"]


@hookimpl
def coatcheck_handlers() -> list[HandlerDescriptor]:
    """Return the handlers of this distribution."""
    return [
        HandlerDescriptor(
            key="ocr:gitee",
            factory="coatcheck_handler_ocr.gitee:GiteeOcr",
            settings="coatcheck_handler_ocr.gitee:GiteeOcrSettings",
            account="coatcheck_http.accounts:ApiKey",
            params="coatcheck_handler_ocr.request:OcrRequest",
            summary="document parsing by Gitee AI",
        )
    ]
