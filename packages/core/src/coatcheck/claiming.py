"""Claiming what is due, as far as there is room, and deciding what is to be done with each claim."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta

from attrs import frozen

from coatcheck.calling import Caller
from coatcheck.calls import Call, Purpose
from coatcheck.errors import ConfigurationError, SubmitDeferred
from coatcheck.events import CancelSeen, GaveBack, GaveUp, Overdue, Rejected
from coatcheck.gates import Admission, AdmissionPolicy, Admit, Postpone
from coatcheck.handler import Capability
from coatcheck.settling import Settler
from coatcheck.store import Claims, Refusal, Refused, Store
from coatcheck.task import ErrorCode, Status, Task, TaskError
from coatcheck.verdicts import describe, left_unknown

__all__ = ["Claimer", "WorkerSettings"]

logger = logging.getLogger("coatcheck.worker")

CLAIM_LIMIT = 200
"""Tasks of one claim at most; less while rate grants grow old before their calls start."""
ADMIT_TIMEOUT_SECONDS = 5.0
POSTPONE_AFTER_ERROR = timedelta(seconds=5)


@frozen(kw_only=True)
class WorkerSettings:
    """How one worker works."""

    submissions: int = 50
    """Submit calls at once."""
    queries: int = 200
    """Queries at once; a budget of their own, so that neither starves the other."""
    lease: timedelta = timedelta(seconds=60)
    """How long a claim holds unless renewed; a dead worker's tasks are rescued after it."""
    call_timeout: timedelta = timedelta(seconds=30)
    """How long one handler call may take; below the lease."""
    poll_interval: timedelta = timedelta(seconds=1)
    """How long to wait for work at most before looking again; what a lost notification costs."""
    stop_timeout: timedelta = timedelta(seconds=25)
    """How long calls in flight may go on after `stop`."""
    max_lost_leases: int = 10
    """Workers that may die in a row holding one task before it is stopped."""
    final_query: bool = False
    """Whether an overdue task that the provider has is asked about once more before it is timed out."""
    callback_url: str | None = None
    """Where providers may send callbacks; ``{handler_key}`` in it is replaced."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that cannot work."""
        wrong = {
            "submissions must not be negative": self.submissions < 0,
            "queries must not be negative": self.queries < 0,
            "a worker needs a budget: submissions and queries are both 0": not self.submissions
            and not self.queries,
            "call_timeout must be positive": self.call_timeout <= timedelta(),
            "call_timeout must be below the lease": self.call_timeout >= self.lease,
            "poll_interval must be positive": self.poll_interval <= timedelta(),
            "stop_timeout must not be negative": self.stop_timeout < timedelta(),
            "max_lost_leases must be at least 1": self.max_lost_leases < 1,
        }
        for rule, broken in wrong.items():
            if broken:
                message = f"{rule}: {self!r}"
                raise ConfigurationError(message)


class Claimer:
    """Claims for one worker and begins the calls."""

    def __init__(
        self,
        store: Store,
        caller: Caller,
        settler: Settler,
        *,
        who: str,
        admission: AdmissionPolicy,
        settings: WorkerSettings,
    ) -> None:
        self._store = store
        self._caller = caller
        self._settler = settler
        self._who = who
        self._admission = admission
        self._settings = settings
        self._claim_limit = CLAIM_LIMIT
        self._looked_stale_at = float("-inf")

    async def round(self, keys: Collection[str], *, force_stale: bool = False) -> int:
        """Claim once of each kind and begin the calls; return how many tasks were claimed."""
        keys = tuple(sorted(keys))
        claims = [
            self._take(self._store.claim_submissions, self._begin_submissions, Purpose.SUBMIT, keys),
            self._take(self._store.claim_queries, self._begin_queries, Purpose.QUERY, keys),
        ]
        interval = min(1.0, self._settings.lease.total_seconds() / 4)
        if force_stale or time.monotonic() - self._looked_stale_at > interval:
            self._looked_stale_at = time.monotonic()
            claims.append(self._take(self._store.claim_stale, self._begin_decisions, Purpose.RESCUE, keys))
        results = await asyncio.gather(*claims, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    def _room_for(self, purpose: Purpose) -> int:
        """Return how many calls of this purpose could start at once: never claim more."""
        settings, caller = self._settings, self._caller
        if purpose is Purpose.SUBMIT:
            room = settings.submissions - caller.busy(Purpose.SUBMIT)
        elif purpose is Purpose.QUERY:
            room = settings.queries - caller.busy(Purpose.QUERY)
        else:
            room = max(settings.queries, settings.submissions) - caller.busy(Purpose.RESCUE, Purpose.CANCEL)
        behind = self._settler.backlog - 2 * (settings.submissions + settings.queries)
        return max(0, min(room - max(0, behind), self._claim_limit))

    async def _take(
        self,
        claim: Callable[[str, Sequence[str], int, timedelta], Awaitable[Claims]],
        begin: Callable[[list[Call], Sequence[str]], Awaitable[None]],
        purpose: Purpose,
        keys: Sequence[str],
    ) -> int:
        room = self._room_for(purpose)
        if not room or (not keys and purpose is not Purpose.RESCUE):
            return 0
        asked_at = time.monotonic()
        claims = await claim(self._who, keys, room, self._settings.lease)
        lease = self._settings.lease
        taken = self._caller.hold(claims.tasks, purpose, lease, asked_at)
        if taken:
            await begin(taken, keys)
        return len(taken) or int(claims.again)

    async def _begin_submissions(self, taken: list[Call], _keys: Sequence[str]) -> None:
        self._caller.submit(await self._start(await self._admit(self._stop_killers(taken))))

    async def _begin_queries(self, taken: list[Call], _keys: Sequence[str]) -> None:
        started: list[Call] = []
        waiting: list[Call] = []
        for call in self._stop_killers(taken):
            (started if self._is_started(call) else waiting).append(call)
        self._caller.query(started)
        self._caller.query(await self._start(waiting))

    def _is_started(self, call: Call) -> bool:
        """Whether the claim has started the call, which may be made, and holds for as long as that may take."""
        lease = call.task.lease
        lasts = call.held_until - time.monotonic()
        return (
            not self._caller.stopping
            and lease is not None
            and lease.started_at is not None
            and lasts > self._settings.call_timeout.total_seconds()
        )

    # -------------------------------------------------------------- decisions

    async def _begin_decisions(self, taken: list[Call], keys: Sequence[str]) -> None:
        for call in taken:
            self._decide(call, here=call.handler.key in keys)

    def _decide(self, call: Call, *, here: bool) -> None:
        """Decide about a task that needs a decision rather than a turn."""
        task, caller = call.task, self._caller
        if task.status is Status.SUBMITTING:
            if here and Capability.FIND_SUBMISSION in call.handler.capabilities:
                caller.look_up(call, "its worker is gone")
            elif here:
                caller.leave_unknown(call, "its worker is gone")
            else:
                why = "its worker is gone, and no worker with its handler came"
                caller.finish(call, left_unknown(why))
        elif task.status.queryable and task.cancellation_requested_at is not None:
            caller.cancel(call, here=here)
        elif here and self._wants_final_query(task):
            caller.query([call])
        else:
            caller.finish(call, Overdue())

    def _wants_final_query(self, task: Task) -> bool:
        asked = task.progress.queried_at
        return (
            self._settings.final_query
            and task.status.queryable
            and (asked is None or asked < task.schedule.deadline_at)
        )

    def _stop_killers(self, taken: list[Call]) -> list[Call]:
        """Stop tasks that worker after worker has died with."""
        kept = []
        for call in taken:
            lost = call.task.progress.lost_leases
            if lost < self._settings.max_lost_leases:
                kept.append(call)
                continue
            error = TaskError(
                code=ErrorCode.WORKER_KILLED,
                message=f"{lost} workers in a row died with this task in hand, so it is not tried again",
            )
            submitting = call.task.status is Status.SUBMITTING
            self._caller.finish(call, Rejected(error=error) if submitting else GaveUp(error=error))
        return kept

    # -------------------------------------------------------------- admission, start

    async def _admit(self, taken: list[Call]) -> list[Call]:
        """Ask the admission policy for its last word; cancelled and overdue tasks pass unasked."""
        if type(self._admission).admit is AdmissionPolicy.admit:
            return taken
        asked_at = [call.store_now() for call in taken]
        words = await asyncio.gather(*map(self._ask_admission, taken, asked_at))
        kept = []
        for call, now, word in zip(taken, asked_at, words, strict=True):
            if not isinstance(word, Postpone):
                kept.append(call)
                continue
            # from when it was asked: the settle comes later, so the task is never due before `until`
            delay = max(timedelta(), word.until - now)
            self._caller.finish(call, GaveBack(delay=delay, note=f"postponed: {word.reason}"))
        return kept

    async def _ask_admission(self, call: Call, now: datetime) -> Admission:
        try:
            async with asyncio.timeout(ADMIT_TIMEOUT_SECONDS):
                return _checked(await self._admission.admit(call.task, now))
        except Exception as error:
            logger.exception("admission policy %r failed on task %s", self._admission, call.task.id)
            return Postpone(
                until=now + POSTPONE_AFTER_ERROR,
                reason=f"the admission policy failed: {describe(error)}",
            )

    async def _start(self, taken: list[Call]) -> list[Call]:
        """Declare the calls to the store; return those that may be made."""
        if self._caller.stopping:
            for call in taken:
                self._caller.finish(call, GaveBack(note="the worker stops"))
            return []
        if not taken:
            return []
        asked_at = time.monotonic()
        try:
            answers = await self._store.start([call.task for call in taken], self._settings.lease)
        except BaseException as error:
            # whether they were started is unknown, so they are not called; that alone is certain
            for call in taken:
                self._give_up(call, error)
            raise
        started, aged = [], 0
        for call, answer in zip(taken, answers, strict=True):
            if isinstance(answer, Refused):
                call.task = answer.task
                aged += answer.reason is Refusal.GRANT_AGED
                self._refused(call, answer)
                continue
            call.leased(answer.task, self._settings.lease, asked_at)
            started.append(call)
        self._adapt(aged, len(taken))
        return started

    def _give_up(self, call: Call, error: BaseException) -> None:
        """Return a claim whose start was not acknowledged: the provider was not called."""
        call.lose()
        if call.task.status is Status.SUBMITTING:
            problem = SubmitDeferred(
                f"nothing was sent: the store did not answer to start: {describe(error)}"
            )
            self._caller.finish(call, self._caller.judge(call).deferred(call.task, problem))
        else:
            self._caller.finish(call, GaveBack(note="the store did not answer to start"))

    def _adapt(self, aged: int, of: int) -> None:
        """Claim less at once when rate grants grow old before their calls, and more again when not."""
        if aged:
            self._claim_limit = max(1, min(self._claim_limit, of) // 2)
        elif self._claim_limit < CLAIM_LIMIT:
            self._claim_limit = min(CLAIM_LIMIT, self._claim_limit + max(1, self._claim_limit // 4))

    def _refused(self, call: Call, refused: Refused) -> None:
        if refused.reason is Refusal.LEASE_LOST:
            self._caller.let_go(call)
        elif refused.reason is Refusal.GRANT_AGED:
            self._caller.finish(call, GaveBack(note="its rate grant grew old before the call"))
        elif refused.reason is Refusal.OVERDUE:
            self._caller.finish(call, Overdue())
        elif call.task.status is Status.SUBMITTING:
            self._caller.finish(call, CancelSeen())
        else:
            self._caller.cancel(call, here=True)


def _checked(word: object) -> Admission:
    """Return a policy's word if it is one that the worker can act on."""
    if not isinstance(word, (Admit, Postpone)):
        message = f"it answered {word!r}, which is neither Admit nor Postpone"
        raise TypeError(message)
    if isinstance(word, Postpone) and word.until.tzinfo is None:
        message = f"until must be an aware datetime, not {word.until!r}; add tzinfo=UTC"
        raise ValueError(message)
    return word
