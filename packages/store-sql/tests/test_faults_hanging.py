import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import create
from servers import FaultProxy
from servers.fixtures import Own

sys.path.insert(0, str(Path(__file__).parent))
import faults

place = faults.place
pytestmark = [pytest.mark.timeout(30), pytest.mark.slow]

TIMEOUT = 1.0
PATIENCE = TIMEOUT + 0.6
"""A call that ends later than this has hung; machines are slow, and a connection takes a moment to be given up."""
CALLS: dict[str, faults.Call] = {
    "now": lambda store: store.now(),
    "add": lambda store: store.add([make_draft()]),
    "many adds": lambda store: asyncio.gather(*(store.add([make_draft()]) for _ in range(9))),
    "get": lambda store: store.get("none"),
    "claim": lambda store: store.claim_submissions("w", [HANDLER], 1, faults.LEASE),
    "claim stale": lambda store: store.claim_stale("w", [HANDLER], 1, faults.LEASE),
    "settle": lambda store: store.settle([]),
    "wait": lambda store: store.wait([HANDLER], timedelta(seconds=20)),
    "gates": lambda store: store.gates(),
    "set gate": lambda store: store.set_gate("g", concurrency=1),
    "cancel": lambda store: store.request_cancellation("none"),
    "stats": lambda store: store.stats(),
    "setup": lambda store: store.setup(),
}


@pytest.fixture
def proxy(place: faults.Place) -> Iterator[FaultProxy]:
    """Put a network before the server."""
    with FaultProxy.before(place.plain_url) as proxy:
        yield proxy


async def test_every_call_ends_in_time_when_nothing_answers(place: faults.Place, proxy: FaultProxy) -> None:
    """Calls on idle connections end within the timeout, as do those that connect, and all is well afterwards."""
    async with faults.opened(place.through(proxy.port), timeout=TIMEOUT) as store:
        await asyncio.gather(*(store.add([make_draft()]) for _ in range(3)))
        proxy.black_hole()
        for _ in range(2):  # the first time on connections that were there, then on new ones
            ended = await asyncio.gather(*(faults.seconds_of(call(store)) for call in CALLS.values()))
            for name, (seconds, result) in zip(CALLS, ended, strict=True):
                assert isinstance(result, StoreUnavailable), (name, result)
                assert seconds < PATIENCE, (name, seconds)
        proxy.restore()
        await store.add([make_draft()])
        assert len((await faults.claim(store)).tasks) == 4


async def test_opening_and_closing_end_in_time_when_nothing_answers(
    place: faults.Place, proxy: FaultProxy
) -> None:
    """A store whose server does not answer is not opened for ever, and an open one can be closed."""
    url = place.through(proxy.port)
    store = create(url, timeout=timedelta(seconds=TIMEOUT))
    await create(url).setup()
    await store.open()
    await asyncio.gather(*(store.add([make_draft()]) for _ in range(3)))
    proxy.black_hole()
    calling = asyncio.create_task(store.add([make_draft()]))
    await asyncio.sleep(0)
    seconds, result = await faults.seconds_of(store.close())
    assert result is None
    assert seconds < PATIENCE
    with pytest.raises(StoreUnavailable):
        await calling
    seconds, result = await faults.seconds_of(store.open())
    assert isinstance(result, StoreUnavailable), result
    assert seconds < PATIENCE
    proxy.restore()
    async with store:
        assert len((await faults.claim(store)).tasks) == 3


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_idle_connections_that_no_longer_answer_are_replaced(own_server: Own, driver: str) -> None:
    """A call that gets a connection that was lost without a word goes on with a new one, within its time."""
    server = await asyncio.to_thread(own_server, "postgresql")
    place = faults.Place("postgresql", driver, server.new_database())
    async with faults.opened(place.url, timeout=6) as store:
        await asyncio.gather(*(store.set_gate(f"g{n}", concurrency=1) for n in range(4)))
        sessions = place.ask(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for (pid,) in sessions:
            os.kill(pid, signal.SIGSTOP)  # they are idle, and nobody answers there any more
        try:
            seconds, result = await faults.seconds_of(store.add([make_draft()]))
            assert isinstance(result, list), result
            assert 1.5 < seconds < 5
            seconds, result = await faults.seconds_of(store.stats())
            assert seconds < 1  # the others went with the first
        finally:
            for (pid,) in sessions:
                os.kill(pid, signal.SIGCONT)
