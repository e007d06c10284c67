"""What can happen to a task: the events that `coatcheck.lifecycle` turns into transitions.

The worker settles a claim by naming an event; the store applies it to the row as it is then, by its
own clock. So events carry durations, never instants of the caller's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from attrs import frozen

from coatcheck.errors import InvalidParams
from coatcheck.task import JSON, LONGEST, CancelOutcome, QueryParams, Status, TaskError

__all__ = [
    "Abandon",
    "Accepted",
    "Adopt",
    "CancelDone",
    "CancelSeen",
    "Deferred",
    "Event",
    "Extend",
    "Finished",
    "GaveBack",
    "GaveUp",
    "LeftUnknown",
    "Overdue",
    "Proof",
    "QueryErred",
    "Rejected",
    "Resent",
    "Resolution",
    "Resubmit",
    "StillGoing",
]


@frozen(kw_only=True)
class GaveBack:
    """The claim is returned unused: admission postponed it, the worker stops, or the rate grant grew old."""

    delay: timedelta = timedelta()
    """How long until it may be claimed again."""
    note: str = "given back"
    """Why."""


@frozen(kw_only=True)
class CancelSeen:
    """Cancellation was seen before the submission was started."""


@frozen(kw_only=True)
class Overdue:
    """The deadline has passed."""


@frozen(kw_only=True)
class Accepted:
    """The provider has created the job."""

    query_params: QueryParams
    delay: timedelta
    """How long until the first query."""
    status: Status = Status.SUBMITTED
    """SUBMITTED or RUNNING."""
    provider_status: str | None = None
    fraction: float | None = None
    query_params_version: int = 1
    note: str = ""
    """How it is known, if not by the provider's own answer."""


@frozen(kw_only=True)
class Finished:
    """The provider says that the job has ended; from a submit or from a query."""

    status: Status
    """SUCCEEDED, FAILED or CANCELED."""
    result: JSON = None
    error: TaskError | None = None
    query_params: QueryParams | None = None
    """The job's id, if a submit learned it."""
    provider_status: str | None = None


@frozen(kw_only=True)
class Deferred:
    """The submission certainly created nothing and may be tried again."""

    delay: timedelta
    error: TaskError


@frozen(kw_only=True)
class Rejected:
    """The submission certainly created nothing and is not to be tried again."""

    error: TaskError


@frozen(kw_only=True)
class Resent:
    """A started submission was lost inside the provider's idempotency window: send the same key again."""

    delay: timedelta
    error: TaskError
    window: timedelta | None = None
    """How long after its first start the key may be sent again: the store checks it by its own clock, and
    past it the task becomes SUBMIT_UNKNOWN. None leaves the check to the worker."""


@frozen(kw_only=True)
class LeftUnknown:
    """A started submission came to an end that nobody knows."""

    error: TaskError


@frozen(kw_only=True)
class StillGoing:
    """A query says that the job goes on."""

    delay: timedelta
    """How long until the next query."""
    status: Status = Status.RUNNING
    next_params: QueryParams | None = None
    provider_status: str | None = None
    fraction: float | None = None
    query_params_version: int | None = None
    """The version that `next_params` has; None if they are not replaced."""


@frozen(kw_only=True)
class QueryErred:
    """A query did not answer; the job is asked again."""

    delay: timedelta
    error: TaskError
    provider_status: str | None = None
    result_missing: bool = False
    """Whether the answer was that it is done, without a result."""


@frozen(kw_only=True)
class GaveUp:
    """The rules say that asking on is of no use."""

    error: TaskError


@frozen(kw_only=True)
class CancelDone:
    """The provider was told to cancel, or could not be."""

    remote_cancel: CancelOutcome
    note: str = ""
    """What the provider said."""


Event: TypeAlias = (
    GaveBack
    | CancelSeen
    | Overdue
    | Accepted
    | Finished
    | Deferred
    | Rejected
    | Resent
    | LeftUnknown
    | StillGoing
    | QueryErred
    | GaveUp
    | CancelDone
)
"""What a worker can settle a claim with."""


@frozen(kw_only=True)
class Proof:
    """Late evidence of what a started submission came to, or of a remote cancel after the end."""

    event: Accepted | Finished
    remote_cancel: CancelOutcome | None = None
    """What came of telling the provider to cancel a job that turned up after the task was CANCELED."""
    worker_id: str | None = None


def _check_timeout(timeout: timedelta | None) -> None:
    if timeout is not None and not timedelta() < timeout <= LONGEST:
        message = f"tracking_timeout must be positive and at most {LONGEST}, not {timeout!r}"
        raise InvalidParams(message)


@frozen(kw_only=True)
class Adopt:
    """The job exists under this id: track it."""

    query_params: QueryParams
    tracking_timeout: timedelta | None = None
    """From now; None keeps the deadline, or, if it has passed, grants the original timeout again."""
    query_params_version: int = 1
    who: str | None = None
    note: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a timeout that has no future."""
        _check_timeout(self.tracking_timeout)


@frozen(kw_only=True)
class Resubmit:
    """A person says that sending it again is right; the idempotency key stays."""

    tracking_timeout: timedelta
    who: str | None = None
    note: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a timeout that has no future."""
        _check_timeout(self.tracking_timeout)


@frozen(kw_only=True)
class Abandon:
    """A person gives it up."""

    who: str | None = None
    note: str = ""


@frozen(kw_only=True)
class Extend:
    """A person grants a timed-out task more time."""

    tracking_timeout: timedelta
    who: str | None = None
    note: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a timeout that has no future."""
        _check_timeout(self.tracking_timeout)


Resolution: TypeAlias = Adopt | Resubmit | Abandon | Extend
"""What a person can decide about a task that ended in doubt."""
