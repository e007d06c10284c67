"""Mistral OCR, through its batch API.

Read from the official client (mistralai/client-python at 05629d23; its models of jobs, pages and images also at
06a9e55d, 038b8e46 and 15eb16b4), and for the rows of a result from langchain4j's `MistralAiBatchResultEntry`, all in
2026; nothing was tried against the live service. A task is a batch job of one row, which is sent with the
job: its ``custom_id`` is the task's id, and so is ``coatcheck_task`` in the job's metadata, by which a person finds it
in the provider's list. A job that is a success may hold a row that failed. The provider fetches the document. Rates,
the codes of errors, and the lifetimes of jobs, files and links are not documented there; an idempotency key and
callbacks were not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from attrs import field, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_handler_ocr.documents import name_of
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.mistral_rows import own_row, read_row
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.sources import OcrSources, json_lines
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_text,
    items,
    segment,
)

__all__ = ["MistralOcr", "MistralOcrSettings"]

MAX_PAGES = 10_000
"""How many pages a request may name: each is a number in the request."""
_IMAGES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@frozen(kw_only=True)
class MistralOcrSettings(HttpSettings):
    """Settings of `MistralOcr`."""

    model: str = "mistral-ocr-latest"
    """For requests that name none."""
    timeout_hours: int = field(default=24)
    """How long the provider tries before it gives a job up; its own default is the same."""

    @timeout_hours.validator
    def _check_timeout(self, _attribute: object, value: int) -> None:
        if value < 1:
            message = f"timeout_hours must be 1 at least, not {value!r}"
            raise ConfigurationError(message)


@frozen(kw_only=True)
class _Filed(OcrSources):
    """Rows that wait in files of the provider's."""

    file_ids: tuple[str, ...]
    reason: str | None
    """Why the job has errors, if it says so."""


class MistralOcr(OcrHandler):
    """Document parsing by Mistral OCR."""

    key = "ocr:mistral"
    default_base_url = "https://api.mistral.ai"
    facts = ProviderFacts(
        name="Mistral OCR",
        sources=(
            "mistralai/client-python at 05629d23, 06a9e55d, 038b8e46 and 15eb16b4",
            "langchain4j/langchain4j, MistralAiBatchResultEntry, for the rows of results",
        ),
    )
    supports = frozenset({"file_name", "pages", "model"})
    query_path = "/v1/batch/jobs/{id}"
    error_message_paths = ("message", "error.message", "detail", "detail.0.msg", "error")
    # BatchJobStatus of mistralai/client-python
    statuses = StatusMap(
        waiting="QUEUED",
        running="RUNNING CANCELLATION_REQUESTED",
        succeeded="SUCCESS",
        failed="FAILED TIMEOUT_EXCEEDED",
        canceled="CANCELLED",
    )

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the defaults are used."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, MistralOcrSettings) else MistralOcrSettings()
        self._model, self._timeout_hours = own.model, own.timeout_hours

    def validate(self, params: OcrRequest) -> None:
        """Refuse what the provider cannot do.

        Raises:
            InvalidParams: it asks for such a thing, or for too many pages; the message names it.
        """
        super().validate(params)
        _page_numbers(params.pages)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Create a batch job of one row; options go first, so that they can't replace the document."""
        row: dict[str, JSON] = {
            **{name: value for name, value in params.options.items() if name != "model"},
            "document": _document(params),
        }
        pages = _page_numbers(params.pages)
        if pages is not None:
            row["pages"] = pages
        return HttpRequest.post(
            "/v1/batch/jobs",
            json={
                "endpoint": "/v1/ocr",
                "model": params.model or self._model,
                "requests": [{"custom_id": context.task_id, "body": row}],
                "metadata": {"coatcheck_task": context.task_id},
                "timeout_hours": self._timeout_hours,
            },
        )

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the job that wants its rows in the answer, once there are any."""
        return super().build_query(params, context).with_query(inline="true")

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed; one that took too long has its status word only."""
        reason = _reason(response.json()) or f"the job ended as {word}"
        return QueryResult.failed(word, reason, provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return the row of the task, or in which files it is."""
        job = response.json()
        row = own_row(items(job, "outputs"), context.task_id)
        if row is not None:
            return read_row(row)
        reason = _reason(job)
        files = tuple(
            each for each in (first_text(job, name) for name in ("output_file", "error_file")) if each
        )
        if files:
            return _Filed(file_ids=files, reason=reason)
        return None if reason is None else QueryResult.failed("batch_error", reason)

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Read the files with the row, where it is not in the answer.

        Raises:
            QueryFailed: a link to a file cannot be had now.
            DownloadFailed: a file cannot be had now.
            UnreadableAnswer: it is no JSONL.
        """
        if not isinstance(sources, _Filed):
            return sources
        for file_id in sources.file_ids:
            row = own_row(await self._rows(file_id, context), context.task_id)
            found = None if row is None else read_row(row)
            if found is not None:
                return found
        return None if sources.reason is None else QueryResult.failed("batch_error", sources.reason)

    async def _rows(self, file_id: str, context: QueryContext) -> Sequence[JSON]:
        """Return the rows of a file, which is fetched by a signed link without credentials."""
        response = await self.ask(HttpRequest.get(f"/v1/files/{segment(file_id)}/url"), context)
        if not response.ok:
            raise self.unanswered(response, context)
        url = first_text(response.json_object(), "url")
        if url is None:
            message = f"the answer about file {file_id!r} has no url"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return list(json_lines((await self.download(url)).text))

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Ask for the job's end."""
        return HttpRequest.post(f"/v1/batch/jobs/{segment(params.external_task_id)}/cancel")

    def parse_cancel(
        self, response: HttpResponse, params: QueryParams, context: CancelContext
    ) -> CancelOutcome:
        """Return what the job's status says: one that had ended before is not cancelled."""
        if not response.ok:
            return super().parse_cancel(response, params, context)
        word = self.status_word(response)
        if word is None:
            return CancelOutcome.UNKNOWN
        ended = self.statuses.state_of(word) in {JobState.SUCCEEDED, JobState.FAILED}
        return CancelOutcome.REFUSED if ended else CancelOutcome.CONFIRMED


def _document(params: OcrRequest) -> JSON:
    """Return what names the document: the provider takes images and other documents apart."""
    if PurePosixPath(name_of(params)).suffix.lower() in _IMAGES:
        return {"type": "image_url", "image_url": params.url}
    document: dict[str, JSON] = {"type": "document_url", "document_url": params.url}
    return document if params.file_name is None else {**document, "document_name": params.file_name}


def _page_numbers(pages: str | None) -> list[JSON] | None:
    """Return the pages counted from 0, in the order given; None is all.

    Raises:
        InvalidParams: they are too many, or a range ends before it begins.
    """
    if pages is None:
        return None
    numbers: dict[int, None] = {}
    for part in pages.split(","):
        start, _, end = part.partition("-")
        first, last = int(start), int(end or start)
        if last < first or last - first + len(numbers) >= MAX_PAGES:
            message = f"pages {part!r} ends before it begins, or names more than {MAX_PAGES} pages"
            raise InvalidParams(message)
        numbers.update(dict.fromkeys(range(first - 1, last)))
    return list(numbers)


def _reason(job: JSON) -> str | None:
    found = [first_text(each, "message") for each in items(job, "errors")]
    return "; ".join(each for each in found if each) or None
