"""Telling whether two stores hold the same, apart from what may differ: random nonces, and each one's own time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coatcheck.codec import encode_task
from coatcheck.task import Task

__all__ = ["view"]

_RANDOM = frozenset({"nonce", "settled_by"})
_TIMES = frozenset(
    {
        "accepted_at", "at", "cancellation_requested_at", "created_at", "deadline_at", "due_at", "finished_at",
        "first_started_at", "granted_at", "queried_at", "scheduled_at", "started_at", "until",
    }
)  # fmt: skip
_OPAQUE = frozenset({"params", "metadata", "result", "provider_params"})


def view(answer: object, *, timed: bool) -> object:
    """Return what has to be equal in two stores: of a task everything, of an error its kind.

    With `timed` the stores share a clock, and times are compared; without, only whether there are any.
    """
    if isinstance(answer, Task):
        masked = _RANDOM if timed else _RANDOM | _TIMES
        return _masked(encode_task(answer), masked)
    if isinstance(answer, BaseException):
        return type(answer).__name__
    if isinstance(answer, list):
        return [view(each, timed=timed) for each in answer]
    return answer


def _masked(value: Any, masked: frozenset[str]) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, Mapping):
        return {
            key: "..." if key in masked else each if key in _OPAQUE else _masked(each, masked)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_masked(each, masked) for each in value]
    return value
