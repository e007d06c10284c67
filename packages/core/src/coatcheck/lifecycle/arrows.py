"""The table of arrows: every move that a task can make, as data."""

from __future__ import annotations

from attrs import frozen

from coatcheck.task import (
    Status,
)

__all__ = ["ALLOWED", "ARROWS", "Arrow"]


@frozen
class Arrow:
    """One row of the lifecycle table."""

    source: Status | None
    """From; None is before the task exists."""
    event: str
    """What happens: the name of the class in `coatcheck.events`, or of the store's step."""
    target: Status
    """To."""
    text: str
    """The condition, for a reader."""


_NONE: tuple[None] = (None,)
_PENDING = (Status.PENDING_SUBMIT,)
_SUBMITTING = (Status.SUBMITTING,)
_TRACKED = (Status.SUBMITTED, Status.RUNNING)


def _arrows(
    sources: tuple[Status, ...] | tuple[None], event: str, targets: tuple[Status, ...], text: str
) -> tuple[Arrow, ...]:
    return tuple(Arrow(source, event, target, text) for source in sources for target in targets)


ARROWS: tuple[Arrow, ...] = (
    *_arrows(_NONE, "created", _PENDING, "manager.submit saved it"),
    *_arrows(_PENDING, "claimed", _SUBMITTING, "claimed for submission"),
    *_arrows(_PENDING, "cancellation", (Status.CANCELED,), "cancellation accepted, at once"),
    *_arrows(_PENDING, "Overdue", (Status.TRACKING_TIMED_OUT,), "the deadline passed"),
    *_arrows(_SUBMITTING, "GaveBack", _PENDING, "not started: postponed by admission, or the worker stops"),
    *_arrows(_SUBMITTING, "lease ended", _PENDING, "not started, and its worker is gone"),
    *_arrows(_SUBMITTING, "CancelSeen", (Status.CANCELED,), "not started, cancellation seen at start"),
    *_arrows(_SUBMITTING, "Overdue", (Status.TRACKING_TIMED_OUT,), "not started, deadline seen at start"),
    *_arrows(_SUBMITTING, "Accepted", _TRACKED, "the provider accepted it"),
    *_arrows(
        _SUBMITTING,
        "Finished",
        (Status.SUCCEEDED, Status.FAILED, Status.CANCELED),
        "the provider finished it at once",
    ),
    *_arrows(_SUBMITTING, "Deferred", _PENDING, "certainly not created, may try again"),
    *_arrows(_SUBMITTING, "Rejected", (Status.FAILED,), "certainly not created, final"),
    *_arrows(_SUBMITTING, "Resent", _PENDING, "started and lost inside the idempotency window; same key"),
    *_arrows(_SUBMITTING, "Resent", (Status.SUBMIT_UNKNOWN,), "the idempotency window has closed by then"),
    *_arrows(
        _SUBMITTING, "LeftUnknown", (Status.SUBMIT_UNKNOWN,), "started, and nobody knows what came of it"
    ),
    *_arrows(_TRACKED, "StillGoing", _TRACKED, "a query says still going"),
    *_arrows(
        _TRACKED,
        "Finished",
        (Status.SUCCEEDED, Status.FAILED, Status.CANCELED),
        "a query says that it ended",
    ),
    *_arrows(_TRACKED, "GaveUp", (Status.FAILED,), "query errors beyond the retry policy"),
    *_arrows(
        _TRACKED, "CancelDone", (Status.CANCELED,), "cancellation accepted, the provider told if it can be"
    ),
    *_arrows(_TRACKED, "Overdue", (Status.TRACKING_TIMED_OUT,), "the deadline passed"),
    *_arrows((Status.SUBMIT_UNKNOWN,), "Adopt", (Status.SUBMITTED,), "a person found the job"),
    *_arrows((Status.SUBMIT_UNKNOWN,), "Resubmit", _PENDING, "a person says to send it again"),
    *_arrows((Status.SUBMIT_UNKNOWN,), "Abandon", (Status.FAILED,), "a person gives it up"),
    *_arrows(
        (*_PENDING, *_SUBMITTING, Status.SUBMIT_UNKNOWN),
        "attested",
        (Status.SUBMITTED, Status.RUNNING, Status.SUCCEEDED, Status.FAILED, Status.CANCELED),
        "late proof of what the started submission came to",
    ),
    *_arrows((Status.TRACKING_TIMED_OUT,), "Adopt", (Status.SUBMITTED,), "a person found the job"),
    *_arrows((Status.TRACKING_TIMED_OUT,), "Extend", (Status.SUBMITTED,), "more time, and the job is known"),
    *_arrows((Status.TRACKING_TIMED_OUT,), "Extend", _PENDING, "more time, and it was never started"),
    *_arrows((Status.TRACKING_TIMED_OUT,), "Abandon", (Status.FAILED,), "a person gives it up"),
    *_arrows(
        (*_SUBMITTING, *_TRACKED),
        "settled while flagged",
        (Status.CANCELED,),
        "what would have ended or gone back to the queue was cancelled meanwhile",
    ),
)
"""Every arrow there is."""

ALLOWED = frozenset((arrow.source, arrow.event, arrow.target) for arrow in ARROWS)
