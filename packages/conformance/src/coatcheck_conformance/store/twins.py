"""Two stores to which the same is done: the one under test and the memory store, on one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from attrs import field, frozen

from coatcheck.clock import ManualClock
from coatcheck.events import Event
from coatcheck.lifecycle import Settlement
from coatcheck.memory import MemoryStore
from coatcheck.store import Claims, Hold, Refused, Started, Store
from coatcheck.task import Task
from coatcheck_conformance.store.comparing import view
from coatcheck_conformance.store.time import LONG

__all__ = ["Claim", "Subject", "Twins"]

_T = TypeVar("_T")
_ALL = 10_000
_MAX_AGAIN = 200


@frozen
class Subject:
    """The store under test, opened once; every example works under names of its own."""

    runner: asyncio.Runner
    store: Store
    clock: ManualClock
    """The model's clock; also the store's, if that takes one."""
    timed: bool
    """Whether the store is on `clock`."""
    examples: list[None] = field(factory=list)
    """One entry for each example so far."""
    failures: list[Exception] = field(factory=list)
    """What steps have failed with so far, in all examples."""

    def run(self, step: Coroutine[Any, Any, _T]) -> _T:
        """Return what `step` comes to."""
        with self.noting():
            return self.runner.run(step)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep what fails in here, for when the same steps do not fail again."""
        try:
            yield
        except Exception as error:
            self.failures.append(error)
            raise


@frozen
class Claim:
    """One claim, as the store and as the model gave it."""

    store: Task
    model: Task


class Twins:
    """The store under test and a fresh model. Whatever is done to both must be answered alike."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.model = MemoryStore(subject.clock)
        self.claims: list[Claim] = []
        """Every claim there has been."""
        self.latest: list[Claim] = []
        """What the last claim gave."""
        subject.run(self.model.open())

    def close(self) -> None:
        """Close the model."""
        self.subject.run(self.model.close())

    def both(self, step: Callable[[Store], Awaitable[_T]]) -> tuple[_T, _T] | None:
        """Do `step` to both and compare the answers; return them, or None if both are the same error."""

        async def run() -> tuple[_T | Exception, _T | Exception]:
            if not self.subject.timed:
                self.subject.clock.set(await self.subject.store.now())
            return await _tried(step(self.subject.store)), await _tried(step(self.model))

        ours, models = self.subject.run(run())
        self.equal(ours, models)
        if isinstance(ours, Exception) or isinstance(models, Exception):
            return None
        return ours, models

    def sure(self, step: Callable[[Store], Awaitable[_T]]) -> tuple[_T, _T]:
        """Do `step` to both, where it must not be refused; raise what either raises."""
        got = self.both(step)
        if got is None:
            # both refuse: say why, by doing it once more
            self.subject.run(_done(step(self.model)))
            message = "a step was refused that must not be"
            raise AssertionError(message)
        return got

    def each(
        self, ours: Callable[[Store], Awaitable[_T]], models: Callable[[Store], Awaitable[_T]]
    ) -> tuple[_T, _T]:
        """Do `ours` to the store and `models` to the model, which have nonces of their own."""

        async def run() -> tuple[_T, _T]:
            if not self.subject.timed:
                self.subject.clock.set(await self.subject.store.now())
            return await ours(self.subject.store), await models(self.model)

        return self.subject.run(run())

    def equal(self, ours: object, models: object) -> None:
        """Check that an answer of the store's is the model's."""
        timed = self.subject.timed
        with self.subject.noting():
            assert view(ours, timed=timed) == view(models, timed=timed), (
                "store (left) and model (right) differ"
            )

    # ------------------------------------------------------------------ what workers do

    def claim(self, kind: str, handlers: Sequence[str], lease: timedelta, own: Sequence[str]) -> None:
        """Claim everything of a kind at both; keep what is `own`, in the order of ids."""

        async def claim(store: Store) -> list[Task]:
            got = await _gathered(getattr(store, f"claim_{kind}"), handlers, _ALL, lease)
            return sorted((task for task in got if task.id in own), key=lambda task: task.id)

        self._keep(self.sure(claim))

    def claim_next(self, handlers: Sequence[str], lease: timedelta) -> None:
        """Claim one submission at both, which leaves no freedom in the order."""
        self._keep(self.sure(lambda store: _gathered(store.claim_submissions, handlers, 1, lease)), add=True)

    def _keep(self, got: tuple[list[Task], list[Task]], *, add: bool = False) -> None:
        claims = [Claim(task, other) for task, other in zip(*got, strict=True)]
        self.latest = [*self.latest, *claims] if add else claims
        self.claims += claims

    def start(self, claims: Sequence[Claim]) -> list[Claim]:
        """Start these claims at both; return those that were let through."""
        ours, models = self.each(
            lambda store: store.start([claim.store for claim in claims], LONG),
            lambda store: store.start([claim.model for claim in claims], LONG),
        )
        self.equal([_reason(answer) for answer in ours], [_reason(answer) for answer in models])
        self.equal([answer.task for answer in ours], [answer.task for answer in models])
        started = [
            Claim(answer.task, other.task)
            for answer, other in zip(ours, models, strict=True)
            if isinstance(answer, Started)
        ]
        self.claims += started
        return started

    def settle(self, chosen: Sequence[tuple[Claim, Event]]) -> None:
        """Settle these claims at both, in one batch."""
        self.equal(
            *self.each(
                lambda store: store.settle(
                    [Settlement(task=claim.store, event=event) for claim, event in chosen]
                ),
                lambda store: store.settle(
                    [Settlement(task=claim.model, event=event) for claim, event in chosen]
                ),
            )
        )

    def renew(self, claim: Claim) -> None:
        """Renew one lease at both."""
        ours, models = self.each(
            lambda store: store.renew([_hold(claim.store)], LONG),
            lambda store: store.renew([_hold(claim.model)], LONG),
        )
        self.equal(
            [(answer.held, answer.held and answer.cancellation_requested) for answer in ours],
            [(answer.held, answer.held and answer.cancellation_requested) for answer in models],
        )


def _hold(task: Task) -> Hold:
    assert task.lease is not None
    return Hold(task_id=task.id, lease=task.lease)


def _reason(answer: Started | Refused) -> str | None:
    return answer.reason if isinstance(answer, Refused) else None


async def _done(step: Awaitable[_T]) -> _T:
    return await step


async def _tried(step: Awaitable[_T]) -> _T | Exception:
    try:
        return await step
    except Exception as error:  # noqa: BLE001 - an error is an answer, and compared
        return error


async def _gathered(
    claim: Callable[..., Awaitable[Claims]], handlers: Sequence[str], limit: int, lease: timedelta
) -> list[Task]:
    """Claim until `limit` is reached or nothing comes."""
    got: list[Task] = []
    for _ in range(_MAX_AGAIN):
        batch = await claim("worker-1", handlers, limit - len(got), lease)
        got += batch.tasks
        if len(got) == limit or not (batch.tasks or batch.again):
            break
    return got
