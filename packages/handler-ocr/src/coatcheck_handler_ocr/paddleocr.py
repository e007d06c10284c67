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
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, sound
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
    first_object,
    first_text,
    lookup,
)

__all__ = ["PaddleOcrApi", "PaddleOcrApiSettings"]

_OURS = frozenset({"fileUrl", "file", "model", "pageRanges"})
_CORNERS = 4


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
        progress = first_object(response.json(), "data.extractProgress")
        done, total = progress.get("extractedPages"), progress.get("totalPages")
        if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
            return None
        return min(max(done / total, 0.0), 1.0)

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
        parsed, texts = lookup(document, "result.layoutParsingResults"), lookup(document, "result.ocrResults")
        if parsed is None and texts is None:
            message = "a line of the result has neither layoutParsingResults nor ocrResults"
            raise UnreadableAnswer(message, code="unreadable_answer")
        pages = [*map(_parsed_page, _items(parsed)), *map(_text_page, _items(texts))]
        return tuple(evolve(page, index=index + number) for number, page in enumerate(pages))


def _parsed_page(document: JSON) -> OcrPage:
    """Return a page whose layout was parsed: Markdown, and blocks in the order of reading."""
    blocks = [
        OcrBlock(
            kind=sound(first_text(each, "block_label") or "text"),
            text=_text(each, "block_content"),
            box=_box(lookup(each, "block_bbox")),
        )
        for each in _items(lookup(document, "prunedResult.parsing_res_list"))
    ]
    return OcrPage(
        index=0,
        markdown=_text(document, "markdown.text"),
        width=_number(lookup(document, "prunedResult.width")),
        height=_number(lookup(document, "prunedResult.height")),
        blocks=tuple(blocks),
    )


def _text_page(document: JSON) -> OcrPage:
    """Return a page whose lines were recognised, each of them a block."""
    lines = list(_lines(document))
    boxes = _items(lookup(document, "prunedResult.rec_boxes"))
    blocks = [
        OcrBlock(kind="line", text=line, box=_box(boxes[number]) if number < len(boxes) else None)
        for number, line in enumerate(lines)
    ]
    return OcrPage(index=0, markdown="\n".join(lines), blocks=tuple(blocks))


def _lines(document: JSON) -> Iterator[str]:
    for each in _items(lookup(document, "prunedResult.rec_texts")):
        yield sound(each) if isinstance(each, str) else ""


def _items(found: JSON) -> Sequence[JSON]:
    return found if isinstance(found, Sequence) and not isinstance(found, str) else ()


def _text(document: JSON, path: str) -> str:
    found = lookup(document, path)
    return sound(found) if isinstance(found, str) else ""


def _number(found: JSON) -> float | None:
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _box(found: JSON) -> tuple[float, float, float, float] | None:
    """Return left, top, right and bottom, if these four numbers are what was found."""
    numbers = [each for each in map(_number, _items(found)) if each is not None]
    if len(numbers) != _CORNERS:
        return None
    left, top, right, bottom = numbers
    return (left, top, right, bottom)
