"""Where handlers run."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen

from coatcheck import calls, leases
from coatcheck.calls import Call, Purpose
from coatcheck.errors import ConfigurationError, LeaseLost, StoreUnavailable
from coatcheck.faulty import FaultyStore
from coatcheck.lifecycle import claimed_for_submission
from coatcheck.loops import HandlerLoop, HandlerLoops, Job, _go_on
from coatcheck.memory import MemoryStore
from coatcheck.registry import Registry
from coatcheck.task import Lease
from coatcheck.testing import ManualClock, ScriptedHandler, make_task


@frozen
class Page:
    """What the handler takes."""

    url: str


class Bad(ScriptedHandler[Page]):
    """A handler that fails to open as long as it is bad, and fails to close."""

    bad = True

    async def open(self) -> None:
        """Fail, while bad."""
        if self.bad:
            message = "no certificate"
            raise OSError(message)

    async def close(self) -> None:
        """Fail."""
        message = "cannot close"
        raise RuntimeError(message)


async def seven() -> int:
    """Be called."""
    return 7


def scan() -> ScriptedHandler[Page]:
    """Return a handler."""
    return ScriptedHandler("scan", Page)


async def test_a_handler_that_fails_to_open_says_why_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is set aside with its reason, and tried again after a while; a failing close is logged."""
    handler = Bad("scan", Page)
    loops = HandlerLoops(Registry([handler]))
    with pytest.raises(ConfigurationError, match="no certificate"):
        await loops.call("scan", seven, 5)
    assert "no certificate" in loops.set_aside()["scan"]
    assert not loops.may_retry("scan")
    monkeypatch.setattr("coatcheck.loops.REOPEN_AFTER_SECONDS", 0.0)
    assert loops.may_retry("scan")
    handler.bad = False
    assert await loops.call("scan", seven, 5) == 7
    assert not loops.set_aside()
    assert "failed to close" in caplog.text


async def test_a_handler_that_is_not_open_cannot_be_called() -> None:
    """The message says so."""
    loops = HandlerLoops(Registry([scan()]))
    with pytest.raises(ConfigurationError, match="it is not open"):
        loops.loop_of("scan")


def held(clock: ManualClock) -> Call:
    """Return a call of a claimed task."""
    lease = Lease(worker_id="w", token=1, nonce="n", until=clock.now() + timedelta(seconds=30))
    task = claimed_for_submission(make_task(handler_key="scan"), lease, clock.now())
    call = Call(task=task, handler=scan(), purpose=Purpose.SUBMIT)
    call.leased(task, timedelta(seconds=30), asked_at=0.0)
    call.held_until = float("inf")
    return call


async def test_a_lost_lease_stops_the_call_before_the_wire(caplog: pytest.LogCaptureFixture) -> None:
    """The keeper learns of it at the next renewal, and from then on nothing may be sent."""
    caplog.set_level(logging.DEBUG, logger="coatcheck")
    store = FaultyStore(MemoryStore())
    call = held(ManualClock())
    async with store:
        keeper = leases.LeaseKeeper(store, timedelta(milliseconds=30))
        await keeper.renew()
        keeper.add(call)
        assert len(keeper) == 1
        call.ensure_held()
        store.fail("renew", error=StoreUnavailable("away"))
        store.fail("renew", error=ZeroDivisionError("bug"))
        running = asyncio.create_task(keeper.run())
        while "is lost" not in caplog.text:
            await asyncio.sleep(0.005)
        running.cancel()
    with pytest.raises(LeaseLost):
        call.ensure_held()
    assert "were not renewed: away" in caplog.text
    assert "bug" in caplog.text
    keeper.drop(call)
    keeper.drop(call)
    assert len(keeper) == 0


async def test_a_call_without_query_params_cannot_query() -> None:
    """One such task in a batch hurts no other."""
    call = held(ManualClock())
    await calls.query_together([call])
    assert "has no query params" in str(call.error)


STEP: ContextVar[str] = ContextVar("STEP", default="none")


async def ran(*makers: Callable[[], Coroutine[Any, Any, None]], timeout_seconds: float = 5.0) -> list[Job]:
    """Run a batch of jobs on a handler's loop and return them in the order in which they were done."""
    here, finished, done = asyncio.get_running_loop(), asyncio.Event(), list[Job]()
    loop = HandlerLoop(scan())

    def take(job: Job) -> None:
        done.append(job)
        if len(done) == len(makers):
            here.call_soon_threadsafe(finished.set)

    loop.run([Job(make=make, timeout_seconds=timeout_seconds, calls=(make,)) for make in makers], take)
    await asyncio.wait_for(finished.wait(), 5)
    await loop.stop()
    return done


async def nothing() -> None:
    """Be done at once."""


async def test_calls_with_nothing_to_wait_for_share_a_task_and_others_get_one_each() -> None:
    """So an ordinary call costs no task, and one that waits holds up none of those behind it."""
    tasks: dict[str, object] = {}
    release = threading.Event()

    async def quick() -> None:
        tasks[f"quick {len(tasks)}"] = asyncio.current_task()

    async def slow() -> None:
        tasks["slow"] = asyncio.current_task()
        await asyncio.to_thread(release.wait, 5)
        assert asyncio.current_task() is tasks["slow"]

    async def last() -> None:
        tasks["last"] = asyncio.current_task()
        release.set()

    done = await ran(quick, quick, slow, quick, last)
    assert [job.error for job in done] == [None] * 5
    assert [job.calls[0] for job in done] == [quick, quick, quick, last, slow]
    assert tasks["quick 0"] is tasks["quick 1"] is tasks["slow"]
    assert len({tasks["slow"], tasks["quick 3"], tasks["last"]}) == 3


async def test_a_call_keeps_its_context_to_itself() -> None:
    """Context variables that one call sets outlast its waiting, and no other call sees them."""
    seen: list[str] = []

    async def quick() -> None:
        seen.append(STEP.get())
        STEP.set("quick")

    async def slow() -> None:
        seen.append(STEP.get())
        STEP.set("slow")
        await asyncio.sleep(0)
        seen.append(STEP.get())
        STEP.set("slower")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        seen.append(STEP.get())

    await ran(quick, quick, slow, quick)
    assert sorted(seen) == ["none"] * 4 + ["slow", "slower"]


async def test_errors_of_a_call_are_its_own_before_and_after_it_waited() -> None:
    """Each job gets the error of its own coroutine, and what it waits for may raise into it."""

    async def fails() -> None:
        raise ValueError("at once")

    async def fails_later() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    async def hears_of_it() -> None:
        failing = asyncio.ensure_future(fails())
        try:
            await failing
        except ValueError as error:
            await asyncio.sleep(0)
            raise KeyError("heard") from error

    done = await ran(fails, nothing, fails_later, hears_of_it)
    errors = {job.calls[0]: repr(job.error) for job in done}
    assert errors == {
        fails: "ValueError('at once')",
        nothing: "None",
        fails_later: "ValueError('later')",
        hears_of_it: "KeyError('heard')",
    }


async def test_a_call_that_cancels_its_own_task_hurts_no_other() -> None:
    """Those behind it get tasks of their own."""

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def waits() -> None:
        await asyncio.sleep(0)

    done = await ran(cancels_itself, waits, waits)
    assert [job.error for job in done] == [None] * 3


async def test_a_call_that_waits_too_long_times_out() -> None:
    """Its coroutine is cancelled, and the error says what it was."""
    cleaned = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    (job,) = await ran(waits, timeout_seconds=0.01)
    assert isinstance(job.error, TimeoutError)
    assert cleaned.is_set()


async def test_a_job_that_is_given_up_before_it_begins_never_does() -> None:
    """It is done with a cancellation, also if the loop was blocked when it was given up."""
    here, finished, blocked = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    loop, begun = HandlerLoop(scan()), list[str]()

    async def blocks() -> None:
        blocked.wait(5)

    async def begins() -> None:
        begun.append("it")

    def finish(_: Job) -> None:
        here.call_soon_threadsafe(finished.set)

    first, late = Job(make=blocks, timeout_seconds=5), Job(make=begins, timeout_seconds=5)
    loop.run([first], lambda _: None)
    loop.cancel([late])
    loop.run([late], finish)
    blocked.set()
    await asyncio.wait_for(finished.wait(), 5)
    await loop.stop()
    assert isinstance(late.error, asyncio.CancelledError)
    assert not begun


def test_a_call_that_is_left_waiting_can_be_closed() -> None:
    """Its own clean-up runs, in its own context, when the loop goes away under it."""
    seen: list[str] = []

    async def waits() -> None:
        STEP.set("waiting")
        try:
            await asyncio.Future(loop=loop)
        finally:
            seen.append(STEP.get())

    async def leave() -> None:
        call, context = waits(), copy_context()
        left = _go_on(call, context.run(call.send, None), context)
        left.send(None)
        left.close()

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(leave())
    assert seen == ["waiting"]
