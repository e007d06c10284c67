"""The base of OCR handlers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import ClassVar

from attrs import evolve

from coatcheck.errors import InvalidParams
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrPage
from coatcheck_handler_ocr.sources import OcrSources, complete, page_of
from coatcheck_http import (
    HttpHandler,
    HttpResponse,
    JobState,
    PreparedContext,
    StatusMap,
    UnreadableAnswer,
    first_text,
)

__all__ = ["OcrHandler"]

_CHOICES = ("file_name", "pages", "languages", "tables", "formulas", "model")


class OcrHandler(HttpHandler[OcrRequest]):
    """An HTTP handler that takes `OcrRequest` and gives `OcrResult`.

    Subclasses write `build_submit`, `create_query_params`, `build_query` and `parse_query`; the last one
    returns an `OcrSources` as its result, which is completed here. What the query of a provider needs beyond
    the id, such as a region, is added in `create_query_params` and used in `build_query`.
    """

    supports: ClassVar[AbstractSet[str]] = frozenset(_CHOICES)
    """Which of these choices of a request the provider has."""
    formats: ClassVar[AbstractSet[OutputFormat]] = frozenset({OutputFormat.MARKDOWN, OutputFormat.TEXT})
    """Which outputs it can give."""
    statuses: ClassVar[StatusMap]
    """The provider's status words."""
    status_paths: ClassVar[tuple[str, ...]] = ("status",)
    """Where answers have the status word."""

    def validate(self, params: OcrRequest) -> None:
        """Refuse a request for what the provider does not have, which it would ignore in silence.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
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

    @abstractmethod
    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Return what later queries need: the provider's id of the job, and whatever else. Pure.

        Raises:
            UnreadableAnswer: there is no id in the answer.
        """

    def parse_submit(
        self, response: HttpResponse, params: OcrRequest, context: PreparedContext
    ) -> SubmitResult:
        """Return the accepted job, with its status word if the answer has one."""
        word = self.status_word(response)
        running = word is not None and self.statuses.state_of(word) is JobState.RUNNING
        return SubmitResult(
            status=Status.RUNNING if running else Status.SUBMITTED,
            query_params=self.create_query_params(response, params),
            provider_status=word,
        )

    def status_word(self, response: HttpResponse) -> str | None:
        """Return the status word of an answer, or None."""
        with suppress(UnreadableAnswer):
            return first_text(response.json(), *self.status_paths)
        return None

    def read_page(self, document: JSON, index: int) -> Sequence[OcrPage]:
        """Return the pages of one line of a JSONL result; `index` is that of the first. Pure."""
        return page_of(document, index)

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Make an `OcrResult` of the sources that `parse_query` found, with downloads where it takes them.

        Raises:
            DownloadFailed: the text cannot be had now; the query counts as failed and is asked again.
        """
        if not isinstance(result.result, OcrSources):
            return result
        read = await complete(result.result, self.download, self.read_page)
        if read is None:
            return QueryResult.incomplete(provider_status=result.provider_status)
        return evolve(result, result=read)
