"""What a provider call means: pure functions from a call's answer or error to the event to settle with."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import cast

from attrs import frozen

from coatcheck import codec
from coatcheck.errors import (
    HandlerError,
    InvalidParams,
    LeaseLost,
    NotPersistable,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
    UnknownAccount,
)
from coatcheck.events import (
    Accepted,
    CancelDone,
    Deferred,
    Event,
    Finished,
    GaveBack,
    GaveUp,
    LeftUnknown,
    QueryErred,
    Rejected,
    Resent,
    StillGoing,
)
from coatcheck.evolving import constructor, evolve
from coatcheck.handler import AnyHandler
from coatcheck.results import QueryResult, SubmitResult, Verdict
from coatcheck.retry import ExponentialRetry, RetryPolicy
from coatcheck.task import JSON, ErrorCode, QueryParams, Status, Task, TaskError

__all__ = ["Judge", "describe"]

logger = logging.getLogger("coatcheck.worker")

MAX_MISSING_RESULTS = 5
"""Answers "done" without a result, in a row, after which the task is FAILED by name."""
MAX_RESENDS = 5
"""Submissions of one task inside an idempotency window."""
MESSAGE_LIMIT = 2000
"""Characters of an error message that are kept."""
_FALLBACK = ExponentialRetry()
_NO_HINT = QueryResult.running()
_new_accepted, _new_finished = constructor(Accepted), constructor(Finished)
_new_still_going = constructor(StillGoing)


def describe(error: BaseException) -> str:
    """Return what an error says, with its type where the message does not tell."""
    if isinstance(error, HandlerError):
        return str(error)
    if isinstance(error, TimeoutError) and not str(error):
        return "the call took longer than its timeout"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _provider_code(error: BaseException) -> str | None:
    code = getattr(error, "code", None)
    return None if code is None else str(code)


def _clean(message: object) -> str:
    """Return `message` as text that every store can hold, and not longer than a person reads.

    Handlers give what the provider gave: a code may be a number, and a text no text at all.
    """
    text = str(message).encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:MESSAGE_LIMIT]}..."


def _word(provider_status: str | None) -> str | None:
    """Return the provider's status word as text that every store can hold."""
    return None if provider_status is None else _clean(provider_status)


def _task_error(code: ErrorCode, message: str, provider_code: str | None = None) -> TaskError:
    return TaskError(
        code=code,
        message=_clean(message),
        provider_code=None if provider_code is None else _clean(provider_code),
    )


@frozen(kw_only=True)
class Judge:
    """Turns answers of one handler into events. Broken policies are replaced by the default, and named."""

    handler: AnyHandler
    retry: RetryPolicy
    call_timeout: timedelta

    def _policy(self) -> RetryPolicy:
        return self.handler.retry or self.retry

    def _delay_or(self, ask: str, task: Task, argument: object) -> timedelta | None:
        try:
            found = _delay(ask, getattr(self._policy(), ask)(task, argument))
        except Exception:
            logger.exception("retry policy %r failed; the default takes its place", self._policy())
            found = cast("timedelta | None", getattr(_FALLBACK, ask)(task, argument))
        floor = self.handler.poll_floor
        if floor is None or found is None or ask == "next_submit_delay":
            return found
        return max(found, floor)

    # -------------------------------------------------------------- submissions

    def submit_answer(self, task: Task, answer: object, result: JSON) -> Event:
        """Judge what `submit` or `find_submission` returned; `result` is its result as JSON."""
        if not isinstance(answer, SubmitResult):
            message = f"handler {self.handler.key!r} answered a submit with {answer!r}, not a SubmitResult"
            return LeftUnknown(error=_task_error(ErrorCode.SUBMIT_UNKNOWN, message))
        if answer.status.queryable and answer.query_params is not None:
            before = evolve(task, query_params=answer.query_params)
            hint = QueryResult.running(retry_after=answer.retry_after) if answer.retry_after else _NO_HINT
            return _new_accepted(
                query_params=answer.query_params,
                query_params_version=self.handler.params_version,
                status=answer.status,
                delay=self._delay_or("next_query_delay", before, hint) or timedelta(),
                provider_status=_word(answer.provider_status),
                fraction=answer.progress,
            )
        return _new_finished(
            status=answer.status,
            result=result,
            error=_end_error(answer.status, answer.error_code, answer.error_message),
            query_params=answer.query_params,
            provider_status=_word(answer.provider_status),
        )

    def submit_error(
        self, task: Task, error: BaseException, *, reached_handler: bool, on_wire: bool
    ) -> Event | None:
        """Judge an error of `submit`; None if it leaves the outcome unknown.

        Certain are what the handler says is certain; whatever came before the handler was called, or, for one
        that marks where the wire begins, before that; an unknown account; and a lost lease seen in time.
        """
        message, code = describe(error), _provider_code(error)
        if isinstance(error, SubmitRejected):
            return Rejected(error=_task_error(ErrorCode.SUBMIT_REJECTED, message, code))
        if isinstance(error, SubmitDeferred):
            return self.deferred(task, error)
        if on_wire:
            return None
        unsent = self.handler.marks_wire or not reached_handler
        if unsent and isinstance(error, InvalidParams):
            return Rejected(error=_task_error(ErrorCode.INVALID_PARAMS, message))
        if unsent or isinstance(error, (UnknownAccount, LeaseLost)):
            return self.deferred(task, SubmitDeferred(f"nothing was sent: {message}"))
        return None

    def deferred(self, task: Task, error: SubmitDeferred) -> Deferred:
        """Put a submission that certainly created nothing off, by the retry policy."""
        counted = _with_error(task)
        return Deferred(
            delay=self._delay_or("next_submit_delay", counted, error) or timedelta(),
            error=_task_error(ErrorCode.SUBMIT_DEFERRED, describe(error), error.code),
        )

    def unknown(self, task: Task, why: str, now: datetime) -> Event:
        """Judge a started submission of unknown outcome: sent again only if the provider deduplicates."""
        window = self.handler.idempotency_window
        if window is None or task.progress.submit_attempts >= MAX_RESENDS:
            return left_unknown(why)
        delay = self._delay_or("next_submit_delay", _with_error(task), SubmitDeferred(why)) or timedelta()
        if not self.may_send_again(task, now + delay):
            return left_unknown(why)
        error = _task_error(ErrorCode.SUBMIT_UNKNOWN, f"submit outcome unknown: {why}")
        return Resent(delay=delay, error=error, window=window - self.call_timeout)

    def may_send_again(self, task: Task, at: datetime) -> bool:
        """Whether a request sent again at `at` would end while the provider still deduplicates on the key."""
        window, attempt = self.handler.idempotency_window, task.attempt
        if window is None or attempt is None:
            return False
        return at + self.call_timeout < attempt.first_started_at + window

    # -------------------------------------------------------------- queries

    def query_answer(self, task: Task, answer: object, result: JSON, now: datetime) -> Event:
        """Judge what a query returned; `result` is its result as JSON."""
        if not isinstance(answer, QueryResult):
            message = f"handler {self.handler.key!r} answered a query with {answer!r}, not a QueryResult"
            return self.query_error(task, TypeError(message))
        if answer.verdict is Verdict.RUNNING:
            return self._still_going(task, answer)
        if answer.verdict is Verdict.NOT_FOUND:
            return self._not_found(task, answer, now)
        if answer.verdict is Verdict.UNLISTED:
            logger.error(
                "handler %r does not know the provider's status %r (task %s); it is asked again until the deadline",
                self.handler.key,
                answer.provider_status,
                task.id,
            )
            return self._erred(task, answer, ErrorCode.STATUS_UNLISTED)
        if answer.verdict is Verdict.INCOMPLETE:
            return self._incomplete(task, answer)
        succeeded = answer.verdict is Verdict.SUCCEEDED
        status = Status.SUCCEEDED if succeeded else Status(answer.verdict.value)
        return _new_finished(
            status=status,
            result=result if succeeded else None,
            error=_end_error(status, answer.error_code, answer.error_message),
            provider_status=_word(answer.provider_status),
        )

    def query_error(self, task: Task, error: BaseException) -> Event:
        """Judge an error of a query: asked again, until the retry policy gives up."""
        if isinstance(error, LeaseLost):
            return GaveBack(note="the claim was given up before the query was sent")
        problem = _task_error(ErrorCode.QUERY_FAILED, describe(error), _provider_code(error))
        delay = self._delay_or("next_error_delay", _with_error(task), error)
        if delay is None:
            return GaveUp(error=problem)
        return QueryErred(delay=delay, error=problem)

    def _still_going(self, task: Task, answer: QueryResult) -> StillGoing:
        counted = evolve(
            task,
            progress=evolve(task.progress, query_count=task.progress.query_count + 1, consecutive_errors=0),
        )
        return _new_still_going(
            delay=self._delay_or("next_query_delay", counted, answer) or timedelta(),
            status=answer.status,
            next_params=answer.next_params,
            query_params_version=self.handler.params_version if answer.next_params else None,
            provider_status=_word(answer.provider_status),
            fraction=answer.progress,
        )

    def _not_found(self, task: Task, answer: QueryResult, now: datetime) -> Event:
        accepted_at = task.progress.accepted_at or now
        if now - accepted_at < self.handler.not_found_grace:
            status = task.status if task.status.queryable else Status.SUBMITTED
            return self._still_going(task, evolve(answer, verdict=Verdict.RUNNING, status=status))
        message = answer.error_message or "the provider has no such job"
        waited = (now - accepted_at).total_seconds()
        return GaveUp(
            error=_task_error(
                ErrorCode.PROVIDER_LOST,
                f"{message}, {waited:.0f} s after it accepted {task.external_task_id!r}",
                answer.error_code,
            )
        )

    def _incomplete(self, task: Task, answer: QueryResult) -> Event:
        if task.progress.missing_results + 1 >= MAX_MISSING_RESULTS:
            message = f"{answer.error_message}, {MAX_MISSING_RESULTS} times in a row"
            return GaveUp(error=_task_error(ErrorCode.RESULT_MISSING, message, answer.error_code))
        event = self._erred(task, answer, ErrorCode.RESULT_MISSING)
        return evolve(event, result_missing=True) if isinstance(event, QueryErred) else event

    def _erred(self, task: Task, answer: QueryResult, code: ErrorCode) -> Event:
        message = answer.error_message or str(code)
        problem = QueryFailed(message, code=answer.error_code, retry_after=answer.retry_after)
        error = _task_error(code, message, answer.error_code)
        delay = self._delay_or("next_error_delay", _with_error(task), problem)
        if delay is None:
            return GaveUp(error=error)
        return QueryErred(delay=delay, error=error, provider_status=_word(answer.provider_status))


def _delay(ask: str, answer: object) -> timedelta | None:
    """Return what a policy answered if it is a delay; None gives up, but only after an error."""
    if isinstance(answer, timedelta) or (answer is None and ask == "next_error_delay"):
        return answer
    message = f"{ask} returned {answer!r}, which is no timedelta"
    raise TypeError(message)


def left_unknown(why: str) -> LeftUnknown:
    """Say that nobody knows whether the provider has the job."""
    message = (
        f"submit outcome unknown: {why}; the provider may have created the job. Look it up there, "
        "then adopt it by its id, resubmit it, or abandon it"
    )
    return LeftUnknown(error=_task_error(ErrorCode.SUBMIT_UNKNOWN, message))


def unstorable(event: Event, error: NotPersistable) -> Event:
    """Return what to settle instead of an outcome that no store can hold. A job's id is kept."""
    message = f"the handler's answer cannot be stored: {error}"
    problem = _task_error(ErrorCode.HANDLER_ERROR, message)
    if isinstance(event, Accepted):
        return left_unknown(f"{message}; the provider's id is {event.query_params.external_task_id!r}")
    if isinstance(event, Finished):
        return Finished(
            status=Status.FAILED,
            error=problem,
            provider_status=event.provider_status,
            query_params=_storable(event.query_params),
        )
    if isinstance(event, StillGoing):
        return QueryErred(delay=event.delay, error=problem)
    if isinstance(event, (GaveBack, CancelDone)):
        return evolve(event, note=_clean(event.note))
    return event


def _storable(params: QueryParams | None) -> QueryParams | None:
    """Return the query params if they can be stored; they may be what cannot."""
    if params is None:
        return None
    try:
        codec.dumps([params.external_task_id, params.provider_params])
    except NotPersistable:
        return None
    return params


def _with_error(task: Task) -> Task:
    """Return the task with this attempt's error already counted, as policies expect it."""
    return evolve(
        task,
        progress=evolve(task.progress, consecutive_errors=task.progress.consecutive_errors + 1),
    )


def _end_error(status: Status, code: str | None, message: str | None) -> TaskError | None:
    if status is Status.FAILED:
        return _task_error(ErrorCode.PROVIDER_FAILED, message or "the provider says that it failed", code)
    if status is Status.CANCELED:
        return _task_error(ErrorCode.PROVIDER_CANCELED, message or "cancelled at the provider", code)
    return None
