"""`./dev run python -m benchmarks.redis_scale URL...`: what scripts cost with millions of tasks lying on Redis.

For each URL of an empty database: every step of the store is made some times with `--rows` tasks waiting, half of them
behind a closed gate; and then with half as many besides that are being queried, and half as many that have ended; in
turns with the same where 1,000 wait. Tasks are copied inside the server, and the times are its own, those that the
SLOWLOG would show, told by script. Last come the bytes that a task takes, by `used_memory_dataset`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files
from typing import Any

from coatcheck.events import GaveBack
from coatcheck.lifecycle import Settlement
from coatcheck.store import Filter, Hold, Started
from coatcheck.task import Status, Task
from coatcheck_conformance.drafts import HANDLER, make_draft, make_drafts
from coatcheck_conformance.store.outcomes import accepted, going, succeeded
from coatcheck_store_redis import RedisStore, create
from coatcheck_store_redis.clients import Command
from coatcheck_store_redis.scripts import script

LEASE = timedelta(minutes=5)
BATCH = 200
ROUNDS = 12
COPIED_AT_ONCE = 500
SCRIPTS = files("coatcheck_store_redis") / "scripts"
COPY = """
local original, first, count_ = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local text = document(original)
for n = first, first + count_ - 1 do
  local H = load(original)
  H.id = string.sub(original, 1, 24) .. string.format('%012x', n)
  save(H)
  call('SET', P .. 'd:' .. H.id, text)
  call('ZADD', P .. 'ids', 0, H.id)
  if H.st < FIRST_END then call('ZADD', P .. 'any', H.dead, 'd' .. H.id) end
  count('count', lane_of(H.sl).h .. '\\0' .. H.st, 1)
  refer(H.sl, 1)
  refer(H.ql, 1)
  enter(H)
end
flush()
return count_
"""
"""What makes tasks like another one, found where that is found."""


async def send(store: RedisStore, *command: str | int) -> Any:  # noqa: ANN401 - a server's answer
    """Send one command to the store's server and return the answer."""
    (answer,) = await store.calls.connected.send(store.prefix, [command])
    if isinstance(answer, Exception):
        raise answer
    return answer


async def copy(store: RedisStore, task_id: str, times: int) -> None:
    """Copy a task many times inside the server, with ids of their own, which come after the original's."""
    parts = re.search(r"^-- shared: (.+)$", (SCRIPTS / "add.lua").read_text("utf-8"), re.MULTILINE)
    names = parts.group(1).split() if parts else []
    text = "\n".join([*((SCRIPTS / "shared" / f"{name}.lua").read_text("utf-8") for name in names), COPY])
    for first in range(0, times, COPIED_AT_ONCE):
        count = min(COPIED_AT_ONCE, times - first)
        await send(store, "EVAL", text, 1, store.prefix, "", task_id, first, count)


# ------------------------------------------------------------------ times of scripts


class Times:
    """How long each script took each time, in milliseconds, by its name."""

    def __init__(self) -> None:
        """Know none."""
        self.by_script: dict[str, list[float]] = {}

    def median(self, name: str) -> float:
        """Return the median of a script's times."""
        return statistics.median(self.by_script[name])

    def longest(self, name: str) -> float:
        """Return the longest of a script's times."""
        return max(self.by_script[name])


@asynccontextmanager
async def timed(store: RedisStore) -> AsyncIterator[Times]:
    """Note all scripts that the store runs inside of this; the server must be used by nobody else."""
    names = {script(name).sha: name for name in _script_names()}
    connected, times = store.calls.connected, Times()
    plain = connected.send

    async def taken() -> int:
        (info,) = await plain(store.prefix, [("INFO", "commandstats")])
        found = re.search(rb"cmdstat_evalsha:calls=\d+,usec=(\d+)", info)
        return int(found.group(1)) if found else 0

    async def send_and_note(key: str, commands: Sequence[Command]) -> list[object]:
        before = await taken()
        answers = await plain(key, commands)
        if commands[0][0] == "EVALSHA":
            name = names[str(commands[0][1])]
            times.by_script.setdefault(name, []).append((await taken() - before) / 1000)
        return answers

    connected.send = send_and_note  # type: ignore[method-assign]
    try:
        yield times
    finally:
        del connected.send


def _script_names() -> list[str]:
    return [each.name.removesuffix(".lua") for each in SCRIPTS.iterdir() if each.name.endswith(".lua")]


# ------------------------------------------------------------------ the steps


async def in_turns(quiet: RedisStore, busy: RedisStore, rounds: int, batch: int) -> tuple[Times, Times]:
    """Make every step of two stores some times, in turns, so that both meet the machine in the same mood."""
    for store in (quiet, busy):
        await one_round(store, batch)  # meets closed gates, and lets the server know the scripts
    async with timed(quiet) as few, timed(busy) as many:
        for _ in range(rounds):
            await one_round(quiet, batch)
            await one_round(busy, batch)
    return few, many


async def one_round(store: RedisStore, batch: int) -> None:
    """Make every step once or a few times, with so many tasks."""
    await store.add(make_drafts(batch))
    claims = await store.claim_submissions("w", [HANDLER], batch, LEASE)
    await store.settle([Settlement(task=task, event=GaveBack()) for task in claims.tasks])
    claims = await store.claim_submissions("w", [HANDLER], batch, LEASE)
    started = await _started(store, claims.tasks)
    await store.renew([Hold(task_id=task.id, lease=task.lease) for task in started if task.lease], LEASE)
    await store.settle([Settlement(task=task, event=accepted()) for task in started])
    asked: str | None = None
    for event in (going(), succeeded()):
        queries = (await store.claim_queries("w", [HANDLER], batch, LEASE)).tasks
        await store.settle([Settlement(task=task, event=event) for task in queries])
        asked = queries[0].external_task_id
        await store.nudge(HANDLER, asked or "")
    await store.claim_stale("w", [HANDLER], batch, LEASE)
    await store.request_cancellation((await store.add([make_draft()]))[0].task.id)
    await store.wait([HANDLER], timedelta())
    await store.stats()
    await store.gates()
    await store.find(Filter(), limit=batch)
    await store.find(Filter(statuses=[Status.CANCELED, Status.FAILED]), limit=batch)
    await store.find(Filter(external_task_id=asked))
    await store.pause_gate("another", reason="test")
    await store.resume_gate("another")
    await store.purge(await store.now() + LEASE, limit=batch + 1)


async def _started(store: RedisStore, tasks: tuple[Task, ...]) -> list[Task]:
    return [each.task for each in await store.start(tasks, LEASE) if isinstance(each, Started)]


# ------------------------------------------------------------------ what lies there


async def some_task(store: RedisStore, status: Status, *gates: str) -> str:
    """Add a task, which comes first if it is claimed, let it come to a status, and return its id."""
    waits = status is Status.PENDING_SUBMIT
    (added,) = await store.add([make_draft(gates=gates, priority=0 if waits else 9)])
    if waits:
        return added.task.id
    claims = await store.claim_submissions("w", [HANDLER], 1, LEASE)
    (task,) = await _started(store, claims.tasks)
    delay = timedelta() if status.terminal else LEASE
    await store.settle([Settlement(task=task, event=accepted(delay=delay))])
    if status.terminal:
        (task,) = (await store.claim_queries("w", [HANDLER], 1, LEASE)).tasks
        await store.settle([Settlement(task=task, event=succeeded())])
    return added.task.id


async def bytes_used(store: RedisStore) -> int:
    """Return how much memory the server uses for its data."""
    info: bytes = await send(store, "INFO", "memory")
    fields = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    return int(fields[b"used_memory_dataset"])


async def rest(store: RedisStore) -> None:
    """Wait until the server has written its log anew, which slows its writes down."""
    while b"aof_rewrite_in_progress:1" in await send(store, "INFO", "persistence"):
        await asyncio.sleep(1)


async def measure(place: str, rows: int) -> None:
    """Measure one database."""
    weights: dict[str, float] = {}
    async with create(place, namespace="few") as quiet, create(place, namespace="many") as busy:

        async def lie(what: str, task_id: str) -> None:
            before = await bytes_used(busy)
            await copy(busy, task_id, rows // 2)
            weights[what] = (await bytes_used(busy) - before) / (rows // 2)

        await quiet.add(make_drafts(1000))
        await busy.pause_gate("closed", reason="test")
        await lie("waiting", await some_task(busy, Status.PENDING_SUBMIT))
        await lie("behind a closed gate", await some_task(busy, Status.PENDING_SUBMIT, "closed"))
        await rest(busy)
        show(f"{rows:,} waiting", *await in_turns(quiet, busy, ROUNDS, BATCH))
        await lie("being queried", await some_task(busy, Status.SUBMITTED))
        await lie("ended", await some_task(busy, Status.SUCCEEDED))
        await rest(busy)
        what = f"{rows:,} waiting, {rows // 2:,} being queried, {rows // 2:,} ended"
        show(what, *await in_turns(quiet, busy, ROUNDS, BATCH))
    for each, weight in weights.items():
        print(f"bytes of a task that is {each}: {weight:,.0f}")


def show(what: str, few: Times, many: Times) -> None:
    """Print a table."""
    print(f"{what}: milliseconds of a script, {BATCH} tasks at a time", flush=True)
    print(f"  {'':<10}{'1,000: median':>15}{'longest':>10}{'median':>10}{'longest':>10}")
    for name in sorted(few.by_script):
        base, median = few.median(name), many.median(name)
        print(
            f"  {name:<10}{base:>15.3f}{few.longest(name):>10.3f}{median:>10.3f}{many.longest(name):>10.3f}"
            f"{median / base:>8.2f}x"
        )


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis_scale", description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    for url in options.urls:
        asyncio.run(measure(url, options.rows))


if __name__ == "__main__":
    main()
