"""What came of a submission, as far as it tells something about the provider."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto

from coatcheck import TaskChange
from coatcheck.task import Status

__all__ = ["Answer", "answer_of", "settled_at", "started_at"]


class Answer(Enum):
    """What a provider did with a submission."""

    GOOD = auto()
    "It took the job."
    BAD = auto()
    "It was out of reach, in error, or gave no answer that anybody saw."
    SLOW_DOWN = auto()
    "It asked for fewer requests: 429."


def answer_of(change: TaskChange) -> Answer | None:
    """Return what a provider did with a started submission; None if the change tells nothing about it.

    A job that was refused for what is in it, or for a key, a balance or a quota, says nothing about how the provider
    is doing, and neither does a call that was never made, or one whose worker died.
    """
    if started_at(change) is None:
        return None
    if change.event in {"Accepted", "Finished"}:
        return Answer.GOOD
    if change.event in {"LeftUnknown", "Resent"}:
        return None if _is_rescued(change) else Answer.BAD
    if change.event != "Deferred" or not change.blames_provider:
        return None
    return Answer.SLOW_DOWN if change.rate_limited else Answer.BAD


def _is_rescued(change: TaskChange) -> bool:
    """Whether the worker that made the call is gone, and another one decided: a rollout is no outage."""
    before = change.before
    if before is None or before.attempt is None or before.lease is None:
        return False
    return before.attempt.worker_id != before.lease.worker_id


def started_at(change: TaskChange) -> datetime | None:
    """Return when the submission that came to an end was started; None if none was."""
    before = change.before
    if before is None or before.status is not Status.SUBMITTING or before.lease is None:
        return None
    return before.lease.started_at


def settled_at(changes: Sequence[TaskChange]) -> datetime | None:
    """Return when the last of these was committed, by the store's clock; None if they do not tell."""
    return max((change.after.history[-1].at for change in changes if change.after.history), default=None)
