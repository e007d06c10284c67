"""`./dev run python -m benchmarks.scale URL...`: what claims and settles cost with millions of tasks lying there.

For each URL of an empty database: 1,000 tasks wait, and 200 at a time are claimed and given back; then the same with
`--rows` waiting, as many that are not due yet, and as many that have ended; then with `--tenants` tenants, each
behind a gate of its own with 100 tasks. Rows are copied inside the database. Each figure is a median, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from datetime import timedelta

from sqlalchemy import URL, Connection, create_engine, text

from coatcheck.events import GaveBack
from coatcheck.lifecycle import Settlement
from coatcheck.task import TaskDraft
from coatcheck_conformance.drafts import make_draft
from coatcheck_store_sql import SqlStore, create

LEASE = timedelta(seconds=60)
BLOCKING = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "sqlite": "sqlite",
}
NUMBERS = {
    "postgresql": "generate_series(1, {n}) AS s(n)",
    "mysql": "(SELECT seq AS n FROM seq_1_to_{n}) AS s",
    "sqlite": "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {n}) SELECT n FROM c) AS s",
}
PADDED = {
    "postgresql": "lpad(s.n::text, 8, '0')",
    "mysql": "lpad(s.n, 8, '0')",
    "sqlite": "printf('%08d', s.n)",
}
BATCH = 200
WARM_UP = 3


def draft(tenant: int | None = None, delay: timedelta = timedelta()) -> TaskDraft:
    """Return a draft of a task, behind a tenant's gate or behind none."""
    return make_draft(handler="scale", gates=() if tenant is None else [f"tenant-{tenant}"], delay=delay)


def copy(connection: Connection, store: SqlStore, ids: list[str], times: int) -> None:
    """Copy tasks many times, each copy with an id and a turn of its own behind the original's."""
    table = store.room.sql.schema.task
    kind = connection.dialect.name.replace("mariadb", "mysql")
    number = PADDED[kind]

    def joined(column: str) -> str:
        return f"concat({column}, {number})" if kind == "mysql" else f"{column} || {number}"

    made = {"id": joined("substr(t.id, 10)"), "rank": joined("t.rank"), "turn": joined("t.turn")}
    if kind == "mysql":
        made["rank"] = joined("t.`rank`")
    names = [column.name for column in table.c if column.name != "seq"]
    quoted = [f"`{name}`" if kind == "mysql" else name for name in names]
    values = [made.get(name, f"t.{shown}") for name, shown in zip(names, quoted, strict=True)]
    chosen = ", ".join(f"'{each}'" for each in ids)
    connection.execute(
        text(
            f"INSERT INTO {table.name} ({', '.join(quoted)}) SELECT {', '.join(values)} "  # noqa: S608 - our own
            f"FROM {table.name} AS t CROSS JOIN {NUMBERS[kind].format(n=times)} WHERE t.id IN ({chosen})"
        )
    )


async def rounds(store: SqlStore, count: int = 15) -> tuple[float, float]:
    """Return how long a claim and giving it back take, in milliseconds."""
    claiming, settling = [], []
    for number in range(count + WARM_UP):
        began = time.perf_counter()
        claimed = await store.claim_submissions("scale", ["scale"], BATCH, LEASE)
        middle = time.perf_counter()
        await store.settle([Settlement(task=task, event=GaveBack()) for task in claimed.tasks])
        if number >= WARM_UP:
            claiming.append((middle - began) * 1000)
            settling.append((time.perf_counter() - middle) * 1000)
    return statistics.median(claiming), statistics.median(settling)


def show(what: str, figures: tuple[float, float], base: tuple[float, float]) -> None:
    """Print a line."""
    claim, settle = figures
    print(
        f"  {what:<58}{claim:>8.1f} {claim / base[0]:>5.2f}x{settle:>9.1f} {settle / base[1]:>5.2f}x",
        flush=True,
    )


async def in_database(store: SqlStore, url: URL, ids: list[str], times: int) -> None:
    """Copy rows inside the database, and let it look at its statistics."""

    def work() -> None:
        engine = create_engine(url.set(drivername=BLOCKING[url.get_backend_name()]))
        with engine.connect() as connection:
            copy(connection, store, ids, times)
            connection.commit()
            table = store.room.sql.schema.task.name
            analyse = f"ANALYZE TABLE {table}" if "mysql" in connection.dialect.name else "ANALYZE"
            connection.execute(text(analyse))
            connection.commit()
        engine.dispose()

    await asyncio.to_thread(work)


async def measure(place: str, rows: int, tenants: int) -> None:
    """Measure one database."""
    from sqlalchemy import make_url  # noqa: PLC0415 - beside its use

    url = make_url(place)
    print(
        f"{url.get_backend_name()}: milliseconds for {BATCH} tasks{'':<28}claim{'':>10}give back", flush=True
    )
    store = create(place, table_prefix=f"scale_{secrets.token_hex(3)}_")
    await store.setup()
    async with store:
        await store.add([draft() for _ in range(1000)])
        base = await rounds(store)
        show("1,000 waiting", base, base)
        (waiting,) = await store.add([draft()])
        (later,) = await store.add([draft(delay=timedelta(days=9))])
        (ended,) = await store.add([draft()])
        await store.request_cancellation(ended.task.id)
        await in_database(store, url, [waiting.task.id], rows)
        show(f"{rows:,} waiting", await rounds(store), base)
        await in_database(store, url, [later.task.id, ended.task.id], rows)
        show(f"{rows:,} waiting, {rows:,} not due, {rows:,} ended", await rounds(store), base)
        await store.pause_gate("tenant-0", reason="closed")
        (behind,) = await store.add([draft(0)])
        await store.claim_submissions("scale", ["scale"], 1, LEASE)
        await in_database(store, url, [behind.task.id], rows // 2)
        show(f"and {rows // 2:,} behind a closed gate", await rounds(store), base)
    if tenants:
        store = create(place, table_prefix=f"scale_{secrets.token_hex(3)}_")
        await store.setup()
        async with store:
            added = []
            for first in range(0, tenants, 500):
                numbers = range(first, min(first + 500, tenants))
                added += await store.add([draft(tenant) for tenant in numbers])
                for tenant in numbers:
                    await store.set_gate(f"tenant-{tenant}", concurrency=5)
            await in_database(store, url, [each.task.id for each in added], 100)
            show(
                f"{tenants:,} tenants, each its own limit, {tenants * 100:,} waiting",
                await rounds(store),
                base,
            )


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tenants", type=int, default=10_000)
    options = parser.parse_args()
    for url in options.urls:
        asyncio.run(measure(url, options.rows, options.tenants))


if __name__ == "__main__":
    main()
