"""What a handler answers: the result of one submit call, and of one query.

Both are checked when they are made, so that an impossible answer (accepted without an id, a status
that only coatcheck may set) fails in the handler that gave it, with a message that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from coatcheck.errors import InvalidParams
from coatcheck.evolving import constructor
from coatcheck.task import JSON, QueryParams, Status

__all__ = ["QueryResult", "SubmitResult", "Verdict"]

_SUBMIT_STATUSES = (Status.SUBMITTED, Status.RUNNING, Status.SUCCEEDED, Status.FAILED, Status.CANCELED)


def _check_hints(progress: float | None, retry_after: timedelta | None) -> None:
    if progress is not None and not (
        isinstance(progress, (int, float)) and math.isfinite(progress) and 0 <= progress <= 1
    ):
        message = f"progress must be between 0 and 1, or None if the provider tells none, not {progress!r}"
        raise InvalidParams(message)
    if retry_after is not None and not isinstance(retry_after, timedelta):
        message = f"retry_after must be a timedelta, not {retry_after!r}"
        raise InvalidParams(message)


@frozen(kw_only=True)
class SubmitResult:
    """The provider's answer to a submit call. Make it with `accepted`, `succeeded`, `failed` or `canceled`."""

    status: Status
    """SUBMITTED or RUNNING (then with query params), or an end: SUCCEEDED, FAILED, CANCELED."""
    query_params: QueryParams | None = None
    """What later queries need."""
    result: object = None
    """The handler's result object, for SUCCEEDED; the worker turns it into JSON."""
    error_code: str | None = None
    """The provider's code, for FAILED."""
    error_message: str | None = None
    """What happened, for FAILED or CANCELED."""
    provider_status: str | None = None
    """The provider's own word."""
    progress: float | None = None
    """0..1, if the provider tells."""
    retry_after: timedelta | None = None
    """How long the provider asks to wait before the first query."""

    def __attrs_post_init__(self) -> None:
        """Refuse what no provider answer can mean."""
        if self.status not in _SUBMIT_STATUSES:
            message = (
                f"a handler cannot answer a submit with {self.status!r}; only coatcheck sets that status"
            )
            raise InvalidParams(message)
        if self.status.queryable and self.query_params is None:
            message = (
                f"a submit that was accepted ({self.status}) needs query params: SubmitResult.accepted(id)"
            )
            raise InvalidParams(message)
        _check_hints(self.progress, self.retry_after)

    @classmethod
    def accepted(
        cls,
        external_task_id: str,
        provider_params: Mapping[str, JSON] | None = None,
        *,
        running: bool = False,
        provider_status: str | None = None,
        progress: float | None = None,
        retry_after: timedelta | None = None,
    ) -> SubmitResult:
        """Say that the provider has created the job under `external_task_id`."""
        _check_hints(progress, retry_after)
        return _new_submit_result(
            status=Status.RUNNING if running else Status.SUBMITTED,
            query_params=QueryParams(
                external_task_id=external_task_id, provider_params=dict(provider_params or {})
            ),
            provider_status=provider_status,
            progress=progress,
            retry_after=retry_after,
        )

    @classmethod
    def succeeded(cls, result: object, *, query_params: QueryParams | None = None) -> SubmitResult:
        """Say that the provider did the job at once."""
        return cls(status=Status.SUCCEEDED, result=result, query_params=query_params)

    @classmethod
    def failed(
        cls, code: str | None, message: str, *, query_params: QueryParams | None = None
    ) -> SubmitResult:
        """Say that the provider created the job and it failed at once."""
        return cls(status=Status.FAILED, error_code=code, error_message=message, query_params=query_params)

    @classmethod
    def canceled(
        cls, message: str = "cancelled at the provider", *, query_params: QueryParams | None = None
    ) -> SubmitResult:
        """Say that the provider created the job and cancelled it at once."""
        return cls(status=Status.CANCELED, error_message=message, query_params=query_params)


_new_submit_result = constructor(SubmitResult)


class Verdict(StrEnum):
    """What one query says about the job."""

    RUNNING = "RUNNING"
    "Going on; `QueryResult.status` says whether it has begun."
    SUCCEEDED = "SUCCEEDED"
    "Done, and the result is here."
    FAILED = "FAILED"
    "Ended without a result."
    CANCELED = "CANCELED"
    "Cancelled at the provider."
    UNLISTED = "UNLISTED"
    "A status word that the handler does not know."
    NOT_FOUND = "NOT_FOUND"
    "The provider knows no such job: not yet, or not any more."
    INCOMPLETE = "INCOMPLETE"
    "Said to be done, but without a result."


@frozen(kw_only=True)
class QueryResult:
    """The provider's answer to a query. Make it with the class methods."""

    verdict: Verdict
    """What the answer means."""
    status: Status = Status.RUNNING
    """SUBMITTED while the provider has not begun, else RUNNING. Of interest for RUNNING only."""
    result: object = None
    """The handler's result object, for SUCCEEDED; the worker turns it into JSON."""
    error_code: str | None = None
    """The provider's code."""
    error_message: str | None = None
    """What happened."""
    provider_status: str | None = None
    """The provider's own word."""
    progress: float | None = None
    """0..1, if the provider tells."""
    retry_after: timedelta | None = None
    """How long the provider asks to wait before the next query."""
    next_params: QueryParams | None = field(default=None)
    """Replaces the stored query params, as for a cursor."""

    def __attrs_post_init__(self) -> None:
        """Refuse what no provider answer can mean."""
        if not self.status.queryable:
            message = f"the status of a job that goes on is SUBMITTED or RUNNING, not {self.status!r}"
            raise InvalidParams(message)
        _check_hints(self.progress, self.retry_after)

    @classmethod
    def running(
        cls,
        *,
        provider_status: str | None = None,
        progress: float | None = None,
        retry_after: timedelta | None = None,
        next_params: QueryParams | None = None,
    ) -> QueryResult:
        """Say that the provider works on it."""
        _check_hints(progress, retry_after)
        return _new_query_result(
            verdict=Verdict.RUNNING,
            provider_status=provider_status,
            progress=progress,
            retry_after=retry_after,
            next_params=next_params,
        )

    @classmethod
    def waiting(
        cls,
        *,
        provider_status: str | None = None,
        progress: float | None = None,
        retry_after: timedelta | None = None,
        next_params: QueryParams | None = None,
    ) -> QueryResult:
        """Say that the provider has accepted it and not begun."""
        _check_hints(progress, retry_after)
        return _new_query_result(
            verdict=Verdict.RUNNING,
            status=Status.SUBMITTED,
            provider_status=provider_status,
            progress=progress,
            retry_after=retry_after,
            next_params=next_params,
        )

    @classmethod
    def succeeded(cls, result: object, *, provider_status: str | None = None) -> QueryResult:
        """Say that it is done, with its result, which may be None only if the job has none by nature."""
        return _new_query_result(verdict=Verdict.SUCCEEDED, result=result, provider_status=provider_status)

    @classmethod
    def failed(cls, code: str | None, message: str, *, provider_status: str | None = None) -> QueryResult:
        """Say that the job ended without a result."""
        return cls(
            verdict=Verdict.FAILED,
            error_code=code,
            error_message=message,
            provider_status=provider_status,
        )

    @classmethod
    def canceled(
        cls, message: str = "cancelled at the provider", *, provider_status: str | None = None
    ) -> QueryResult:
        """Say that the job was cancelled at the provider."""
        return cls(verdict=Verdict.CANCELED, error_message=message, provider_status=provider_status)

    @classmethod
    def unlisted(cls, word: str, *, retry_after: timedelta | None = None) -> QueryResult:
        """Say that the provider answered with a status word that the handler does not know."""
        return cls(
            verdict=Verdict.UNLISTED,
            provider_status=word,
            error_message=f"the provider answered with the unlisted status {word!r}",
            retry_after=retry_after,
        )

    @classmethod
    def not_found(
        cls, message: str = "the provider has no such job", *, code: str | None = None
    ) -> QueryResult:
        """Say that the provider knows no such job."""
        return cls(verdict=Verdict.NOT_FOUND, error_code=code, error_message=message)

    @classmethod
    def incomplete(
        cls,
        message: str = "the provider says done and gives no result",
        *,
        provider_status: str | None = None,
    ) -> QueryResult:
        """Say that the job is said to be done, but its result is missing."""
        return cls(verdict=Verdict.INCOMPLETE, error_message=message, provider_status=provider_status)


_new_query_result = constructor(QueryResult)
