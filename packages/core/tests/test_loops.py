"""Where handlers run."""

import asyncio
import logging
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck import calls, leases
from coatcheck.calls import Call, Purpose
from coatcheck.errors import ConfigurationError, LeaseLost, StoreUnavailable
from coatcheck.faulty import FaultyStore
from coatcheck.lifecycle import claimed_for_submission
from coatcheck.loops import HandlerLoops
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
