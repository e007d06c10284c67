"""The handler, its params and its results.

The provider answers a submission with 202, an empty body, and a header ``Operation-Location``: the absolute
URL at which the operation is asked about. That URL is stored with the task. Whether it may see the key is
decided each time that it is asked: only if it is of the endpoint's origin, or of one of the settings'
``trusted_origins``.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal
from urllib.parse import unquote, urlsplit

from attrs import frozen

from coatcheck import (
    JSON,
    ExponentialRetry,
    InvalidParams,
    QueryContext,
    QueryParams,
    QueryResult,
    SubmitResult,
)
from coatcheck.handler import CallContext
from coatcheck_http import (
    HttpHandler,
    HttpRequest,
    HttpResponse,
    PreparedContext,
    StatusMap,
    check_document_url,
    first_object,
    first_text,
    lookup,
    segment,
)

API_VERSION = "2024-11-30"
"""The version of the provider's API whose answers are read here."""

LOCATION = "location"
"""The name among the query params of the URL at which an operation is asked about."""


@frozen(kw_only=True)
class AnalyzeRequest:
    """A document to analyze, and how."""

    url: str
    """Where the provider finds the document."""
    model: str = "prebuilt-layout"
    """Which model reads it, such as ``prebuilt-layout`` or ``prebuilt-read``, or one of your own."""
    pages: str | None = None
    """Which pages, such as ``1-3,5``; None for all."""
    locale: str | None = None
    """A hint at the language, such as ``en-US``."""
    features: tuple[str, ...] = ()
    """Add-ons that cost extra, such as ``formulas``."""
    query_fields: tuple[str, ...] = ()
    """Names of fields to look for; takes the feature ``queryFields``."""
    content_format: Literal["markdown", "text"] = "markdown"
    """In which form the text is wanted."""


@frozen(kw_only=True)
class AnalyzedPage:
    """One page of a document."""

    number: int
    """Counted from 1."""
    content: str
    """The page's part of the document's content."""
    width: float | None = None
    height: float | None = None
    unit: str | None = None
    """Of width and height: ``inch`` for PDFs, ``pixel`` for images."""


@frozen(kw_only=True)
class AnalyzedDocument:
    """What was read."""

    content: str
    """The whole text, which is empty if the document has none."""
    content_format: str
    """``markdown`` or ``text``."""
    model: str
    """Which model has read it."""
    pages: tuple[AnalyzedPage, ...] = ()
    """The pages that were read, in order."""


class AzureDiHandler(HttpHandler[AnalyzeRequest]):
    """Documents to markdown, by Azure AI Document Intelligence.

    The endpoint of your resource is ``base_url`` of the settings, as the portal shows it:
    ``https://<resource>.cognitiveservices.azure.com``. There is none that fits all.
    """

    key = "ocr:azure-di"
    retry = ExponentialRetry(
        initial=timedelta(seconds=2), factor=2.5, maximum=timedelta(seconds=34), floor=timedelta(seconds=2)
    )
    """The provider wants 2 seconds at least between two queries of an operation, and growing delays."""
    statuses = StatusMap(
        waiting="notStarted",
        running="running",
        succeeded="succeeded completed",  # versions before 2024 say "completed"
        failed="failed skipped",
        canceled="canceled",
    )
    error_code_paths = ("error.innererror.code", "error.code", "code")
    """The inner code is the one that says what was wrong: ``InvalidContent`` of an ``InvalidRequest``."""
    error_message_paths = ("error.innererror.message", "error.message", "message")

    def validate(self, params: AnalyzeRequest) -> None:
        """Refuse what the provider cannot fetch, and what would be another request than it seems."""
        check_document_url(params.url)
        segment(params.model)
        for name, texts in (("features", params.features), ("query_fields", params.query_fields)):
            for text in texts:
                if not text.strip() or "," in text:
                    raise InvalidParams(f"{name} has {text!r} in it; give one name each, without commas")

    def build_submit(self, params: AnalyzeRequest, context: PreparedContext) -> HttpRequest:
        """Return the request that creates an operation."""
        optional = {
            "pages": params.pages,
            "locale": params.locale,
            "features": ",".join(params.features),
            "queryFields": ",".join(params.query_fields),
        }
        return HttpRequest.post(
            f"/documentintelligence/documentModels/{segment(params.model)}:analyze",
            query={
                "api-version": API_VERSION,
                "outputContentFormat": params.content_format,
                "stringIndexType": "unicodeCodePoint",  # spans count as Python's strings do
                **{name: value for name, value in optional.items() if value},
            },
            # By this the provider's support may find the request. It deduplicates nothing.
            headers={"x-ms-client-request-id": context.task_id},
            json={"urlSource": params.url},
        )

    def parse_submit(
        self, response: HttpResponse, params: AnalyzeRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return where the operation is; without a location nobody can tell whether there is one."""
        location = response.header("operation-location") or ""
        return SubmitResult.accepted(operation_id(location), {LOCATION: location})

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return the request for the operation's state, at the place that the provider named."""
        return HttpRequest.get(params.read(LOCATION, str))

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return what became of the operation."""
        body = response.json_object()
        word = first_text(body, "status") or ""
        match self.statuses.state_of(word):
            case "succeeded":
                document = read_document(first_object(body, "analyzeResult"))
                if document is None:
                    return QueryResult.incomplete(provider_status=word)
                return QueryResult.succeeded(document, provider_status=word)
            case "failed":
                code = first_text(body, *self.error_code_paths)
                message = first_text(body, *self.error_message_paths) or "the provider gives no reason"
                return QueryResult.failed(code, message, provider_status=word)
            case "canceled":
                return QueryResult.canceled("cancelled at the provider", provider_status=word)
            case _:
                return self.statuses.ongoing(word)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the resource's key in the provider's own header."""
        key = self.account(context).api_key.reveal()
        return request.with_headers(ocp_apim_subscription_key=key)


def operation_id(location: str) -> str:
    """Return the id of the operation at ``location``, which is the last part of its path, or nothing."""
    return unquote(urlsplit(location).path.rpartition("/")[2])


def read_document(result: Mapping[str, JSON]) -> AnalyzedDocument | None:
    """Return what an ``analyzeResult`` says, or None if it is none yet."""
    content = result.get("content")
    if not isinstance(content, str):  # an empty one is the content of an empty document
        return None
    pages = result.get("pages")
    return AnalyzedDocument(
        content=content,
        content_format=first_text(result, "contentFormat") or "text",
        model=first_text(result, "modelId") or "",
        pages=tuple(
            read_page(page, content, index)
            for index, page in enumerate(pages if isinstance(pages, list) else (), start=1)
        ),
    )


def read_page(page: JSON, content: str, index: int) -> AnalyzedPage:
    """Return a page, the `index`th of its document, with its part of the document's content."""
    number = lookup(page, "pageNumber")
    width, height = lookup(page, "width"), lookup(page, "height")
    spans = lookup(page, "spans")
    return AnalyzedPage(
        number=number if isinstance(number, int) else index,
        content="".join(cut(content, span) for span in (spans if isinstance(spans, list) else ())),
        width=float(width) if isinstance(width, int | float) else None,
        height=float(height) if isinstance(height, int | float) else None,
        unit=first_text(page, "unit"),
    )


def cut(content: str, span: JSON) -> str:
    """Return what is at `span` of `content`."""
    offset, length = lookup(span, "offset"), lookup(span, "length")
    if not isinstance(offset, int) or not isinstance(length, int) or offset < 0 or length < 0:
        return ""
    return content[offset : offset + length]
