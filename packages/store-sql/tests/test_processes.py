import asyncio
import multiprocessing
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck.store import Filter
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import create

sys.path.insert(0, str(Path(__file__).parent))  # for the processes, which import what they run by name
import crew

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def _path_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def file_of(url: str) -> str:
    """Return the path in a URL."""
    return url.removeprefix("sqlite:///")


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_eight_processes_on_one_file_see_no_lock(url: str) -> None:
    """Nobody sees "database is locked", nothing is done twice, and no slot leaks."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(8, mp_context=SPAWN) as pool:
        runs = [loop.run_in_executor(pool, crew.hammer, url, f"worker-{n}", 12) for n in range(8)]
        ended = [task_id for ids in await asyncio.gather(*runs) for task_id in ids]
    assert len(set(ended)) == len(ended)
    async with create(url) as store:
        added = await store.find(Filter(), limit=1000)
        assert len(added) == 12 + 8 * 12
        (usage,) = await store.gates(["g"])
        assert usage.used == sum(task.holds_slots for task in added)
        assert {task.id for task in added if task.status is Status.SUCCEEDED} == set(ended)


@pytest.mark.slow
async def test_processes_may_open_a_new_file_at_once(url: str) -> None:
    """The tables are made once, and nobody sees a lock or half of them."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(4, mp_context=SPAWN) as pool:
        await asyncio.gather(*(loop.run_in_executor(pool, crew.open_and_close, url) for _ in range(4)))


@pytest.mark.slow
async def test_a_kill_inside_a_step_leaves_nothing_of_it(url: str) -> None:
    """What was committed stays, what was not is gone, and the slot comes back with the lease."""
    process = SPAWN.Process(target=crew.die_inside_a_step, args=(url,))
    await asyncio.to_thread(process.start)
    await asyncio.to_thread(process.join, 30)
    assert process.exitcode == -signal.SIGKILL
    async with create(url) as store:
        assert await store.get("half") is None
        while not (await store.claim_submissions("next", [HANDLER], 9, crew.LEASE)).tasks:
            await store.claim_stale("next", [HANDLER], 9, crew.LEASE)
        assert [task.id for task in await store.find(Filter())] == ["whole"]
        (usage,) = await store.gates(["g"])
        assert usage.used == 1
    assert sqlite3.connect(file_of(url)).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def in_a_fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; return the child's exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - told by the exit code
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_store_opened_before_a_fork_says_so(url: str) -> None:
    """A forked child gets a clear error, may close what it inherited, and can open a store of its own."""
    store = create(url)
    asyncio.run(store.open())

    async def child() -> None:
        with pytest.raises(ConfigurationError, match="after the fork"):
            await store.now()
        await store.close()
        async with create(url) as own:
            await own.add([make_draft(id="child")])

    assert in_a_fork(lambda: asyncio.run(child())) == 0

    async def parent() -> None:
        assert await store.get("child") is not None
        await store.close()

    asyncio.run(parent())
