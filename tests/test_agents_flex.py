"""What the async-task module of Agents-Flex promises, kept: one test for each promise, on every embedded store."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from coatcheck import (
    App,
    ConfigurationError,
    ExponentialRetry,
    InvalidParams,
    NotPersistable,
    ParamsMismatch,
    QueryFailed,
    QueryParams,
    QueryResult,
    Rate,
    Selection,
    Status,
    Store,
    SubmitContext,
    SubmitOptions,
    SubmitRejected,
    SubmitResult,
    Task,
    gates,
)
from coatcheck.task import JSON
from coatcheck.testing import ManualClock, ScriptedHandler, run_to_end

HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
GOING = [QueryResult.running()] * 1000


@frozen
class Scan:
    """Params of the OCR handlers."""

    url: str = "https://example.com/a.png"


@frozen
class Film:
    """Params of the video handlers."""

    prompt: str = "a cat"


def ocr(key: str = "ocr", **script: Any) -> ScriptedHandler[Scan]:
    """Return a scripted OCR handler."""
    return ScriptedHandler(key, Scan, **script)


def video(**script: Any) -> ScriptedHandler[Film]:
    """Return a scripted video handler."""
    return ScriptedHandler("video", Film, **script)


async def submit(app: App, params: object | None = None, **options: Any) -> Task:
    """Submit a task with options."""
    timeout = options.pop("tracking_timeout", HOUR)
    return await app.manager.submit(
        params or Scan(), tracking_timeout=timeout, options=SubmitOptions(**options)
    )


async def now(app: App, task: Task) -> Task:
    """Return the task as it is now."""
    found = await app.manager.get(task.id)
    assert found is not None
    return found


async def test_lifecycle_from_pending_to_success(store: Store, clock: ManualClock) -> None:
    """PENDING_SUBMIT, SUBMITTING, SUBMITTED, RUNNING, SUCCEEDED, each seen."""
    seen: list[Status] = []

    async def at_submit(_params: Scan, context: SubmitContext) -> SubmitResult:
        task = await store.get(context.task_id)
        assert task is not None
        seen.append(task.status)
        return SubmitResult.accepted("p-1")

    handler = ocr(submit=[at_submit], query=[QueryResult.running()])
    async with App(store, [handler]) as app:
        task = await submit(app)
        seen.insert(0, task.status)
        await app.worker().run_once()
        seen.append((await now(app, task)).status)
        clock.advance(timedelta(seconds=5))
        await app.worker().run_once()
        seen.append((await now(app, task)).status)
        await run_to_end(app, clock)
        seen.append((await now(app, task)).status)
    assert seen == [
        Status.PENDING_SUBMIT,
        Status.SUBMITTING,
        Status.SUBMITTED,
        Status.RUNNING,
        Status.SUCCEEDED,
    ]


async def test_two_ids_ours_for_clients_and_the_providers_for_queries(
    store: Store, clock: ManualClock
) -> None:
    """Clients see ours alone; the handler queries by the provider's."""
    handler = ocr(submit=[SubmitResult.accepted("provider-77")])
    async with App(store, [handler]) as app:
        task = await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.id == task.id != done.external_task_id == "provider-77"
    assert [params.external_task_id for params, _ in handler.queried] == ["provider-77"]
    assert "provider-77" not in str({**done.public(), "result": None})


async def test_routing_by_exact_type(store: Store) -> None:
    """Each type has its handler."""
    async with App(store, [ocr(), video()]) as app:
        assert (await submit(app, Scan())).route.handler_key == "ocr"
        assert (await submit(app, Film())).route.handler_key == "video"


async def test_explicit_handler_key_goes_before_the_selector(store: Store) -> None:
    """The selector is not asked when the caller names a handler."""
    asked: list[Selection] = []

    async def select(selection: Selection) -> str:
        asked.append(selection)
        return "a"

    async with App(store, [ocr("a"), ocr("b")], selector=select) as app:
        assert (await submit(app)).route.handler_key == "a"
        assert (await submit(app, handler_key="b")).route.handler_key == "b"
    assert len(asked) == 1


async def test_selection_is_persisted_and_never_made_again(store: Store, clock: ManualClock) -> None:
    """Whatever the selector would say later, the task stays with its handler, over deferrals and restarts."""
    answers = iter(["a", "b", "b", "b"])

    async def select(_selection: Selection) -> str:
        return next(answers)

    a, b = ocr("a", query=[QueryFailed("x")] * 3), ocr("b")
    async with App(store, [a, b], selector=select) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.route.handler_key == "a"
    assert (len(a.submitted), len(a.queried), len(b.submitted)) == (1, 4, 0)


async def test_payload_is_validated_before_writing(store: Store) -> None:
    """A payload that cannot be persisted leaves no task behind."""
    async with App(store, [ocr()]) as app:
        with pytest.raises(NotPersistable, match="params.url"):
            await submit(app, Scan(b"bytes"))  # type: ignore[arg-type]
        assert await app.manager.find() == []


async def test_delayed_submission_follows_the_stores_clock(store: Store, clock: ManualClock) -> None:
    """Not before created plus delay, and at that time."""
    handler = ocr()
    async with App(store, [handler]) as app:
        task = await submit(app, delay=timedelta(minutes=10))
        assert task.schedule.scheduled_at == task.schedule.created_at + timedelta(minutes=10)
        clock.advance(timedelta(minutes=10) - MILLISECOND)
        assert await app.worker().run_once() == 0
        clock.advance(MILLISECOND)
        assert await app.worker().run_once() == 1
    assert len(handler.submitted) == 1


async def test_priority_does_not_bypass_delay(store: Store) -> None:
    """A delayed task of high priority waits, and others go."""
    async with App(store, [ocr()]) as app:
        await submit(app, priority=100, delay=HOUR / 2)
        low = await submit(app, priority=-5)
        claims = await store.claim_submissions("w", ["ocr"], 10, HOUR)
        assert [task.id for task in claims.tasks] == [low.id]


async def test_rank_order(store: Store, clock: ManualClock) -> None:
    """Priority high first, then scheduled time, then created, then id."""
    async with App(store, [ocr()]) as app:
        low = await submit(app, priority=-1)
        later = await submit(app, delay=timedelta(seconds=2))
        clock.advance(timedelta(seconds=1))
        soon = await submit(app, delay=timedelta(milliseconds=500))
        high = await submit(app, priority=9)
        first = await submit(app)
        second = await submit(app)
        clock.advance(timedelta(minutes=1))
        claims = await store.claim_submissions("w", ["ocr"], 10, HOUR)
        order = [high, first, second, soon, later, low]
        assert [task.id for task in claims.tasks] == [task.id for task in order]


async def test_qps_is_a_sliding_window(store: Store, clock: ManualClock) -> None:
    """With 2 per second: A and B at 1000 ms, C refused at 1500 ms, granted at 2000 ms."""
    handler = ocr(query=GOING)
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.provider("ocr"), rate=Rate(2, timedelta(seconds=1)))
        for _ in range(3):
            await submit(app)
        start = clock.advance(timedelta(seconds=1))
        await app.worker().drain()
        assert len(handler.submitted) == 2
        clock.set(start + timedelta(milliseconds=500))
        await app.worker().drain()
        assert len(handler.submitted) == 2
        clock.set(start + timedelta(milliseconds=1000))
        await app.worker().drain()
        assert len(handler.submitted) == 3


ENDS: dict[Status, dict[str, Any]] = {
    Status.SUCCEEDED: {"query": [QueryResult.running(), QueryResult.succeeded(1)]},
    Status.FAILED: {"query": [QueryResult.running(), QueryResult.failed("E", "no")]},
    Status.CANCELED: {"query": [QueryResult.running(), QueryResult.canceled()]},
    Status.TRACKING_TIMED_OUT: {"query": GOING},
    Status.SUBMIT_UNKNOWN: {"submit": [TimeoutError()]},
}


@pytest.mark.parametrize("end", ENDS)
async def test_account_concurrency_counts_active_tasks_and_is_released_at_every_end(
    store: Store, clock: ManualClock, end: Status
) -> None:
    """One at a time under the account, over SUBMITTING, SUBMITTED, RUNNING; freed whatever the end is."""
    script = {**ENDS[end]}
    queries = [*script.pop("query", []), *GOING]
    handler = ocr(query=queries, **script)
    name = gates.account("ocr", "acc")
    async with App(store, [handler]) as app:
        await app.manager.set_gate(name, concurrency=1)
        first = await submit(app, account_id="acc", tracking_timeout=timedelta(minutes=5))
        second = await submit(app, account_id="acc")
        await app.worker().run_once()
        if end is not Status.SUBMIT_UNKNOWN:
            assert (await now(app, first)).status is Status.SUBMITTED
            assert (await now(app, second)).status is Status.PENDING_SUBMIT
            clock.advance(timedelta(seconds=5))
            await app.worker().run_once()
            assert (await now(app, first)).status is Status.RUNNING
            assert (await now(app, second)).status is Status.PENDING_SUBMIT
            assert (await app.manager.gates([name]))[0].used == 1
        clock.advance(timedelta(minutes=5) if end is Status.TRACKING_TIMED_OUT else timedelta(seconds=30))
        await app.worker().drain()
        await app.worker().drain()
        assert (await now(app, first)).status is end
        assert (await now(app, second)).status.active
        assert (await app.manager.gates([name]))[0].used == 1


async def test_tenant_quota_spans_providers_and_handlers(store: Store) -> None:
    """A tenant's limit counts its tasks at every provider together."""
    scan, film = ocr(query=GOING), video(query=GOING)
    async with App(store, [scan, film]) as app:
        await app.manager.set_gate(gates.tenant("t"), concurrency=2)
        for params in (Scan(), Film(), Scan(), Film()):
            await submit(app, params, tenant_id="t")
        await submit(app, Film(), tenant_id="u")
        await app.worker().drain()
        active = [task for task in await app.manager.find() if task.status.active]
    assert sorted(str(task.route.tenant_id) for task in active) == ["t", "t", "u"]


async def test_pause_and_resume_are_idempotent(store: Store) -> None:
    """Twice is like once."""
    name = gates.provider("ocr")
    async with App(store, [ocr()]) as app:
        task = await submit(app)
        for _ in range(2):
            await app.manager.pause(name, reason="maintenance")
        assert await app.worker().run_once() == 0
        for _ in range(2):
            await app.manager.resume(name)
        assert await app.worker().run_once() == 1
        assert (await now(app, task)).status is Status.SUBMITTED


async def test_pause_does_not_stop_queries(store: Store, clock: ManualClock) -> None:
    """Jobs that the provider has are followed to their end while nothing new is submitted."""
    async with App(store, [ocr()]) as app:
        running = await submit(app)
        await app.worker().run_once()
        await app.manager.pause(gates.provider("ocr"), reason="maintenance")
        waiting = await submit(app)
        clock.advance(timedelta(minutes=1))
        await app.worker().drain()
        assert (await now(app, running)).status is Status.SUCCEEDED
        assert (await now(app, waiting)).status is Status.PENDING_SUBMIT


async def test_cancelled_and_overdue_tasks_pass_closed_gates_and_consume_nothing(
    store: Store, clock: ManualClock
) -> None:
    """They end while the gate is shut, and its slots and grants are as before."""
    name = gates.provider("ocr")
    handler = ocr()
    async with App(store, [handler]) as app:
        await app.manager.set_gate(name, concurrency=1, rate=Rate(1, HOUR))
        await app.manager.pause(name, reason="shut")
        cancelled = await submit(app)
        overdue = await submit(app, tracking_timeout=timedelta(minutes=1))
        assert await app.manager.cancel(cancelled.id)
        clock.advance(timedelta(minutes=1))
        await app.worker().drain()
        assert (await now(app, cancelled)).status is Status.CANCELED
        assert (await now(app, overdue)).status is Status.TRACKING_TIMED_OUT
        (usage,) = await app.manager.gates([name])
        assert (usage.used, usage.granted) == (0, 0)
    assert not handler.submitted


async def test_tracking_timeout_includes_the_delay(store: Store, clock: ManualClock) -> None:
    """The deadline counts from creation, so a long delay eats it up."""
    async with App(store, [ocr()]) as app:
        task = await submit(app, delay=timedelta(minutes=5), tracking_timeout=timedelta(minutes=4))
        assert task.schedule.deadline_at == task.schedule.created_at + timedelta(minutes=4)
        clock.advance(timedelta(minutes=4))
        await app.worker().drain()
        assert (await now(app, task)).status is Status.TRACKING_TIMED_OUT


async def test_cancellation_during_a_provider_call(store: Store, clock: ManualClock) -> None:
    """Cancelled while the query is on its way: whatever it answers, the task ends CANCELED."""
    app: App

    async def cancel_then_answer(_params: QueryParams, context: object) -> QueryResult:
        assert await store.request_cancellation(context.task_id)  # type: ignore[attr-defined]
        return QueryResult.succeeded("too late")

    async with App(store, [ocr(query=[cancel_then_answer])]) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.CANCELED
    assert done.error is not None
    assert done.outcome.result == "too late"


async def test_next_query_params_are_used(store: Store, clock: ManualClock) -> None:
    """What a query returns as next params is stored and used by the next one."""
    following = QueryParams(external_task_id="ocr-1", provider_params={"page": 2})
    handler = ocr(query=[QueryResult.running(next_params=following)])
    async with App(store, [handler]) as app:
        await submit(app)
        await run_to_end(app, clock)
    assert [dict(params.provider_params) for params, _ in handler.queried] == [{}, {"page": 2}]


async def test_retry_then_failure(store: Store, clock: ManualClock) -> None:
    """With a bound on errors in a row, queries are retried, then the task fails."""
    handler = ocr(query=[QueryFailed("down", code="E9")] * 10)
    async with App(store, [handler], retry=ExponentialRetry(max_consecutive_errors=3)) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.FAILED
    assert len(handler.queried) == 3
    assert done.error is not None
    assert done.error.provider_code == "E9"


async def test_submit_unknown_is_never_resubmitted(store: Store, clock: ManualClock) -> None:
    """However long workers go on, the provider saw one request."""
    handler = ocr(submit=[ConnectionResetError()])
    async with App(store, [handler]) as app:
        task = await submit(app, tracking_timeout=timedelta(days=2))
        for _ in range(50):
            await app.worker().drain()
            clock.advance(HOUR)
        assert (await now(app, task)).status is Status.SUBMIT_UNKNOWN
    assert len(handler.submitted) == 1


async def test_only_one_scheduler_per_worker(store: Store) -> None:
    """A worker that works cannot be started a second time."""
    async with App(store, [ocr()]) as app, app.worker() as worker:
        with pytest.raises(ConfigurationError, match="works already"):
            await worker.run()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tracking_timeout": timedelta()}, "tracking_timeout"),
        ({"tracking_timeout": -HOUR}, "tracking_timeout"),
        ({"priority": 2**31}, "priority"),
        ({"delay": -MILLISECOND}, "delay"),
        ({"account_id": " "}, "account_id"),
        ({"tenant_id": ""}, "tenant_id"),
    ],
)
async def test_argument_validation(store: Store, options: dict[str, Any], says: str) -> None:
    """Bad arguments are refused by name, and nothing is written."""
    async with App(store, [ocr()]) as app:
        with pytest.raises(InvalidParams, match=says):
            await submit(app, **options)
        assert await app.manager.find() == []


class Versioned(ScriptedHandler[Scan]):
    """A handler whose params have changed their shape since."""

    params_version = 2

    def upgrade_params(self, raw: JSON, version: int) -> JSON:
        """Version 1 called the URL a link."""
        assert version == 1
        assert isinstance(raw, dict)
        return {"url": raw["link"]}

    def upgrade_query_params(self, params: QueryParams, version: int) -> QueryParams:
        """Version 1 had no region."""
        assert version == 1
        return params.evolve(region="cn")


@frozen
class OldScan:
    """The shape of version 1."""

    link: str


async def test_old_params_are_readable_after_params_version_rises(store: Store, clock: ManualClock) -> None:
    """A task submitted by the old code is submitted by the new one."""
    old: ScriptedHandler[OldScan] = ScriptedHandler("ocr", OldScan)
    async with App(store, [old]) as app:
        await submit(app, OldScan("https://old"))
        new = Versioned("ocr", Scan)
        await run_to_end(App(store, [new]), clock)
    assert [params for params, _ in new.submitted] == [Scan("https://old")]


async def test_old_query_params_are_readable_after_params_version_rises(
    store: Store, clock: ManualClock
) -> None:
    """A job tracked by the old code is queried by the new one."""
    async with App(store, [ocr(query=GOING)]) as app:
        await submit(app)
        await app.worker().run_once()
        new = Versioned("ocr", Scan)
        (done,) = await run_to_end(App(store, [new]), clock)
    assert [params.provider_params["region"] for params, _ in new.queried] == ["cn"]
    assert done.status is Status.SUCCEEDED


async def test_an_explicit_handler_key_with_another_params_type_is_refused(store: Store) -> None:
    """The handler is named with the type that it takes."""
    async with App(store, [ocr(), video()]) as app:
        with pytest.raises(ParamsMismatch, match="'video' takes Film, not Scan"):
            await submit(app, Scan(), handler_key="video")


async def test_blank_ids_in_next_params_are_refused(store: Store, clock: ManualClock) -> None:
    """A query that answers with a blank id is an error of the handler, and the stored id stays."""

    def blank(_params: QueryParams, _context: object) -> QueryResult:
        return QueryResult.running(next_params=QueryParams(external_task_id=" "))

    async with App(store, [ocr(query=[blank])]) as app:
        task = await submit(app)
        await app.worker().run_once()
        clock.advance(timedelta(seconds=5))
        await app.worker().run_once()
        after = await now(app, task)
        assert after.external_task_id == "ocr-1"
        assert after.error is not None
        assert "non-blank" in after.error.message
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED


async def test_no_account_or_tenant_no_such_limit(store: Store) -> None:
    """A task without them is not held by the limits of those that have them."""
    async with App(store, [ocr(query=GOING)]) as app:
        await app.manager.set_gate(gates.account("ocr", "acc"), concurrency=1)
        await app.manager.set_gate(gates.tenant("t"), concurrency=1)
        await submit(app, account_id="acc", tenant_id="t")
        for _ in range(3):
            await submit(app)
        await submit(app, account_id="acc", tenant_id="t")
        await app.worker().drain()
        active = [task for task in await app.manager.find() if task.status.active]
    assert len(active) == 4


async def test_a_rejected_submission_is_final(store: Store, clock: ManualClock) -> None:
    """The provider's no is not asked about again."""
    handler = ocr(submit=[SubmitRejected("no")])
    async with App(store, [handler]) as app:
        await submit(app)
        (done,) = await run_to_end(app, clock)
        await asyncio.sleep(0)
    assert done.status is Status.FAILED
    assert len(handler.submitted) == 1
