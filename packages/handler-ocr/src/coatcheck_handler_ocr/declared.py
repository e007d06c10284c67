"""Any OCR service with an asynchronous HTTP API, described by settings alone: ``ocr:http``.

For services of one's own, without writing Python: what the requests look like, and where in the answers the id, the
status word, the text and the errors are. All of it is checked when the handler is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coatcheck.errors import ConfigurationError
from coatcheck.handler import (
    Callback,
    CallbackRequest,
    CallContext,
    CancelContext,
    Capability,
    QueryContext,
    SubmitContext,
)
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.declaration import REQUEST_FIELDS, DeclaredOcrSettings, way_of
from coatcheck_handler_ocr.documents import upload
from coatcheck_handler_ocr.handler import OcrHandler
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrPage
from coatcheck_handler_ocr.sources import OcrSources, Unfetched, given_text, sound
from coatcheck_http import (
    Accounts,
    ApiKey,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    Prepared,
    PreparedContext,
    ProviderError,
    RequestTemplate,
    UnreadableAnswer,
    callback_ids,
    callback_json,
    first,
    first_text,
    header_value,
    lookup,
    split_paths,
)

__all__ = ["DeclaredOcr"]


class DeclaredOcr(OcrHandler):
    """An OCR service that settings describe."""

    key = "ocr:http"
    formats = frozenset(OutputFormat)

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts, and settings that describe the service.

        Raises:
            ConfigurationError: there are no such settings, or no base URL.
        """
        if not isinstance(settings, DeclaredOcrSettings):
            message = f"handler {key or self.key!r} needs settings that describe the service: DeclaredOcrSettings(...)"
            raise ConfigurationError(message)
        super().__init__(accounts, key=key, settings=settings)
        self._told = settings
        self.poll_floor = settings.poll_floor
        self.statuses = settings.words.as_map()
        self.status_paths = split_paths(settings.status)
        self.id_paths = split_paths(settings.id)
        self.error_code_paths = self.failure_code_paths = split_paths(settings.errors.code)
        self.error_message_paths = self.failure_message_paths = split_paths(settings.errors.message)
        uploads = {"file_name"} if settings.submit.file_field else set()
        self.supports = settings.submit.used() | uploads

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Cancel and callbacks are there if the settings describe them."""
        lacks = {
            Capability.CANCEL: self._told.cancel is None,
            Capability.CALLBACK: self._told.callback_id is None,
        }
        return super().capabilities - {capability for capability, missing in lacks.items() if missing}

    async def prepare(self, params: OcrRequest, context: SubmitContext) -> Prepared:
        """Download the document, if it is to be uploaded; `prepare_download` tells what it raises."""
        if self._told.submit.file_field is None:
            return Prepared()
        return await self.prepare_download(params)

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Fill the template."""
        values: dict[str, JSON] = {
            **{name: _json(getattr(params, name)) for name in REQUEST_FIELDS},
            "task_id": context.task_id,
            "idempotency_key": context.idempotency_key,
            "callback_url": self.own_callback_url(context),
        }
        field = self._told.submit.file_field
        file = None if field is None else upload(params, context, field=field)
        return self._told.submit.render(values, file=file)

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return the id, and what else is to be remembered.

        Raises:
            UnreadableAnswer: one of them is not in the answer.
        """
        found = super().create_query_params(response, params)
        kept: dict[str, JSON] = {}
        for name, path in self._told.keep.items():
            kept[name] = first(response.json(), *split_paths(path))
            if kept[name] is None:
                message = f"the answer has no {path}, which is to be kept as {name!r}"
                raise UnreadableAnswer(message, code="unreadable_answer")
        return found.evolve(keep=kept) if kept else found

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Fill the template."""
        return self._about(self._told.query, params)

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Fill the template; without one it is refused as unsupported."""
        if self._told.cancel is None:
            return super().build_cancel(params, context)
        return self._about(self._told.cancel, params)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error, also of a good answer that tells one."""
        paths = split_paths(self._told.errors.success)
        if response.ok and paths:
            told = first_text(response.json(), *paths) or _truth(response.json(), *paths)
            good = told is None or told in self._told.errors.success_values
            return None if good else self.error_of(response)
        return super().read_error(response)

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return the number at `progress`, if it is one from 0 to 1."""
        found = first(response.json(), *split_paths(self._told.progress))
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            return None
        return float(found) if 0 <= found <= 1 else None

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the text is; with `fetch` the next request tells."""
        if self._told.fetch is not None:
            return Unfetched(request=self._about(self._told.fetch, params))
        return self._sources(response.json())

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Fetch the result if that takes another request; one that is not there may be so later."""
        if not isinstance(sources, Unfetched):
            return sources
        response = await self.ask(sources.request, context)
        error = self.read_error(response)
        if error is None:
            return self._sources(response.json())
        return QueryResult.incomplete(
            f"the job is done, and its result is not there: HTTP {error.status} {error.message}"
        )

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with the account's key where the service wants it."""
        way, name = way_of(self._told.authentication)
        if way == "none":
            return request
        key = self.account(context, ApiKey).api_key
        if way == "query":
            return request.with_query(**{name: key.reveal()})
        if way == "header":
            return request.with_headers(**{name: header_value(key)})
        return await super().authenticate(request, context)

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Return which job a callback is about; it must have come to an address that we told.

        Raises:
            CallbackRejected: it did not, or names no job.
        """
        if self._told.callback_id is None:
            return await super().parse_callback(request, account_id)
        self.check_own_callback(request, account_id)
        return Callback(
            external_task_ids=callback_ids(callback_json(request), *split_paths(self._told.callback_id))
        )

    def _about(self, template: RequestTemplate, params: QueryParams) -> HttpRequest:
        keep = params.provider_params.get("keep", {})
        return template.render({"id": params.external_task_id, "keep": keep})

    def _sources(self, body: JSON) -> OcrSources:
        paths = self._told.result
        usage = first(body, *split_paths(paths.usage))
        return OcrSources(
            markdown=given_text(body, *split_paths(paths.markdown)),
            markdown_url=first_text(body, *split_paths(paths.markdown_url)),
            archive_url=first_text(body, *split_paths(paths.archive_url)),
            pages=self._pages(first(body, *split_paths(paths.pages))),
            jsonl_url=first_text(body, *split_paths(paths.jsonl_url)),
            text=given_text(body, *split_paths(paths.text)),
            usage=usage if isinstance(usage, Mapping) else {},
        )

    def read_page(self, document: JSON, index: int) -> Sequence[OcrPage]:
        """Return the page of one line of a JSONL file."""
        text = given_text(document, *split_paths(self._told.result.page_text))
        return () if text is None else (OcrPage(index=index, markdown=sound(text)),)

    def _pages(self, found: JSON) -> tuple[OcrPage, ...]:
        items = found if isinstance(found, Sequence) and not isinstance(found, str) else ()
        pages: list[OcrPage] = []
        for each in items:
            pages.extend(self.read_page(each, len(pages)))
        return tuple(pages)


def _json(value: object) -> JSON:
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value  # type: ignore[return-value] # fields of OcrRequest are JSON


def _truth(body: JSON, *paths: str) -> str | None:
    """Return ``true`` or ``false`` for the first path that has such a value."""
    found = [value for value in (lookup(body, path) for path in paths) if isinstance(value, bool)]
    return str(found[0]).lower() if found else None
