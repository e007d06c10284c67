"""Datalab: documents to Markdown, by Marker and its successors.

Read in 2026 from the provider's SDK (datalab-to/sdk at 07af6c2b, `client.py` at 01c9ded3, `models.py` at 00d9b874)
and its pages on limits, webhooks, troubleshooting and deletion of results (documentation.datalab.to); nothing was
tried against the live service. An answer to a
submission names the URL at which the job is asked about; it is stored, and sees the key only if it is of the base
URL's origin or a trusted one. A job that is "complete" may have failed all the same. There is no idempotency key, no
look-up and no cancel (DELETE removes results). Which codes errors have, and what is answered about a result that is
gone, is not documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from http import HTTPStatus

from attrs import frozen

from coatcheck.gates import Rate
from coatcheck.handler import Callback, CallbackRequest, CallContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_http import (
    Accounts,
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    callback_ids,
    callback_json,
    first_object,
    first_text,
    form_text,
    header_value,
)

__all__ = ["DatalabOcr", "DatalabOcrSettings"]

CHECK_URL = "check_url"
"""The name among the query params of the URL at which a job is asked about."""
_COUNTED = ("page_count", "cost_breakdown")
_ABOUT_MONEY = ("subscription", "payment", "unpaid")
_NAMED_IMAGES = 5


@frozen(kw_only=True)
class DatalabOcrSettings(HttpSettings):
    """Settings of `DatalabOcr`."""

    mode: str | None = None
    """For requests that name no model: ``fast``, ``balanced`` or ``accurate``; None leaves it to the provider."""


class DatalabOcr(OcrHandler):
    """Documents to Markdown, by Datalab."""

    key = "ocr:datalab"
    default_base_url = "https://www.datalab.to"
    facts = ProviderFacts(
        name="Datalab",
        sources=(
            "datalab-to/sdk at 07af6c2b, client.py at 01c9ded3, models.py at 00d9b874",
            "documentation.datalab.to: limits, webhooks, troubleshooting, delete result",
        ),
        submit_rate=Rate(200, timedelta(minutes=1)),
        concurrency=400,
        jobs_live=timedelta(days=1),
    )
    supports = frozenset({"pages", "model"})
    # "processing" and "complete" of the SDK; "failed" is named by a client of somebody else's, papers-datalab
    statuses = StatusMap(running="processing", succeeded="complete", failed="failed")
    id_paths = ("request_id",)
    query_path = "/api/v1/convert/{id}"
    error_code_paths = ()
    """Errors have no codes, only words."""
    error_message_paths = ("detail", "error", "detail.0.msg")
    failure_code_paths = ("error_in",)
    failure_message_paths = ("error", "detail")

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the mode is the provider's."""
        super().__init__(accounts, key=key, settings=settings)
        self._mode = settings.mode if isinstance(settings, DatalabOcrSettings) else None

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Return a form with the document's URL; options first, so that they can't replace what the handler sets.

        Images are not asked for, unless an option does: they would come inline, and are not kept.
        """
        options = {name: form_text(value) for name, value in params.options.items() if value is not None}
        chosen = {
            "page_range": _from_zero(params.pages) if params.pages is not None else None,
            "mode": params.model or self._mode,
            "webhook_url": self.own_callback_url(context),
        }
        form = {
            "disable_image_extraction": "true",
            **options,
            **{name: value for name, value in chosen.items() if value is not None},
            "output_format": "markdown",
            "file_url": params.url,
        }
        form.pop("file", None)
        return HttpRequest.post("/api/v1/convert", form=form)

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return the job's id, and the URL at which the provider wants to be asked, if it names one.

        Raises:
            UnreadableAnswer: there is no id.
        """
        made = super().create_query_params(response, params)
        url = first_text(response.json(), "request_check_url")
        return made if url is None else made.evolve(**{CHECK_URL: url})

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the URL that the provider named, or else of the job's path."""
        if CHECK_URL not in params.provider_params:
            return super().build_query(params, context)
        url = params.read(CHECK_URL, str)
        # the SDK takes paths, too
        return HttpRequest.get(url if re.match(r"(?i)https?:", url) else f"/{url.lstrip('/')}")

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer that says "no success" and nothing about a job."""
        if not response.ok:
            return self.error_of(response)
        try:
            body = response.json()
        except UnreadableAnswer:
            return None  # told by whoever needs the body
        refused = isinstance(body, Mapping) and body.get("success") is False
        return self.error_of(response) if refused and first_text(body, "status") is None else None

    def classify(self, code: str | None, http_status: int, message: str) -> ErrorClass:
        """Return what an error means; the documented 403s are about subscriptions and payments."""
        if http_status == HTTPStatus.FORBIDDEN and any(word in message.lower() for word in _ABOUT_MONEY):
            return ErrorClass.QUOTA_OR_BILLING
        return super().classify(code, http_status, message)

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how the job is: "no success" is failure, whatever the word, unless it is still worked on."""
        word = self.status_word(response)
        ended = word is not None and self.statuses.state_of(word) is not JobState.RUNNING
        if word is not None and ended and response.json_object().get("success") is False:
            return self.read_failure(response, word)
        return super().parse_query(response, params, context)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return the Markdown; what there is beside it is counted, or told in a warning."""
        body = response.json_object()
        markdown = body.get("markdown")
        if not isinstance(markdown, str):
            return None
        return OcrSources(
            markdown=markdown,
            usage={name: body[name] for name in _COUNTED if body.get(name) is not None},
            warnings=tuple(_left_out(first_object(body, "images"))),
        )

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key in the provider's own header."""
        return request.with_headers(x_api_key=header_value(self.account(context).api_key))

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about, if it came to an address that we gave.

        Raises:
            CallbackRejected: it did not, or makes no sense.
        """
        self.check_own_callback(request, account_id)
        return Callback(external_task_ids=callback_ids(callback_json(request), "request_id"))


def _from_zero(pages: str) -> str:
    """Return pages as the provider counts them: the first is 0."""
    return re.sub(r"\d+", lambda number: str(int(number[0]) - 1), pages)


def _left_out(images: Mapping[str, JSON]) -> Iterator[str]:
    """Yield what is to be said of images, which come as base64 and would fill the store."""
    if images:
        names = ", ".join(list(images)[:_NAMED_IMAGES]) + (", ..." if len(images) > _NAMED_IMAGES else "")
        yield f"the provider sent {len(images)} image(s), which are not kept: {names}"
