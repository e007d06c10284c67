"""What coatcheck finds by the entry point; light, so that a listing of plugins imports no HTTP client."""

from coatcheck.hooks import HandlerDescriptor, hookimpl

__all__ = ["coatcheck_handlers"]

_KEY = "coatcheck_http.accounts:ApiKey"
_HTTP = "coatcheck_http.settings:HttpSettings"
_HANDLERS = (
    (
        "ocr:azure",
        "azure:AzureOcr",
        "azure:AzureOcrSettings",
        _KEY,
        "documents to Markdown, by Azure AI Document Intelligence",
    ),
    ("ocr:baidu", "baidu:BaiduOcr", _HTTP, _KEY, "document parsing with PaddleOCR-VL, by Baidu AI Cloud"),
    (
        "ocr:datalab",
        "datalab:DatalabOcr",
        "datalab:DatalabOcrSettings",
        _KEY,
        "documents to Markdown, by Datalab (Marker)",
    ),
    (
        "ocr:docling",
        "docling:DoclingOcr",
        "docling:DoclingOcrSettings",
        "coatcheck_handler_ocr.docling:DoclingAccount",
        "document parsing by a docling-serve of one's own",
    ),
    (
        "ocr:documentai",
        "documentai:DocumentAiOcr",
        "documentai_settings:DocumentAiOcrSettings",
        "coatcheck_http.google:GoogleServiceAccount",
        "documents in Cloud Storage, by Google Document AI",
    ),
    ("ocr:gitee", "gitee:GiteeOcr", "gitee:GiteeOcrSettings", _KEY, "document parsing by Gitee AI"),
    (
        "ocr:http",
        "declared:DeclaredOcr",
        "declaration:DeclaredOcrSettings",
        _KEY,
        "any OCR service over HTTP that settings describe",
    ),
    (
        "ocr:llamaparse",
        "llamaparse:LlamaParseOcr",
        "llamaparse:LlamaParseOcrSettings",
        _KEY,
        "document parsing by LlamaParse",
    ),
    ("ocr:mineru", "mineru:MinerUOcr", "mineru:MinerUOcrSettings", _KEY, "document parsing by MinerU"),
    (
        "ocr:mistral",
        "mistral:MistralOcr",
        "mistral:MistralOcrSettings",
        _KEY,
        "documents to Markdown, by Mistral's batch API",
    ),
    (
        "ocr:paddleocr",
        "paddleocr:PaddleOcrApi",
        "paddleocr:PaddleOcrApiSettings",
        _KEY,
        "document parsing by the PaddleOCR API of AI Studio",
    ),
    ("ocr:reducto", "reducto:ReductoOcr", _HTTP, _KEY, "document parsing by Reducto"),
    (
        "ocr:textract",
        "textract:TextractOcr",
        "textract:TextractOcrSettings",
        "coatcheck_handler_ocr.aws:AwsAccount",
        "documents in S3, by Amazon Textract",
    ),
    (
        "ocr:unstructured",
        "unstructured:UnstructuredOcr",
        "unstructured:UnstructuredOcrSettings",
        _KEY,
        "document parsing by Unstructured",
    ),
    ("ocr:zhipu", "zhipu:ZhipuOcr", "zhipu:ZhipuOcrSettings", _KEY, "document parsing by Zhipu AI (Z.ai)"),
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
            params="coatcheck_handler_ocr.request:OcrRequest",
            summary=summary,
        )
        for key, factory, settings, account, summary in _HANDLERS
    ]


def _placed(name: str) -> str:
    return name if name.startswith("coatcheck_") else f"coatcheck_handler_ocr.{name}"
