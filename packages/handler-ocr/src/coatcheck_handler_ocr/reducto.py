"""Reducto: documents to Markdown in chunks of blocks.

Read in 2026 from the provider's SDK (reductoai/reducto-python-sdk at eafd8e21; `parse_response.py` at 06799131,
`settings_param.py` at 03f4afb5, names of errors in `error_detail.py` at 57506170) and docs.reducto.ai (asynchronous
jobs, direct webhooks, large results, error codes, glossary); nothing was tried against the live service. Large
results come as a presigned link to a file. There is no idempotency key and no look-up. Not documented are what a
job's status is once it was cancelled, how long results and their links live, and what the progress is measured in;
the word "InProgress" is not certain.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import ClassVar, cast

from attrs import evolve, frozen

from coatcheck.handler import Callback, CallbackRequest, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.boxes import sized_box
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat, object_option
from coatcheck_handler_ocr.result import OcrAsset, OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, given_text, sound
from coatcheck_http import (
    ErrorClass,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    callback_ids,
    callback_json,
    first_object,
    first_text,
    items,
    lookup,
    number,
    segment,
)

__all__ = ["ReductoOcr"]

_SIDES = ("left", "top", "width", "height")


def _codes(**names: str) -> Mapping[str, ErrorClass]:
    return {name: ErrorClass[found] for found, text in names.items() for name in text.split()}


@frozen(kw_only=True)
class _Linked(OcrSources):
    """A result that is behind a link."""

    chunks_url: str
    """A JSON file: an array of chunks, or an object that has one."""


class ReductoOcr(OcrHandler):
    """Documents to Markdown, by Reducto."""

    key = "ocr:reducto"
    default_base_url = "https://platform.reducto.ai"
    facts = ProviderFacts(
        name="Reducto",
        sources=(
            "reductoai/reducto-python-sdk at eafd8e21, settings_param.py at 03f4afb5, error_detail.py at 57506170",
            "docs.reducto.ai: async-overview, direct-webhooks, handling-large-chunks, error-codes, glossary",
        ),
    )
    supports = frozenset({"file_name", "pages"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    # "Pending", "Idle", "Completed" and "Failed" of the SDK; "InProgress" is told by others
    statuses = StatusMap(waiting="Pending Idle", running="InProgress", succeeded="Completed", failed="Failed")
    id_paths = ("job_id",)
    query_path = "/job/{id}"
    error_code_paths = ("error.name", "error.type")
    """`error.code` repeats the HTTP status."""
    error_message_paths = ("error.message", "detail", "detail.0.msg")
    failure_code_paths = ()
    failure_message_paths = ("reason",)
    error_codes: ClassVar[Mapping[str, ErrorClass]] = _codes(
        AUTH="AUTH_ERROR",
        RATE_LIMITED="RATE_LIMIT",
        NOT_FOUND_OR_EXPIRED="NOT_FOUND JOB_DELETED JOB_DELETION_IN_PROGRESS",
        INVALID_REQUEST="INVALID_CONFIG INVALID_SCHEMA URL_NOT_ALLOWED file_download_failure",
        UNSUPPORTED_INPUT=(
            "DOCUMENT_CORRUPT DOCUMENT_EMPTY DOCUMENT_UNSUPPORTED DOCUMENT_PASSWORD_PROTECTED IMAGE_TOO_SMALL "
            "IMAGE_INVALID_ASPECT_RATIO INFERENCE_METHOD_UNSUPPORTED"
        ),
        TOO_LARGE="DOCUMENT_TOO_LARGE OFFICE_CONVERSION_TOO_LARGE IMAGE_TOO_LARGE CELL_COUNT_EXCEEDED",
        PROVIDER_UNAVAILABLE=(
            "TIMEOUT CAPACITY_TIMEOUT INTERNAL_ERROR SERVICE_UNAVAILABLE GPU_ALLOCATION_ERROR GPU_POOL_SATURATED "
            "GPU_UNAVAILABLE BATCH_QUEUE_FULL QUEUE_FULL REGION_UNAVAILABLE"
        ),
    )

    def validate(self, params: OcrRequest) -> None:
        """Refuse what the provider does not have, and options that cannot be joined with the handler's own.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        object_option(params.options, "settings")
        object_option(params.options, "async")

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the request with the document's URL; options first, so that they can't replace what is set here."""
        body = dict(params.options)
        settings = {**object_option(params.options, "settings"), **_settings(params)}
        asynchronous = dict(object_option(params.options, "async"))
        callback_url = self.own_callback_url(context)
        if callback_url is not None:
            asynchronous["webhook"] = {"mode": "direct", "url": callback_url}
        for name, value in (("settings", settings), ("async", asynchronous)):
            body.pop(name, None)
            if value:
                body[name] = value
        return HttpRequest.post("/parse_async", json={**body, "input": params.url})

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the progress if it is a share of 1; in what it is measured is not documented."""
        told = number(response.json(), "progress")
        return told if told is not None and 0 <= told <= 1 else None

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return the chunks of the result, or the link to them."""
        outer = first_object(response.json(), "result")
        usage = first_object(outer, "usage")
        pdf_url = first_text(outer, "pdf_url")
        assets = () if pdf_url is None else (OcrAsset(type="pdf", url=pdf_url),)
        url = first_text(outer, "result.url")
        if first_text(outer, "result.type") == "url" and url is not None:
            return _Linked(chunks_url=url, usage=usage, assets=assets)
        return _sources(lookup(outer, "result.chunks"), OcrSources(usage=usage, assets=assets))

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Fetch a result that is behind a link, without credentials.

        Raises:
            DownloadFailed: it cannot be had now; the next query brings a new link.
            UnreadableAnswer: it is no JSON.
        """
        if not isinstance(sources, _Linked):
            return sources
        content = (await self.download(sources.chunks_url)).content
        # a large file takes a while, and other calls share this loop
        document = await asyncio.to_thread(_parsed, content)
        chunks = document if isinstance(document, list) else lookup(document, "chunks")
        return _sources(chunks, OcrSources(usage=sources.usage, assets=sources.assets))

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return a POST of the job's place among the cancelled."""
        return HttpRequest.post(f"/cancel/{segment(params.external_task_id)}")

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if it came to an address that we gave.

        Raises:
            CallbackRejected: it did not, or makes no sense.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "job_id"))


def _settings(params: OcrRequest) -> Mapping[str, JSON]:
    """Return what the request's own fields set among the provider's settings."""
    found: dict[str, JSON] = {}
    if params.pages is not None:
        limits = [each.partition("-") for each in params.pages.split(",")]
        found["page_range"] = [{"start": int(low), "end": int(high or low)} for low, _, high in limits]
    suffix = PurePosixPath(params.file_name or "").suffix
    if suffix:
        found["force_file_extension"] = suffix
    return found


def _parsed(content: bytes) -> JSON:
    try:
        return cast("JSON", json.loads(content))
    except (ValueError, RecursionError) as error:
        message = f"the file of the result, of {len(content)} bytes, is no JSON: {error}"
        raise UnreadableAnswer(message, code="unreadable_answer") from error


def _sources(chunks: JSON, beside: OcrSources) -> OcrSources | None:
    """Return the text of all chunks and the pages of their blocks; None if there are no chunks."""
    if not isinstance(chunks, Sequence) or isinstance(chunks, str):
        return None
    contents = [content for each in chunks if (content := given_text(each, "content")) is not None]
    blocks = [block for each in chunks for block in items(each, "blocks")]
    images = (first_text(each, "image_url") for each in blocks)
    return evolve(
        beside,
        markdown="\n\n".join(contents),
        pages=tuple(_pages(blocks)),
        assets=(*beside.assets, *(OcrAsset(type="image", url=url) for url in images if url is not None)),
    )


def _pages(blocks: Sequence[JSON]) -> Iterator[OcrPage]:
    """Yield the pages that blocks are on, by their number in the original document; boxes are shares of a page."""
    by_page: dict[int, list[OcrBlock]] = {}
    for each in blocks:
        place = lookup(each, "bbox.original_page") or lookup(each, "bbox.page")
        if isinstance(place, int) and place > 0:
            block = OcrBlock(
                kind=first_text(each, "type") or "Text",
                text=sound(first_text(each, "content") or ""),
                box=sized_box(number(each, f"bbox.{side}") for side in _SIDES),
            )
            by_page.setdefault(place, []).append(block)
    for place, found in sorted(by_page.items()):
        markdown = "\n\n".join(block.text for block in found if block.text)
        yield OcrPage(index=place - 1, markdown=markdown, width=1.0, height=1.0, blocks=tuple(found))
