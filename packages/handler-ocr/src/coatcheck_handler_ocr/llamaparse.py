"""LlamaParse, the parsing service of LlamaCloud: version 2 of its API.

Read in 2026 from the provider's SDK (run-llama/llama-cloud-py at 2df80fae, `parsing_create_params.py` at 00fbe284,
`b_box.py` at af6568c9) and its pages on tiers, webhooks and retrieving results (developers.llamaindex.ai); nothing
was tried against the live service. An answer about a job has
its content only if `expand` asks for it, so jobs are asked about without, and the content is fetched once they are
done. Pages fail one by one. There is no idempotency key, no look-up and no cancel. Rates, codes of errors and how long
results are kept are not documented; neither is whether a callback's body is an object, or one within a JSON string.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, frozen

from coatcheck.errors import CallbackRejected, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.boxes import Box, box_around, sized_box
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat, object_option
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, Unfetched, given_text, sound
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    callback_ids,
    callback_json,
    first_text,
    items,
    lookup,
    number,
)

__all__ = ["LlamaParseOcr", "LlamaParseOcrSettings"]

EXPAND = "expand"
"""The name among the query params of what to ask for once a job is done."""
_TEXT_ONLY_TIER = "fast"


@frozen(kw_only=True)
class LlamaParseOcrSettings(HttpSettings):
    """Settings of `LlamaParseOcr`."""

    tier: str = "agentic"
    """For requests that name no model: ``fast`` (text alone), ``cost_effective``, ``agentic`` or ``agentic_plus``."""
    version: str = "latest"
    """Of the tier, such as ``2026-03-12``; an option of the request goes before it."""


class LlamaParseOcr(OcrHandler):
    """Documents to Markdown, by LlamaParse."""

    key = "ocr:llamaparse"
    default_base_url = "https://api.cloud.llamaindex.ai"
    facts = ProviderFacts(
        name="LlamaParse",
        sources=(
            "run-llama/llama-cloud-py at 2df80fae, parsing_create_params.py at 00fbe284, b_box.py at af6568c9",
            "developers.llamaindex.ai: tiers, webhooks, retrieving results",
        ),
    )
    supports = frozenset({"pages", "languages", "model"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    # words of the SDK
    statuses = StatusMap(
        waiting="PENDING", running="RUNNING", succeeded="COMPLETED", failed="FAILED", canceled="CANCELLED"
    )
    status_paths = ("job.status", "status")
    id_paths = ("id", "job.id")
    query_path = "/api/v2/parse/{id}"
    error_code_paths = ()
    """Errors have no codes that are documented."""
    error_message_paths = ("detail", "detail.0.msg", "message", "error")
    failure_code_paths = ()
    failure_message_paths = ("job.error_message", "error_message")

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own tier and version are the defaults."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, LlamaParseOcrSettings) else LlamaParseOcrSettings()
        self._tier = own.tier
        self._version = own.version

    def validate(self, params: OcrRequest) -> None:
        """Refuse what the provider does not have, and options that cannot be joined with the handler's own.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._body_of(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the request with the document's URL; options first, so that they can't replace what is set here."""
        body = self._body_of(params)
        callback_url = self.own_callback_url(context)
        if callback_url is not None:
            others = items(body, "webhook_configurations")
            # without a list of events all are told; the provider's sources differ about their names
            body["webhook_configurations"] = [*others, {"webhook_url": callback_url}]
        return HttpRequest.post("/api/v2/parse", json=body)

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return the job's id, and which content to ask for once it is done.

        Raises:
            UnreadableAnswer: there is no id.
        """
        text_only = (params.model or self._tier) == _TEXT_ONLY_TIER
        wanted = {
            "markdown": not text_only,
            "text": text_only or OutputFormat.TEXT in params.outputs,
            "items": OutputFormat.JSON in params.outputs,
        }
        expand = ",".join(name for name, is_wanted in wanted.items() if is_wanted)
        return super().create_query_params(response, params).evolve(**{EXPAND: expand})

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return the content, or, if the answer has none, what `fetch_result` is to ask for."""
        body = response.json()
        if lookup(body, "markdown") is not None or lookup(body, "text") is not None:
            return _read(body)
        expand = params.read(EXPAND, str) if EXPAND in params.provider_params else "markdown"
        return Unfetched(request=self.build_query(params, context).with_query(expand=expand))

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Ask for the content of a job that is done.

        Raises:
            QueryFailed: the provider answered with an error; the next query tries again.
            UnreadableAnswer: the answer is no JSON.
        """
        if not isinstance(sources, Unfetched):
            return sources
        response = await self.ask(sources.request, context)
        if not response.ok:
            raise self.unanswered(response, context, "the job is done, and its result cannot be had now")
        return _read(response.json_object())

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if it came to an address that we gave.

        Raises:
            CallbackRejected: it did not, or makes no sense.
        """
        self.check_own_callback(request, account_id)
        document = callback_json(_unpacked(request))
        return Callback(external_task_ids=callback_ids(document, "data.job_id", "data.id"))

    def _body_of(self, params: OcrRequest) -> dict[str, JSON]:
        options = {name: value for name, value in params.options.items() if name != "file_id"}
        others = options.get("webhook_configurations")
        if others is not None and (isinstance(others, str) or not isinstance(others, Sequence)):
            raise InvalidParams("options: webhook_configurations must be a list, as the provider has it")
        body = {
            "version": self._version,
            **options,
            "tier": params.model or self._tier,
            "source_url": params.url,
        }
        if params.pages is not None:
            body["page_ranges"] = {**object_option(options, "page_ranges"), "target_pages": params.pages}
        if params.languages:
            processing = object_option(options, "processing_options")
            ocr = object_option(processing, "ocr_parameters", within="options.processing_options")
            languages: JSON = {**ocr, "languages": list(params.languages)}
            body["processing_options"] = {**processing, "ocr_parameters": languages}
        return body


def _unpacked(request: CallbackRequest) -> CallbackRequest:
    """Return a callback whose body is JSON within a JSON string as one whose body is the JSON within."""
    try:
        body = json.loads(request.body)
        return evolve(request, body=body.encode("utf-8")) if isinstance(body, str) else request
    except UnicodeEncodeError as error:
        raise CallbackRejected("the callback's body is a string with a lone surrogate in it") from error
    except (ValueError, RecursionError):
        return request  # told by whoever reads it


def _read(body: JSON) -> OcrSources | QueryResult | None:
    """Return the content in an answer; None if there is none, a failure if every page failed."""
    if not any(isinstance(lookup(body, f"{name}.pages"), Sequence) for name in ("markdown", "text")):
        return None
    markdown, text, parts = (_by_number(body, name) for name in ("markdown", "text", "items"))
    failures = [*_failures(markdown, "page"), *_failures(parts, "the items of page")]
    texts = dict(_texts(text, "text"))
    read = dict(_texts(markdown, "markdown"))
    if failures and not read and not texts:
        return QueryResult.failed(None, f"every page failed; {failures[0]}")
    content = {**texts, **read}
    return OcrSources(
        markdown="\n\n".join(content[page] for page in sorted(content)),
        text="\n\n".join(texts[page] for page in sorted(texts)) if texts else None,
        pages=tuple(_page(page, content[page], parts.get(page)) for page in sorted(content)),
        warnings=tuple(failures),
    )


def _by_number(body: JSON, name: str) -> dict[int, JSON]:
    """Return pages by their numbers; the first is 1."""
    pages = enumerate(items(body, f"{name}.pages"), start=1)
    told = ((lookup(page, "page_number"), place, page) for place, page in pages)
    return {given if isinstance(given, int) and given > 0 else place: page for given, place, page in told}


def _failures(pages: Mapping[int, JSON], what: str) -> Iterator[str]:
    for place, page in sorted(pages.items()):
        if lookup(page, "success") is False:
            yield f"{what} {place} failed: {first_text(page, 'error') or 'the provider gives no reason'}"


def _texts(pages: Mapping[int, JSON], name: str) -> Iterator[tuple[int, str]]:
    for place, page in pages.items():
        text = given_text(page, name)
        if text is not None:
            yield place, text


def _page(place: int, markdown: str, parts: JSON) -> OcrPage:
    """Return a page; sizes and boxes are in points."""
    return OcrPage(
        index=place - 1,
        markdown=sound(markdown),
        width=number(parts, "page_width"),
        height=number(parts, "page_height"),
        blocks=tuple(
            OcrBlock(
                kind=first_text(each, "type") or "text",
                text=sound(first_text(each, "md", "value", "caption") or ""),
                box=_box(each),
            )
            for each in items(parts, "items")
        ),
    )


def _box(item: JSON) -> Box | None:
    """Return the box around all boxes of an item."""
    told = lookup(item, "bbox")
    all_boxes = [told] if isinstance(told, Mapping) else items(item, "bbox")
    found = (sized_box(number(each, side) for side in "xywh") for each in all_boxes)
    boxes = [each for each in found if each is not None]
    return box_around([point for each in boxes for point in (each[:2], each[2:])])
