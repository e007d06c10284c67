"""What application code gets from the manager."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from coatcheck import (
    AmbiguousHandler,
    App,
    ConfigurationError,
    DedupConflict,
    Filter,
    Gate,
    InvalidParams,
    InvalidTransition,
    NoHandler,
    NotPersistable,
    ParamsMismatch,
    QueryParams,
    QueryResult,
    Rate,
    Selection,
    StandardAdmission,
    Status,
    Submission,
    SubmitOptions,
    Task,
    TaskChange,
    TaskNotFound,
    TaskUnsuccessful,
    Unsupported,
    WaitTimeout,
    gates,
)
from coatcheck.handler import Callback, CallbackRequest
from coatcheck.manager import rank_of
from coatcheck.memory import MemoryStore
from coatcheck.task import Rank, new_task_id
from coatcheck.testing import ManualClock, ScriptedHandler, memory_app, run_to_end

HOUR = timedelta(hours=1)


@frozen
class Page:
    """What the handlers of these tests take."""

    url: str
    pages: list[int] | None = None


@frozen
class Clip:
    """Params of another handler."""

    prompt: str


@frozen
class Text:
    """A typed result."""

    id: str


PAGE = Page("https://example.com/a.png")


def handler(key: str = "scan", **script: Any) -> ScriptedHandler[Page]:
    """Return a handler of pages."""
    return ScriptedHandler(key, Page, **script)


def film() -> ScriptedHandler[Clip]:
    """Return a handler of clips."""
    return ScriptedHandler("film", Clip)


async def test_submit_never_calls_the_provider() -> None:
    """It saves the task and returns at once."""
    scan = handler()
    async with memory_app(scan) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
    assert task.status is Status.PENDING_SUBMIT
    assert (task.route.handler_key, task.route.provider_key) == ("scan", "scan")
    assert task.identity.idempotency_key == task.id
    assert task.schedule.deadline_at - task.schedule.created_at == HOUR
    assert not scan.submitted


async def test_routing_is_by_exact_params_type() -> None:
    """Each params type goes to its handler; a subclass is another type."""

    class Special(Page):
        pass

    async with memory_app(handler(), film()) as app:
        assert (await app.manager.submit(PAGE, tracking_timeout=HOUR)).route.handler_key == "scan"
        assert (await app.manager.submit(Clip("x"), tracking_timeout=HOUR)).route.handler_key == "film"
        with pytest.raises(NoHandler, match="no handler takes .*Special"):
            await app.manager.submit(Special("https://example.com"), tracking_timeout=HOUR)


async def test_several_handlers_need_a_choice() -> None:
    """Without a name or a selector the candidates are named."""
    async with memory_app(handler("b"), handler("a")) as app:
        with pytest.raises(AmbiguousHandler) as caught:
            await app.manager.submit(PAGE, tracking_timeout=HOUR)
        assert caught.value.candidates == ("a", "b")
        options = SubmitOptions(handler_key="b")
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR, options=options)
        assert task.route.handler_key == "b"


async def test_a_provider_can_be_named() -> None:
    """Only its handlers are candidates."""
    async with memory_app(handler("a"), handler("b", provider_key="p")) as app:
        options = SubmitOptions(provider_key="p")
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR, options=options)
        assert task.route.handler_key == "b"
        with pytest.raises(NoHandler):
            await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(provider_key="zzz"))
        with pytest.raises(ParamsMismatch, match="provider"):
            await app.manager.submit(
                PAGE, tracking_timeout=HOUR, options=SubmitOptions(handler_key="a", provider_key="p")
            )


async def test_an_unknown_or_unfit_handler_key_is_refused() -> None:
    """The nearest right name is told, and what the named one takes."""
    async with memory_app(handler("scan"), film()) as app:
        with pytest.raises(NoHandler, match="did you mean 'scan'"):
            await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(handler_key="scann"))
        with pytest.raises(ParamsMismatch, match="'film' takes Clip, not Page"):
            await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(handler_key="film"))


async def test_the_selector_chooses_and_its_answer_is_persisted() -> None:
    """It sees read-only copies, and must answer with a candidate."""
    seen: list[Selection] = []

    async def choose(selection: Selection) -> str:
        seen.append(selection)
        selection.params.pages.append(99)  # type: ignore[attr-defined]
        with pytest.raises(TypeError):
            selection.options["tenant_id"] = "x"  # type: ignore[index]
        return "b"

    async with memory_app(handler("b"), handler("a"), selector=choose) as app:
        params = Page("https://example.com", [1])
        options = SubmitOptions(tenant_id="t", metadata={"k": [1]})
        task = await app.manager.submit(params, tracking_timeout=HOUR, options=options)
    assert task.route.handler_key == "b"
    assert task.params == {"url": "https://example.com", "pages": [1]}
    assert seen[0].candidates == ("a", "b")
    assert dict(seen[0].options) == {"tenant_id": "t", "metadata": {"k": [1]}}


async def test_a_selector_must_answer_with_a_candidate() -> None:
    """Anything else is an error that names the candidates."""

    async def choose(_selection: Selection) -> str:
        return "c"

    async with memory_app(handler("b"), handler("a"), selector=choose) as app:
        with pytest.raises(ConfigurationError, match="'c', which is none of the candidates: a, b"):
            await app.manager.submit(PAGE, tracking_timeout=HOUR)


async def test_an_explicit_handler_key_goes_before_the_selector() -> None:
    """The selector is not asked."""

    async def choose(_selection: Selection) -> str:
        raise AssertionError

    async with memory_app(handler("b"), handler("a"), selector=choose) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(handler_key="a"))
    assert task.route.handler_key == "a"


@pytest.mark.parametrize(
    ("params", "path"),
    [(Page(Path("/tmp/a.png")), "params.url"), (Page("x", [1, b"2"]), "params.pages[1]")],  # type: ignore[arg-type,list-item]
)
async def test_what_cannot_be_persisted_is_refused_before_writing(params: Page, path: str) -> None:
    """The path to the culprit is named, and nothing is written."""
    async with memory_app(handler()) as app:
        with pytest.raises(NotPersistable) as caught:
            await app.manager.submit(params, tracking_timeout=HOUR)
        assert caught.value.path == path
        assert await app.manager.find() == []


async def test_metadata_is_checked_like_params() -> None:
    """No open file hides in the metadata."""
    async with memory_app(handler()) as app:
        with pytest.raises(NotPersistable, match="metadata.f"):
            await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(metadata={"f": open}))


async def test_a_handler_may_refuse_params_before_anything_is_written() -> None:
    """`validate` is called with the params."""

    class Picky(ScriptedHandler[Page]):
        def validate(self, params: Page) -> None:
            if not params.url.startswith("https:"):
                message = f"not https: {params.url!r}"
                raise InvalidParams(message)

    async with memory_app(Picky("scan", Page)) as app:
        with pytest.raises(InvalidParams, match="not https"):
            await app.manager.submit(Page("ftp://x"), tracking_timeout=HOUR)
        assert await app.manager.find() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tracking_timeout": timedelta()}, "tracking_timeout must be positive"),
        ({"tracking_timeout": 30}, "tracking_timeout is a timedelta"),
        ({"options": {"priority": 2**31}}, "signed 32-bit"),
        ({"options": {"priority": "high"}}, "priority is an integer"),
        ({"options": {"priority": True}}, "priority is an integer"),
        ({"options": {"delay": timedelta(seconds=-1)}}, "delay must not be negative"),
        ({"options": {"not_before": datetime(2030, 1, 1)}}, "aware datetime"),  # noqa: DTZ001
        (
            {"options": {"not_before": datetime(2030, 1, 1, tzinfo=UTC), "delay": HOUR}},
            "delay or not_before",
        ),
        ({"options": {"tenant_id": " "}}, "tenant_id is a non-blank string"),
        ({"options": {"dedup_key": ""}}, "dedup_key is a non-blank string"),
    ],
)
async def test_bad_arguments_are_refused(arguments: dict[str, Any], says: str) -> None:
    """The message names the argument and its value; nothing is written."""
    async with memory_app(handler()) as app:
        with pytest.raises(InvalidParams, match=says):
            options = SubmitOptions(**arguments.pop("options", {}))
            await app.manager.submit(PAGE, **{"tracking_timeout": HOUR, "options": options, **arguments})
        assert await app.manager.find() == []


async def test_submit_many_is_all_or_nothing() -> None:
    """In order, and nothing is written if one cannot be."""
    async with memory_app(handler()) as app:
        many = [Submission(params=Page(f"https://x/{n}"), tracking_timeout=HOUR) for n in range(5)]
        tasks = await app.manager.submit_many(many)
        assert [task.params for task in tasks] == [{"url": f"https://x/{n}", "pages": None} for n in range(5)]
        assert await app.manager.submit_many([]) == []
        with pytest.raises(NotPersistable):
            await app.manager.submit_many([*many, Submission(params=Page(b"x"), tracking_timeout=HOUR)])  # type: ignore[arg-type]
        with pytest.raises(InvalidParams, match="Submission"):
            await app.manager.submit_many([PAGE])  # type: ignore[list-item]
        assert len(await app.manager.find()) == 5


async def test_a_dedup_key_gives_the_first_ones_task_back() -> None:
    """Within a tenant; with other params it is a conflict; a failed or cancelled task frees the key."""
    async with memory_app(handler()) as app:

        async def submit(url: str, tenant: str | None = None) -> Task:
            options = SubmitOptions(dedup_key="d", tenant_id=tenant)
            return await app.manager.submit(Page(url), tracking_timeout=HOUR, options=options)

        first = await submit("https://x/1")
        assert (await submit("https://x/1")).id == first.id
        assert (await submit("https://x/1", "t")).id != first.id
        with pytest.raises(DedupConflict) as caught:
            await submit("https://x/2")
        assert caught.value.holder == first.id
        await app.manager.cancel(first.id)
        assert (await submit("https://x/2")).id != first.id


async def test_another_tenants_task_is_not_there() -> None:
    """Get is None, cancel is False, wait raises TaskNotFound: the check cannot be forgotten."""
    async with memory_app(handler()) as app:
        mine = await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(tenant_id="me"))
        assert await app.manager.get(mine.id, tenant_id="you") is None
        assert await app.manager.cancel(mine.id, tenant_id="you") is False
        with pytest.raises(TaskNotFound):
            await app.manager.wait(mine.id, timedelta(seconds=1), tenant_id="you")
        assert await app.manager.get(mine.id, tenant_id="me") is not None
        assert await app.manager.cancel(mine.id, tenant_id="me") is True
        assert await app.manager.get(new_task_id()) is None
        assert await app.manager.cancel(new_task_id()) is False


async def test_waiting_times_out_with_the_snapshot() -> None:
    """`WaitTimeout` is a TimeoutError and carries the task, which goes on."""
    async with memory_app(handler()) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        with pytest.raises(TimeoutError) as caught:
            await app.manager.wait(task.id, timedelta(milliseconds=30))
        assert isinstance(caught.value, WaitTimeout)
        assert caught.value.task.id == task.id


async def test_results_are_typed() -> None:
    """`result` waits and structures; `read_result` needs no I/O; a task without one raises."""
    clock = ManualClock()
    scan = handler(query=[QueryResult.succeeded(Text("t1")), QueryResult.failed("E1", "blurred")])
    async with memory_app(scan, clock=clock) as app:
        good = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await run_to_end(app, clock)
        bad = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await run_to_end(app, clock)
        assert await app.manager.result(good.id, Text, timeout=HOUR) == Text("t1")
        done = await app.manager.wait(bad.id, HOUR)
        with pytest.raises(TaskUnsuccessful, match="blurred") as caught:
            app.manager.read_result(done, Text)
        assert caught.value.task == done
        kept = await app.manager.get(good.id)
        assert kept is not None
        with pytest.raises(InvalidParams):
            app.manager.read_result(kept, Clip)


async def test_a_public_view_tells_nothing_of_the_provider() -> None:
    """Clients see id, status, progress, result, error and times."""
    clock = ManualClock()
    async with memory_app(handler(query=[QueryResult.failed("E1", "blurred")]), clock=clock) as app:
        await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(account_id="cn"))
        (done,) = await run_to_end(app, clock)
    view = done.public()
    assert view["status"] == "FAILED"
    assert view["error"] == {"code": "provider_failed", "message": "blurred"}
    assert view["result"] is None
    assert "cn" not in repr(view)
    assert "scan" not in repr(view)


def unknown() -> ScriptedHandler[Page]:
    """Return a handler whose first submission ends in doubt."""
    return handler(submit=[TimeoutError()])


async def test_a_task_in_doubt_can_be_adopted() -> None:
    """A person found the job at the provider."""
    clock = ManualClock()
    async with memory_app(unknown(), clock=clock) as app:
        (task,) = [await app.manager.submit(PAGE, tracking_timeout=HOUR)]
        await run_to_end(app, clock)
        adopted = await app.manager.adopt(
            task.id, QueryParams(external_task_id="found"), who="ann", note="seen in the console"
        )
        assert adopted.status is Status.SUBMITTED
        assert "ann: seen in the console" in adopted.history[-1].note
        (done,) = await run_to_end(app, clock)
    assert done.result == {"id": "found"}


async def test_a_task_in_doubt_can_be_resubmitted_by_a_person() -> None:
    """With a new tracking timeout and the same idempotency key."""
    clock = ManualClock()
    scan = unknown()
    async with memory_app(scan, clock=clock) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await run_to_end(app, clock)
        again = await app.manager.resubmit(task.id, tracking_timeout=2 * HOUR, note="not in their list")
        assert again.schedule.deadline_at == clock.now() + 2 * HOUR
        (done,) = await run_to_end(app, clock)
    assert done.status is Status.SUCCEEDED
    first, second = (context.idempotency_key for _, context in scan.submitted)
    assert first == second


async def test_a_task_in_doubt_can_be_abandoned() -> None:
    """FAILED, with who and why."""
    clock = ManualClock()
    async with memory_app(unknown(), clock=clock) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await run_to_end(app, clock)
        gone = await app.manager.abandon(task.id, who="bob")
    assert gone.status is Status.FAILED
    assert gone.error is not None
    assert gone.error.code == "abandoned"


async def test_a_timed_out_task_can_be_extended() -> None:
    """More time for a job that the provider has, or that was never started."""
    clock = ManualClock()
    scan = handler(query=[QueryResult.running()] * 500)
    async with memory_app(scan, clock=clock) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await app.worker().drain()
        clock.advance(HOUR)
        await app.worker().drain()
        assert (await app.manager.extend(task.id, tracking_timeout=HOUR)).status is Status.SUBMITTED
        late = await app.manager.submit(PAGE, tracking_timeout=HOUR, options=SubmitOptions(delay=HOUR * 2))
        clock.advance(HOUR)
        await app.worker().drain()
        assert (await app.manager.extend(late.id, tracking_timeout=HOUR)).status is Status.PENDING_SUBMIT


async def test_only_tasks_in_doubt_can_be_resolved() -> None:
    """Anything else is refused, naming its status."""
    async with memory_app(handler()) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        with pytest.raises(InvalidTransition, match="PENDING_SUBMIT"):
            await app.manager.abandon(task.id)
        with pytest.raises(TaskNotFound):
            await app.manager.abandon(new_task_id())


async def test_gates_are_live() -> None:
    """Limits, pauses and usage, from code."""
    name = gates.provider("scan")
    clock = ManualClock()
    async with memory_app(handler(), clock=clock) as app:
        await app.manager.set_gate(name, concurrency=2, rate=Rate(5))
        await app.manager.pause(name, reason="maintenance", who="ann", until=clock.now() + HOUR)
        (usage,) = await app.manager.gates([name])
        assert usage.gate.concurrency == 2
        assert usage.gate.pause is not None
        assert (usage.gate.pause.reason, usage.gate.pause.who) == ("maintenance", "ann")
        assert usage.gate.pause.until == clock.now() + HOUR
        await app.manager.submit(PAGE, tracking_timeout=3 * HOUR)
        assert await app.worker().drain() == 0
        await app.manager.resume(name)
        await app.manager.resume(name)
        assert await app.worker().drain() == 1
        await app.manager.delete_gate(name)
        assert await app.manager.gates() == []
        with pytest.raises(InvalidParams, match="concurrency is at least 1"):
            await app.manager.set_gate(name, concurrency=0)
        with pytest.raises(InvalidParams, match="until or duration"):
            await app.manager.pause(name, reason="x", until=clock.now(), duration=HOUR)
        with pytest.raises(InvalidParams, match="aware"):
            await app.manager.pause(name, reason="x", until=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_limits_named_by_a_policy_are_applied_only_where_new() -> None:
    """A limit that an operator has set stands."""
    name, query = gates.provider("scan"), gates.query("scan")
    policy = StandardAdmission(limits=[Gate(name=name, concurrency=1), Gate(name=query, rate=Rate(3))])
    async with memory_app(handler(), admission=policy) as app:
        await app.manager.set_gate(name, concurrency=7)
        task = await app.manager.submit(
            PAGE, tracking_timeout=HOUR, options=SubmitOptions(tenant_id="t", account_id="a")
        )
        by_name = {usage.gate.name: usage.gate for usage in await app.manager.gates()}
    assert by_name[name].concurrency == 7
    assert by_name[query].rate == Rate(3)
    assert task.route.gates == tuple(sorted([name, gates.account("scan", "a"), gates.tenant("t")]))
    assert task.route.query_gate == query


class Suggesting(ScriptedHandler[Page]):
    """A handler whose provider documents its limits."""

    def suggested_gates(self) -> list[Gate]:
        """Suggest both gates of the provider."""
        return [
            Gate(name=gates.provider("scan"), concurrency=2),
            Gate(name=gates.query("scan"), rate=Rate(10)),
        ]


async def test_suggested_limits_are_applied_when_asked_for_and_only_where_there_are_none() -> None:
    """What somebody has set stands, a pause too; starting a worker applies nothing."""
    name, query = gates.provider("scan"), gates.query("scan")
    async with memory_app(Suggesting("scan", Page), handler("other")) as app:
        await app.worker().drain()
        assert await app.manager.gates() == []
        await app.manager.pause(name, reason="maintenance")
        await app.manager.set_gate(query, rate=Rate(3), who="ann")
        assert [gate.name for gate in await app.manager.apply_suggested_gates(who="ben")] == [name]
        assert await app.manager.apply_suggested_gates() == []
        by_name = {usage.gate.name: usage.gate for usage in await app.manager.gates()}
        history = await app.manager.gate_history(name)
    assert (by_name[name].concurrency, by_name[name].pause is not None) == (2, True)
    assert by_name[query].rate == Rate(3)
    assert (history[-1].who, history[-1].reason) == ("ben", "suggested by the handler")


async def test_no_account_or_tenant_no_such_gate() -> None:
    """A task without them passes the provider's gate alone."""
    async with memory_app(handler()) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
    assert task.route.gates == (gates.provider("scan"),)


async def test_a_callback_is_only_a_nudge() -> None:
    """It makes the job due at once; what it says is not believed."""

    class Calling(ScriptedHandler[Page]):
        async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
            return Callback(external_task_ids=[request.body.decode()], reply_status=204)

    clock = ManualClock()
    scan = Calling("scan", Page, query=[QueryResult.running(retry_after=timedelta(minutes=9))])
    async with memory_app(scan, clock=clock) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await app.worker().drain()
        clock.advance(timedelta(seconds=2))
        await app.worker().drain()
        request = CallbackRequest(method="POST", path="/cb", headers={}, body=b"scan-1")
        reply = await app.manager.receive_callback("scan", request)
        assert reply.reply_status == 204
        await app.worker().drain()
        after = await app.manager.get(task.id)
        assert after is not None
        assert after.status is Status.SUCCEEDED
        with pytest.raises(NoHandler):
            await app.manager.receive_callback("other", request)


async def test_a_handler_without_callbacks_says_so() -> None:
    """`Unsupported`, naming the handler."""
    async with memory_app(handler()) as app:
        request = CallbackRequest(method="POST", path="/cb", headers={})
        with pytest.raises(Unsupported, match="'scan' has no parse_callback"):
            await app.manager.receive_callback("scan", request)


async def test_find_pages_through_what_fits() -> None:
    """By id, a page at a time."""
    async with memory_app(handler()) as app:
        tasks = [await app.manager.submit(PAGE, tracking_timeout=HOUR) for _ in range(5)]
        await app.manager.cancel(tasks[1].id)
        pending = Filter(statuses=[Status.PENDING_SUBMIT])
        page = await app.manager.find(pending, limit=2)
        rest = await app.manager.find(pending, limit=9, after=page[-1].id)
        assert [task.id for task in (*page, *rest)] == [
            task.id for number, task in enumerate(tasks) if number != 1
        ]
        stats = await app.manager.stats()
        assert stats.handlers[0].by_status[Status.CANCELED] == 1


async def test_observers_can_neither_break_nor_slow(caplog: pytest.LogCaptureFixture) -> None:
    """They get committed changes in batches, on a thread of their own; errors are logged."""
    seen: list[str] = []

    class Hooked:
        def coatcheck_tasks_changed(self, changes: list[TaskChange]) -> None:
            seen.extend(change.event for change in changes)

    def broken(_changes: object) -> None:
        message = "observer bug"
        raise RuntimeError(message)

    async with memory_app(handler(), observers=[broken, Hooked()]) as app:
        task = await app.manager.submit(PAGE, tracking_timeout=HOUR)
        await app.manager.cancel(task.id)
    assert seen == ["created", "cancellation"]
    assert "observer bug" in caplog.text
    with pytest.raises(ConfigurationError, match="an observer is a function"):
        memory_app(handler(), observers=[7])


def test_ranks_come_from_priorities() -> None:
    """Strict by default; with ageing, a point of priority is worth so much waiting."""
    assert rank_of(3, None) == Rank(band=-3)
    assert rank_of(3, timedelta(minutes=1)) == Rank(credit=timedelta(minutes=3), mode="ageing:60s")
    with pytest.raises(ConfigurationError, match="priority_ageing must be positive"):
        App(MemoryStore(), [], priority_ageing=timedelta())


async def test_a_store_keeps_one_ranking_mode() -> None:
    """A second app that ranks otherwise is refused."""
    store = MemoryStore()
    async with App(store, [handler()]) as app:
        await app.manager.submit(PAGE, tracking_timeout=HOUR)
        other = App(store, [handler()], priority_ageing=timedelta(minutes=1))
        with pytest.raises(ConfigurationError, match="ageing"):
            await other.manager.submit(PAGE, tracking_timeout=HOUR)


async def test_entering_an_app_twice_opens_its_store_once() -> None:
    """The store is closed after the last use."""
    app = memory_app(handler())
    async with app, app:
        pass
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever a closed store raises
        await asyncio.wait_for(app.manager.submit(PAGE, tracking_timeout=HOUR), 5)


def test_handlers_are_checked_when_the_app_is_made() -> None:
    """No handler, no key, two of a key: refused with names."""
    with pytest.raises(ConfigurationError, match="Handler subclass"):
        memory_app("scan")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="two handlers have the key 'scan'"):
        memory_app(handler(), handler())
    with pytest.raises(ConfigurationError, match="non-blank"):
        memory_app(handler(" "))
