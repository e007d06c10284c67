import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.local import LocalRoom

resource = pytest.importorskip("resource", reason="files are limited by a resource of Unix")
pytestmark = pytest.mark.timeout(60)

KIB = 1024
LEASE = timedelta(minutes=5)


def ask(store: SqlStore, statement: str) -> Callable[[], object]:
    """Return what runs a statement on the connection that writes."""
    room = store.room
    assert isinstance(room, LocalRoom)
    return lambda: room.writer.do(lambda connection: connection.execute(statement))


@contextmanager
def full_disk(*files: Path) -> Iterator[None]:
    """Let no file grow beyond the longest of these: the system answers that it is too large."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max(file.stat().st_size for file in files)
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest + 64 * KIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def fill(store: SqlStore) -> list[str]:
    """Add tasks with long bodies until there is no more room; return those that were acknowledged."""
    added: list[str] = []
    with pytest.raises(StoreUnavailable, match=r"full|disk"):
        for _ in range(1_000):
            drafts = [make_draft(params={"text": "x" * 20 * KIB}) for _ in range(4)]
            await store.add(drafts)
            added += [draft.id for draft in drafts]
    return added


async def check_after(store: SqlStore, path: Path, tasks: list[Task], added: list[str]) -> None:
    """See that exactly what was acknowledged is there, whole, and that all goes on."""
    assert {task.id for task in await store.find(Filter(), limit=5_000)} == {
        *added,
        *(task.id for task in tasks),
    }
    settled = await store.settle([Settlement(task=task, event=succeeded("y" * 20 * KIB)) for task in tasks])
    assert all(isinstance(each, Task) for each in settled)
    assert len((await store.claim_submissions("w", [HANDLER], 3, LEASE)).tasks) == min(3, len(added))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def started(store: SqlStore) -> list[Task]:
    """Bring two tasks to where their calls are made."""
    await store.add([make_draft(), make_draft()])
    claims = await store.claim_submissions("w", [HANDLER], 2, LEASE)
    return [each.task for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]


async def test_a_full_database_refuses_whole_steps(tmp_path: Path) -> None:
    """When SQLite may take no more pages, steps that need some are refused as a whole, and nothing else is hurt."""
    path = tmp_path / "tasks.db"
    async with create(f"sqlite:///{path}") as store:
        tasks = await started(store)
        ((pages,),) = await ask(store, "PRAGMA page_count")()  # type: ignore[misc]  # rows
        await ask(store, f"PRAGMA max_page_count = {pages + 60}")()  # type: ignore[misc]  # as above
        added = await fill(store)
        (refused,) = await asyncio.gather(
            store.settle([Settlement(task=tasks[0], event=succeeded("y" * 900 * KIB))]),
            return_exceptions=True,
        )
        assert isinstance(refused, StoreUnavailable)
        assert await store.get(tasks[0].id) == tasks[0]
        await ask(store, "PRAGMA max_page_count = 1000000")()  # type: ignore[misc]  # as above
        await check_after(store, path, tasks, added)


async def test_a_full_disk_refuses_whole_steps(tmp_path: Path) -> None:
    """When the disk takes no more, steps are refused as a whole, reads go on, and so does all when there is room."""
    path = tmp_path / "tasks.db"
    async with create(f"sqlite:///{path}") as store:
        tasks = await started(store)
        with full_disk(path, path.with_name("tasks.db-wal")):
            added = await fill(store)
            assert await store.get(tasks[0].id) == tasks[0]
        await check_after(store, path, tasks, added)
