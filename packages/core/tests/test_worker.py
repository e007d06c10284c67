"""What the worker does with claims, calls, answers, and its own end."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from attrs import frozen

from coatcheck import (
    AdmissionPolicy,
    App,
    ConfigurationError,
    ExponentialRetry,
    Gates,
    Handler,
    InvalidParams,
    LeaseLost,
    Postpone,
    QueryContext,
    QueryFailed,
    QueryParams,
    QueryResult,
    Status,
    SubmitContext,
    SubmitDeferred,
    SubmitOptions,
    SubmitRejected,
    SubmitResult,
    Task,
    TaskChange,
    WorkerSettings,
    gates,
)
from coatcheck.gates import Admission, GateChange, PauseGate
from coatcheck.handler import CancelContext
from coatcheck.memory import MemoryStore
from coatcheck.task import CancelOutcome, ErrorCode, TaskDraft
from coatcheck.testing import FaultyStore, ManualClock, ScriptedHandler, memory_app, run_to_end

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@frozen
class Page:
    """What the handlers of these tests take."""

    url: str


PAGE = Page("https://example.com/a.png")


def scripted(**script: object) -> ScriptedHandler[Page]:
    """Return a handler with a script."""
    return ScriptedHandler("scan", Page, **script)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


async def submitted(app: App, **options: object) -> Task:
    """Submit a page."""
    return await app.manager.submit(
        PAGE,
        tracking_timeout=HOUR,
        options=SubmitOptions(**options),  # type: ignore[arg-type]
    )


async def fresh(app: App, task: Task) -> Task:
    """Return the task as it is now."""
    now = await app.manager.get(task.id)
    assert now is not None
    return now


async def test_a_task_is_submitted_queried_and_its_result_kept(clock: ManualClock) -> None:
    """One submit, queries until done, and the result is there."""
    handler = scripted(query=[QueryResult.waiting(), QueryResult.running(progress=0.5)])
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        assert task.status is Status.PENDING_SUBMIT
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert done.result == {"id": "scan-1"}
    assert len(handler.submitted) == 1
    assert done.progress.query_count == 3
    assert [entry.target for entry in done.history] == [
        Status.PENDING_SUBMIT,
        Status.SUBMITTING,
        Status.SUBMITTED,
        Status.RUNNING,
        Status.SUCCEEDED,
    ]


async def test_params_are_dropped_once_the_provider_has_accepted(clock: ManualClock) -> None:
    """The store keeps the payload no longer than it is needed; its digest stays."""
    async with memory_app(scripted(query=[QueryResult.running()]), clock=clock) as app:
        task = await submitted(app)
        assert task.params == {"url": PAGE.url}
        await app.worker().run_once()
        after = await fresh(app, task)
    assert after.params is None
    assert after.identity.params_digest == task.identity.params_digest


async def test_the_context_tells_what_a_handler_may_know(clock: ManualClock) -> None:
    """Ids, keys, account, times and counts before this call; never the payload."""
    handler = scripted(query=[QueryFailed("later")])
    async with memory_app(handler, clock=clock, callback_url="https://me.example/cb/{handler_key}") as app:
        task = await submitted(app, metadata={"shelf": 7}, account_id="cn", idempotency_key="k1")
        await run_to_end(app, clock)
    submit = handler.submitted[0][1]
    assert (submit.task_id, submit.idempotency_key, submit.account_id) == (task.id, "k1", "cn")
    assert (submit.submit_attempts, submit.query_count) == (0, 0)
    assert submit.metadata == {"shelf": 7}
    assert submit.callback_url == "https://me.example/cb/scan"
    assert submit.created_at == task.schedule.created_at
    assert submit.deadline_at == task.schedule.deadline_at
    with pytest.raises(TypeError):
        submit.metadata["shelf"] = 8  # type: ignore[index]
    assert [context.query_count for _, context in handler.queried] == [0, 1]


async def test_a_rejected_submission_fails(clock: ManualClock) -> None:
    """The provider said no: not created, final."""
    handler = scripted(submit=[SubmitRejected("no such model", code="E7")])
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert done.error is not None
    assert (done.error.code, done.error.provider_code) == (ErrorCode.SUBMIT_REJECTED, "E7")
    assert done.params is not None


async def test_a_deferred_submission_is_tried_again(clock: ManualClock) -> None:
    """Certainly not created: back to the queue after a backoff, then submitted."""
    handler = scripted(submit=[SubmitDeferred("refused", retry_after=timedelta(seconds=90))])
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().drain()
        waiting = await fresh(app, task)
        assert waiting.status is Status.PENDING_SUBMIT
        assert waiting.schedule.due_at - clock.now() >= timedelta(seconds=90)
        assert not waiting.holds_slots
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert done.progress.submit_attempts == 2


async def test_a_429_pauses_the_gate_of_the_account_or_else_the_provider(clock: ManualClock) -> None:
    """Who was told to slow down is paused for Retry-After, and nobody else."""
    slow = SubmitDeferred("429", retry_after=timedelta(seconds=30), rate_limited=True)
    handler = scripted(submit=[slow, slow])
    account, provider = gates.account("scan", "cn"), gates.provider("scan")
    async with memory_app(handler, clock=clock) as app:
        await submitted(app, account_id="cn")
        await app.worker().drain()
        paused = {each.gate.name: each.gate.pause for each in await app.manager.gates()}
        assert paused.keys() == {account}
        assert paused[account] is not None
        await submitted(app)
        await app.worker().drain()
        paused = {each.gate.name: each.gate.pause for each in await app.manager.gates()}
        assert paused.keys() == {account, provider}
        pause = paused[provider]
    assert pause is not None
    assert pause.until is not None
    assert timedelta(seconds=30) <= pause.until - pause.since <= timedelta(seconds=40)


async def test_an_exception_after_start_leaves_the_outcome_unknown(clock: ManualClock) -> None:
    """Nobody knows whether it was created; it is never sent again by itself."""
    handler = scripted(submit=[ConnectionResetError("gone")])
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN
    assert len(handler.submitted) == 1
    assert done.error is not None
    assert "gone" in done.error.message
    assert done.params is not None


async def test_an_invalid_answer_to_a_submit_leaves_the_outcome_unknown(clock: ManualClock) -> None:
    """A handler that returns nonsense after the call may have created the job."""

    def nonsense(_params: Page, _context: SubmitContext) -> SubmitResult:
        return "done"  # type: ignore[return-value]

    async with memory_app(scripted(submit=[nonsense]), clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN


async def test_a_look_up_that_finds_the_job_adopts_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`find_submission` is asked before the outcome is left unknown; a positive answer counts."""
    monkeypatch.setattr("coatcheck.calls.FIND_AFTER_SECONDS", (0.0, 0.0, 0.0))
    handler = scripted(
        submit=[TimeoutError()], find=[RuntimeError("flaky"), None, SubmitResult.accepted("found-9")]
    )
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert done.external_task_id == "found-9"
    assert len(handler.submitted) == 1
    assert len(handler.looked_up) == 3


async def test_a_look_up_that_finds_nothing_proves_nothing(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing found never resubmits."""
    monkeypatch.setattr("coatcheck.calls.FIND_AFTER_SECONDS", (0.0, 0.0))
    handler = scripted(submit=[TimeoutError()], find=[])
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN
    assert len(handler.submitted) == 1


async def test_a_provider_that_deduplicates_gets_the_same_key_again(clock: ManualClock) -> None:
    """Inside the declared window a lost submission is sent again under the same idempotency key."""
    handler = scripted(submit=[TimeoutError()], idempotency_window=HOUR)
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    first, second = (context.idempotency_key for _, context in handler.submitted)
    assert first == second == done.id


async def test_resending_is_bounded(clock: ManualClock) -> None:
    """A provider that never answers is not sent the same job for ever."""
    handler = scripted(submit=[TimeoutError()] * 20, idempotency_window=HOUR)
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN
    assert len(handler.submitted) == 5


async def test_after_the_window_a_lost_submission_stays_unknown(clock: ManualClock) -> None:
    """Outside the window nobody deduplicates any more."""
    handler = scripted(submit=[TimeoutError()], idempotency_window=timedelta(seconds=30))
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN


async def test_a_window_that_closes_while_the_task_waits_is_seen_before_the_call(clock: ManualClock) -> None:
    """Sent again later than planned, the provider might not know the key any more: it is not sent."""
    handler = scripted(submit=[TimeoutError()], idempotency_window=timedelta(minutes=5))
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().run_once()
        assert (await fresh(app, task)).status is Status.PENDING_SUBMIT
        clock.advance(timedelta(minutes=5))
        await app.worker().drain()
        after = await fresh(app, task)
    assert after.status is Status.SUBMIT_UNKNOWN
    assert len(handler.submitted) == 1


class Careful(ScriptedHandler[Page]):
    """A handler that marks where the wire begins and fails before it."""

    marks_wire = True

    async def submit(self, params: Page, context: SubmitContext) -> SubmitResult:
        """Fail before the wire, the first time."""
        if not self.submitted:
            self.submitted.append((params, context))
            message = "no disk"
            raise OSError(message)
        return await super().submit(params, context)


async def test_what_fails_before_the_wire_is_certain(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that marks the wire has certainly sent nothing before it; it is deferred, and alarmed."""
    handler = Careful("scan", Page)
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert len(handler.submitted) == 2
    assert "no disk" in caplog.text


class Picky(ScriptedHandler[Page]):
    """A handler that cannot build its request."""

    async def submit(self, params: Page, context: SubmitContext) -> SubmitResult:
        """Refuse."""
        self.submitted.append((params, context))
        message = f"cannot take {params.url}"
        raise InvalidParams(message)


class CarefulPicky(Picky):
    """The same, and it marks where the wire begins."""

    marks_wire = True


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (CarefulPicky, Status.FAILED, ErrorCode.INVALID_PARAMS),
        (Picky, Status.SUBMIT_UNKNOWN, ErrorCode.SUBMIT_UNKNOWN),
    ],
)
async def test_bad_params_are_final_if_they_were_certainly_not_sent(
    clock: ManualClock, kind: type[Picky], status: Status, code: ErrorCode
) -> None:
    """Before a marked wire it is certain; a handler that marks none may have sent something by then."""
    async with memory_app(kind("scan", Page), clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is status
    assert done.error is not None
    assert done.error.code == code


async def test_an_accepted_job_without_an_id_is_in_doubt(clock: ManualClock) -> None:
    """The provider said yes and the handler found no id: that is no proof that nothing was created."""

    def blank(_params: Page, _context: SubmitContext) -> SubmitResult:
        return SubmitResult.accepted(" ")

    async with memory_app(scripted(submit=[blank]), clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUBMIT_UNKNOWN


async def test_stored_params_that_do_not_fit_any_more_fail_the_task(clock: ManualClock) -> None:
    """They never reach the handler, so it is certain that nothing was sent."""
    async with memory_app(scripted(), clock=clock) as app:
        await submitted(app)
        other: ScriptedHandler[Other] = ScriptedHandler("scan", Other)
        (done,) = await run_to_end(App(app.store, [other]), clock)
    assert done.status is Status.FAILED
    assert done.error is not None
    assert done.error.code == ErrorCode.INVALID_PARAMS
    assert not other.submitted


async def test_a_result_that_cannot_be_stored_keeps_the_jobs_id(clock: ManualClock) -> None:
    """Done at once, with a result that is no JSON: FAILED, and the id that was paid for is there."""
    answer = SubmitResult.succeeded(float("nan"), query_params=QueryParams(external_task_id="paid-2"))
    async with memory_app(scripted(submit=[answer]), clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert done.external_task_id == "paid-2"


async def test_run_to_end_waits_for_gates(clock: ManualClock) -> None:
    """A task behind a gate that opens in a while is due all the time; the clock goes on all the same."""
    async with memory_app(scripted(), clock=clock) as app:
        await app.manager.pause(gates.provider("scan"), reason="r", duration=timedelta(minutes=5))
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED


async def test_queries_end_only_at_the_deadline_by_default(clock: ManualClock) -> None:
    """However often a query fails, a live job is not given up before its deadline."""
    handler = scripted(query=[QueryFailed("time out")] * 500)
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.TRACKING_TIMED_OUT
    assert done.progress.query_count > 50
    assert done.error is not None
    assert "may still run and be charged" in done.error.message
    assert done.external_task_id == "scan-1"


async def test_an_unlisted_status_is_named_and_alarmed(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A word that the docs don't list is an error with its name, and the job is asked about again."""
    handler = scripted(query=[QueryResult.unlisted("aborted")])
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        await app.worker().run_once()
        after = await fresh(app, task)
        assert after.error is not None
        assert after.error.code == ErrorCode.STATUS_UNLISTED
        assert "aborted" in after.error.message
        assert after.progress.provider_status == "aborted"
        (done,) = await run_to_end(app, clock)
    assert "aborted" in caplog.text
    assert done.status is Status.SUCCEEDED
    assert done.error is None


async def test_done_without_a_result_is_retried_then_named(clock: ManualClock) -> None:
    """Done, but no result: a few tries, then a failure of its own name."""
    handler = scripted(query=[QueryFailed("x")] * 7 + [QueryResult.incomplete()] * 9)
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert done.error is not None
    assert done.error.code == ErrorCode.RESULT_MISSING
    assert done.progress.query_count == 12


async def test_a_result_that_cannot_be_stored_is_a_named_failure(clock: ManualClock) -> None:
    """Never a task stuck in RUNNING."""
    handler = scripted(query=[QueryResult.succeeded({"score": float("nan")})])
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert done.error is not None
    assert done.error.code == ErrorCode.HANDLER_ERROR
    assert "result.score" in done.error.message or "NaN" in done.error.message


async def test_next_params_replace_the_stored_ones(clock: ManualClock) -> None:
    """A cursor moves on between queries."""
    first = QueryParams(external_task_id="scan-1")
    handler = scripted(query=[QueryResult.running(next_params=first.evolve(cursor=2))])
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        await run_to_end(app, clock)
    assert [dict(params.provider_params) for params, _ in handler.queried] == [{}, {"cursor": 2}]


class Many(ScriptedHandler[Page]):
    """A handler that queries together."""

    query_batch_size = 3
    batches: list[list[str]]

    @property
    def capabilities(self) -> frozenset[object]:  # type: ignore[override]
        """All that is overridden."""
        return Handler.capabilities.fget(self)  # type: ignore[attr-defined, no-any-return]

    async def query_many(  # type: ignore[override]
        self, batch: list[QueryParams], contexts: dict[str, QueryContext]
    ) -> dict[str, QueryResult | Exception]:
        """Answer for all but one, and an error for another."""
        self.batches.append([params.external_task_id for params in batch])
        assert contexts.keys() == {params.external_task_id for params in batch}
        answers: dict[str, QueryResult | Exception] = {
            each.external_task_id: QueryResult.succeeded(each.external_task_id) for each in batch
        }
        if len(self.batches) == 1:
            answers.pop(batch[0].external_task_id)
            answers[batch[1].external_task_id] = QueryFailed("odd")
        return answers


async def test_queries_are_made_together_where_the_handler_can(clock: ManualClock) -> None:
    """One request for several jobs; each gets its own answer, and a missing one is asked for again."""
    handler = Many("scan", Page, find=[], cancel=[])
    handler.batches = []
    async with memory_app(handler, clock=clock, retry=ExponentialRetry(jitter=0)) as app:
        for _ in range(5):
            await submitted(app)
        done = await run_to_end(app, clock)
    assert {task.status for task in done} == {Status.SUCCEEDED}
    assert max(len(batch) for batch in handler.batches) == 3
    assert not handler.queried


async def test_cancelling_a_running_job_tells_the_provider(clock: ManualClock) -> None:
    """The handler's cancel is called, and what came of it is recorded beside CANCELED."""
    handler = scripted(query=[QueryResult.running()] * 9, cancel=[CancelOutcome.REFUSED])
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().drain()
        assert await app.manager.cancel(task.id)
        assert not await app.manager.cancel(task.id)
        await app.worker().drain()
        after = await fresh(app, task)
    assert after.status is Status.CANCELED
    assert after.outcome.remote_cancel is CancelOutcome.REFUSED
    assert [params.external_task_id for params in handler.cancelled] == ["scan-1"]


@pytest.mark.parametrize(
    ("script", "outcome"),
    [({}, CancelOutcome.UNSUPPORTED), ({"cancel": [OSError("down")]}, CancelOutcome.UNKNOWN)],
)
async def test_a_provider_that_cannot_be_told_is_said_to_run_on(
    clock: ManualClock, script: dict[str, object], outcome: CancelOutcome
) -> None:
    """CANCELED all the same, saying that the remote job may still run and be charged."""
    async with memory_app(scripted(query=[QueryResult.running()] * 9, **script), clock=clock) as app:
        task = await submitted(app)
        await app.worker().drain()
        await app.manager.cancel(task.id)
        await app.worker().drain()
        after = await fresh(app, task)
    assert after.status is Status.CANCELED
    assert after.outcome.remote_cancel is outcome
    assert after.error is not None
    assert "may still run and be charged" in after.error.message


async def test_a_cancel_during_the_submit_call_cancels_the_remote_job(clock: ManualClock) -> None:
    """It ends CANCELED, and once the id is known the provider is told."""
    handler = scripted(cancel=[])
    app = memory_app(handler, clock=clock)
    store = app.store

    async def cancel_meanwhile(_params: Page, context: SubmitContext) -> SubmitResult:
        await store.request_cancellation(context.task_id)
        return SubmitResult.accepted("late-1")

    handler = scripted(submit=[cancel_meanwhile], cancel=[])
    app = App(store, [handler])
    async with app:
        await submitted(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.CANCELED
    assert done.outcome.remote_cancel is CancelOutcome.CONFIRMED
    assert [params.external_task_id for params in handler.cancelled] == ["late-1"]


class Gatekeeper(AdmissionPolicy):
    """Postpones the first task it sees, after a moment's thought."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broken = False

    def gates_for(self, draft: TaskDraft) -> Gates:
        """Name no gate."""
        return Gates()

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Postpone, break, or admit."""
        self.seen.append(task.id)
        if self.broken:
            message = "policy bug"
            raise RuntimeError(message)
        if len(self.seen) == 1:
            await asyncio.sleep(0.01)  # the task is not due earlier for it
            return Postpone(until=now + timedelta(minutes=5), reason="too early")
        return await super().admit(task, now)

    def observe(self, change: TaskChange) -> list[GateChange]:
        """Pause a gate whenever something succeeds."""
        if change.after.status is Status.SUCCEEDED:
            return [PauseGate(name="done", reason="observed", duration=SECOND)]
        return []


async def test_admission_has_the_last_word(clock: ManualClock) -> None:
    """A postponed task is given back unspent and comes again at its time; observed changes move gates."""
    policy, handler = Gatekeeper(), scripted()
    async with memory_app(handler, clock=clock, admission=policy) as app:
        task = await submitted(app)
        await app.worker().drain()
        after = await fresh(app, task)
        assert after.status is Status.PENDING_SUBMIT
        assert after.progress.submit_attempts == 0
        assert after.schedule.due_at == clock.now() + timedelta(minutes=5)
        assert not handler.submitted
        (done,) = await run_to_end(app, clock)
        assert done.status is Status.SUCCEEDED
        assert done.progress.submit_attempts == 1
        assert [each.gate.name for each in await app.manager.gates()] == ["done"]


async def test_a_broken_admission_policy_stops_nothing(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged and the task is given back for a moment."""
    policy = Gatekeeper()
    policy.broken = True
    async with memory_app(scripted(), clock=clock, admission=policy) as app:
        task = await submitted(app)
        await app.worker().drain()
        assert (await fresh(app, task)).status is Status.PENDING_SUBMIT
    assert "policy bug" in caplog.text


async def test_an_overdue_task_is_never_submitted(clock: ManualClock) -> None:
    """Past its deadline it times out without a call."""
    handler = scripted()
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app, delay=timedelta(hours=2))
        clock.advance(timedelta(hours=1))
        await app.worker().drain()
        after = await fresh(app, task)
    assert after.status is Status.TRACKING_TIMED_OUT
    assert not handler.submitted


async def test_a_final_query_may_save_an_overdue_result(clock: ManualClock) -> None:
    """With `final_query`, an overdue job is asked about once more before it is timed out."""
    handler = scripted(query=[QueryResult.running()])
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().drain()
        clock.advance(SECOND * 2)
        await app.worker().drain()
        clock.advance(HOUR)
        await app.worker(final_query=True).drain()
        after = await fresh(app, task)
    assert after.status is Status.SUCCEEDED


async def test_a_final_query_that_finds_no_end_times_the_task_out(clock: ManualClock) -> None:
    """Still running at the last query: timed out."""
    handler = scripted(query=[QueryResult.running()] * 9)
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        await app.worker().run_once()
        clock.advance(HOUR)
        await app.worker(final_query=True).drain()
        after = await fresh(app, task)
    assert after.status is Status.TRACKING_TIMED_OUT
    assert len(handler.queried) == 1


async def test_a_dead_workers_started_submission_becomes_unknown(clock: ManualClock) -> None:
    """The rescuer cannot tell, and does not send again."""
    handler = scripted()
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        claims = await app.store.claim_submissions("dead", ["scan"], 10, timedelta(seconds=30))
        await app.store.start(claims.tasks, timedelta(seconds=30))
        clock.advance(timedelta(seconds=31))
        await app.worker().drain()
        after = await fresh(app, task)
    assert after.status is Status.SUBMIT_UNKNOWN
    assert not handler.submitted


async def test_a_dead_workers_unstarted_claim_goes_back(clock: ManualClock) -> None:
    """Never started, so certainly not sent: submitted by the next worker."""
    handler = scripted()
    async with memory_app(handler, clock=clock) as app:
        await submitted(app)
        await app.store.claim_submissions("dead", ["scan"], 10, timedelta(seconds=30))
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    assert len(handler.submitted) == 1


async def test_a_task_that_kills_its_workers_is_stopped(clock: ManualClock) -> None:
    """After so many lost leases in a row it is not tried for ever."""
    handler = scripted()
    async with memory_app(handler, clock=clock) as app:
        task = await submitted(app)
        for _ in range(3):
            await app.store.claim_submissions("dead", ["scan"], 10, SECOND)
            clock.advance(SECOND)
            await app.store.claim_stale("other", [], 10, SECOND)
        await app.worker(max_lost_leases=3).drain()
        after = await fresh(app, task)
    assert after.status is Status.FAILED
    assert after.error is not None
    assert after.error.code == ErrorCode.WORKER_KILLED
    assert not handler.submitted


# ------------------------------------------------------------------ running for real


class Slow(ScriptedHandler[Page]):
    """A handler whose submit waits, or blocks its loop, until it is let go."""

    def __init__(self, *, blocks: bool = False, key: str = "scan", kind: type = Page) -> None:
        super().__init__(key, kind)
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.blocks = blocks
        self.cancelled_at_submit = False

    async def submit(self, params: Page, context: SubmitContext) -> SubmitResult:
        """Wait."""
        self.entered.set()
        try:
            if self.blocks:
                self.go_on.wait(20)
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancelled_at_submit = True
            raise
        return await super().submit(params, context)


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something has happened."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        await asyncio.sleep(0.005)


@frozen
class Other:
    """Params of a second handler."""

    n: int


async def test_an_embedded_worker_delivers_at_once() -> None:
    """`async with app, app.worker()` works beside the caller, who gets the typed result."""
    changes: list[TaskChange] = []
    app = App(MemoryStore(), [scripted()], observers=[changes.extend])
    async with app, app.worker():
        task = await submitted(app)
        result = await app.manager.result(task.id, dict, timeout=timedelta(seconds=10))
    assert result == {"id": "scan-1"}
    assert [change.event for change in changes] == ["created", "Accepted", "Finished"]


async def test_a_blocking_handler_stalls_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Others are served meanwhile, its leases are renewed, and the watchdog names it."""
    slow, quick = Slow(blocks=True), ScriptedHandler("quick", Other)
    app = App(MemoryStore(), [slow, quick])
    worker = app.worker(lease=timedelta(milliseconds=900), call_timeout=timedelta(milliseconds=890))
    worker.settings  # noqa: B018
    async with app, app.worker():
        blocked = await submitted(app)
        await until(slow.entered.is_set)
        other = await app.manager.submit(Other(1), tracking_timeout=HOUR)
        assert (await app.manager.wait(other.id, timedelta(seconds=5))).status is Status.SUCCEEDED
        await until(lambda: "has blocked its event loop" in caplog.text)
        slow.go_on.set()
        assert (await app.manager.wait(blocked.id, timedelta(seconds=5))).status is Status.SUCCEEDED
    assert "'scan'" in caplog.text


async def test_a_call_outlives_its_first_lease_by_renewal() -> None:
    """A lease is renewed until the outcome is settled."""
    slow = Slow()
    app = App(MemoryStore(), [slow])
    lease = timedelta(milliseconds=300)
    async with app, app.worker(lease=lease, call_timeout=lease * 0.99):
        task = await submitted(app)
        await until(slow.entered.is_set)
        first = (await fresh(app, task)).lease
        assert first is not None
        while (now := (await fresh(app, task)).lease) is None or now.until == first.until:
            await asyncio.sleep(0.01)
        slow.go_on.set()
        assert (await app.manager.wait(task.id, timedelta(seconds=5))).status in (
            Status.SUCCEEDED,
            Status.SUBMIT_UNKNOWN,
        )


async def test_a_stuck_handler_is_given_up_and_can_send_nothing_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call past its timeout is settled although the handler blocks; its late write is refused."""
    monkeypatch.setattr("coatcheck.calling.GIVE_UP_GRACE_SECONDS", 0.1)
    refused: list[BaseException] = []

    class Stuck(Slow):
        async def submit(self, params: Page, context: SubmitContext) -> SubmitResult:
            self.entered.set()
            self.go_on.wait(20)
            try:
                context.ensure_held()
            except LeaseLost as error:
                refused.append(error)
                raise
            return SubmitResult.accepted("never")

    stuck = Stuck()
    app = App(MemoryStore(), [stuck])
    async with app, app.worker(call_timeout=timedelta(milliseconds=200)):
        task = await submitted(app)
        done = await app.manager.wait(task.id, timedelta(seconds=10))
        assert done.status is Status.SUBMIT_UNKNOWN
        stuck.go_on.set()
        await until(lambda: bool(refused))
    assert "is given up" in caplog.text


async def test_a_call_past_its_timeout_is_cancelled() -> None:
    """Every call has a timeout below the lease."""
    slow = Slow()
    app = App(MemoryStore(), [slow])
    async with app, app.worker(call_timeout=timedelta(milliseconds=100)):
        task = await submitted(app)
        done = await app.manager.wait(task.id, timedelta(seconds=10))
    assert done.status is Status.SUBMIT_UNKNOWN
    assert slow.cancelled_at_submit


async def test_stopping_lets_calls_in_flight_finish() -> None:
    """A graceful stop loses nothing."""
    slow = Slow()
    app = App(MemoryStore(), [slow])
    async with app:
        async with app.worker() as worker:
            task = await submitted(app)
            await until(slow.entered.is_set)
            worker.stop()
            slow.go_on.set()
        after = await fresh(app, task)
    assert after.status is Status.SUBMITTED
    assert after.lease is None


async def test_a_forced_stop_records_calls_in_flight_as_they_are() -> None:
    """Past the stop timeout a submission in flight is SUBMIT_UNKNOWN, and the worker ends."""
    slow = Slow()
    app = App(MemoryStore(), [slow])
    async with app:
        async with app.worker(stop_timeout=timedelta(milliseconds=50)):
            task = await submitted(app)
            await until(slow.entered.is_set)
        after = await fresh(app, task)
    assert after.status is Status.SUBMIT_UNKNOWN
    assert after.error is not None
    assert "stopped" in after.error.message


async def test_a_forced_stop_gives_queries_back() -> None:
    """A query in flight costs nothing: the next worker asks again."""

    class SlowQuery(ScriptedHandler[Page]):
        entered = threading.Event()

        async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
            self.entered.set()
            await asyncio.sleep(60)
            return await super().query(params, context)

    handler = SlowQuery("scan", Page)
    app = App(MemoryStore(), [handler])
    async with app:
        async with app.worker(stop_timeout=timedelta(milliseconds=50)):
            task = await submitted(app)
            await until(handler.entered.is_set)
        after = await fresh(app, task)
    assert after.status is Status.SUBMITTED
    assert after.lease is None
    assert after.progress.query_count == 0


async def test_only_one_scheduler_per_worker() -> None:
    """A worker that works cannot be started again, and one that has ended neither."""
    app = App(MemoryStore(), [scripted()])
    async with app:
        async with app.worker() as worker:
            with pytest.raises(ConfigurationError, match="works already"):
                await worker.run_once()
        with pytest.raises(ConfigurationError, match="has ended"):
            await worker.drain()


async def test_worker_ids_are_unique_per_incarnation() -> None:
    """Two workers of one process have two ids."""
    app = App(MemoryStore(), [scripted()])
    assert app.worker().id != app.worker().id


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"submissions": -1}, "submissions must not be negative"),
        ({"queries": -1}, "queries must not be negative"),
        ({"submissions": 0, "queries": 0}, "needs a budget"),
        ({"call_timeout": timedelta()}, "call_timeout must be positive"),
        ({"call_timeout": timedelta(seconds=60)}, "below the lease"),
        ({"poll_interval": timedelta()}, "poll_interval must be positive"),
        ({"stop_timeout": timedelta(seconds=-1)}, "stop_timeout must not be negative"),
        ({"max_lost_leases": 0}, "max_lost_leases must be at least 1"),
    ],
)
def test_worker_settings_that_cannot_work_are_refused(settings: dict[str, object], says: str) -> None:
    """The message names the rule and the settings."""
    with pytest.raises(ConfigurationError, match=says):
        WorkerSettings(**settings)  # type: ignore[arg-type]


async def test_a_handler_that_fails_to_open_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks wait, and the others are served."""

    class Broken(ScriptedHandler[Page]):
        async def open(self) -> None:
            message = "no key file"
            raise OSError(message)

    quick = ScriptedHandler("quick", Other)
    app = App(MemoryStore(), [Broken("scan", Page), quick])
    async with app, app.worker():
        task = await submitted(app)
        other = await app.manager.submit(Other(1), tracking_timeout=HOUR)
        assert (await app.manager.wait(other.id, timedelta(seconds=5))).status is Status.SUCCEEDED
        assert (await fresh(app, task)).status is Status.PENDING_SUBMIT
    assert "no key file" in caplog.text


async def test_handlers_are_opened_once_and_closed_after_the_last_user() -> None:
    """Two workers share one open handler."""

    class Counting(ScriptedHandler[Page]):
        opened = closed = 0

        async def open(self) -> None:
            self.opened += 1

        async def close(self) -> None:
            self.closed += 1

    handler = Counting("scan", Page)
    app = App(MemoryStore(), [handler])
    async with app:
        async with app.worker(), app.worker():
            await until(lambda: handler.opened == 1)
            assert handler.closed == 0
        assert (handler.opened, handler.closed) == (1, 1)


# ------------------------------------------------------------------ the store fails


def faulty(handler: ScriptedHandler[Page]) -> tuple[App, FaultyStore]:
    """Return an app over a store that fails on demand."""
    store = FaultyStore(MemoryStore())
    return App(store, [handler]), store


async def test_an_outage_while_settling_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The outcome waits for the store and is written when it is back; the outage is told once."""
    app, store = faulty(scripted())
    store.fail("settle", times=3)
    async with app, app.worker():
        task = await submitted(app)
        done = await app.manager.wait(task.id, timedelta(seconds=10))
    assert done.status is Status.SUCCEEDED
    assert caplog.text.count("the store is away") == 1
    assert "the store is back" in caplog.text


async def test_a_lost_answer_to_a_settle_is_settled_once() -> None:
    """Committed, but the answer was lost: repeating it succeeds and changes nothing."""
    app, store = faulty(scripted(query=[QueryResult.running()]))
    store.fail("settle", times=1, after=True)
    async with app, app.worker():
        task = await submitted(app)
        done = await app.manager.wait(task.id, timedelta(seconds=10))
    assert done.status is Status.SUCCEEDED
    assert done.progress.query_count == 2


async def test_a_lost_answer_to_start_calls_nobody(clock: ManualClock) -> None:
    """Without an acknowledged start the provider is not called, so the task goes back to the queue, undoubted."""
    handler = scripted()
    store = FaultyStore(MemoryStore(clock=clock))
    app = App(store, [handler])
    store.fail("start", after=True)
    async with app, app.worker():
        task = await submitted(app)
        await until_changed(app, task, Status.PENDING_SUBMIT, "did not answer to start")
        assert not handler.submitted
        clock.advance(timedelta(seconds=5))
        await until_changed(app, task, Status.SUBMITTED)
    assert len(handler.submitted) == 1


async def until_changed(app: App, task: Task, status: Status, said: str = "") -> None:
    """Wait until a task has a status, and an error that says something."""
    ends = time.monotonic() + 10
    while True:
        now = await fresh(app, task)
        if now.status is status and said in (now.error.message if now.error else ""):
            return
        assert time.monotonic() < ends, f"it is still {now.status}: {now.error}"
        await asyncio.sleep(0.005)


async def test_an_outage_while_claiming_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    """The worker backs off, recovers, and says so once."""
    app, store = faulty(scripted())
    store.fail("claim_submissions", times=3)
    async with app, app.worker():
        task = await submitted(app)
        assert (await app.manager.wait(task.id, timedelta(seconds=10))).status is Status.SUCCEEDED
    assert caplog.text.count("backing off") == 1


async def test_a_bug_in_the_store_does_not_stop_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error of one round is logged, and the next round works."""
    app, store = faulty(scripted())
    store.fail("claim_queries", error=ZeroDivisionError("bug"))
    async with app, app.worker():
        task = await submitted(app)
        assert (await app.manager.wait(task.id, timedelta(seconds=10))).status is Status.SUCCEEDED
    assert "a round failed" in caplog.text


async def test_one_outcome_that_breaks_settling_does_not_hurt_the_others(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """A batch that cannot be settled is settled one by one; an accepted id that cannot be is attested."""
    handler = scripted()
    store = FaultyStore(MemoryStore(clock=clock))
    app = App(store, [handler])
    async with app:
        for _ in range(3):
            await submitted(app)
        store.fail("settle", times=2, error=ZeroDivisionError("bug"))
        await app.worker().run_once()
        tasks = await app.manager.find()
    assert [task.status for task in tasks] == [Status.SUBMITTED] * 3
    assert len({task.external_task_id for task in tasks}) == 3
    assert caplog.text.count("cannot be settled") == 1
    assert caplog.text.count("late proof of its submission was taken in") == 1


async def test_late_proof_is_attested_when_the_lease_was_lost(clock: ManualClock) -> None:
    """The provider accepted after the lease had ended and a rescuer had left it unknown: the id is kept."""
    store = MemoryStore(clock=clock)

    async def slow_answer(_params: Page, _context: SubmitContext) -> SubmitResult:
        clock.advance(timedelta(minutes=10))
        await App(store, [scripted()]).worker().drain()
        return SubmitResult.accepted("paid-1")

    app = App(store, [scripted(submit=[slow_answer], query=[QueryResult.running()] * 9)])
    async with app:
        task = await submitted(app)
        await app.worker().run_once()
        after = await fresh(app, task)
    assert after.status is Status.SUBMITTED
    assert after.external_task_id == "paid-1"
    assert Status.SUBMIT_UNKNOWN in {entry.target for entry in after.history}


async def test_late_proof_of_a_cancelled_task_cancels_the_remote_job(clock: ManualClock) -> None:
    """The job turns up after the task was given up as CANCELED: the provider is told, at the store's time."""
    store = MemoryStore(clock=clock)
    told_at: list[datetime] = []

    class Told(ScriptedHandler[Page]):
        async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
            told_at.append(context.now)
            return await super().cancel(params, context)

    async def slow_answer(_params: Page, context: SubmitContext) -> SubmitResult:
        await store.request_cancellation(context.task_id)
        clock.advance(timedelta(minutes=10))
        await App(store, [scripted()]).worker().drain()
        return SubmitResult.accepted("paid-1")

    handler = Told("scan", Page, submit=[slow_answer], cancel=[])
    app = App(store, [handler])
    async with app:
        task = await submitted(app)
        await app.worker().run_once()
        after = await fresh(app, task)
    assert after.status is Status.CANCELED
    assert after.external_task_id == "paid-1"
    assert after.outcome.remote_cancel is CancelOutcome.CONFIRMED
    assert len(handler.cancelled) == 1
    assert after.outcome.finished_at is not None
    assert timedelta() <= told_at[0] - after.outcome.finished_at < SECOND * 30


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="coatcheck")


async def test_the_poll_floor_of_a_handler_is_kept() -> None:
    """Whatever the retry policy and the provider say: before the first query, between queries, and after errors."""
    clock = ManualClock()
    handler = scripted(
        submit=[SubmitDeferred("refused", retry_after=timedelta(seconds=1)), SubmitResult.accepted("p-1")],
        query=[
            QueryResult.running(retry_after=timedelta(seconds=2)),
            QueryFailed("slow"),
            QueryResult.running(retry_after=timedelta(minutes=1)),
        ],
    )
    handler.poll_floor = timedelta(seconds=20)
    retry = ExponentialRetry(initial=timedelta(seconds=1), factor=1, jitter=0)
    async with memory_app(handler, clock=clock, retry=retry) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=timedelta(hours=1))
        waits = []
        for _ in range(5):
            await app.worker().drain()
            found = await app.manager.get(task.id)
            assert found is not None
            waits.append((found.schedule.due_at - clock.now()).total_seconds())
            clock.advance(found.schedule.due_at - clock.now())
    assert waits == [1, 20, 20, 20, 60]
