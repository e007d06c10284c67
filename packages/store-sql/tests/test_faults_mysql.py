import asyncio
import sys
from pathlib import Path

import pytest

from coatcheck.errors import NotPersistable
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter
from coatcheck.task import Task
from coatcheck_conformance.drafts import make_draft
from coatcheck_conformance.store.outcomes import accepted, succeeded
from coatcheck_store_sql import SqlStore
from coatcheck_store_sql.server import ServerRoom
from servers.fixtures import Own

sys.path.insert(0, str(Path(__file__).parent))
import faults

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]

MIB = 1 << 20
EMOJI = "\U0001f9e5 \u5916\u5957 \u00e9"


@pytest.fixture(params=["asyncmy", "aiomysql"])
def place(request: pytest.FixtureRequest, mariadb_url: str) -> faults.Place:
    """Give an empty database, once for each driver."""
    return faults.Place("mariadb", request.param, mariadb_url)


async def test_what_is_no_packet_is_refused_by_name(place: faults.Place) -> None:
    """A body that the server would not take is refused before anything is written, and hurts no other task."""
    ((limit,),) = place.ask("SELECT @@max_allowed_packet")
    async with faults.opened(place.url, timeout=20) as store:
        huge = make_draft(params={"text": "x" * (limit + MIB)})
        with pytest.raises(NotPersistable, match="max_allowed_packet"):
            await store.add([make_draft(), huge])
        assert await store.find(Filter()) == []
        # a quotation mark takes two bytes, and so does what comes near the limit by its characters only
        with pytest.raises(NotPersistable, match="max_allowed_packet"):
            await store.add([make_draft(params={"text": '"' * (limit // 2)})])
        tasks = [await faults.claimed_and_started(store) for _ in range(2)]
        refused, settled = await store.settle(
            [
                Settlement(task=tasks[0], event=succeeded("x" * limit)),
                Settlement(task=tasks[1], event=succeeded("small")),
            ]
        )
        assert isinstance(refused, NotPersistable)
        assert isinstance(settled, Task)
        assert await store.get(tasks[0].id) == tasks[0]


@pytest.mark.slow
async def test_what_is_nearly_a_packet_passes(place: faults.Place) -> None:
    """A body of most of a packet is stored, and read back equal."""
    ((limit,),) = place.ask("SELECT @@max_allowed_packet")
    async with faults.opened(place.url, timeout=30) as store:
        big = make_draft(params={"text": "x" * (limit - MIB)})
        await store.add([big])
        task = await store.get(big.id)
        assert task is not None
        assert task.params == big.params


@pytest.mark.slow
async def test_many_long_bodies_go_in_several_packets(place: faults.Place) -> None:
    """Twenty tasks of 1 MiB each are added and settled as one step, though a packet holds sixteen."""
    async with faults.opened(place.url, timeout=30) as store:
        drafts = [make_draft(params={"text": f"{number:04}" * (MIB // 4)}) for number in range(20)]
        added = await store.add(drafts)
        assert all(each.created for each in added)
        found = await store.get_many([draft.id for draft in drafts])
        assert all(found[draft.id].params == draft.params for draft in drafts)


async def test_names_hold_all_of_unicode(place: faults.Place) -> None:
    """Handlers, gates, tenants, accounts, keys and external ids may hold what four bytes write, and are told apart."""
    async with faults.opened(place.url, timeout=20) as store:
        draft = make_draft(
            handler=EMOJI,
            gates=[EMOJI, EMOJI.upper()],
            query_gate=f"q {EMOJI}",
            tenant=EMOJI,
            account=EMOJI,
            dedup_key=EMOJI,
            idempotency_key=EMOJI,
            metadata={EMOJI: EMOJI},
            params={EMOJI: EMOJI},
        )
        (added,) = await store.add([draft])
        await store.set_gate(EMOJI, concurrency=1)
        await store.pause_gate(f"q {EMOJI}", reason=EMOJI, who=EMOJI)
        (claimed,) = (await store.claim_submissions(EMOJI, [EMOJI], 1, faults.LEASE)).tasks
        started = await faults.start_one(store, claimed)
        (settled,) = await store.settle([Settlement(task=started, event=accepted(EMOJI))])
        assert isinstance(settled, Task)
        assert (settled.route, settled.metadata) == (added.task.route, draft.metadata)
        assert await store.get(draft.id) == settled
        assert [task.id for task in await store.find(Filter(external_task_id=EMOJI, tenant_id=EMOJI))] == [
            draft.id
        ]
        assert await store.nudge(EMOJI, EMOJI) == 1
        names = {usage.gate.name for usage in await store.gates()}
        assert names == {EMOJI, f"q {EMOJI}"}
        assert (await store.add([make_draft(dedup_key=EMOJI.upper())]))[0].created


@pytest.mark.slow
async def test_sessions_are_strict_and_in_utc(own_server: Own) -> None:
    """What would be cut off is an error, whatever the server's own settings are; the clock has microseconds."""
    server = await asyncio.to_thread(own_server, "mariadb")
    url = server.new_database()
    for driver in ("asyncmy", "aiomysql"):
        place = faults.Place("mariadb", driver, url)
        place.ask("SET GLOBAL sql_mode = ''")
        place.ask("SET GLOBAL time_zone = '+05:00'")
        async with faults.opened(place.url, timeout=20) as store:
            modes, zone, names = await session_of(store)
            assert "STRICT_ALL_TABLES" in modes
            assert (zone, names) == ("+00:00", "utf8mb4")
            before, stamps = await store.now(), []
            for _ in range(20):
                room = store.room
                assert isinstance(room, ServerRoom)
                stamps.append(await store._read(lambda step: (step.now_ms, step.stamp)))
                await asyncio.sleep(0.0013)
            assert stamps == sorted(stamps)
            # rounded up unless the server's microseconds end a millisecond
            assert {up - down for down, up in stamps} <= {0, 1}
            assert 1 in {up - down for down, up in stamps}
            ((seconds,),) = place.ask("SELECT UNIX_TIMESTAMP()")
            assert abs(before.timestamp() - seconds) < 30


async def session_of(store: SqlStore) -> tuple[str, ...]:
    """Return what a session of the store's is set to."""
    room = store.room
    assert isinstance(room, ServerRoom)
    lines = room._here().lines
    async with lines.line(asyncio.get_running_loop().time() + 5) as line:
        (row,) = await line.driver.rows("SELECT @@sql_mode, @@time_zone, @@character_set_client", ())
    return tuple(row)
