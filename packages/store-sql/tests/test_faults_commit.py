import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import StoreUnavailable
from coatcheck.events import Abandon
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Started
from coatcheck.tallies import Count
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.store.outcomes import accepted, unknown
from coatcheck_store_sql import SqlStore
from servers import FaultProxy

sys.path.insert(0, str(Path(__file__).parent))
import faults

place = faults.place
pytestmark = [pytest.mark.timeout(30), pytest.mark.slow]

LOST = pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
"""Whether the commit whose answer is lost reached the server."""


@pytest.fixture
def proxy(place: faults.Place) -> Iterator[FaultProxy]:
    """Put a network before the server."""
    with FaultProxy.before(place.plain_url) as proxy:
        yield proxy


@pytest.fixture
async def store(place: faults.Place, proxy: FaultProxy) -> AsyncIterator[SqlStore]:
    """Open a store behind it."""
    async with faults.opened(place.through(proxy.port)) as store:
        yield store


class Cut:
    """Loses the answer to the next commit of the store."""

    def __init__(self, proxy: FaultProxy, place: faults.Place, *, made: bool) -> None:
        pattern = b"COMMIT\x00" if place.kind == "postgresql" else b"\x03COMMIT"
        self._sprung = proxy.cut_after(pattern) if made else proxy.cut_before(pattern)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        assert self._sprung.is_set()


@pytest.mark.parametrize("answered", [True, False], ids=["before", "after"])
async def test_a_step_cut_off_in_a_statement_is_repeated(
    store: SqlStore, proxy: FaultProxy, *, answered: bool
) -> None:
    """What was not committed is rolled back and done anew, once; the caller notices nothing."""
    await store.set_gate("g", concurrency=2)
    task = await faults.claimed_and_started(store, gates=["g"])
    cut = proxy.cut_before if answered else proxy.cut_after
    sprung = cut(b"remote-marked")
    (settled,) = await store.settle([Settlement(task=task, event=accepted("remote-marked"))])
    assert sprung.is_set()
    assert isinstance(settled, Task)
    assert (settled.status, settled.version) == (Status.SUBMITTED, task.version + 1)
    assert await store.get(task.id) == settled
    sprung = cut(b"job-marked")
    (added,) = await store.add([make_draft(id="job-marked", gates=["g"])])
    assert sprung.is_set()
    # an add goes to PostgreSQL as one message, so it was committed when its answer was lost
    assert added.created == (answered or not store.url.startswith("postgresql"))
    assert len(await store.find(Filter())) == 2
    (usage,) = await store.gates(["g"])
    assert usage.used == 1


@LOST
async def test_settle_is_made_once(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """A settle whose commit is in doubt is looked up by repeating it: one transition, and one slot released."""
    await store.set_gate("g", concurrency=2)
    task = await faults.claimed_and_started(store, gates=["g"])
    other = await faults.claimed_and_started(store, gates=["g"])
    failed = Settlement(task=task, event=unknown())
    with Cut(proxy, place, made=made):
        (settled,) = await store.settle([failed])
    assert isinstance(settled, Task)
    assert (settled.status, settled.version) == (Status.SUBMIT_UNKNOWN, task.version + 1)
    assert await store.get(task.id) == settled
    assert sum(each.target is Status.SUBMIT_UNKNOWN for each in settled.history) == 1
    (usage,) = await store.gates(["g"])
    assert usage.used == 1
    assert isinstance(await faults.settle_one(store, other), Task)


@LOST
async def test_add_is_made_once(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """A task that was added in doubt is there once; it counts as found if the first try has made it."""
    await store.add([make_draft()])
    drafts = [make_draft(gates=["a"], dedup_key="k"), make_draft(gates=["b"])]
    with Cut(proxy, place, made=made):
        added = await store.add(drafts)
    assert [each.created for each in added] == [not made, not made]
    assert await store.get_many([draft.id for draft in drafts]) == {each.task.id: each.task for each in added}
    assert len((await faults.claim(store)).tasks) == 3
    assert [each.created for each in await store.add(drafts)] == [False, False]


@LOST
async def test_start_is_made_once(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """A start in doubt is acknowledged only when it is there."""
    await store.add([make_draft()])
    claimed = await faults.claim_one(store)
    with Cut(proxy, place, made=made):
        (started,) = await store.start([claimed], faults.LEASE)
    assert isinstance(started, Started)
    assert await store.get(claimed.id) == started.task
    assert started.task.submission_started


@LOST
async def test_a_cancellation_in_doubt_is_told(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """It says True only the first time, so that it is not repeated; a look shows the truth."""
    await store.add([make_draft(id="a")])
    with Cut(proxy, place, made=made), pytest.raises(StoreUnavailable, match="unknown"):
        await store.request_cancellation("a")
    task = await store.get("a")
    assert task is not None
    assert task.status is (Status.CANCELED if made else Status.PENDING_SUBMIT)
    assert await store.request_cancellation("a") is not made


@LOST
async def test_a_resolution_in_doubt_is_told(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """A decision counts for one version, so that it is not repeated; a look shows the truth."""
    task = await faults.claimed_and_started(store)
    (doubtful,) = await store.settle([Settlement(task=task, event=unknown())])
    assert isinstance(doubtful, Task)
    with Cut(proxy, place, made=made), pytest.raises(StoreUnavailable, match="unknown"):
        await store.resolve(task.id, doubtful.version, Abandon(who="ada"))
    seen = await store.get(task.id)
    assert seen is not None
    assert (seen.status is Status.FAILED, seen.version) == (made, doubtful.version + made)


@LOST
async def test_a_count_in_doubt_is_told(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """It adds up, so that it is not repeated; a look shows the truth."""
    wanted = [Count(name="a", amount=2, lifetime=faults.LEASE), Count(name="b", lifetime=faults.LEASE)]
    await store.count(wanted)
    with Cut(proxy, place, made=made), pytest.raises(StoreUnavailable, match="unknown"):
        await store.count(wanted)
    assert [tally.total for tally in await store.tallies()] == ([4, 2] if made else [2, 1])
    assert [each.before for each in await store.count(wanted)] == ([4, 2] if made else [2, 1])


@LOST
async def test_a_change_of_a_gate_in_doubt_is_recorded_once(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """Limits that are set again, resuming and deleting leave one record, whether the first try has made it or not."""
    with Cut(proxy, place, made=made):
        await store.set_gate("g", concurrency=1, who="ada")
    await store.pause_gate("g", reason="429")
    with Cut(proxy, place, made=made):
        await store.resume_gate("g", who="grace")
    with Cut(proxy, place, made=made):
        await store.delete_gate("g", who="alan")
    history = await store.gate_history("g")
    assert [(each.who, each.times) for each in history] == [("ada", 1), (None, 1), ("grace", 1), ("alan", 1)]


@LOST
async def test_claims_in_doubt_come_back(
    store: SqlStore, proxy: FaultProxy, place: faults.Place, *, made: bool
) -> None:
    """A claim whose answer was lost is nobody's, and its tasks return, with their slots, when its lease ends."""
    await store.set_gate("g", concurrency=1)
    await store.add([make_draft(gates=["g"])])
    with Cut(proxy, place, made=made):
        claims = await store.claim_submissions("w", [HANDLER], 1, timedelta(seconds=0.3))
    assert len(claims.tasks) == (not made)
    while not (claims := await store.claim_submissions("w", [HANDLER], 1, faults.LEASE)).tasks:
        await store.claim_stale("w", [HANDLER], 1, faults.LEASE)
        await asyncio.sleep(0.02)
    assert claims.tasks[0].token > 1
    assert isinstance(await faults.settle_one(store, await faults.start_one(store, claims.tasks[0])), Task)
