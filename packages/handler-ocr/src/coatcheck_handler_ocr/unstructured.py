"""Unstructured: on-demand jobs.

Read from the official client (Unstructured-IO/unstructured-python-client at 5e6f238c; its models of jobs and failed
files also at 13adfc83, 64910410 and 22fdc533) and the pages of docs.unstructured.io on jobs, in 2026; nothing was tried
against the live service. The provider takes no URL, so the worker downloads the document and uploads it. A job is of
one file here. Its result is another request, with the key. There is no idempotency key and no callback of a job that
was seen. The codes of errors, how long jobs and results live, and what a cancel is answered with are not documented.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from attrs import field, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.gates import Rate
from coatcheck.handler import CallContext, CancelContext, QueryContext, SubmitContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.documents import upload
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_handler_ocr.unstructured_elements import markdown_of, pages_of
from coatcheck_http import (
    Accounts,
    DownloadFailed,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_text,
    header_value,
    items,
    segment,
)

__all__ = ["MAX_FILE_BYTES", "UnstructuredOcr", "UnstructuredOcrSettings"]

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Of one document: the provider takes no larger ones."""
_JOBS = "/api/v1/jobs/"
_WITH_ERRORS = "completed_with_errors"


@frozen(kw_only=True)
class UnstructuredOcrSettings(HttpSettings):
    """Settings of `UnstructuredOcr`."""

    template_id: str = field(default="hi_res_and_enrichment")
    """What is done with documents, for requests whose options have no `template_id` and no `job_nodes`."""

    @template_id.validator
    def _check_template(self, _attribute: object, value: str) -> None:
        if not value.strip():
            message = f"template_id must not be blank, not {value!r}; leave it out for the default"
            raise ConfigurationError(message)


@frozen(kw_only=True)
class _Stored(OcrSources):
    """Elements that wait at the provider."""

    job_path: str
    file_ids: tuple[str, ...]
    with_errors: bool


class UnstructuredOcr(OcrHandler):
    """Document parsing by Unstructured's on-demand jobs."""

    key = "ocr:unstructured"
    default_base_url = "https://platform.unstructuredapp.io"
    facts = ProviderFacts(
        name="Unstructured",
        sources=(
            "Unstructured-IO/unstructured-python-client at 5e6f238c, 13adfc83, 64910410 and 22fdc533",
            "docs.unstructured.io: create job, download job output, transform quickstart, document elements",
        ),
        submit_rate=Rate(1),
        concurrency=5,
    )
    supports = frozenset({"file_name"})
    query_path = f"{_JOBS}{{id}}"
    error_message_paths = ("detail", "detail.0.msg", "message", "error.message", "error")
    # JobStatus and JobProcessingStatus of unstructured-python-client
    statuses = StatusMap(
        waiting="SCHEDULED",
        running="IN_PROGRESS",
        succeeded="COMPLETED SUCCESS COMPLETED_WITH_ERRORS",
        failed="FAILED",
        canceled="STOPPED",
    )

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; with other settings than its own the default template is used."""
        super().__init__(accounts, key=key, settings=settings)
        own = settings if isinstance(settings, UnstructuredOcrSettings) else UnstructuredOcrSettings()
        self._template_id = own.template_id

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the key in the provider's header."""
        return request.with_headers(unstructured_api_key=header_value(self.account(context).api_key))

    async def prepare(self, params: OcrRequest, context: SubmitContext) -> Prepared:
        """Download the document.

        Raises:
            InvalidParams: it is empty, or larger than the provider takes.
            DownloadFailed: it cannot be had.
        """
        limit_bytes = min(MAX_FILE_BYTES, self.settings.max_download_bytes)
        try:
            return await self.prepare_download(params, limit_bytes=limit_bytes)
        except DownloadFailed as error:
            if error.code != "body_too_large":
                raise
            message = f"{self.key} takes documents of at most {limit_bytes} bytes: {error}"
            raise InvalidParams(message) from error

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Upload the document; the options say what is done with it, else the template of the settings."""
        wanted = dict(params.options)
        if not {"template_id", "job_nodes"} & wanted.keys():
            wanted["template_id"] = self._template_id
        return HttpRequest.post(
            _JOBS,
            form={"request_data": json.dumps(wanted, ensure_ascii=False)},
            files=[upload(params, context, field="input_files")],
        )

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return which files' elements are to be asked for; None if the answer names none."""
        files = tuple(_file_ids(response.json()))
        if not files:
            return None
        word = self.status_word(response) or ""
        return _Stored(
            job_path=f"{_JOBS}{segment(params.external_task_id)}",
            file_ids=files,
            with_errors=word.casefold() == _WITH_ERRORS,
        )

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Ask for the elements of the file, and for what went wrong if they are not all there.

        Raises:
            QueryFailed: they cannot be had now.
        """
        if not isinstance(sources, _Stored):
            return sources
        elements: list[JSON] = []
        missing = False
        for file_id in sources.file_ids:
            found = await self._elements(sources.job_path, file_id, context)
            missing = missing or found is None
            elements.extend(found or ())
        errors = await self._errors(sources.job_path, context) if missing or sources.with_errors else ()
        if missing and not elements:
            return QueryResult.failed("file_failed", "; ".join(errors)) if errors else None
        return OcrSources(
            markdown=markdown_of(elements), pages=tuple(pages_of(elements)), warnings=tuple(errors)
        )

    async def _elements(self, job_path: str, file_id: str, context: QueryContext) -> Sequence[JSON] | None:
        """Return the elements of one file, or None if the provider has none of it."""
        request = HttpRequest.get(f"{job_path}/download", query={"file_id": file_id})
        response = await self.ask(request, context)
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        if not response.ok:
            raise self.unanswered(response, context)
        found = response.json()
        if not isinstance(found, Sequence) or isinstance(found, str):
            message = f"the result of file {file_id!r} is JSON, but no list of elements"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return found

    async def _errors(self, job_path: str, context: QueryContext) -> Sequence[str]:
        """Return what the provider says about files that failed; nothing if it does not say."""
        response = await self.ask(HttpRequest.get(f"{job_path}/failed-files"), context)
        if not response.ok:
            return ()
        found = []
        for each in items(response.json(), "failed_files"):
            message = first_text(each, "error")
            if message is not None:
                name = first_text(each, "document")
                found.append(message if name is None else f"{name}: {message}")
        return found

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Ask for the job's end."""
        return HttpRequest.post(f"{_JOBS}{segment(params.external_task_id)}/cancel")


def _file_ids(job: JSON) -> Iterator[str]:
    """Yield the ids of the files that were uploaded, else of those that came out, each once."""
    inputs = [each for each in items(job, "input_file_ids") if isinstance(each, str) and each]
    outputs = [first_text(each, "file_id") for each in items(job, "output_node_files")]
    yield from dict.fromkeys(inputs or [each for each in outputs if each])
