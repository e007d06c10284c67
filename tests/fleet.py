"""A fleet of processes on one store, each of which may be killed; run as a program, this module is their parent.

The parent forks one for each name that it reads, and answers with its process id. A process works on the store
itself, without a worker, so that a kill can hit between any two steps. What it does goes to a file at once, a line
of JSON for each fact, so that a kill loses at most the last. It ends when the parent has ended, which it does when
its standard input ends: with the test, however that ends.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from attrs import asdict, define, frozen

from coatcheck import create_store
from coatcheck.events import Accepted, Event, Finished, GaveBack, LeftUnknown, StillGoing
from coatcheck.lifecycle import Settlement
from coatcheck.store import Refused, Started, Store
from coatcheck.task import ErrorCode, QueryParams, Status, Task, TaskError, as_millis
from coatcheck_conformance.drafts import HANDLER
from processes import environment

IDLE_SECONDS = 0.1
LOST = TaskError(code=ErrorCode.SUBMIT_UNKNOWN, message="its process is gone")
Fact: TypeAlias = dict[str, Any]
"""What a process notes: ``what``, ``by`` which, and of the task ``id, token, status`` and ``granted_at``."""


@frozen(kw_only=True)
class Orders:
    """What the processes of a fleet are to do."""

    url: str
    folder: str
    """Where the files with facts, and the log, are."""
    batch: int = 10
    """How many tasks one claims at once."""
    lease_seconds: float = 2.0
    call_seconds: float = 0.05
    """How long a call takes, at most."""
    lives_seconds: float = 60.0
    """After which a process ends by itself."""


class Fleet:
    """The processes, as the test sees them."""

    def __init__(self, orders: Orders, count: int) -> None:
        """Start the parent, and `count` processes."""
        self.pids: list[int] = []
        self.killed: list[int] = []
        self._folder = Path(orders.folder)
        with self._log.open("w") as log:
            self._parent = subprocess.Popen(
                [sys.executable, __file__, json.dumps(asdict(orders))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
                start_new_session=True,
            )
        for _ in range(count):
            self.start_one()

    @property
    def _log(self) -> Path:
        return self._folder / "fleet.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let all end, and say what they said if something went wrong."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()
        if error is not None:
            error.add_note(f"the fleet said:\n{self.log[-3000:]}")

    def start_one(self) -> None:
        """Start one more."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write("one\n")
        self._parent.stdin.flush()
        self.pids.append(int(self._parent.stdout.readline()))

    def replace(self, victim: int) -> None:
        """Kill one, and start another in its place."""
        self.pids.remove(victim)
        os.kill(victim, signal.SIGKILL)
        self.killed.append(victim)
        self.start_one()

    @property
    def works(self) -> bool:
        """Whether all that run have done something."""
        return {fact["by"] for fact in self._facts()}.issuperset(self.pids)

    @property
    def log(self) -> str:
        """What went wrong in any of them: nothing, if all is well."""
        return self._log.read_text()

    def facts(self, what: str) -> list[Fact]:
        """Return what they noted of that kind, in no order."""
        return [fact for fact in self._facts() if fact["what"] == what]

    def _facts(self) -> Iterator[Fact]:
        for file in self._folder.glob("facts-*"):
            lines = file.read_text().split("\n")
            # after the last newline is what a kill has cut off
            yield from map(json.loads, lines[:-1])


@define
class _One:
    """One process of the fleet, from within."""

    orders: Orders
    store: Store
    name: str
    facts: int
    """An open file."""
    chance: random.Random

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.orders.lease_seconds)

    def note(self, what: str, tasks: Sequence[Task]) -> None:
        lines = []
        for task in tasks:
            at = task.lease.granted_at if task.lease else None
            granted = as_millis(at) if at else None
            fact = {"what": what, "by": os.getpid(), "id": task.id, "token": task.token}
            lines.append(json.dumps(fact | {"status": task.status, "granted_at": granted}))
        if lines:
            os.write(self.facts, ("\n".join(lines) + "\n").encode())

    async def call(self) -> None:
        """Take as long as a provider does."""
        await asyncio.sleep(self.chance.random() * self.orders.call_seconds)

    async def work(self) -> None:
        """Do one round after the other, until the parent or the time is over."""
        parent, loop = os.getppid(), asyncio.get_running_loop()
        ends = loop.time() + self.orders.lives_seconds
        while os.getppid() == parent and loop.time() < ends:
            if not (await self.submit() + await self.query() + await self.decide()):
                await asyncio.sleep(IDLE_SECONDS)

    async def submit(self) -> int:
        claims = await self.store.claim_submissions(self.name, [HANDLER], self.orders.batch, self.lease)
        self.note("claimed", claims.tasks)
        if self.chance.random() < 0.1:
            await self.call()
        self.note("starts", claims.tasks)
        answers = await self.store.start(claims.tasks, self.lease)
        sent = [answer.task for answer in answers if isinstance(answer, Started)]
        self.note("sent", sent)
        refused = [answer.task for answer in answers if isinstance(answer, Refused)]
        await self.settle([(task, GaveBack()) for task in refused])
        await self.call()
        accepted = [
            Accepted(query_params=QueryParams(external_task_id=f"job-{task.id}"), delay=timedelta())
            for task in sent
        ]
        await self.settle(list(zip(sent, accepted, strict=True)))
        return len(claims.tasks)

    async def query(self) -> int:
        claims = await self.store.claim_queries(self.name, [HANDLER], self.orders.batch, self.lease)
        await self.call()
        outcomes: list[Event] = [
            StillGoing(delay=timedelta()) if self.chance.random() < 0.2 else Finished(status=Status.SUCCEEDED)
            for _ in claims.tasks
        ]
        await self.settle(list(zip(claims.tasks, outcomes, strict=True)))
        return len(claims.tasks)

    async def decide(self) -> int:
        claims = await self.store.claim_stale(self.name, [HANDLER], self.orders.batch, self.lease)
        await self.settle([(task, LeftUnknown(error=LOST)) for task in claims.tasks])
        return len(claims.tasks)

    async def settle(self, outcomes: Sequence[tuple[Task, Event]]) -> None:
        if not outcomes:
            return
        answers = await self.store.settle([Settlement(task=task, event=event) for task, event in outcomes])
        done = [
            (task, event, answer)
            for (task, event), answer in zip(outcomes, answers, strict=True)
            if isinstance(answer, Task)
        ]
        self.note("returned", [task for task, event, _ in done if isinstance(event, GaveBack)])
        self.note("settled", [answer for _, _, answer in done])


async def _be_one(orders: Orders) -> None:
    number = os.getpid()
    facts = os.open(Path(orders.folder, f"facts-{number}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    async with create_store(orders.url) as store:
        await _One(orders, store, f"process-{number}", facts, random.Random(number)).work()


def _main(orders: Orders) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    create_store(
        orders.url
    )  # forked processes have its modules and its driver, which take a second to import
    while sys.stdin.readline():
        child = os.fork()
        if not child:
            asyncio.run(_be_one(orders))
            return
        print(child, flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    _main(Orders(**json.loads(sys.argv[1])))
