"""What a worker may report about a call: the events with which rules settle their claims."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from coatcheck.events import (
    Accepted,
    CancelDone,
    Deferred,
    Finished,
    GaveUp,
    LeftUnknown,
    Rejected,
    StillGoing,
)
from coatcheck.task import JSON, CancelOutcome, ErrorCode, QueryParams, Status, TaskError, new_task_id

__all__ = [
    "accepted",
    "cancel_done",
    "deferred",
    "failed",
    "gave_up",
    "going",
    "params_of",
    "rejected",
    "succeeded",
    "unknown",
]

_NOW = timedelta()


def params_of(
    external_id: str | None = None, provider_params: Mapping[str, JSON] | None = None
) -> QueryParams:
    """Return query params with `external_id`, or with an id that is nobody else's."""
    return QueryParams(
        external_task_id=external_id or f"remote-{new_task_id()}", provider_params=dict(provider_params or {})
    )


def accepted(
    external_id: str | None = None,
    *,
    delay: timedelta = _NOW,
    status: Status = Status.SUBMITTED,
    provider_params: Mapping[str, JSON] | None = None,
    provider_status: str | None = None,
) -> Accepted:
    """Return: the provider has created the job; first query after `delay`."""
    return Accepted(
        query_params=params_of(external_id, provider_params),
        delay=delay,
        status=status,
        provider_status=provider_status,
    )


def succeeded(result: JSON = "done") -> Finished:
    """Return: the job is done, with this result."""
    return Finished(status=Status.SUCCEEDED, result=result)


def failed(message: str = "the provider could not read the file") -> Finished:
    """Return: the job failed at the provider."""
    return Finished(status=Status.FAILED, error=TaskError(code=ErrorCode.PROVIDER_FAILED, message=message))


def rejected(message: str = "the provider does not take such files") -> Rejected:
    """Return: not created, and never will be."""
    return Rejected(error=TaskError(code=ErrorCode.SUBMIT_REJECTED, message=message))


def deferred(delay: timedelta = _NOW) -> Deferred:
    """Return: certainly not created; again after `delay`."""
    return Deferred(
        delay=delay, error=TaskError(code=ErrorCode.SUBMIT_DEFERRED, message="connection refused")
    )


def unknown() -> LeftUnknown:
    """Return: nobody knows whether the job was created."""
    return LeftUnknown(error=TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="the answer was lost"))


def going(delay: timedelta = _NOW, *, status: Status = Status.RUNNING) -> StillGoing:
    """Return: the provider is still at it; next query after `delay`."""
    return StillGoing(delay=delay, status=status)


def gave_up() -> GaveUp:
    """Return: querying on is of no use."""
    return GaveUp(error=TaskError(code=ErrorCode.QUERY_FAILED, message="the provider answers nonsense"))


def cancel_done(outcome: CancelOutcome = CancelOutcome.CONFIRMED) -> CancelDone:
    """Return: the provider was told to cancel."""
    return CancelDone(remote_cancel=outcome)
