"""`./dev bench`: tasks per second through the whole machinery, with a handler that does nothing.

One app, one worker, one submit and one query per task. `--pending` tasks lie ready before the clock starts, and
`--tasks` of them are brought to their end; so 1,000 of 1,000 and 1,000 of 100,000 show what the backlog costs.
Each figure is the median of several rounds in fresh stores, the cases taking turns.
"""

import argparse
import asyncio
import contextlib
import gc
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import frozen

from benchmarks.gated import Gated, set_limits
from coatcheck import (
    App,
    ExponentialRetry,
    Handler,
    QueryContext,
    QueryParams,
    QueryResult,
    Submission,
    SubmitContext,
    SubmitOptions,
    SubmitResult,
    create_store,
)
from coatcheck.store import Store

HOUR = timedelta(hours=1)
IDLE_TASKS = 300
LEASE = timedelta(seconds=60)


@frozen
class Nothing:
    """Params of a job that is none."""

    number: int


class Noop(Handler[Nothing]):
    """Accepts at once, and is done at the first query."""

    key = "noop"
    marks_wire = True

    def __init__(self, enough: int) -> None:
        self.finished = 0
        self.enough = enough
        self.began = 0.0
        self.ended = 0.0

    async def submit(self, params: Nothing, context: SubmitContext) -> SubmitResult:
        """Accept."""
        if not self.began:
            self.began = time.perf_counter()
        return SubmitResult.accepted(str(params.number))

    async def query(self, params: QueryParams, context: QueryContext) -> QueryResult:
        """Be done."""
        self.finished += 1
        if self.finished == self.enough:
            self.ended = time.perf_counter()
        return QueryResult.succeeded(params.external_task_id)


class AtOnce(ExponentialRetry):
    """Asks again at once."""

    def next_query_delay(self, task: object, result: object) -> timedelta:
        """Wait for nothing."""
        return timedelta()


@frozen(kw_only=True)
class Case:
    """What is measured."""

    store: str
    """`memory`, `sqlite`, or the URL of a database whose tables of this benchmark are made anew."""
    pending: int
    tasks: int
    tenants: int = 0
    """How many tenants the tasks are of, all behind limits that never close; 0: no limits."""


@contextlib.asynccontextmanager
async def _open(case: Case, handler: Noop) -> AsyncIterator[App]:
    """Open an app on an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        if "://" in case.store:
            store = create_store(case.store, table_prefix=f"bench_{secrets.token_hex(4)}_")
        else:
            file = f"sqlite:///{Path(folder) / 'bench.db'}"
            store = create_store("memory://" if case.store == "memory" else file)
        await store.setup()
        app = App(store, [handler], retry=AtOnce(), admission=Gated() if case.tenants else None)
        async with app:
            await set_limits(store, case.tenants) if case.tenants else None
            yield app


def _submission(case: Case, number: int) -> Submission:
    tenant = str(number % case.tenants) if case.tenants else None
    return Submission(params=Nothing(number), tracking_timeout=HOUR, options=SubmitOptions(tenant_id=tenant))


async def _fill(app: App, case: Case) -> float:
    began = time.perf_counter()
    for first in range(0, case.pending, 1000):
        numbers = range(first, min(first + 1000, case.pending))
        await app.manager.submit_many([_submission(case, number) for number in numbers])
    return case.pending / (time.perf_counter() - began)


async def whole_lives(case: Case) -> dict[str, float]:
    """Return tasks a second added in bulk, and brought from pending to their end by one worker."""
    handler = Noop(case.tasks)
    async with _open(case, handler) as app:
        added = await _fill(app, case)
        gc.collect()
        async with app.worker(submissions=200, queries=200) as worker:
            while not handler.ended:
                await asyncio.sleep(0.005)
            worker.stop()
    return {"added": added, "lives": case.tasks / (handler.ended - handler.began)}


async def claims(case: Case) -> dict[str, float]:
    """Return milliseconds of one claim of 200 tasks and of settling them, given back, with the backlog lying there."""
    from coatcheck.events import GaveBack  # noqa: PLC0415 - beside its use
    from coatcheck.lifecycle import Settlement  # noqa: PLC0415

    async with _open(case, Noop(0)) as app:
        await _fill(app, case)
        gc.collect()
        store: Store = app.store
        claiming, settling = [], []
        for _ in range(20):
            began = time.perf_counter()
            claimed = await store.claim_submissions("bench", ["noop"], 200, LEASE)
            middle = time.perf_counter()
            await store.settle([Settlement(task=task, event=GaveBack()) for task in claimed.tasks])
            claiming.append(middle - began)
            settling.append(time.perf_counter() - middle)
    return {
        "claim_ms": statistics.median(claiming) * 1000,
        "settle_ms": statistics.median(settling) * 1000,
    }


async def one_by_one(case: Case) -> dict[str, float]:
    """Return tasks a second submitted one by one, awaited in turn."""
    async with _open(case, Noop(0)) as app:
        began = time.perf_counter()
        for number in range(case.tasks):
            await app.manager.submit_many([_submission(case, number)])
        return {"one_by_one": case.tasks / (time.perf_counter() - began)}


async def idle(case: Case) -> dict[str, float]:
    """Return milliseconds from a submission to the first handler call of a worker that had nothing to do."""
    waited = []
    handler = Noop(0)
    async with _open(case, handler) as app, app.worker():
        for number in range(IDLE_TASKS):
            handler.began = 0.0
            await asyncio.sleep(0.005 + 0.005 * random.random())  # noqa: S311 - no secret
            began = time.perf_counter()
            await app.manager.submit_many([_submission(case, number)])
            while not handler.began:
                await asyncio.sleep(0.001)
            waited.append((handler.began - began) * 1000)
    return {"idle_p50": statistics.median(waited), "idle_p99": statistics.quantiles(waited, n=100)[-1]}


def _measure(case: Case, rounds: int) -> dict[str, float]:
    measures: list[Callable[[Case], Coroutine[Any, Any, dict[str, float]]]] = [
        whole_lives,
        claims,
        one_by_one,
        idle,
    ]
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for measure in measures:
            for name, value in asyncio.run(measure(case)).items():
                found.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "--stores", default="memory,sqlite", help="which, also URLs of servers (default: %(default)s)"
    )
    parser.add_argument("--tenants", type=int, default=0, help="behind limits, of so many tenants")
    parser.add_argument("--pending", default="1000,100000", help="backlogs (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=1000, help="brought to their end (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of which the median counts (default: %(default)s)"
    )
    options = parser.parse_args()
    print(
        f"{'store':<11}{'pending':>9}{'lives/s':>10}{'bulk add/s':>12}{'add 1 by 1/s':>14}"
        f"{'claim 200 ms':>14}{'settle 200 ms':>15}{'idle p50/p99 ms':>17}"
    )
    for store in options.stores.split(","):
        for pending in options.pending.split(","):
            case = Case(
                store=store,
                pending=int(pending),
                tasks=min(options.tasks, int(pending)),
                tenants=options.tenants,
            )
            got = _measure(case, options.rounds)
            print(
                f"{store.partition(':')[0]:<11}{case.pending:>9,}{got['lives']:>10,.0f}{got['added']:>12,.0f}"
                f"{got['one_by_one']:>14,.0f}{got['claim_ms']:>14.2f}{got['settle_ms']:>15.2f}"
                f"{got['idle_p50']:>10.2f} /{got['idle_p99']:>5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
