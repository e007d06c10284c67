"""Writing outcomes: in batches, for as long as it takes, and never losing a paid job's id."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from attrs import define

from coatcheck.calls import Call, Purpose
from coatcheck.errors import (
    CoatcheckError,
    InvalidTransition,
    LeaseLost,
    NotPersistable,
    QueryFailed,
    StoreUnavailable,
    SubmitDeferred,
    TaskNotFound,
    VersionConflict,
)
from coatcheck.events import Accepted, Deferred, Event, Finished, Proof
from coatcheck.evolving import constructor
from coatcheck.fleet import apply_gate_change
from coatcheck.gates import AdmissionPolicy, GateChange, TaskChange
from coatcheck.handler import Handler
from coatcheck.leases import LeaseKeeper
from coatcheck.lifecycle import Settlement
from coatcheck.store import Settled, Store
from coatcheck.task import CancelOutcome, Status, Task
from coatcheck.verdicts import unstorable

__all__ = ["Settler"]

logger = logging.getLogger("coatcheck.worker")

BATCH_LIMIT = 500
MAX_PAUSE_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 5.0
"""How long an admission policy may take to answer what was settled."""
MAX_UNANSWERED = 10_000
"""Changes that may wait for a slow policy; beyond that the oldest are left unanswered."""

_new_change, _new_settlement = constructor(TaskChange), constructor(Settlement)

RemoteCancel = Callable[[Task], Awaitable[CancelOutcome]]
OnChange = Callable[[Sequence[TaskChange]], None]


@define
class _Due:
    """An outcome on its way into the store."""

    call: Call
    event: Event


class Settler:
    """Gathers outcomes and settles what has come together in one step.

    While the store is away it holds on to them; what turns out to be fenced by then is attested, if it proves
    that a submission was accepted.
    """

    def __init__(
        self,
        store: Store,
        keeper: LeaseKeeper,
        *,
        admission: AdmissionPolicy,
        on_change: OnChange,
        remote_cancel: RemoteCancel,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._admission = admission
        self._on_change = on_change
        self._remote_cancel = remote_cancel
        self._due: list[_Due] = []
        self._gate_changes: list[GateChange] = []
        self._observes = _observes(admission)
        self._unanswered: list[TaskChange] = []
        self._answering: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._away = False

    def put(self, call: Call, event: Event, *gate_changes: GateChange) -> None:
        """Take an outcome; it is settled soon."""
        self._due.append(_Due(call, event))
        self._gate_changes.extend(gate_changes)
        self._idle.clear()
        self._wake.set()

    @property
    def backlog(self) -> int:
        """How many outcomes wait for the store."""
        return len(self._due)

    async def flush(self) -> None:
        """Wait until everything taken so far is in the store."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settle for ever."""
        try:
            await self._run()
        finally:
            if self._answering is not None:
                self._answering.cancel()

    async def _run(self) -> None:
        pause = 0.05
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due or self._gate_changes:
                try:
                    await self._step()
                except StoreUnavailable as error:
                    self._tell_away(error)
                    await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads workers out
                    pause = min(pause * 2, MAX_PAUSE_SECONDS)
                else:
                    self._tell_back()
                    pause = 0.05
            if self._answering is None:
                self._idle.set()

    def _tell_away(self, error: StoreUnavailable) -> None:
        if not self._away:
            logger.error("the store is away, %d outcomes wait for it: %s", len(self._due), error)
        self._away = True

    def _tell_back(self) -> None:
        if self._away:
            logger.warning("the store is back")
        self._away = False

    async def _step(self) -> None:
        while self._gate_changes:
            await self._change_gate(self._gate_changes[0])
            del self._gate_changes[0]
        batch = self._due[:BATCH_LIMIT]
        if not batch:
            return
        results = await self._settle(batch)
        changes: list[TaskChange] = []
        again: list[_Due] = []
        for due, result in zip(batch, results, strict=True):
            if isinstance(result, Task):
                changes.append(_change(due, result))
                self._keeper.drop(due.call)
            elif isinstance(result, NotPersistable):
                again += self._substitute(due, result)
            elif isinstance(result, InvalidTransition):
                self._keeper.drop(due.call)
                logger.error("task %s: an impossible outcome was dropped: %s", due.call.task.id, result)
            else:
                self._keeper.drop(due.call)
                await self._refused(due, result)
        self._due[: len(batch)] = again
        self._observe(changes)

    async def _settle(self, batch: Sequence[_Due]) -> list[Settled]:
        settlements = [_new_settlement(task=due.call.task, event=due.event) for due in batch]
        try:
            return await self._store.settle(settlements)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                task = batch[0].call.task
                logger.exception(
                    "the outcome %r of task %s cannot be settled; its lease will end and it will be rescued",
                    batch[0].event,
                    task.id,
                )
                return [LeaseLost(f"the outcome of task {task.id} could not be settled")]
        return [(await self._settle([due]))[0] for due in batch]

    def _substitute(self, due: _Due, error: NotPersistable) -> list[_Due]:
        event = unstorable(due.event, error)
        logger.error("task %s: %s", due.call.task.id, error)
        if event == due.event:  # nothing better is known, and to try for ever would hold up the others
            self._keeper.drop(due.call)
            return []
        return [_Due(due.call, event)]

    async def _refused(self, due: _Due, why: VersionConflict | LeaseLost) -> None:
        """Attest what proves an acceptance; anything else is dropped, because another worker has the task."""
        task, event = due.call.task, due.event
        proves = isinstance(event, (Accepted, Finished)) and due.call.purpose in (
            Purpose.SUBMIT,
            Purpose.RESCUE,
        )
        if not proves or task.attempt is None or not isinstance(event, (Accepted, Finished)):
            logger.warning("an outcome was refused and dropped (%s): %s", type(event).__name__, why)
            return
        try:
            proof = Proof(event=event, worker_id=task.attempt.worker_id)
            after = await self._store.attest(task.id, task.attempt.token, proof)
            logger.warning("task %s: late proof of its submission was taken in (%s)", task.id, after.status)
            if after.status is Status.CANCELED and after.query_params and not after.outcome.remote_cancel:
                outcome = await self._remote_cancel(after)
                proof = Proof(event=event, worker_id=task.attempt.worker_id, remote_cancel=outcome)
                await self._store.attest(task.id, task.attempt.token, proof)
        except TaskNotFound:
            logger.exception("task %s is gone; the provider has it as %r", task.id, event.query_params)
        except StoreUnavailable:
            raise
        except CoatcheckError:
            logger.exception("task %s: late proof was refused; the provider has it as %r", task.id, event)

    async def _change_gate(self, change: GateChange) -> None:
        try:
            await apply_gate_change(self._store, change)
        except StoreUnavailable:
            raise
        except Exception:
            logger.exception("gate change %r failed", change)

    def _observe(self, changes: list[TaskChange]) -> None:
        if not changes:
            return
        self._on_change(changes)
        if not self._observes:
            return
        self._unanswered += changes
        if len(self._unanswered) > MAX_UNANSWERED:
            logger.warning(
                "admission policy %r is slow: %d changes go without its answer",
                self._admission,
                len(self._unanswered) - MAX_UNANSWERED,
            )
            del self._unanswered[:-MAX_UNANSWERED]
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer(), name="admission")

    async def _answer(self) -> None:
        """Have the policy answer what was settled, beside settling, which does not wait for it."""
        try:
            while self._unanswered:
                changes, self._unanswered = self._unanswered, []
                try:
                    async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                        self._gate_changes.extend(await self._admission.settled(changes))
                except Exception:
                    logger.exception("admission policy %r failed to observe", self._admission)
        finally:
            self._answering = None
            self._wake.set()


def _observes(admission: AdmissionPolicy) -> bool:
    """Whether a policy wants to know what was settled."""
    cls = type(admission)
    return cls.observe is not AdmissionPolicy.observe or cls.settled is not AdmissionPolicy.settled


def _change(due: _Due, after: Task) -> TaskChange:
    """Return what was committed, with its cost if the handler tells one."""
    cost = None
    handler = due.call.handler
    if after.status.terminal and type(handler).cost is not Handler.cost:
        try:
            cost = _checked_cost(handler.cost(after))
        except Exception:
            logger.exception("handler %r failed to tell the cost of task %s", handler.key, after.id)
    told = _told(due)
    return _new_change(before=due.call.task, after=after, event=type(due.event).__name__, cost=cost, **told)


def _told(due: _Due) -> Mapping[str, Any]:
    """Return what a call's error tells of the provider; whatever else it is may have such attributes of its own."""
    error = due.call.error
    if not isinstance(error, (SubmitDeferred, QueryFailed)):
        # deferred for another error: nothing was sent
        return _NOT_THE_PROVIDER if isinstance(due.event, Deferred) else _NOTHING_TOLD
    asked = error.retry_after
    return {
        "rate_limited": error.rate_limited,
        "retry_after": asked if isinstance(asked, timedelta) else None,
        "blames_provider": getattr(error, "blames_provider", True),
    }


_NOTHING_TOLD: Mapping[str, Any] = {"rate_limited": False, "retry_after": None, "blames_provider": True}
_NOT_THE_PROVIDER: Mapping[str, Any] = {**_NOTHING_TOLD, "blames_provider": False}


def _checked_cost(cost: object) -> int | None:
    if cost is not None and (isinstance(cost, bool) or not isinstance(cost, int)):
        message = f"a cost is a whole number or None, not {cost!r}"
        raise TypeError(message)
    return cost
