"""The shape that most providers have: an id, a status word, a result; said by a few class attributes."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import TypeVar

from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import QueryParams, Status
from coatcheck_http.adapter import PreparedContext
from coatcheck_http.errors import UnreadableAnswer
from coatcheck_http.extract import first_text
from coatcheck_http.handler import HttpHandler
from coatcheck_http.messages import HttpRequest, HttpResponse
from coatcheck_http.statuses import JobState, StatusMap
from coatcheck_http.urls import segment

__all__ = ["JobHandler"]

P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - named as in `Handler`


class JobHandler(HttpHandler[P]):
    """A handler whose provider gives jobs ids and status words.

    Subclasses write `build_submit` and `read_result`, and say the rest in attributes of the class. What differs is
    overridden: `create_query_params` and `build_query` for what a query needs beyond the id (a region, a URL of
    the provider's), `read_failure`, `read_progress`, `parse_query`.
    """

    statuses: StatusMap
    """The provider's status words."""
    status_paths: tuple[str, ...] = ("status",)
    """Where answers have the status word."""
    id_paths: tuple[str, ...] = ("id",)
    """Where the answer to a submission has the job's id."""
    query_path: str = "/{id}"
    """Where a GET asks for a job; ``{id}`` is its id."""
    failure_code_paths: tuple[str, ...] = ("error.code", "error.type", "error_code", "code")
    """Where the answer about a failed job has a code."""
    failure_message_paths: tuple[str, ...] = (
        "error.message", "error_message", "message", "error", "detail",
    )  # fmt: skip
    """Where the answer about a failed job says why."""

    @abstractmethod
    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> object | None:
        """Return the result in the answer about a job that is done; None if there is none. Pure.

        A `QueryResult` is taken as it is, for jobs that are done and failed all the same.
        """

    def create_query_params(self, response: HttpResponse, params: P) -> QueryParams:
        """Return what later queries need: the provider's id of the job, and whatever else. Pure.

        Raises:
            UnreadableAnswer: there is no id in the answer.
        """
        external_id = first_text(response.json_object(), *self.id_paths)
        if external_id is None:
            message = f"the answer has no {' or '.join(self.id_paths)}"
            raise UnreadableAnswer(message, code="unreadable_answer")
        return QueryParams(external_task_id=external_id)

    def parse_submit(self, response: HttpResponse, params: P, context: PreparedContext) -> SubmitResult:
        """Return the accepted job, with its status word if the answer has one."""
        word = self.status_word(response)
        running = word is not None and self.statuses.state_of(word) is JobState.RUNNING
        return SubmitResult(
            status=Status.RUNNING if running else Status.SUBMITTED,
            query_params=self.create_query_params(response, params),
            provider_status=word,
        )

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of `query_path`."""
        return HttpRequest.get(self.query_path.replace("{id}", segment(params.external_task_id)))

    def status_word(self, response: HttpResponse) -> str | None:
        """Return the status word of an answer, or None."""
        with suppress(UnreadableAnswer):
            return first_text(response.json(), *self.status_paths)
        return None

    def read_progress(self, response: HttpResponse) -> float | None:
        """Return how far a job is, from 0 to 1; None if the provider doesn't tell. Pure."""
        return None

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed. Pure."""
        body = response.json()
        message = first_text(body, *self.failure_message_paths) or "the job failed"
        return QueryResult.failed(first_text(body, *self.failure_code_paths), message, provider_status=word)

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Return how the job is, by its status word."""
        response.json_object()
        word = self.status_word(response)
        if word is None:
            message = f"the answer has no {' or '.join(self.status_paths)}"
            raise UnreadableAnswer(message, code="unreadable_answer")
        match self.statuses.state_of(word):
            case JobState.SUCCEEDED:
                result = self.read_result(response, params, context)
                if isinstance(result, QueryResult):
                    return result
                if result is None:
                    return QueryResult.incomplete(provider_status=word)
                return QueryResult.succeeded(result, provider_status=word)
            case JobState.FAILED:
                return self.read_failure(response, word)
            case JobState.CANCELED:
                return QueryResult.canceled(provider_status=word)
            case _:
                return self.statuses.ongoing(word, progress=self.read_progress(response))
