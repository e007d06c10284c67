import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck.task import Rank, Task
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_store_sql import SqlStore, create, insert_statements


def execute(url: str, statements: list[tuple[str, tuple[object, ...]]]) -> None:
    """Run the statements in one transaction of the application's own."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        for sql, params in statements:
            connection.execute(sql, params)


async def test_statements_add_what_a_store_would(url: str) -> None:
    """A task added by statements is claimed like any other, in its order, behind its gates."""
    async with create(url) as store:
        await store.set_gate("g", concurrency=1)
        drafts = [
            make_draft(id="b", gates=["g"], priority=1, tenant="acme", dedup_key="k", metadata={"n": 1}),
            make_draft(id="a", gates=["g"], params={"long": "x" * 5000}),
            make_draft(id="later", delay=timedelta(hours=1)),
        ]
        execute(url, insert_statements(drafts))
        found = await store.get_many(["a", "b", "later"])
        assert {task.id: (task.params, task.route) for task in found.values()} == {
            draft.id: (draft.params, draft.route) for draft in drafts
        }
        assert await store.wait([HANDLER], timedelta(seconds=5))
        claims = await store.claim_submissions("w", [HANDLER], 9, timedelta(minutes=1))
        assert [task.id for task in claims.tasks] == ["b"]
        (again,) = await store.add([make_draft(tenant="acme", dedup_key="k")])
        assert not again.created


async def test_a_taken_key_is_an_integrity_error(store: SqlStore, url: str) -> None:
    """The database refuses what the store would."""
    await store.add([make_draft(id="known", dedup_key="k")])
    for draft in (make_draft(id="known"), make_draft(dedup_key="k"), make_draft(rank=Rank(mode="ageing"))):
        with pytest.raises(sqlite3.IntegrityError):
            execute(url, insert_statements([draft]))


def test_other_placeholders_can_be_had() -> None:
    """Django's cursors take %s."""
    for sql, params in insert_statements([make_draft(gates=["g"])], paramstyle="format"):
        assert "?" not in sql
        assert sql.count("%s") == len(params)


def test_an_unknown_dialect_is_refused() -> None:
    """The message says which there are."""
    with pytest.raises(ConfigurationError, match="sqlite"):
        insert_statements([make_draft()], "oracle")


async def test_statements_and_steps_write_the_same_row(url: str) -> None:
    """Both ways to add a task write the same columns, but for their times."""
    async with create(url) as store:
        await store.add([make_draft(id="one", gates=["g"], tenant="t")])
        execute(url, insert_statements([make_draft(id="two", gates=["g"], tenant="t")]))
        one, two = [(await store.get(task_id)) for task_id in ("one", "two")]
    assert isinstance(one, Task)
    assert isinstance(two, Task)
    assert (one.status, one.version, one.route, one.params) == (
        two.status,
        two.version,
        two.route,
        two.params,
    )
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.row_factory = sqlite3.Row
        first, second = connection.execute("SELECT * FROM coatcheck_task ORDER BY seq").fetchall()
    for name in (
        "submit_lane",
        "query_lane",
        "lane",
        "tenant_id",
        "dedup_holder",
        "holds_slots",
        "asleep_until",
    ):
        assert first[name] == second[name], name
