"""One store, opened for one rule, and the ordinary steps that rules are told in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial, wraps
from typing import Any, TypeVar

from attrs import frozen

from coatcheck.clock import ManualClock
from coatcheck.events import Event, GaveBack, Overdue
from coatcheck.gates import GateUsage
from coatcheck.lifecycle import Settlement
from coatcheck.store import Capability, Claims, Hold, Refusal, Refused, Settled, Started, Store
from coatcheck.task import Lease, Status, Task, TaskDraft
from coatcheck_conformance.drafts import HANDLER, make_draft
from coatcheck_conformance.rules import Kind, Level, Suite, spec_rule
from coatcheck_conformance.store.outcomes import accepted, rejected, succeeded, unknown
from coatcheck_conformance.store.spec import StoreSpec
from coatcheck_conformance.store.time import LONG, SHORT, Time

__all__ = ["WORKER", "Trial", "brief", "lease_of", "opening_rule", "store_rule"]

WORKER = "worker-1"
"""Who claims, unless a rule says otherwise."""
_MAX_AGAIN = 200
_MAX_AGED = 20
"""How often a claim is made anew whose rate grant grew old on a busy machine before it was started."""
_ALL = 10_000

_Claim = Callable[[str, Collection[str], int, timedelta], Coroutine[Any, Any, Claims]]
_S = TypeVar("_S", bound=Suite)
_Body = Callable[[_S, "Trial"], Coroutine[Any, Any, None]]


def lease_of(task: Task) -> Lease:
    """Return the lease of a task that must have one."""
    assert task.lease is not None, f"task {task.id} ({task.status}) has no lease"
    return task.lease


def _let_through(answers: Sequence[Started | Refused], claims: int) -> list[Task]:
    """Return the tasks of so many claims that were started, which must be all."""
    assert len(answers) == claims, "start did not answer each claim"
    refused = [each.reason for each in answers if isinstance(each, Refused)]
    assert not refused, f"start refused a good claim: {refused}"
    return [each.task for each in answers if isinstance(each, Started)]


@frozen
class Trial:
    """A store that was just opened at an empty place, its time, and the ordinary steps."""

    spec: StoreSpec
    store: Store
    time: Time
    stack: AsyncExitStack
    """What is opened beside it is closed with it."""

    @classmethod
    @asynccontextmanager
    async def of(cls, spec: StoreSpec) -> AsyncIterator[Trial]:
        """Set up and open the store that `spec` describes; close it, and what was opened beside it, at the end."""
        clock = ManualClock() if spec.clock is not None else None
        async with AsyncExitStack() as stack:
            store = spec.create(clock)
            await store.setup()
            await stack.enter_async_context(store)
            yield cls(spec, store, Time(store, clock), stack)

    async def another(self) -> Store:
        """Open the same place once more, beside the first."""
        return await self.stack.enter_async_context(self.spec.create(self.time.manual))

    # ------------------------------------------------------------------ steps, each of which must succeed

    async def add(self, *drafts: TaskDraft) -> list[Task]:
        """Add the drafts, all of which are new."""
        added = await self.store.add(drafts or [make_draft()])
        assert all(each.created for each in added), "a new id was answered as not created"
        return [each.task for each in added]

    async def get(self, task: Task | str) -> Task:
        """Return the task as it is now."""
        task_id = task if isinstance(task, str) else task.id
        found = await self.store.get(task_id)
        assert found is not None, f"task {task_id} is not there any more"
        return found

    async def claim(
        self,
        limit: int = _ALL,
        *,
        worker: str = WORKER,
        handlers: Collection[str] = (HANDLER,),
        lease: timedelta = LONG,
    ) -> list[Task]:
        """Claim for submission what there is, up to `limit`, in the order in which it comes."""
        return await self._gather(self.store.claim_submissions, limit, worker, handlers, lease)

    async def claim_queries(
        self,
        limit: int = _ALL,
        *,
        worker: str = WORKER,
        handlers: Collection[str] = (HANDLER,),
        lease: timedelta = LONG,
    ) -> list[Task]:
        """Claim for querying what there is, up to `limit`, in the order in which it comes."""
        return await self._gather(self.store.claim_queries, limit, worker, handlers, lease)

    async def claim_stale(
        self,
        limit: int = _ALL,
        *,
        worker: str = WORKER,
        handlers: Collection[str] = (HANDLER,),
        lease: timedelta = LONG,
    ) -> list[Task]:
        """Claim what needs a decision, up to `limit`, in the order in which it comes."""
        return await self._gather(self.store.claim_stale, limit, worker, handlers, lease)

    async def _gather(
        self, claim: _Claim, limit: int, worker: str, handlers: Collection[str], lease: timedelta
    ) -> list[Task]:
        """Claim until `limit` is reached or nothing comes; a batch that says again is asked again."""
        got: list[Task] = []
        empty = 0
        while len(got) < limit:
            batch = await claim(worker, handlers, limit - len(got), lease)
            assert len(batch.tasks) <= limit - len(got), "a claim gave more than its limit"
            got += batch.tasks
            if not batch.tasks:
                if not batch.again:
                    break
                empty += 1
                assert empty < _MAX_AGAIN, "claims say again for ever and give nothing"
                await asyncio.sleep(0)
        return got

    async def start(self, *tasks: Task, lease: timedelta = LONG) -> list[Task]:
        """Start the claims; all must be let through."""
        return _let_through(await self.store.start(tasks, lease), len(tasks))

    async def settle(self, task: Task, event: Event) -> Task:
        """Settle one claim; it must be accepted."""
        answer = await self.try_settle(task, event)
        assert isinstance(answer, Task), f"settling a good claim was refused: {answer!r}"
        return answer

    async def try_settle(self, task: Task, event: Event) -> Settled:
        """Settle one claim and return the answer, whatever it is."""
        (answer,) = await self.store.settle([Settlement(task=task, event=event)])
        return answer

    async def renew(self, task: Task, lease: timedelta = LONG) -> bool:
        """Renew one lease and return whether it is still held."""
        (answer,) = await self.store.renew([Hold(task_id=task.id, lease=lease_of(task))], lease)
        return answer.held

    async def usage(self, gate: str) -> GateUsage:
        """Return how one defined gate stands."""
        (found,) = await self.store.gates([gate])
        return found

    async def used(self, gate: str) -> int:
        """Return how many slots of a defined gate are held."""
        return (await self.usage(gate)).used

    # ------------------------------------------------------------------ tasks on their way

    async def claimed(self, *drafts: TaskDraft, lease: timedelta = LONG) -> list[Task]:
        """Add the drafts and claim exactly them, in the order of the drafts; nothing else may be due."""
        return await self.claimed_again(await self.add(*drafts), lease=lease)

    async def claimed_again(self, tasks: Sequence[Task], lease: timedelta = LONG) -> list[Task]:
        """Claim for submission exactly these tasks, in their order; nothing else may be due."""
        handlers = {each.route.handler_key for each in tasks}
        by_id = {each.id: each for each in await self.claim(len(tasks), handlers=handlers, lease=lease)}
        assert by_id.keys() == {each.id for each in tasks}, "what is due and open was not claimed"
        return [by_id[each.id] for each in tasks]

    async def started(self, *drafts: TaskDraft, lease: timedelta = LONG) -> list[Task]:
        """Add, claim and start the drafts; each is SUBMITTING, and its provider call may be under way."""
        claims = await self.claimed(*drafts, lease=lease)
        return await self._started(claims, lease, tries=0 if self.time.manual is not None else _MAX_AGED)

    async def _started(self, claims: Sequence[Task], lease: timedelta, tries: int) -> list[Task]:
        """Start them; where time goes on, a rate's grants may have grown old, and are given back and taken anew."""
        answers = await self.store.start(claims, lease)
        aged = [
            answer.task
            for answer in answers
            if isinstance(answer, Refused) and answer.reason is Refusal.GRANT_AGED
        ]
        if not aged or not tries:
            return _let_through(answers, len(claims))
        await self.store.settle([Settlement(task=task, event=GaveBack()) for task in aged])
        back = {task.id: task for task in await self.claimed_again(aged, lease)}
        return await self._started([back.get(task.id, task) for task in claims], lease, tries - 1)

    async def tracked(self, *drafts: TaskDraft, delay: timedelta = timedelta()) -> list[Task]:
        """Bring the drafts to SUBMITTED, not leased, with the next query after `delay`."""
        started = await self.started(*drafts)
        answers = await self.store.settle(
            [Settlement(task=each, event=accepted(delay=delay)) for each in started]
        )
        return [answer for answer in answers if isinstance(answer, Task)]

    async def querying(self, *drafts: TaskDraft, lease: timedelta = LONG) -> list[Task]:
        """Bring the drafts to SUBMITTED and claim them for querying, in their order."""
        tasks = await self.tracked(*drafts)
        handlers = {each.route.handler_key for each in tasks}
        claimed = {each.id: each for each in await self.claim_queries(handlers=handlers, lease=lease)}
        return [claimed[each.id] for each in tasks]

    async def ended(self, status: Status, draft: TaskDraft | None = None) -> Task:
        """Bring a draft to this end."""
        draft = draft or make_draft()
        if status is Status.CANCELED:
            (task,) = await self.add(draft)
            assert await self.store.request_cancellation(task.id)
            return await self.get(task)
        if status is Status.TRACKING_TIMED_OUT:
            return await self.timed_out(draft)
        (task,) = await self.started(draft)
        events: dict[Status, Event] = {
            Status.SUCCEEDED: succeeded(),
            Status.FAILED: rejected(),
            Status.SUBMIT_UNKNOWN: unknown(),
        }
        return await self.settle(task, events[status])

    async def timed_out(self, draft: TaskDraft, *, tracked: bool = False) -> Task:
        """Let a draft's tracking timeout run out, before it was submitted or, with `tracked`, after it was."""
        (task,) = await (self.tracked(draft) if tracked else self.add(draft))
        await self.time.reach(task.schedule.deadline_at)
        stale = {each.id: each for each in await self.claim_stale()}
        return await self.settle(stale[task.id], Overdue())


def brief(**arguments: Any) -> TaskDraft:  # noqa: ANN401 - those of make_draft
    """Return a draft whose tracking timeout is `SHORT`."""
    return make_draft(timeout=SHORT, **arguments)


def store_rule(
    id: str,  # noqa: A002 - a rule has an id
    *,
    level: Level = Level.MUST,
    kind: Kind = Kind.DETERMINISTIC,
    requires: Collection[str] = (),
) -> Callable[[_Body[_S]], Callable[..., None]]:
    """Return a decorator that makes ``async def (self, trial)`` a rule for stores, run on a loop of its own."""

    def decorate(body: _Body[_S]) -> Callable[..., None]:
        async def run(suite: _S, spec: StoreSpec) -> None:
            if Capability.SHARED in requires:
                spec = spec.portable()  # other processes can't see a clock of this one's
            limit = asyncio.timeout(spec.patience.total_seconds())
            try:
                async with limit, Trial.of(spec) as trial:
                    await body(suite, trial)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                seconds = spec.patience.total_seconds()
                message = f"it hangs, or takes longer than the {seconds:g} s that spec.patience grants"
                raise AssertionError(message) from error

        @wraps(body)
        def test(suite: _S, spec: StoreSpec) -> None:
            asyncio.run(run(suite, spec))

        return opening_rule(id, level=level, kind=kind, requires=requires)(test)

    return decorate


opening_rule = partial(spec_rule, "store_spec")
"""Makes ``def (self, store_spec)`` a rule for stores, which opens them itself."""
