"""Azure AI Document Intelligence.

Read in 2026 from `DocumentIntelligence.json` of Azure/azure-rest-api-specs (stable/2024-11-30), azure-sdk-for-python
and Microsoft's pages on service limits, errors and the classes of the SDK (paragraphs, bounding regions, warnings);
nothing was tried against the live service. The answer to a submission is 202 with an empty body: id and
place of the operation are in its header `Operation-Location`, an absolute URL, which is stored and sees the key only
if it is of the endpoint's origin or a trusted one. There is no idempotency key, no look-up, no cancel (DELETE removes
results) and no callback. How long results are kept is not documented; about a day is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from attrs import frozen

from coatcheck.errors import InvalidParams
from coatcheck.gates import Rate
from coatcheck.handler import CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.retry import ExponentialRetry
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.boxes import Box, box_around, numbers_at
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_handler_ocr.sources import OcrSources, sound
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_object,
    first_text,
    header_value,
    items,
    lookup,
    number,
    segment,
)

__all__ = ["AzureOcr", "AzureOcrSettings"]

LOCATION = "location"
"""The name among the query params of the URL at which an operation is asked about."""
_POLYGON_NUMBERS = 8


@frozen(kw_only=True)
class AzureOcrSettings(HttpSettings):
    """Settings of `AzureOcr`. `base_url` is the endpoint of your resource, as the portal shows it."""

    model: str = "prebuilt-layout"
    """For requests that name none: ``prebuilt-layout``, ``prebuilt-read``, or one of your own."""
    api_version: str = "2024-11-30"
    """The version of the API; the answers of this one are read."""


class AzureOcr(OcrHandler):
    """Documents to Markdown, by Azure AI Document Intelligence."""

    key = "ocr:azure"
    facts = ProviderFacts(
        name="Azure AI Document Intelligence",
        sources=(
            "Azure/azure-rest-api-specs, stable/2024-11-30, DocumentIntelligence.json",
            "Azure/azure-sdk-for-python, azure-ai-documentintelligence",
            "learn.microsoft.com: service limits, error guide, classes of Azure.AI.DocumentIntelligence",
        ),
        submit_rate=Rate(15),
        query_rate=Rate(50),
        poll_floor=timedelta(seconds=2),
    )
    retry = ExponentialRetry(
        initial=timedelta(seconds=2), factor=2.5, maximum=timedelta(seconds=34), floor=timedelta(seconds=2)
    )
    """The provider wants 2 seconds at least between two queries of an operation, and growing delays."""
    supports = frozenset({"pages", "languages", "formulas", "model"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    # words of the specification; versions before 2024 say "completed", operations of batches "skipped"
    statuses = StatusMap(
        waiting="notStarted",
        running="running",
        succeeded="succeeded completed",
        failed="failed skipped",
        canceled="canceled",
    )
    error_code_paths = ("error.innererror.code", "error.code", "code")
    """The inner code is the one that says what was wrong: ``InvalidContent`` of an ``InvalidRequest``."""
    error_message_paths = ("error.innererror.message", "error.message", "message")
    failure_code_paths = error_code_paths
    failure_message_paths = error_message_paths
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "InvalidRequest": ErrorClass.INVALID_REQUEST,
        "InvalidArgument": ErrorClass.INVALID_REQUEST,
        "InvalidContent": ErrorClass.UNSUPPORTED_INPUT,
        "InvalidContentDimensions": ErrorClass.UNSUPPORTED_INPUT,
        "InvalidContentLength": ErrorClass.TOO_LARGE,
        "UnsupportedMediaType": ErrorClass.UNSUPPORTED_INPUT,
        "Forbidden": ErrorClass.AUTH,
        "NotFound": ErrorClass.NOT_FOUND_OR_EXPIRED,
        "MethodNotAllowed": ErrorClass.INVALID_REQUEST,
        "Conflict": ErrorClass.INVALID_REQUEST,
        "InternalServerError": ErrorClass.PROVIDER_UNAVAILABLE,
        "ServiceUnavailable": ErrorClass.PROVIDER_UNAVAILABLE,
    }

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings, which name the endpoint; other settings than its own leave the rest as is.

        Raises:
            ConfigurationError: there is no `base_url`, or it must not see credentials.
        """
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, AzureOcrSettings) else AzureOcrSettings()
        self._model = own.model
        self._api_version = own.api_version

    def validate(self, params: OcrRequest) -> None:
        """Refuse what the provider does not have, and what would be another request than it seems.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        self._path_of(params)
        self._query_of(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return the request that creates an operation; options are query parameters, beneath the handler's own."""
        return HttpRequest.post(
            self._path_of(params),
            query=self._query_of(params),
            # By this the provider's support may find the request. It deduplicates nothing.
            headers={"x-ms-client-request-id": context.task_id},
            json={"urlSource": params.url},
        )

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return id and location of the operation.

        Raises:
            UnreadableAnswer: there is no location, or no id in it: nobody can tell which operation it is.
        """
        location = response.header("operation-location") or ""
        external_id = unquote(urlsplit(location).path.rpartition("/")[2])
        if not external_id.strip():
            message = "the answer has no Operation-Location with the id of an operation"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return QueryParams(external_task_id=external_id, provider_params={LOCATION: location})

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the place that the provider named."""
        return HttpRequest.get(params.read(LOCATION, str))

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return the document and its pages; an empty content is that of an empty document."""
        result = first_object(response.json(), "analyzeResult")
        content = result.get("content")
        if not isinstance(content, str):
            return None
        is_text = first_text(result, "contentFormat") == "text"
        return OcrSources(
            markdown=content,
            text=content if is_text else None,
            pages=tuple(_pages(result, content)),
            warnings=tuple(_warnings(result)),
        )

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the resource's key in the provider's own header."""
        key = header_value(self.account(context).api_key)
        return request.with_headers(ocp_apim_subscription_key=key)

    def _path_of(self, params: OcrRequest) -> str:
        model = segment(params.model or self._model)
        return f"/documentintelligence/documentModels/{model}:analyze"

    def _query_of(self, params: OcrRequest) -> dict[str, str]:
        """Return the query parameters: options first, so that they can't replace what the handler sets."""
        query = {name: _parameter(name, value) for name, value in params.options.items() if value is not None}
        if len(params.languages) > 1:
            message = f"{self.key} takes one language, as a locale, not {', '.join(params.languages)}"
            raise InvalidParams(message)
        if params.languages:
            query["locale"] = params.languages[0]
        if params.pages is not None:
            query["pages"] = params.pages
        features = [each for each in query.get("features", "").split(",") if each]
        if params.formulas and "formulas" not in features:
            query["features"] = ",".join([*features, "formulas"])
        text_only = params.outputs == (OutputFormat.TEXT,)
        return {
            **query,
            "api-version": self._api_version,
            "outputContentFormat": "text" if text_only else "markdown",
            "stringIndexType": "unicodeCodePoint",  # spans count as Python's strings do
        }


def _parameter(name: str, value: JSON) -> str:
    """Return an option as a query parameter; lists are joined with commas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    parts = value if isinstance(value, Sequence) else ()
    words = [each for each in parts if isinstance(each, str) and each.strip() and "," not in each]
    if not parts or len(words) != len(parts):
        message = (
            f"options.{name} must be a text, a number, true or false, or a list of words without commas, "
            f"not {value!r}: the provider takes it in the URL"
        )
        raise InvalidParams(message)
    return ",".join(words)


def _pages(result: Mapping[str, JSON], content: str) -> Iterator[OcrPage]:
    """Yield the pages, each with its part of the content and the paragraphs that begin on it."""
    blocks = list(_blocks(result))
    for place, page in enumerate(items(result, "pages"), start=1):
        told = lookup(page, "pageNumber")
        page_number = told if isinstance(told, int) and told > 0 else place
        yield OcrPage(
            index=page_number - 1,
            markdown=sound("".join(_cut(content, span) for span in items(page, "spans"))),
            width=number(page, "width"),
            height=number(page, "height"),
            blocks=tuple(block for begins_on, block in blocks if begins_on == page_number),
        )


def _blocks(result: Mapping[str, JSON]) -> Iterator[tuple[JSON, OcrBlock]]:
    """Yield each paragraph with the number of the page that it begins on."""
    for paragraph in items(result, "paragraphs"):
        block = OcrBlock(
            kind=first_text(paragraph, "role") or "text",
            text=sound(first_text(paragraph, "content") or ""),
            box=_box(paragraph),
        )
        yield lookup(paragraph, "boundingRegions.0.pageNumber"), block


def _box(paragraph: JSON) -> Box | None:
    """Return the upright box around the four corners of a paragraph's polygon."""
    numbers = [each for each in numbers_at(paragraph, "boundingRegions.0.polygon") if each is not None]
    if len(numbers) != _POLYGON_NUMBERS:
        return None
    return box_around(list(zip(numbers[::2], numbers[1::2], strict=True)))


def _cut(content: str, span: JSON) -> str:
    """Return what is at `span` of `content`."""
    offset, length = lookup(span, "offset"), lookup(span, "length")
    if not isinstance(offset, int) or not isinstance(length, int) or offset < 0 or length < 0:
        return ""
    return content[offset : offset + length]


def _warnings(result: Mapping[str, JSON]) -> Iterator[str]:
    for each in items(result, "warnings"):
        told = [first_text(each, name) for name in ("code", "message")]
        yield ": ".join(text for text in told if text is not None) or "a warning without words"
