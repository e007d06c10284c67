"""The model: one tracked job and the parts that it is made of.

Everything here is immutable data. A status changes only in `coatcheck.lifecycle`; the store alone
stamps times. Times are aware UTC `datetime` in whole milliseconds, durations are `timedelta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import uuid_utils
from attrs import field, frozen

from coatcheck.errors import InvalidParams

__all__ = [
    "JSON",
    "LONGEST",
    "Attempt",
    "CancelOutcome",
    "ErrorCode",
    "Identity",
    "Lease",
    "Outcome",
    "Progress",
    "QueryParams",
    "Rank",
    "Route",
    "Schedule",
    "Status",
    "Task",
    "TaskDraft",
    "TaskError",
    "Transition",
    "as_millis",
    "from_millis",
    "millis",
    "new_task_id",
]

if TYPE_CHECKING:
    JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
    """A JSON value: what the store can hold. Treat what a task gives you as read-only."""
else:
    JSON = object  # a name that refers to itself cannot be resolved where params classes use it

_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NOTHING = timedelta()
_INSTANTS = 4096
"""How many instants are remembered; the tasks of one batch share most of theirs."""

LONGEST = timedelta(days=36_500)
"""No duration that a caller gives may be longer; far enough from the end of the calendar."""


def new_task_id() -> str:
    """Return a new UUIDv7 string; later ones sort after earlier ones."""
    return str(uuid_utils.uuid7())


@lru_cache(maxsize=_INSTANTS)
def as_millis(at: datetime) -> int:
    """Return whole milliseconds since 1970, rounded down."""
    return (at - _EPOCH) // _MILLISECOND


@lru_cache(maxsize=_INSTANTS)
def from_millis(value: int) -> datetime:
    """Return the instant that is `value` milliseconds after 1970."""
    return _EPOCH + value * _MILLISECOND


def millis(duration: timedelta) -> int:
    """Return whole milliseconds, rounded up, so that no wait or window comes out shorter than asked."""
    return (duration.days * 86_400 + duration.seconds) * 1000 - -duration.microseconds // 1000


class Status(StrEnum):
    """Where a task stands. `coatcheck.lifecycle` has the arrows between them."""

    terminal: bool
    "Whether a task in this status is at its end (some ends can be resolved by a person)."
    queryable: bool
    "Whether the provider is asked about a task in this status."
    active: bool
    "Whether a task in this status occupies the slots of its gates."

    PENDING_SUBMIT = "PENDING_SUBMIT"
    "Saved, and waiting for its turn, its gates or its time."
    SUBMITTING = "SUBMITTING"
    "Claimed by a worker that submits it, or is about to."
    SUBMITTED = "SUBMITTED"
    "The provider has accepted it and not begun."
    RUNNING = "RUNNING"
    "The provider works on it."
    SUCCEEDED = "SUCCEEDED"
    "The result is here."
    FAILED = "FAILED"
    "The provider, or the rules, ended it; the error says why."
    CANCELED = "CANCELED"
    "Cancelled; `outcome.remote_cancel` says what the provider was told."
    TRACKING_TIMED_OUT = "TRACKING_TIMED_OUT"
    "Its deadline passed; the remote job may still run and be charged."
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    "Nobody can tell whether the provider has created the job; a person resolves it."


_ENDS = frozenset(
    {Status.SUCCEEDED, Status.FAILED, Status.CANCELED, Status.TRACKING_TIMED_OUT, Status.SUBMIT_UNKNOWN}
)
# attributes rather than properties: they are asked for dozens of times in a task's life
for _status in Status:
    _status.terminal = _status in _ENDS
    _status.queryable = _status in (Status.SUBMITTED, Status.RUNNING)
    _status.active = _status in (Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING)


class CancelOutcome(StrEnum):
    """What came of telling the provider to cancel."""

    CONFIRMED = "CONFIRMED"
    "The provider says that the job is cancelled."
    REFUSED = "REFUSED"
    "The provider answered that it will not, or cannot any more."
    UNKNOWN = "UNKNOWN"
    "The call failed or stayed unanswered."
    UNSUPPORTED = "UNSUPPORTED"
    "The handler has no cancel, or no worker with the handler was there; the job may run on and be charged."


class ErrorCode(StrEnum):
    """The words that coatcheck itself puts into `TaskError.code`."""

    INVALID_PARAMS = "invalid_params"
    "The handler could not build a request from the params."
    SUBMIT_DEFERRED = "submit_deferred"
    "The last attempt certainly created nothing; it will be tried again."
    SUBMIT_REJECTED = "submit_rejected"
    "The provider refused the job."
    SUBMIT_UNKNOWN = "submit_unknown"
    "A creating request was sent, or may have been, and its answer was lost."
    PROVIDER_FAILED = "provider_failed"
    "The provider says that the job failed."
    PROVIDER_CANCELED = "provider_canceled"
    "The provider says that the job was cancelled there."
    PROVIDER_LOST = "provider_lost"
    "The provider says that it has no such job, long after it accepted it."
    RESULT_MISSING = "result_missing"
    "The provider says done, again and again, and gives no result."
    STATUS_UNLISTED = "status_unlisted"
    "The provider answered with a status word that the handler does not know."
    QUERY_FAILED = "query_failed"
    "Querying failed more often than the retry policy allows."
    DEADLINE_PASSED = "deadline_passed"
    "The tracking timeout ran out."
    CANCELED = "canceled"
    "The caller cancelled it."
    WORKER_KILLED = "worker_killed"
    "Worker after worker died holding this task."
    HANDLER_ERROR = "handler_error"
    "The handler raised something unexpected, or returned something impossible."
    ABANDONED = "abandoned"
    "A person gave it up."


@frozen(kw_only=True)
class QueryParams:
    """What a handler needs to query a job: the provider's id, and an opaque JSON object of its own."""

    external_task_id: str
    """The provider's id of the job; never blank."""
    provider_params: Mapping[str, JSON] = field(factory=dict)
    """Whatever else the query needs, owned by the handler, such as a region or an absolute URL; no secrets."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""

    def __attrs_post_init__(self) -> None:
        """Refuse a blank id."""
        if not isinstance(self.external_task_id, str) or not self.external_task_id.strip():
            message = (
                f"external_task_id must be the provider's id of the job, a non-blank string, "
                f"not {self.external_task_id!r}"
            )
            raise InvalidParams(message)

    def read(self, name: str, kind: type[_T]) -> _T:
        """Return provider param `name`, checked to be of `kind`; raise `InvalidParams` naming what is wrong."""
        if name not in self.provider_params:
            known = ", ".join(sorted(self.provider_params)) or "none"
            message = f"query params of {self.external_task_id!r} have no {name!r}; there are: {known}"
            raise InvalidParams(message)
        value = self.provider_params[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            message = f"query param {name!r} of {self.external_task_id!r} is {value!r}, not {kind.__name__}"
            raise InvalidParams(message)
        return value

    def evolve(self, **provider_params: JSON) -> QueryParams:
        """Return query params of the same job with these provider params added or replaced."""
        return QueryParams(
            external_task_id=self.external_task_id,
            provider_params={**self.provider_params, **provider_params},
            extra_json=self.extra_json,
        )


@frozen(kw_only=True)
class TaskError:
    """Why a task ended, or what went wrong last."""

    code: str
    """One of `ErrorCode`."""
    message: str
    """What happened, for a person; free of secrets."""
    provider_code: str | None = None
    """The provider's own code, as it gave it."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Route:
    """Where a task goes and which gates it passes. Fixed when it is submitted."""

    handler_key: str
    """The handler that was chosen; never chosen again."""
    provider_key: str
    """The handler's provider, whose limits count."""
    account_id: str | None = None
    """Which credential to use; None is the handler's default account."""
    tenant_id: str | None = None
    """Whose task this is."""
    gates: tuple[str, ...] = ()
    """Names of the gates that must be open to submit it, sorted; it holds a slot of each while it is active."""
    query_gate: str | None = None
    """Name of the gate whose rate and pause its queries obey."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Rank:
    """What the store orders submittable tasks by: (band, scheduled_at - credit, created_at, id), smallest first."""

    band: int = 0
    """Smaller goes first, whatever the times are."""
    credit: timedelta = timedelta()
    """Counts as time already waited."""
    mode: str = "priority"
    """Names how band and credit were made from priorities; one store holds tasks of one mode."""


@frozen(kw_only=True)
class Schedule:
    """When things are to happen. All stamped by the store's clock."""

    priority: int
    """Signed 32-bit; higher goes first."""
    rank: Rank
    """What `priority` comes to in the store's order."""
    created_at: datetime
    """When the task was added."""
    scheduled_at: datetime
    """When it may first be submitted: created plus the delay, or the instant asked for. It keeps its place."""
    due_at: datetime
    """When its next turn is: to be submitted, or queried. Never after `deadline_at`."""
    deadline_at: datetime
    """Created plus the tracking timeout. Past it the task never reaches the provider."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Identity:
    """What makes this submission this one."""

    params_digest: str
    """SHA-256 of the params as canonical JSON; outlives the params."""
    idempotency_key: str
    """What a provider that deduplicates is given; the task id unless the caller chose one. Never changes."""
    dedup_key: str | None = None
    """The caller's key within the tenant; a second submission with it gets this task back."""
    params_version: int = 1
    """The handler's `params_version` when the params were stored."""
    query_params_version: int = 1
    """The handler's `params_version` when the query params were stored."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Lease:
    """One worker's hold on the task. Only who shows the same token and nonce in time may write."""

    worker_id: str
    """Unique per incarnation of a worker."""
    token: int
    """The task's token when it was claimed."""
    nonce: str
    """Random; tells apart two holds that a failover gave the same token."""
    until: datetime
    """When the hold ends unless renewed."""
    granted_at: datetime | None = None
    """When a rate-limited gate granted this turn; None if no rate was involved."""
    started_at: datetime | None = None
    """When the holder declared that the provider call is about to be made; a rescuer's lease takes it over."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Attempt:
    """The last submission that was started. From here on the provider may have the job."""

    token: int
    """The token of the lease under which it was started; late proof names it."""
    worker_id: str
    """Who started it."""
    started_at: datetime
    """When."""
    first_started_at: datetime
    """When the first submission under this idempotency key was started; a deduplication window opens here."""
    open: bool = True
    """Whether what came of it, or of an earlier one under this key, is still unknown."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Progress:
    """What has been done so far, and how far the provider says it is."""

    submit_attempts: int = 0
    """Submissions started."""
    query_count: int = 0
    """Queries answered or failed."""
    consecutive_errors: int = 0
    """Errors since the last good answer."""
    missing_results: int = 0
    """Answers in a row that said done and gave no result."""
    lost_leases: int = 0
    """Leases in a row that ended without an outcome: workers that died with this task in hand."""
    fraction: float | None = None
    """0..1, as the provider reports it."""
    provider_status: str | None = None
    """The provider's own last status word."""
    accepted_at: datetime | None = None
    """When the provider's acceptance was recorded."""
    queried_at: datetime | None = None
    """When the last query was settled."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Outcome:
    """How it ended, or what went wrong last."""

    result: JSON = None
    """What the handler made of the provider's result. Kept, for reference, if the task was cancelled meanwhile."""
    error: TaskError | None = None
    """Why it ended; before that, the last error; cleared by a good answer."""
    finished_at: datetime | None = None
    """When it became terminal."""
    remote_cancel: CancelOutcome | None = None
    """What came of telling the provider; None if nothing had to be told, or not yet."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Transition:
    """One entry of a task's history."""

    at: datetime
    """When it happened last."""
    source: Status | None
    """From; None for the creation."""
    target: Status
    """To."""
    token: int
    """The task's token then."""
    worker_id: str | None = None
    """Which worker, if one was involved."""
    note: str = ""
    """Why, in a few words."""
    count: int = 1
    """How many equal transitions in a row this entry stands for."""
    extra_json: str | None = field(default=None, repr=False)
    """Fields that a newer version stored here, as the text of a JSON object; written back unchanged."""


@frozen(kw_only=True)
class Task:
    """A snapshot of one tracked job. Nothing that is done to it later shows in it."""

    id: str
    """Ours, a UUIDv7; the only id that clients see."""
    status: Status
    """Where it stands."""
    version: int
    """Counts the claims, settles and resolutions; compare-and-set works on it."""
    token: int
    """The fencing token; rises with every claim and resolution."""
    route: Route
    schedule: Schedule
    identity: Identity
    lease: Lease | None = None
    """Who holds it now; None if nobody."""
    attempt: Attempt | None = None
    """The last started submission; None if none was."""
    progress: Progress = Progress()
    outcome: Outcome = Outcome()
    params: JSON = None
    """What was submitted, as JSON; dropped once the provider has accepted."""
    query_params: QueryParams | None = None
    """What the queries need; None before acceptance."""
    metadata: Mapping[str, JSON] = field(factory=dict)
    """The caller's own notes; handlers may read them."""
    cancellation_requested_at: datetime | None = None
    """When cancel() was accepted; from then on it ends in nothing but CANCELED."""
    holds_slots: bool = False
    """Whether it occupies a slot of each of `route.gates`."""
    nudged: bool = False
    """Whether a callback came while it was leased: it will be due at once when the lease is settled."""
    settled_by: str | None = None
    """The nonce of the lease whose outcome was written last; makes a repeated settle succeed."""
    history: tuple[Transition, ...] = ()
    """The last transitions, oldest first, bounded."""
    extra: Mapping[str, JSON] = field(factory=dict)
    """Fields that a newer version stored and this one does not know; written back unchanged."""

    @property
    def result(self) -> JSON:
        """The stored result, as JSON; None before success."""
        return self.outcome.result

    @property
    def error(self) -> TaskError | None:
        """Why it ended, or the last error."""
        return self.outcome.error

    @property
    def external_task_id(self) -> str | None:
        """The provider's id; None before acceptance."""
        return self.query_params.external_task_id if self.query_params else None

    @property
    def submission_started(self) -> bool:
        """Whether a creating request of the present submission may have been sent."""
        started = self.lease is not None and self.lease.started_at is not None
        return self.status is Status.SUBMITTING and started

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier submission, whose outcome nobody knows, is to be sent again under the same key."""
        waits = self.status is Status.PENDING_SUBMIT or self.status is Status.SUBMITTING
        return waits and not self.submission_started and self.attempt is not None and self.attempt.open

    def public(self) -> dict[str, JSON]:
        """Return what a client may see, as JSON: id, status, progress, result, error and times.

        Times are ISO 8601 strings. Nothing of the provider, the account, the lease or the params is in it.
        """
        finished = self.outcome.finished_at
        error = self.outcome.error
        return {
            "id": self.id,
            "status": self.status.value,
            "progress": self.progress.fraction,
            "result": self.outcome.result if self.status is Status.SUCCEEDED else None,
            "error": {"code": error.code, "message": error.message}
            if error and self.status.terminal
            else None,
            "created_at": self.schedule.created_at.isoformat(),
            "deadline_at": self.schedule.deadline_at.isoformat(),
            "finished_at": finished.isoformat() if finished else None,
            "cancellation_requested": self.cancellation_requested_at is not None,
        }


@frozen(kw_only=True)
class TaskDraft:
    """A task on its way into the store, which stamps its times in the same step that adds it."""

    id: str = field(factory=new_task_id)
    route: Route
    identity: Identity
    params: JSON
    tracking_timeout: timedelta
    """Positive; covers delay, queueing and provider time."""
    priority: int = 0
    """Signed 32-bit; higher goes first."""
    rank: Rank = Rank()
    delay: timedelta = timedelta()
    """Not before created plus this."""
    not_before: datetime | None = None
    """Not before this instant of the store's clock."""
    metadata: Mapping[str, JSON] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Refuse what no store could honour."""
        if not _NOTHING < self.tracking_timeout <= LONGEST:
            message = (
                f"tracking_timeout must be positive and at most {LONGEST}, not {self.tracking_timeout!r}"
            )
            raise InvalidParams(message)
        if not _NOTHING <= self.delay <= LONGEST:
            message = f"delay must not be negative, and at most {LONGEST}, not {self.delay!r}"
            raise InvalidParams(message)
        if not -(2**31) <= self.priority < 2**31:
            message = f"priority must fit a signed 32-bit integer, not {self.priority!r}"
            raise InvalidParams(message)
        if self.not_before is not None and self.not_before.tzinfo is None:
            message = f"not_before must be an aware datetime, not {self.not_before!r}; add tzinfo=UTC"
            raise InvalidParams(message)
