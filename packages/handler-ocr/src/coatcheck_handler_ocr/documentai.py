"""Google Document AI: batch processing of documents in Cloud Storage.

Shapes are those generally known of the provider's public protocol definitions (googleapis/googleapis, Document AI
version 1, long-running operations, status codes), which were not at hand; nothing was tried against the live service.
Documents are read from Cloud Storage and results written there, as JSON, to be listed and read by its own JSON API
with the same token. No idempotency key and no callback are known. Rates, and how long an operation is remembered,
are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import cast

from attrs import evolve, frozen

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.handler import CallContext, CancelContext, QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, CancelOutcome, QueryParams
from coatcheck_handler_ocr.documentai_settings import DocumentAiOcrSettings
from coatcheck_handler_ocr.documentai_shards import Shard, numbered, read_shards
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrAsset
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_http import (
    Accounts,
    ErrorClass,
    GoogleCalls,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobState,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    first_object,
    first_text,
    items,
    lookup,
    segment,
)
from coatcheck_http.google_status import code_of

__all__ = ["DocumentAiOcr", "DocumentAiOcrSettings"]

_MEDIA_TYPES = {
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
}


@frozen(kw_only=True)
class _Outputs(OcrSources):
    """Where the files of a result are."""

    folders: tuple[str, ...]


class DocumentAiOcr(GoogleCalls[OcrRequest], OcrHandler):
    """Batch processing by Google Document AI."""

    key = "ocr:documentai"
    facts = ProviderFacts(
        name="Google Document AI",
        sources=(
            "googleapis/googleapis, google.cloud.documentai.v1 and google.longrunning, as generally known: not at hand",
        ),
    )
    supports = frozenset({"file_name", "model"})
    formats = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT, OutputFormat.JSON})
    url_schemes = ("gs",)
    id_paths = ("name",)
    status_paths = ("metadata.state",)
    # BatchProcessMetadata.State of the protocol definitions
    statuses = StatusMap(
        waiting="WAITING",
        running="RUNNING CANCELLING",
        succeeded="SUCCEEDED",
        failed="FAILED",
        canceled="CANCELLED",
    )

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts, of `GoogleServiceAccount` or `ApiKey` with a ready access token, and settings.

        Raises:
            ConfigurationError: the settings are not `DocumentAiOcrSettings`, or one of them must not be.
        """
        if not isinstance(settings, DocumentAiOcrSettings):
            message = (
                f"{key or self.key!r} needs DocumentAiOcrSettings with project, processor and output_prefix"
            )
            raise ConfigurationError(message)
        self._own = settings
        self._storage_url = settings.storage_url.rstrip("/")
        known = evolve(
            settings,
            base_url=settings.base_url or f"https://{settings.location}-documentai.googleapis.com",
            trusted_origins=(*settings.trusted_origins, self._storage_url),
        )
        super().__init__(accounts, key=key, settings=known)

    def validate(self, params: OcrRequest) -> None:
        """Refuse, beside what every handler refuses, a document whose name does not tell of which type it is."""
        super().validate(params)
        _media_type(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Have one document processed, whose result goes to a folder of the task's."""
        own = self._own
        version = params.model or own.processor_version
        path = f"/v1/projects/{segment(own.project)}/locations/{own.location}/processors/{segment(own.processor)}"
        if version is not None:
            path += f"/processorVersions/{segment(version)}"
        output = first_object(dict(params.options), "documentOutputConfig.gcsOutputConfig")
        document: JSON = {"gcsUri": params.url, "mimeType": _media_type(params)}
        body: dict[str, JSON] = {
            **params.options,
            "inputDocuments": {"gcsDocuments": {"documents": [document]}},
            "documentOutputConfig": {"gcsOutputConfig": {**output, "gcsUri": self._folder(context)}},
        }
        return HttpRequest.post(f"{path}:batchProcess", json=body)

    def parse_submit(
        self, response: HttpResponse, params: OcrRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return the accepted job, and where its result will be."""
        accepted = super().parse_submit(response, params, context)
        query = cast("QueryParams", accepted.query_params)
        return evolve(accepted, query_params=query.evolve(output=self._folder(context)))

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask for the operation, whose name is a path."""
        return HttpRequest.get(_operation(params))

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Cancel the operation, which the provider does as well as it can."""
        return HttpRequest.post(f"{_operation(params)}:cancel", json={})

    def parse_cancel(
        self, response: HttpResponse, params: QueryParams, context: CancelContext
    ) -> CancelOutcome:
        """Return what came of it; an operation that cannot be cancelled is a refusal, too."""
        if response.status == HTTPStatus.NOT_IMPLEMENTED:
            return CancelOutcome.REFUSED
        return super().parse_cancel(response, params, context)

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how the job is: `done` says whether it has ended, `metadata.state` tells more."""
        body = response.json_object()
        if first_text(body, "name") is None:
            raise UnreadableAnswer("the answer has no name, so it is no operation", code="unreadable_answer")
        word = self.status_word(response)
        state = None if word is None else self.statuses.state_of(word)
        if body.get("done") is not True:
            ended = state in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED}
            return (
                QueryResult.running(provider_status=word)
                if word is None or ended
                else self.statuses.ongoing(word)
            )
        told = word or "done"
        code = code_of(lookup(body, "error"))
        if state is JobState.CANCELED or code == "CANCELLED":
            return QueryResult.canceled(provider_status=told)
        if code is not None or first_object(body, "error") or state is JobState.FAILED:
            return self.read_failure(response, told)
        result = self.read_result(response, params, context)
        if isinstance(result, QueryResult):
            return result
        if result is None:
            return QueryResult.incomplete(provider_status=told)
        return QueryResult.succeeded(result, provider_status=told)

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why the job, or its document, failed."""
        body = response.json()
        first = "metadata.individualProcessStatuses.0.status"
        code = code_of(lookup(body, "error")) or code_of(lookup(body, first))
        message = first_text(body, "error.message", f"{first}.message", "metadata.stateMessage")
        return QueryResult.failed(code, message or "the job failed", provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the provider says that it has put the result; else it is in the task's folder.

        A job that is done has failed all the same if its document has.
        """
        body = response.json_object()
        statuses = items(body, "metadata.individualProcessStatuses")
        failed = [each for each in statuses if code_of(lookup(each, "status")) is not None]
        if failed and len(failed) == len(statuses):
            return self.read_failure(response, self.status_word(response) or "done")
        if not isinstance(body.get("response"), Mapping):
            return None
        output = params.read("output", str)
        told = (first_text(each, "outputGcsDestination") for each in statuses)
        folders = tuple(each for each in told if each is not None and each.startswith(output))
        warnings = tuple(
            f"{first_text(each, 'inputGcsSource') or 'a document'} failed: {code_of(lookup(each, 'status'))} "
            f"{first_text(each, 'status.message') or ''}".rstrip()
            for each in failed
        )
        return _Outputs(folders=folders or (output,), warnings=warnings)

    async def fetch_sources(self, sources: OcrSources, context: QueryContext) -> OcrSources | None:
        """List the files of the result and read them.

        Raises:
            QueryFailed: one of them cannot be had now; the next query begins anew.
        """
        if not isinstance(sources, _Outputs):
            return sources
        shards, whole = await read_shards(
            sources.folders,
            lambda request: self._stored(request, context),
            storage_url=self._storage_url,
            most=self._own.max_shards,
            most_bytes=self.settings.max_download_bytes,
        )
        return self._joined(sources, shards, whole=whole) if shards else None

    def _folder(self, context: CallContext) -> str:
        return f"{self._own.output_prefix.rstrip('/')}/{context.task_id}/"

    def _joined(self, found: _Outputs, shards: Sequence[Shard], *, whole: bool) -> OcrSources:
        problems = [f"{each.name}: {each.problem}" for each in shards if each.problem is not None]
        if not whole:
            problems.append(
                f"the result goes on; what was read are {len(shards)} files: raise the settings max_shards and "
                "max_download_bytes for all of it"
            )
        return OcrSources(
            pages=numbered(shards),
            text="".join(each.text for each in shards),
            assets=tuple(OcrAsset(type="json", url=each.name) for each in shards),
            warnings=(*found.warnings, *problems),
        )

    async def _stored(self, request: HttpRequest, context: QueryContext) -> HttpResponse:
        """Return what Cloud Storage answers.

        Raises:
            QueryFailed: an error. That a file is not there says nothing of the job.
        """
        response = await self.ask(request, context)
        error = self.read_error(response)
        if error is None:
            return response
        if self.classify(error.code, error.status, error.message) is ErrorClass.AUTH:
            self.credentials_refused(context)
        raise self.unanswered(
            response, context, "the job is done, and Cloud Storage does not give its result"
        )


def _operation(params: QueryParams) -> str:
    return "/v1/" + "/".join(segment(each) for each in params.external_task_id.split("/"))


def _media_type(params: OcrRequest) -> str:
    """Return of which type a document is, by its name.

    Raises:
        InvalidParams: the name does not tell.
    """
    name = params.file_name or params.url
    found = _MEDIA_TYPES.get(PurePosixPath(name).suffix.lower())
    if found is None:
        message = (
            f"Document AI has to be told of which type a document is, and {PurePosixPath(name).name!r} does not say; "
            f"give file_name with one of {', '.join(_MEDIA_TYPES)}"
        )
        raise InvalidParams(message)
    return found
