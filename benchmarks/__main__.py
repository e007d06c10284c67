"""`./dev bench`: tasks per second through the whole machinery, with a handler that does nothing.

One app, one worker, one submit and one query per task. `--pending` tasks lie ready before the clock starts, and
`--tasks` of them are brought to their end; so 1,000 of 1,000 and 1,000 of 100,000 show what the backlog costs.
Each figure is the median of several rounds in fresh stores, the cases taking turns.
"""

import argparse
import asyncio
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import frozen

from coatcheck import (
    App,
    ExponentialRetry,
    Handler,
    QueryContext,
    QueryParams,
    QueryResult,
    Submission,
    SubmitContext,
    SubmitResult,
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
    pending: int
    tasks: int


def _url(store: str, folder: str) -> str:
    return "memory://" if store == "memory" else f"sqlite:///{Path(folder) / 'bench.db'}"


async def _fill(app: App, count: int) -> float:
    began = time.perf_counter()
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        await app.manager.submit_many(
            [Submission(params=Nothing(number), tracking_timeout=HOUR) for number in numbers]
        )
    return count / (time.perf_counter() - began)


async def whole_lives(case: Case) -> dict[str, float]:
    """Return tasks a second added in bulk, and brought from pending to their end by one worker."""
    with tempfile.TemporaryDirectory() as folder:
        handler = Noop(case.tasks)
        app = App(_url(case.store, folder), [handler], retry=AtOnce())
        async with app:
            added = await _fill(app, case.pending)
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

    with tempfile.TemporaryDirectory() as folder:
        app = App(_url(case.store, folder), [Noop(0)])
        async with app:
            await _fill(app, case.pending)
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
    with tempfile.TemporaryDirectory() as folder:
        app = App(_url(case.store, folder), [Noop(0)])
        async with app:
            began = time.perf_counter()
            for number in range(case.tasks):
                await app.manager.submit(Nothing(number), tracking_timeout=HOUR)
            return {"one_by_one": case.tasks / (time.perf_counter() - began)}


async def idle(case: Case) -> dict[str, float]:
    """Return milliseconds from a submission to the first handler call of a worker that had nothing to do."""
    with tempfile.TemporaryDirectory() as folder:
        waited = []
        handler = Noop(0)
        app = App(_url(case.store, folder), [handler])
        async with app, app.worker():
            for number in range(IDLE_TASKS):
                handler.began = 0.0
                await asyncio.sleep(0.005 + 0.005 * random.random())  # noqa: S311 - no secret
                began = time.perf_counter()
                await app.manager.submit(Nothing(number), tracking_timeout=HOUR)
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
    parser.add_argument("--stores", default="memory,sqlite", help="which (default: %(default)s)")
    parser.add_argument("--pending", default="1000,100000", help="backlogs (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=1000, help="brought to their end (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of which the median counts (default: %(default)s)"
    )
    options = parser.parse_args()
    print(
        f"{'store':<8}{'pending':>9}{'lives/s':>10}{'bulk add/s':>12}{'add 1 by 1/s':>14}"
        f"{'claim 200 ms':>14}{'settle 200 ms':>15}{'idle p50/p99 ms':>17}"
    )
    for store in options.stores.split(","):
        for pending in options.pending.split(","):
            case = Case(store=store, pending=int(pending), tasks=min(options.tasks, int(pending)))
            got = _measure(case, options.rounds)
            print(
                f"{store:<8}{case.pending:>9,}{got['lives']:>10,.0f}{got['added']:>12,.0f}"
                f"{got['one_by_one']:>14,.0f}{got['claim_ms']:>14.2f}{got['settle_ms']:>15.2f}"
                f"{got['idle_p50']:>10.2f} /{got['idle_p99']:>5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
