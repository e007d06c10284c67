"""The base of OCR handlers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from attrs import evolve

from coatcheck.errors import InvalidParams
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_handler_ocr.documents import DOCUMENT
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrPage
from coatcheck_handler_ocr.sources import OcrSources, complete, page_of
from coatcheck_http import HttpResponse, JobHandler, Prepared, check_document_url

__all__ = ["OcrHandler"]

_CHOICES = ("file_name", "pages", "languages", "tables", "formulas", "model")


class OcrHandler(JobHandler[OcrRequest]):
    """An HTTP handler that takes `OcrRequest` and gives `OcrResult`.

    Subclasses write `build_submit` and `read_result`, which says where the text is; it is completed here, after
    `fetch_sources` where that takes more requests. What the query of a provider needs beyond the id, such as a
    region, is added in `create_query_params` and used in `build_query`.
    """

    supports: AbstractSet[str] = frozenset(_CHOICES)
    """Which of these choices of a request the provider has."""
    formats: ClassVar[AbstractSet[OutputFormat]] = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT})
    """Which outputs it can give."""
    url_schemes: ClassVar[Sequence[str]] = ("http", "https")
    """Of which kind the document's URL may be."""

    def validate(self, params: OcrRequest) -> None:
        """Refuse a request for what the provider does not have, which it would ignore in silence.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        check_document_url(params.url, schemes=self.url_schemes)
        for name in _CHOICES:
            if name not in self.supports and getattr(params, name) not in (None, ()):
                message = (
                    f"{self.key} has no choice of `{name}`; leave it out, or use the provider's own `options`"
                )
                raise InvalidParams(message)
        missing = [each for each in params.outputs if each not in self.formats]
        if missing:
            message = (
                f"{self.key} does not give {', '.join(missing)}; it gives {', '.join(sorted(self.formats))}"
            )
            raise InvalidParams(message)

    async def prepare_download(self, params: OcrRequest, *, limit_bytes: int | None = None) -> Prepared:
        """Return the document, downloaded: for `prepare`, where the provider takes no URL, and `documents.upload`.

        Raises:
            InvalidParams: it is empty.
            DownloadFailed: it cannot be had.
        """
        document = await self.download(params.url, limit_bytes=limit_bytes)
        if not document.content:
            raise InvalidParams("the document at the URL is empty")
        return Prepared(files={DOCUMENT: document})

    @abstractmethod
    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the text of a job that is done is to be had; None if the answer doesn't tell. Pure.

        A `QueryResult` is taken as it is, for jobs that are done and failed all the same.
        """

    def read_page(self, document: JSON, index: int) -> Sequence[OcrPage]:
        """Return the pages of one line of a JSONL result; `index` is that of the first. Pure."""
        return page_of(document, index)

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the text is, after more requests; by default the sources of `read_result`, as they are.

        For providers whose answer about a job that is done has only the place of the result: there `read_result`
        returns a subclass of `OcrSources` that holds it. What is returned here means the same as there.

        Raises:
            QueryFailed: it cannot be had now; the query is asked again.
        """
        return sources

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Make an `OcrResult` of the sources that `read_result` found, with downloads where it takes them.

        Raises:
            QueryFailed: `fetch_sources` cannot have them now; the query is asked again.
            DownloadFailed: the text cannot be had now; the query counts as failed and is asked again.
        """
        if not isinstance(result.result, OcrSources):
            return result
        found = await self.fetch_sources(result.result, context)
        if isinstance(found, QueryResult):
            return evolve(found, provider_status=found.provider_status or result.provider_status)
        read = None if found is None else await complete(found, self.download, self.read_page)
        if read is None:
            return QueryResult.incomplete(provider_status=result.provider_status)
        return evolve(result, result=read)
