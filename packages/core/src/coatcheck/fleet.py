"""What an admission policy shares with the same policy in other processes, in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime

from attrs import define, field

from coatcheck.errors import InvalidParams
from coatcheck.gates import DeleteGate, GateChange, GateUsage, PauseGate, ResumeGate
from coatcheck.standing import StoreStanding
from coatcheck.store import Store
from coatcheck.tallies import Count, Counted

__all__ = ["StoreFleet", "apply_gate_change"]


async def apply_gate_change(store: Store, change: GateChange) -> None:
    """Carry out one change of a gate."""
    who, reason = change.who, change.reason
    if isinstance(change, PauseGate):
        await store.pause_gate(change.name, reason=change.reason, who=who, duration=change.duration)
    elif isinstance(change, ResumeGate):
        await store.resume_gate(change.name, who=who, reason=reason)
    elif isinstance(change, DeleteGate):
        await store.delete_gate(change.name, who=who, reason=reason)
    else:
        limits = {"concurrency": change.concurrency, "rate": change.rate}
        await store.set_gate(change.name, **limits, who=who, reason=reason)  # type: ignore[arg-type]


@define(eq=False)
class _Wish:
    """What one caller counts."""

    counts: Sequence[Count]
    answer: asyncio.Future[list[Counted]]


@define(eq=False)
class StoreFleet:
    """The fleet of one store; made by the app for its policy, and does nothing until asked."""

    store: Store
    standing: StoreStanding
    _wishes: list[_Wish] = field(factory=list)
    _counting: asyncio.Task[None] | None = None

    async def now(self) -> datetime:
        """Return the store's time."""
        return await self.store.now()

    async def count(self, counts: Sequence[Count]) -> list[Counted]:
        """Count on tallies (S21); what is asked for at the same moment goes to the store together."""
        if not counts:
            return []
        wish = _Wish(counts, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count(), name="counting")
        return await wish.answer

    async def _count(self) -> None:
        while self._wishes:
            wishes, self._wishes = self._wishes, []
            try:
                answers = await self.store.count([each for wish in wishes for each in wish.counts])
            except InvalidParams as error:
                await self._count_apart(wishes, error)
            except BaseException as error:
                _tell(wishes, error)
                if not isinstance(error, Exception):
                    _tell(self._wishes, error)
                    self._wishes = []
                    raise
            else:
                for wish in wishes:
                    own, answers = answers[: len(wish.counts)], answers[len(wish.counts) :]
                    if not wish.answer.done():
                        wish.answer.set_result(own)

    async def _count_apart(self, wishes: Sequence[_Wish], error: InvalidParams) -> None:
        """Find whose count it is that no store can count, so that the others have theirs."""
        if len(wishes) == 1:
            _tell(wishes, error)
            return
        for wish in wishes:
            try:
                answer = await self.store.count(wish.counts)
            except Exception as own:  # noqa: BLE001 - its caller's
                _tell([wish], own)
            else:
                if not wish.answer.done():
                    wish.answer.set_result(answer)

    async def gates(self, names: Collection[str]) -> dict[str, GateUsage]:
        """Return those that are defined, by name; up to a second old."""
        return await self.standing.gates(names)

    async def change(self, change: GateChange) -> None:
        """Change a gate now."""
        await apply_gate_change(self.store, change)


def _tell(wishes: Sequence[_Wish], error: BaseException) -> None:
    for wish in wishes:
        if not wish.answer.done():
            wish.answer.set_exception(error) if isinstance(error, Exception) else wish.answer.cancel()
