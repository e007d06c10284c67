"""docling-serve: document parsing on a server of one's own.

Read from docling-serve 1.38.2 as it is on PyPI (its OpenAPI document; `app.py`, `auth.py` and `settings.py` in
`docling_serve`), and from its answers on loopback in 2026, where the handler was tried, with stand-in models for the
layout; nothing was tried against anybody's own server. The server fetches the document itself, and refuses private
addresses unless its settings allow them. A status of ``success`` is that of the task: whether the document was read,
the result tells, which is another request. There is no idempotency key and no cancel; callbacks are not signed. Rates
are not documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from attrs import evolve, field, frozen
from attrs.converters import optional

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import Callback, CallbackRequest, CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.docling_document import pages_of
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.sources import OcrSources, Unfetched, given_text
from coatcheck_http import (
    Accounts,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    as_secret,
    callback_ids,
    callback_json,
    first,
    first_object,
    first_text,
    header_value,
    items,
    lookup,
    redact,
    segment,
)

__all__ = ["DoclingAccount", "DoclingOcr", "DoclingOcrSettings"]

_FORMATS = {OutputFormat.MARKDOWN: "md", OutputFormat.TEXT: "text", OutputFormat.JSON: "json"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _check_tenant(_account: object, _attribute: object, value: str | None) -> None:
    if value is not None and not (value.isascii() and value.isprintable() and value == value.strip() != ""):
        message = f"tenant {value!r} is blank or cannot be sent in a header; give printable ASCII, or None"
        raise ConfigurationError(message)


def _check_header_name(_settings: object, _attribute: object, value: str) -> None:
    if not _HEADER_NAME.fullmatch(value):
        message = f"tenant_header {value!r} is no name of an HTTP header; the server's own is X-Tenant-Id"
        raise ConfigurationError(message)


@frozen
class DoclingAccount:
    """An account of a docling-serve. Every field may be left out: a server may ask for nothing."""

    api_key: Secret | None = field(default=None, converter=optional(as_secret))
    """What the server's `DOCLING_SERVE_API_KEY` is; None where it has none."""
    tenant: str | None = field(default=None, kw_only=True, validator=_check_tenant)
    """Who owns the jobs, on servers that tell tenants apart."""
    callback_secret: Secret | None = field(default=None, kw_only=True, converter=optional(as_secret))
    """Ours alone, any long random text: it proves that a callback came to an address that only the server was
    told. None asks for no callbacks and takes none."""

    @classmethod
    def from_env(cls, name: str) -> DoclingAccount:
        """Return the account whose key is in the environment variable `name`."""
        return cls(Secret.from_env(name))


@frozen(kw_only=True)
class DoclingOcrSettings(HttpSettings):
    """Settings of `DoclingOcr`. `base_url` has to be given, and `allow_http` for plain http to another machine."""

    tenant_header: str = field(default="X-Tenant-Id", validator=_check_header_name)
    """The header with the account's tenant; the server's `DOCLING_SERVE_ENG_RAY_TENANT_ID_HEADER` names it."""


class DoclingOcr(OcrHandler):
    """Document parsing by a docling-serve of one's own."""

    key = "ocr:docling"
    facts = ProviderFacts(
        name="docling-serve",
        sources=("docling-serve 1.38.2 of PyPI: OpenAPI document, app.py, auth.py, settings.py",),
        verified=True,
    )
    supports = frozenset({"pages", "languages", "tables", "formulas"})
    formats = frozenset(_FORMATS)
    id_paths = ("task_id",)
    status_paths = ("task_status",)
    query_path = "/v1/status/poll/{id}"
    failure_code_paths = ("failure.category",)
    failure_message_paths = ("failure.message", "error_message")
    error_code_paths = ("detail.0.type",)
    error_message_paths = ("detail", "detail.0.msg")
    # ConversionStatus of its OpenAPI document
    statuses = StatusMap(
        waiting="pending",
        running="started",
        succeeded="success partial_success",
        failed="failure skipped",
    )

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; without accounts no credentials are sent."""
        super().__init__(DoclingAccount() if accounts is None else accounts, key=key, settings=settings)
        own = settings if isinstance(settings, DoclingOcrSettings) else None
        self._tenant_header = "X-Tenant-Id" if own is None else own.tenant_header

    def validate(self, params: OcrRequest) -> None:
        """Refuse what the server cannot do, as several ranges of pages.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        _page_range(params.pages)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the account's key and tenant, as far as it has them."""
        account = self.account(context, DoclingAccount)
        if account.api_key is not None:
            request = request.with_headers(x_api_key=header_value(account.api_key))
        if account.tenant is not None:
            request = request.with_headers(**{self._tenant_header: account.tenant})
        return request

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Name the document; the caller's options go first, so that they can't replace what the request chooses."""
        chosen: Mapping[str, JSON] = {
            "to_formats": [word for each, word in _FORMATS.items() if each in _wanted(params)],
            "page_range": _page_range(params.pages),
            "ocr_lang": list(params.languages) or None,
            "do_table_structure": params.tables,
            "do_formula_enrichment": params.formulas,
        }
        given = {name: value for name, value in chosen.items() if value is not None}
        body: dict[str, JSON] = {
            "sources": [{"kind": "http", "url": params.url}],
            "options": {**params.options, **given},
        }
        callback_url = self.own_callback_url(context)
        if callback_url is not None:
            body["callbacks"] = [{"url": callback_url}]
        return HttpRequest.post("/v1/convert/source/async", json=body)

    def error_of(self, response: HttpResponse) -> ProviderError:
        """Return the error of an answer, with the place in the request that was wrong, if it tells."""
        error = super().error_of(response)
        try:
            place = lookup(response.json(), "detail.0.loc")
        except UnreadableAnswer:
            return error
        if not isinstance(place, Sequence) or isinstance(place, str):
            return error
        return evolve(error, message=f"{'.'.join(str(each) for each in place)}: {error.message}")

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return that the result is to be asked for."""
        return Unfetched(request=HttpRequest.get(f"/v1/result/{segment(params.external_task_id)}"))

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Ask for the result at once: the server may clear it soon after it is done.

        Raises:
            QueryFailed: it cannot be had now.
        """
        if not isinstance(sources, Unfetched):
            return sources
        response = await self.ask(sources.request, context)
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        if not response.ok:
            raise self.unanswered(response, context)
        return self.read_document(response)

    def read_document(self, response: HttpResponse) -> OcrSources | QueryResult:
        """Return the text in the answer about a result, or that the document could not be read. Pure."""
        body = response.json_object()
        failure = first_object(body, "failure")
        if failure:
            message = first_text(failure, "message") or "the job failed"
            return QueryResult.failed(first_text(failure, "category"), message)
        word = first_text(body, "status")
        if word is None:
            raise UnreadableAnswer("the result has no status", code="unreadable_answer")
        errors = tuple(_errors(body))
        match self.statuses.state_of(word):
            case JobState.SUCCEEDED:
                return _sources(body, errors)
            case JobState.FAILED:
                code = first_text(body, "errors.0.category")
                message = "; ".join(errors) or f"the document is {word}"
                return QueryResult.failed(code, message, provider_status=word)
            case _:
                return self.statuses.ongoing(word)

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return the job that a callback is about, if it came to the address that we gave for it.

        Raises:
            CallbackRejected: it did not, or names no job.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "task_id"))


def _wanted(params: OcrRequest) -> Sequence[OutputFormat]:
    return (OutputFormat.MARKDOWN, *params.outputs)


def _page_range(pages: str | None) -> list[JSON] | None:
    """Return first and last page, or None for all.

    Raises:
        InvalidParams: there are several ranges, or it ends before it begins.
    """
    if pages is None:
        return None
    start, _, end = pages.partition("-")
    if "," in pages or int(end or start) < int(start):
        message = f"ocr:docling reads one range of pages, such as '3' or '1-10', not {pages!r}"
        raise InvalidParams(message)
    return [int(start), int(end or start)]


def _errors(body: Mapping[str, JSON]) -> Iterator[str]:
    for each in items(body, "errors"):
        message = first_text(each, "error_message")
        if message is not None:
            # the server repeats the document's URL, which may be presigned
            message = redact(message)
            page = first_text(each, "page_no")
            yield message if page is None else f"page {page}: {message}"


def _sources(body: Mapping[str, JSON], errors: tuple[str, ...]) -> OcrSources:
    document = first_object(body, "document")
    seconds = first(body, "processing_time")
    return OcrSources(
        markdown=given_text(document, "md_content"),
        text=given_text(document, "text_content"),
        pages=tuple(pages_of(first_object(document, "json_content"))),
        usage={} if seconds is None else {"processing_time": seconds},
        warnings=errors,
    )
