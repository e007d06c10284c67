"""SQL for the cursors of others, on servers: drivers without SQLAlchemy, and Django."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]  # it has no types
import pytest
from sqlalchemy import make_url

from coatcheck.errors import ConfigurationError
from coatcheck.task import Rank, TaskDraft
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create, insert_statements

LEASE = timedelta(minutes=1)
SOON = 5.0
KINDS = ["postgresql", "mariadb"]
Make = Callable[[SqlStore, list[TaskDraft]], list[tuple[str, tuple[Any, ...]]]]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name a kind of database."""
    found: str = request.param
    return found


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database."""
    found: str = request.getfixturevalue(f"{kind}_url")
    return found


@pytest.fixture
async def store(place: str) -> AsyncIterator[SqlStore]:
    """Open a store."""
    made = create(place, timeout=timedelta(seconds=10))
    await made.setup()
    async with made:
        yield made


def connect(place: str) -> Any:
    """Connect as somebody who does not use SQLAlchemy."""
    url = make_url(place)
    if url.get_backend_name() == "postgresql":
        return psycopg.connect(
            host=url.host, port=url.port, user=url.username, password=url.password, dbname=url.database
        )
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.database,
        charset="utf8mb4",
    )


def by_function(kind: str) -> Make:
    """Make statements without the store."""
    return lambda _store, drafts: insert_statements(drafts, kind)


def by_store(_kind: str) -> Make:
    """Make statements by the store."""
    return lambda store, drafts: store.insert_statements(drafts)


MAKERS = pytest.mark.parametrize("maker", [by_function, by_store])


def execute(connection: Any, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Execute them."""
    with connection.cursor() as cursor:
        for sql, values in statements:
            cursor.execute(sql, values)


@MAKERS
async def test_statements_add_what_a_store_would(
    maker: Callable[[str], Make], kind: str, place: str, store: SqlStore
) -> None:
    """A task is there from the commit on, claimed like any other, in its order, behind its gates."""
    await store.set_gate("g", concurrency=1)
    drafts = [
        make_draft(id="b", gates=["g"], priority=1, tenant="acmé", dedup_key="k", metadata={"n": "100 %"}),
        make_draft(id="a", gates=["g"], params={"long": "x" * 5000, "e": "\u0000"}),
        make_draft(id="later", delay=timedelta(hours=1)),
    ]
    with connect(place) as connection:
        execute(connection, maker(kind)(store, drafts))
        connection.rollback()
        execute(connection, maker(kind)(store, drafts))
        assert await store.get("b") is None
        connection.commit()
    found = await store.get_many(["a", "b", "later"])
    assert {task.id: (task.params, task.route, dict(task.metadata)) for task in found.values()} == {
        draft.id: (draft.params, draft.route, draft.metadata) for draft in drafts
    }
    for task in found.values():
        assert abs(await store.now() - task.schedule.created_at) < timedelta(seconds=30)
    claims = await store.claim_submissions("w", [HANDLER], 9, LEASE)
    assert [task.id for task in claims.tasks] == ["b"]
    (again,) = await store.add([make_draft(tenant="acmé", dedup_key="k")])
    assert not again.created


@MAKERS
async def test_a_taken_key_is_an_integrity_error(
    maker: Callable[[str], Make], kind: str, place: str, store: SqlStore
) -> None:
    """The database refuses what the store would."""
    await store.add([make_draft(id="known", dedup_key="k")])
    refused = (psycopg.IntegrityError, pymysql.IntegrityError, ConfigurationError)
    for draft in (make_draft(id="known"), make_draft(dedup_key="k"), make_draft(rank=Rank(mode="ageing"))):
        with connect(place) as connection:
            with pytest.raises(refused):
                execute(connection, maker(kind)(store, [draft]))
            connection.rollback()


@MAKERS
async def test_a_transaction_that_lasts_keeps_nobody_waiting(
    maker: Callable[[str], Make], kind: str, place: str, store: SqlStore
) -> None:
    """Lanes that are there are not locked: others add, claim and set gates meanwhile."""
    await store.add([make_draft(id="before", gates=["g"])])
    with connect(place) as connection, connect(place) as other:
        make = maker(kind)
        await asyncio.to_thread(execute, connection, make(store, [make_draft(id="slow", gates=["g"])]))
        await asyncio.wait_for(
            asyncio.to_thread(execute, other, make(store, [make_draft(id="quick", gates=["g"])])), SOON
        )
        other.commit()
        await asyncio.wait_for(store.add([make_draft(id="added", gates=["g"])]), SOON)
        await asyncio.wait_for(store.set_gate("g", concurrency=9), SOON)
        claims = await asyncio.wait_for(store.claim_submissions("w", [HANDLER], 9, LEASE), SOON)
        assert {task.id for task in claims.tasks} == {"before", "quick", "added"}
        connection.commit()
    claims = await store.claim_submissions("w", [HANDLER], 9, LEASE)
    assert [task.id for task in claims.tasks] == ["slow"]


async def test_the_store_makes_new_lanes_beforehand(place: str, store: SqlStore) -> None:
    """Even the first task of its kind makes nobody wait, from whatever thread it is added."""
    with connect(place) as connection:
        statements = await asyncio.to_thread(store.insert_statements, [make_draft(id="slow", gates=["new"])])
        execute(connection, statements)
        await asyncio.wait_for(store.add([make_draft(id="quick", gates=["new"])]), SOON)
        claims = await asyncio.wait_for(store.claim_submissions("w", [HANDLER], 9, LEASE), SOON)
        assert [task.id for task in claims.tasks] == ["quick"]
        connection.commit()


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.usefixtures("store")
async def test_workers_are_told_at_the_commit(kind: str, place: str) -> None:
    """PostgreSQL passes the announcement on when the caller commits."""
    async with create(place, poll_interval=timedelta(seconds=60)) as other:
        waiting = asyncio.create_task(other.wait([HANDLER], timedelta(seconds=60)))
        await asyncio.sleep(0.3)  # it has begun to listen
        with connect(place) as connection:
            execute(connection, insert_statements([make_draft()], kind))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            connection.commit()
        assert await asyncio.wait_for(waiting, SOON)


@pytest.mark.parametrize("kind", ["postgresql"])
async def test_asyncpg_has_its_placeholders(kind: str, place: str, store: SqlStore) -> None:
    """A connection of asyncpg's executes them, too, also for tables in a schema."""
    import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types; needed here only

    schemed = create(place, schema="jobs")
    await schemed.setup()
    connection = await asyncpg.connect(place)
    for statements in (
        insert_statements([make_draft(id="a", gates=["g"])], kind, paramstyle="numeric_dollar"),
        insert_statements([make_draft(id="b")], kind, schema="jobs", paramstyle="numeric_dollar"),
        store.insert_statements([make_draft(id="c", gates=["h"])], paramstyle="numeric_dollar"),
    ):
        async with connection.transaction():
            for sql, values in statements:
                await connection.execute(sql, *values)
    await connection.close()
    assert set(await store.get_many(["a", "b", "c"])) == {"a", "c"}
    async with schemed:
        assert await schemed.get("b") is not None


def test_wrong_placeholders_are_refused() -> None:
    """The message says which there are."""
    with pytest.raises(ConfigurationError, match="format or numeric_dollar"):
        insert_statements([make_draft()], "postgresql", paramstyle="qmark")


DJANGO = """
import sys
from datetime import timedelta
from urllib.parse import urlsplit

import django
from django.conf import settings

url = urlsplit(sys.argv[1])
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "HOST": url.hostname, "PORT": url.port,
    "USER": url.username, "PASSWORD": url.password or "",
}})
django.setup()
from django.db import IntegrityError, connection, transaction
from attrs import frozen
from coatcheck import Submission, sync
from coatcheck.testing import ScriptedHandler
from coatcheck_store_sql import create

@frozen
class Scan:
    url: str

store = create(sys.argv[1])
app = sync.App(store, [ScriptedHandler("scan", Scan)])

def submit():
    draft = app.manager.prepare(Submission(params=Scan("https://a.example/1"), tracking_timeout=timedelta(hours=1)))
    with connection.cursor() as cursor:
        for sql, values in store.insert_statements([draft]):
            cursor.execute(sql, values)
    return draft

with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE page (name text, task_id text)")
with transaction.atomic():
    kept = submit()
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO page VALUES ('a', %s)", [kept.id])
    assert app.manager.get(kept.id) is None
assert app.manager.get(kept.id).status == "PENDING_SUBMIT"
try:
    with transaction.atomic():
        dropped = submit()
        raise KeyError
except KeyError:
    assert app.manager.get(dropped.id) is None
with transaction.atomic():
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                for sql, values in store.insert_statements([kept]):
                    cursor.execute(sql, values)
    except IntegrityError:
        other = submit()
assert app.manager.get(other.id) is not None
app.close()
print("fine")
"""


def test_django_joins_its_own_transaction(postgresql_url: str) -> None:
    """In `transaction.atomic()` the task commits and rolls back with the rows of Django's models."""
    asyncio.run(create(postgresql_url).setup())
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, postgresql_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
