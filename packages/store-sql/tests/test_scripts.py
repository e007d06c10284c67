"""What takes one round trip to PostgreSQL: an add that asks nothing, a look at tasks, a look whether there is work."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest

from coatcheck.errors import DedupConflict, DuplicateTask
from coatcheck.task import JSON
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create
from coatcheck_store_sql.drivers import AsyncpgDriver, Driver, PsycopgDriver
from coatcheck_store_sql.literals import spelled

NASTY: tuple[JSON, ...] = (
    "'; DROP TABLE coatcheck_task; --",
    "it's $1 and $2, %s, %%s, %(name)s and :name",
    "back\\slash \\' \\\\' E'\\x27' \\u0027",
    "line\nfeed\ttab\r\x1f\x1e\x7f\x00 and more",
    "ünïcödé 漢字 🎟️ \u2028 $$ $tag$ {curly} ${{x}}",
    {"'": {'"': ["\\", "'", "''", "\\'", None, True, -1, 1.5]}},
)


@pytest.fixture(params=["asyncpg", "psycopg"])
async def store(request: pytest.FixtureRequest, postgresql_url: str) -> AsyncIterator[SqlStore]:
    """Open a store with either driver, which knows its lanes already."""
    store = create(postgresql_url.replace("postgresql:", f"postgresql+{request.param}:"))
    await store.setup()
    async with store:
        await store.add([make_draft()])
        yield store


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the text of each round trip."""
    seen: list[str] = []
    for kind in (AsyncpgDriver, PsycopgDriver):
        for name in ("rows", "run", "simple"):
            _count(kind, name, seen, monkeypatch)
    return seen


def _count(kind: type[Driver], name: str, seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(kind, name)

    async def counted(self: Driver, sql: str, *values: object) -> object:
        if kind is PsycopgDriver or name != "run":  # asyncpg's `run` is its `rows`
            seen.append(sql)
        return await real(self, sql, *values)

    monkeypatch.setattr(kind, name, counted)


async def test_an_add_is_one_round_trip(store: SqlStore, trips: list[str]) -> None:
    """Somebody who adds tasks one by one waits for the server once for each."""
    await store.now()
    trips.clear()
    (added,) = await store.add([make_draft(dedup_key="invoice-1")])
    assert added.created
    assert [trip[:5] for trip in trips if "pg_notify" not in trip] == ["BEGIN"]
    trips.clear()
    found = await store.get_many([added.task.id])
    assert found == {added.task.id: added.task}
    assert len([trip for trip in trips if "pg_notify" not in trip]) == 1


async def test_whether_there_is_work_is_one_question(store: SqlStore, trips: list[str]) -> None:
    """A worker that is woken asks once, however many handlers it has."""
    trips.clear()
    assert await store.wait([HANDLER, "kit:other", "kit:third"], timedelta(seconds=5))
    assert len([trip for trip in trips if "LISTEN" not in trip and "UNION ALL" in trip]) == 1
    assert not any(trip.startswith("BEGIN") for trip in trips)


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_what_is_written_out_comes_back_as_it_was(
    store: SqlStore, postgresql_url: str, conforming: str
) -> None:
    """Quotes, backslashes, placeholders and control characters are data, whatever the server takes strings for."""
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET standard_conforming_strings = {conforming}'.encode())
    await store.close()
    await store.open()
    await store.add([make_draft()])
    drafts = [make_draft(params={"text": nasty}, metadata={"m": str(n)}) for n, nasty in enumerate(NASTY)]
    for draft in drafts:
        await store.add([draft])
    await store.add([make_draft(params={"text": list(NASTY)}, id=f"more-{n}") for n in range(3)])
    found = await store.get_many([draft.id for draft in drafts])
    assert [found[draft.id].params for draft in drafts] == [{"text": nasty} for nasty in NASTY]
    more = await store.get_many(["more-0", "more-2"])
    assert [task.params for task in more.values()] == [{"text": list(NASTY)}] * 2


async def test_what_is_there_already_is_found_nevertheless(store: SqlStore) -> None:
    """An add that hoped in vain is made again with a look: same task, same job, or a clear refusal."""
    (first,) = await store.add([make_draft(id="one", dedup_key="key", params={"n": 1})])
    (same_id,) = await store.add([make_draft(id="one", dedup_key="key", params={"n": 1})])
    (same_key,) = await store.add([make_draft(id="two", dedup_key="key", params={"n": 1})])
    assert (same_id.created, same_key.created) == (False, False)
    assert same_id.task == same_key.task == first.task
    with pytest.raises(DuplicateTask):
        await store.add([make_draft(id="one", params={"n": 2})])
    with pytest.raises(DedupConflict):
        await store.add([make_draft(id="three", dedup_key="key", params={"n": 2})])


async def test_tasks_are_stamped_by_the_servers_clock(store: SqlStore) -> None:
    """What is not asked anew is reckoned from the last look: between what the server says before and after."""
    for _ in range(20):
        before = await store.now()
        await asyncio.sleep(0.005)
        (added,) = await store.add([make_draft()])
        after = await store.now()
        assert before <= added.task.schedule.created_at <= after


async def test_a_long_task_is_added_as_a_whole(store: SqlStore) -> None:
    """What spills into a row of its own is asked for, and comes back."""
    draft = make_draft(params={"text": "x" * 100_000})
    await store.add([draft])
    found = await store.get_many([draft.id])
    assert found[draft.id].params == draft.params


def test_values_are_written_where_their_placeholders_are() -> None:
    """By number for asyncpg, in order for psycopg, where ``%%`` is one sign."""
    values = [1, "it's", None, -7, "a\\b", [3, 4]]
    numbered = spelled("$6 $2::text $1 $3 $4 $5 $2", values, numbered=True)
    assert numbered == "'{3,4}' 'it''s'::text (1) NULL (-7) E'a\\\\b' 'it''s'"
    assert spelled("%s % %s %% %s", [5, "%s", True], numbered=False) == "(5) % '%s' % (1)"
    with pytest.raises(TypeError, match="a float is not written out"):
        spelled("$1", [1.5], numbered=True)
