"""Making the calls that a worker has claimed, and turning their answers into outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Never

from coatcheck import calls, gates
from coatcheck.calls import Call, Purpose
from coatcheck.errors import QueryFailed, SubmitDeferred, Unsupported
from coatcheck.events import CancelDone, Event, Finished, GaveBack, LeftUnknown, Overdue
from coatcheck.gates import GateChange, PauseGate
from coatcheck.handler import Capability, Handler, QueryContext, SubmitContext
from coatcheck.leases import LeaseKeeper
from coatcheck.loops import HandlerLoops, Job
from coatcheck.registry import Registry
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.retry import RetryPolicy
from coatcheck.settling import Settler
from coatcheck.task import CancelOutcome, QueryParams, Status, Task
from coatcheck.verdicts import Judge, describe, left_unknown, unstorable

__all__ = ["Caller", "Work"]

logger = logging.getLogger("coatcheck.worker")

GIVE_UP_GRACE_SECONDS = 2.0
"""How much longer than its timeout a call may take before the worker stops waiting for a blocked handler."""
BLOCKED_AFTER_SECONDS = 1.0
"""A handler whose loop has not turned for this long is named in the log."""
WHO = "worker"
"""Who has paused a gate for a 429, in its history: any of them, so that a fleet's pauses count as one change."""

Work = tuple[tuple[Call, ...], Callable[[], Coroutine[Any, Any, None]]]
"""Calls that are made together, and what makes the coroutine that makes them."""


class Caller:
    """Holds the calls in flight of one worker, from the claim to the outcome."""

    def __init__(  # noqa: PLR0913 - the parts of one worker
        self,
        registry: Registry,
        loops: HandlerLoops,
        keeper: LeaseKeeper,
        settler: Settler,
        *,
        retry: RetryPolicy,
        call_timeout: timedelta,
        callback_url: str | None,
    ) -> None:
        self._registry = registry
        self._loops = loops
        self._keeper = keeper
        self._settler = settler
        self._retry = retry
        self._call_timeout = call_timeout
        self._callback_url = callback_url
        self._in_flight: dict[Purpose, set[Call]] = {purpose: set() for purpose in Purpose}
        self._jobs: dict[Call, Job] = {}
        self._answered: list[Job] = []
        self._collecting = False
        self._lock = threading.Lock()
        self._named_blocked: set[str] = set()
        self._judges: dict[str, Judge] = {}
        self.room = asyncio.Event()
        """Set whenever a call is over."""
        self.stopping = False
        """Whether nothing new may be begun any more."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The worker's own loop, where answers are judged."""

    # -------------------------------------------------------------- in flight

    def hold(self, tasks: Iterable[Task], purpose: Purpose, lease: timedelta, asked_at: float) -> list[Call]:
        """Take in hand tasks that were claimed for `lease`, asked at that monotonic time."""
        url = self._callback_url
        held = []
        for task in tasks:
            key = task.route.handler_key
            handler = self._registry.get(key)
            call = Call(
                task=task,
                handler=_AbsentHandler(key) if handler is None else handler,
                purpose=purpose,
                in_doubt=task.in_doubt,
                callback_url=url.replace("{handler_key}", key) if url else None,
            )
            call.leased(task, lease, asked_at)
            self._keeper.add(call)
            held.append(call)
        self._in_flight[purpose].update(held)
        return held

    def busy(self, *purposes: Purpose) -> int:
        """Return how many calls of these purposes are in hand."""
        return sum(len(self._in_flight[purpose]) for purpose in purposes or Purpose)

    def finish(self, call: Call, event: Event, *gate_changes: GateChange) -> None:
        """Hand an outcome to the settler; the call is over."""
        self._end(call)
        self._settler.put(call, event, *gate_changes)

    def let_go(self, call: Call) -> None:
        """Forget a claim without an outcome; its lease ends by itself."""
        call.lose()
        self._end(call)
        self._keeper.drop(call)

    def _end(self, call: Call) -> None:
        call.over = True
        self._jobs.pop(call, None)
        self._in_flight[call.purpose].discard(call)
        self.room.set()

    def _turn_into(self, call: Call, purpose: Purpose) -> None:
        self._in_flight[call.purpose].discard(call)
        call.purpose = purpose
        self._in_flight[purpose].add(call)

    async def quiet(self) -> None:
        """Wait until every call is over and every outcome is in the store."""
        while self.busy() or self._settler.backlog:
            self.room.clear()
            if self.busy():
                await self.room.wait()
            await self._settler.flush()

    # -------------------------------------------------------------- making calls

    def submit(self, started: Collection[Call]) -> None:
        """Submit each task, but none whose key the provider might have forgotten since it was first sent."""
        work: list[Work] = []
        for call in started:
            if not call.in_doubt or self.judge(call).may_send_again(call.task, call.store_now()):
                params_type = self._registry.params_type(call.handler.key)
                work.append(((call,), partial(calls.submit, call, params_type)))
            else:
                self.finish(call, left_unknown("its idempotency window closed before it could be sent again"))
        self._run(work)

    def query(self, started: Collection[Call]) -> None:
        """Query each task, together where the handler can."""
        together: dict[tuple[str, str | None], list[Call]] = {}
        work: list[Work] = []
        for call in started:
            if Capability.QUERY_MANY in call.handler.capabilities:
                together.setdefault((call.handler.key, call.task.route.account_id), []).append(call)
            else:
                work.append(((call,), partial(calls.query, call)))
        for group in together.values():
            size = group[0].handler.query_batch_size
            for at in range(0, len(group), size):
                chunk = tuple(group[at : at + size])
                work.append((chunk, partial(calls.query_together, chunk)))
        self._run(work)

    def look_up(self, call: Call, why: str) -> None:
        """Ask the provider for a submission of unknown outcome, by our own reference."""
        logger.warning("task %s: submit outcome unknown (%s); looking it up", call.task.id, why)
        call.error = call.answer = None
        self._turn_into(call, Purpose.RESCUE)
        maker = partial(calls.find, call, self._registry.params_type(call.handler.key))
        spent = sum(calls.FIND_AFTER_SECONDS) + 2 * self._call_timeout.total_seconds()
        self._run([((call,), maker)], extra_seconds=spent)

    def cancel(self, call: Call, *, here: bool) -> None:
        """Tell the provider to cancel, if the handler is here and can."""
        if here and Capability.CANCEL in call.handler.capabilities:
            self._turn_into(call, Purpose.CANCEL)
            self._run([((call,), partial(calls.cancel, call))])
            return
        note = "the handler has no cancel" if here else "no worker with its handler came"
        self.finish(call, CancelDone(remote_cancel=CancelOutcome.UNSUPPORTED, note=note))

    async def cancel_late(self, task: Task) -> CancelOutcome:
        """Tell the provider to cancel a job that turned up after its task was cancelled."""
        key = task.route.handler_key
        handler = self._registry.get(key)
        if handler is None or Capability.CANCEL not in handler.capabilities:
            return CancelOutcome.UNSUPPORTED
        call = Call(
            task=task,
            handler=handler,
            purpose=Purpose.CANCEL,
            held_until=float("inf"),
            stamp=task.outcome.finished_at,
        )
        try:
            await self._loops.call(key, partial(calls.cancel, call), self._call_timeout.total_seconds())
        except Exception as error:  # noqa: BLE001 - what came of it is recorded
            logger.error("task %s: late remote cancel failed: %s", task.id, describe(error))  # noqa: TRY400
            return CancelOutcome.UNKNOWN
        return call.answer if isinstance(call.answer, CancelOutcome) else CancelOutcome.UNKNOWN

    def _run(self, work: Iterable[Work], *, extra_seconds: float = 0.0) -> None:
        """Hand calls to their handlers' loops, one batch a handler."""
        timeout = self._call_timeout.total_seconds() + extra_seconds
        give_up_at = time.monotonic() + timeout + GIVE_UP_GRACE_SECONDS
        batches: dict[str, list[Job]] = {}
        for group, make in work:
            job = Job(make=make, timeout_seconds=timeout, calls=group)
            for call in group:
                call.give_up_at = give_up_at
                self._jobs[call] = job
            batches.setdefault(group[0].handler.key, []).append(job)
        for key, jobs in batches.items():
            self._loops.loop_of(key).run(jobs, self._on_answer)

    # -------------------------------------------------------------- taking answers

    def _on_answer(self, job: Job) -> None:
        """Take a finished job, on the handler's thread; wake the worker's loop once for many."""
        with self._lock:
            self._answered.append(job)
            wake = not self._collecting
            self._collecting = True
        if wake and self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker is gone
                self.loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        with self._lock:
            jobs, self._answered = self._answered, []
            self._collecting = False
        for job in jobs:
            for call in job.calls:
                if call.over or self._jobs.get(call) is not job:
                    continue
                del self._jobs[call]
                call.error = call.error or job.error
                self._conclude(call)

    def _conclude(self, call: Call) -> None:
        try:
            self._judge_call(call)
        except Exception:
            logger.exception("task %s: what came of its call could not be judged", call.task.id)
            self.let_go(call)

    def _judge_call(self, call: Call) -> None:
        if call.purpose is Purpose.SUBMIT:
            self._judge_submit(call)
        elif call.purpose is Purpose.CANCEL:
            self._judge_cancel(call)
        elif call.task.status is Status.SUBMITTING:
            self._judge_look_up(call)
        elif call.purpose is Purpose.RESCUE:
            self._judge_final_query(call)
        else:
            self._judge_query(call)

    def judge(self, call: Call) -> Judge:
        """Return who judges the answers of this call's handler."""
        found = self._judges.get(call.handler.key)
        if found is None:
            found = Judge(handler=call.handler, retry=self._retry, call_timeout=self._call_timeout)
            self._judges[call.handler.key] = found
        return found

    def leave_unknown(self, call: Call, why: str) -> None:
        """Settle a started submission of unknown outcome: sent again only if the provider deduplicates."""
        event = self.judge(call).unknown(call.task, why, call.store_now())
        if isinstance(event, LeftUnknown):
            logger.error("task %s: %s", call.task.id, event.error.message)
        self.finish(call, event)

    def _answer_of_submit(self, call: Call) -> Event:
        event = self.judge(call).submit_answer(call.task, call.answer, call.result)
        return event if call.unstorable is None else unstorable(event, call.unstorable)

    def _answer_of_query(self, call: Call) -> Event:
        event = self.judge(call).query_answer(call.task, call.answer, call.result, call.store_now())
        return event if call.unstorable is None else unstorable(event, call.unstorable)

    def _judge_submit(self, call: Call) -> None:
        if call.error is None:
            self.finish(call, self._answer_of_submit(call))
            return
        why = describe(call.error)
        event = self.judge(call).submit_error(
            call.task, call.error, reached_handler=call.reached_handler, on_wire=call.on_wire
        )
        if event is not None:
            if not isinstance(call.error, SubmitDeferred):
                logger.error("task %s was not submitted by %r: %s", call.task.id, call.handler.key, why)
            self.finish(call, event, *self._slow_down(call, event))
        elif Capability.FIND_SUBMISSION in call.handler.capabilities and not self.stopping:
            self.look_up(call, why)
        else:
            self.leave_unknown(call, why)

    def _judge_look_up(self, call: Call) -> None:
        if call.error is None and call.answer is not None:
            self.finish(call, self._answer_of_submit(call))
            return
        why = describe(call.error) if call.error else "the look-up found nothing, which proves nothing"
        self.leave_unknown(call, why)

    def _judge_query(self, call: Call) -> None:
        if call.error is None:
            self.finish(call, self._answer_of_query(call))
            return
        event = self.judge(call).query_error(call.task, call.error)
        self.finish(call, event, *self._slow_down(call, event))

    def _judge_final_query(self, call: Call) -> None:
        """Take the end that a last query found, or else time the task out."""
        event = self._answer_of_query(call) if call.error is None else None
        self.finish(call, event if isinstance(event, Finished) else Overdue())

    def _judge_cancel(self, call: Call) -> None:
        if call.error is None and isinstance(call.answer, CancelOutcome):
            self.finish(call, CancelDone(remote_cancel=call.answer))
            return
        why = describe(call.error) if call.error else "no answer"
        logger.error("task %s: the provider could not be told to cancel: %s", call.task.id, why)
        self.finish(call, CancelDone(remote_cancel=CancelOutcome.UNKNOWN, note=why))

    def _slow_down(self, call: Call, event: Event) -> tuple[GateChange, ...]:
        """Pause the gate of whoever was told to slow down (429): the account, or else the provider."""
        error = call.error
        if not isinstance(error, (SubmitDeferred, QueryFailed)) or not error.rate_limited:
            return ()
        route = call.task.route
        if isinstance(error, QueryFailed):
            name = route.query_gate
        else:
            names = [gates.provider(route.provider_key)]
            if route.account_id is not None:
                names.insert(0, gates.account(route.provider_key, route.account_id))
            name = next((each for each in names if each in route.gates), None)
        asked = error.retry_after
        hint = asked if isinstance(asked, timedelta) and asked > timedelta() else None
        duration = hint or getattr(event, "delay", None)
        if name is None or not duration:
            return ()
        # no longer than the policy's own clamp of the hint made the task wait
        limit = max(getattr(event, "delay", duration), timedelta(seconds=1))
        return (
            PauseGate(name=name, reason=f"rate limited: {error}", who=WHO, duration=min(duration, limit)),
        )

    # -------------------------------------------------------------- watching and winding down

    def look_after(self, open_keys: Collection[str]) -> None:
        """Give up calls whose handler does not answer in time, and name handlers that block."""
        now = time.monotonic()
        late = [call for call in self._jobs if call.give_up_at is not None and now >= call.give_up_at]
        for call in late:
            call.lose()  # from here on the handler can write nothing to the wire
            logger.error(
                "handler %r has not answered the %s call of task %s within its timeout; it is given up",
                call.handler.key,
                call.purpose,
                call.task.id,
            )
            self._loops.loop_of(call.handler.key).cancel([self._jobs.pop(call)])
            call.error = TimeoutError()
            self._conclude(call)
        for key in open_keys:
            blocked = self._loops.loop_of(key).blocked_for_seconds()
            if blocked < BLOCKED_AFTER_SECONDS:
                self._named_blocked.discard(key)
            elif key not in self._named_blocked:
                self._named_blocked.add(key)
                logger.warning(
                    "handler %r has blocked its event loop for %.1f s; only its own calls wait, "
                    "but make it a BlockingHandler, or await what it waits for",
                    key,
                    blocked,
                )

    def cut_off(self) -> int:
        """Record the calls that are still in flight as they are; return how many there were."""
        left = tuple(self._jobs.items())
        why = "the worker was stopped while the call was in flight"
        for call, job in left:
            call.lose()
            self._loops.loop_of(call.handler.key).cancel([job])
            if call.purpose is Purpose.QUERY:
                self.finish(call, GaveBack(note="the worker stopped"))
            elif call.task.status is not Status.SUBMITTING:
                self.let_go(call)
            elif call.handler.marks_wire and not call.on_wire and call.purpose is Purpose.SUBMIT:
                nothing_sent = SubmitDeferred(f"nothing was sent: {why}")
                self.finish(call, self.judge(call).deferred(call.task, nothing_sent))
            else:
                self.leave_unknown(call, why)
        return len(left)


class _AbsentHandler(Handler[Never]):
    """Stands in for a handler that this worker does not have, in decisions about other workers' tasks."""

    params_type = type(None)

    def __init__(self, key: str) -> None:
        self.key = self.provider_key = key

    async def submit(self, params: Never, context: SubmitContext) -> SubmitResult:
        """Refuse: this worker does not have the handler."""
        raise Unsupported(self.key)

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Refuse: this worker does not have the handler."""
        raise Unsupported(self.key)
