"""PaddleOCR: the official job API, at AI Studio.

Read in 2026 from the client in PaddlePaddle/PaddleOCR (`paddleocr/_api_client`) and the page
ai.baidu.com/ai-doc/AISTUDIO/fml7mozw5. What is in a `prunedResult` (the lines and boxes of a text page, the blocks of
a parsed one) is said by PaddleOCR's documentation of its pipelines and by public clients, not by this API's page.
Nothing was tried against the live service.

Jobs are made of a URL. A line of the result holds several pages, in one of two shapes: parsed layouts, or texts.
Not documented: cancel, callbacks, an idempotency key, codes of errors, the answer about a job that is not there, how
long links work, and rates. The pause between two queries is the one with which the official client begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from attrs import evolve, frozen

from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.boxes import box_of, numbers_at
from coatcheck_handler_ocr.documents import part_read
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, given_text, sound
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_text,
    items,
    lookup,
    number,
)

__all__ = ["PaddleOcrApi", "PaddleOcrApiSettings"]

_OURS = frozenset({"fileUrl", "file", "model", "pageRanges"})
_PARSED, _TEXTS = "result.layoutParsingResults", "result.ocrResults"
"""Where a line of the result has its pages."""


@frozen(kw_only=True)
class PaddleOcrApiSettings(HttpSettings):
    """Settings of `PaddleOcrApi`."""

    model: str = "PaddleOCR-VL-1.6"
    """For requests that name none."""


class PaddleOcrApi(OcrHandler):
    """Document parsing, and recognition of text, by PaddleOCR's official job API."""

    key = "ocr:paddleocr"
    default_base_url = "https://paddleocr.aistudio-app.com"
    facts = ProviderFacts(
        name="PaddleOCR (AI Studio)",
        sources=("PaddlePaddle/PaddleOCR, paddleocr/_api_client", "ai.baidu.com/ai-doc/AISTUDIO/fml7mozw5"),
        poll_floor=timedelta(seconds=3),
    )
    supports = frozenset({"model", "pages"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    id_paths = ("data.jobId",)
    status_paths = ("data.state",)
    query_path = "/api/v2/ocr/jobs/{id}"
    failure_code_paths = ()
    failure_message_paths = ("data.errorMsg",)
    error_code_paths = ("code",)
    error_message_paths = ("msg", "errorMsg", "message")
    # PaddlePaddle/PaddleOCR, paddleocr/_api_client
    statuses = StatusMap(waiting="pending", running="running", succeeded="done", failed="failed")

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the default model is used."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, PaddleOcrApiSettings) else PaddleOcrApiSettings()
        self._model = own.model

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the job; options first, so that they can't replace the document, the model or the pages."""
        options = {name: value for name, value in params.options.items() if name not in _OURS}
        pages: dict[str, JSON] = {} if params.pages is None else {"pageRanges": params.pages}
        body = {**options, "fileUrl": params.url, "model": params.model or self._model, **pages}
        return HttpRequest.post("/api/v2/ocr/jobs", json=body)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer: by its HTTP status, or by a code that is not 0."""
        if response.ok and first_text(response.json(), "code") in {None, "0"}:
            return None
        return self.error_of(response)

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the part of the pages that has been extracted."""
        progress = "data.extractProgress"
        return part_read(response.json(), f"{progress}.extractedPages", f"{progress}.totalPages")

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the pages are; the link is presigned, so it takes no credentials."""
        body = response.json()
        url = first_text(body, "data.resultUrl.jsonUrl")
        if url is None:
            return None
        total = lookup(body, "data.extractProgress.totalPages")
        return OcrSources(
            jsonl_url=url,
            assets=(OcrAsset(type="jsonl", url=url),),
            usage={} if total is None else {"totalPages": total},
        )

    def read_page(self, document: JSON, index: int) -> Sequence[OcrPage]:
        """Return the pages of a line, of either shape.

        Raises:
            UnreadableAnswer: it has neither: better no text at all than one that lacks pages.
        """
        if lookup(document, _PARSED) is None and lookup(document, _TEXTS) is None:
            message = "a line of the result has neither layoutParsingResults nor ocrResults"
            raise UnreadableAnswer(message, code="unreadable_answer")
        pages = [*map(_parsed_page, items(document, _PARSED)), *map(_text_page, items(document, _TEXTS))]
        return tuple(evolve(page, index=index + place) for place, page in enumerate(pages))


def _parsed_page(document: JSON) -> OcrPage:
    """Return a page whose layout was parsed: Markdown, and blocks in the order of reading."""
    blocks = [
        OcrBlock(
            kind=sound(first_text(each, "block_label") or "text"),
            text=_text(each, "block_content"),
            box=box_of(numbers_at(each, "block_bbox")),
        )
        for each in items(document, "prunedResult.parsing_res_list")
    ]
    return OcrPage(
        index=0,
        markdown=_text(document, "markdown.text"),
        width=number(document, "prunedResult.width"),
        height=number(document, "prunedResult.height"),
        blocks=tuple(blocks),
    )


def _text_page(document: JSON) -> OcrPage:
    """Return a page whose lines were recognised, each of them a block."""
    lines = list(_lines(document))
    blocks = [
        OcrBlock(kind="line", text=line, box=box_of(numbers_at(document, f"prunedResult.rec_boxes.{place}")))
        for place, line in enumerate(lines)
    ]
    return OcrPage(index=0, markdown="\n".join(lines), blocks=tuple(blocks))


def _lines(document: JSON) -> Iterator[str]:
    for each in items(document, "prunedResult.rec_texts"):
        yield sound(each) if isinstance(each, str) else ""


def _text(document: JSON, path: str) -> str:
    return sound(given_text(document, path) or "")
