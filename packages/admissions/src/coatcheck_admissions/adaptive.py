"""A rate that finds out by itself what a provider takes: up slowly, down at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from attrs import define, frozen

from coatcheck import Gate, Rate, TaskChange
from coatcheck.gates import GateChange, PauseGate, SetGate, named
from coatcheck.tallies import Count
from coatcheck.task import Status, TaskDraft, as_millis, millis
from coatcheck_admissions.outcomes import Answer, answer_of, settled_at
from coatcheck_admissions.registers import peek, swap
from coatcheck_admissions.wrapping import Wrapping

__all__ = ["AdaptiveRate", "adaptive_rate"]

_WHO = "adaptive-rate"
_ZERO = timedelta()
_COUNTS = 2**24
"""Rates below this are told apart."""
_ROUNDS = 32


@define
class _Batch:
    """What came of the submissions to one provider, in one batch."""

    calls: int = 0
    slow_down: bool = False
    """Whether one was answered with 429."""
    wait: timedelta = _ZERO
    """For how long the retry policy has put the longest of those off, which honours and clamps Retry-After."""


@frozen
class _Standing:
    """How the rate of one provider stands in the store, in numbers that only rise."""

    rate: int
    """How often it has changed, and what it is."""
    down: int
    """Until when it does not fall again, in milliseconds since 1970."""
    up: int
    """Until when it does not rise."""
    calls: int
    """Submissions in the present step, or in the one before, if those were more."""


@define(kw_only=True, eq=False)
class AdaptiveRate(Wrapping):
    """Raises the rate of a provider step by step, and lowers it when the provider says 429.

    Its gate grants `start` submissions in `per` at first. Every `step_every` without a 429, in which at least half of
    what was allowed was used, that number rises by `step`, up to `ceiling`. At a 429 it is multiplied by `factor`,
    down to `floor`, but only once in `cool_down`, whatever the number of workers; and nothing passes for as long as
    the provider asked for.
    """

    start: int = 5
    """How many submissions in `per` at first."""
    floor: int = 1
    """How many at least; 1 or more."""
    ceiling: int = 100
    """How many at most."""
    per: timedelta = timedelta(seconds=1)
    """The time that these numbers count for."""
    step: int = 1
    """How much is added at once; at least 1."""
    step_every: timedelta = timedelta(seconds=10)
    """How often it is raised at most."""
    factor: float = 0.5
    """What is left of the rate after a 429; above 0, below 1."""
    cool_down: timedelta = timedelta(seconds=10)
    """How long after a decrease another 429 lowers nothing. Not less than calls take: those that were under way have
    seen the rate as it was."""

    def _wrong(self) -> dict[str, bool]:
        return {
            "floor must be at least 1": self.floor < 1,
            "ceiling must not be below floor": self.ceiling < self.floor,
            f"ceiling must be below {_COUNTS}": self.ceiling >= _COUNTS,
            "start must be between floor and ceiling": not self.floor <= self.start <= self.ceiling,
            "per must be positive": self.per <= _ZERO,
            "step must be at least 1": self.step < 1,
            "step_every must be positive": self.step_every <= _ZERO,
            "factor must be above 0 and below 1": not 0 < self.factor < 1,
            "cool_down must be positive": self.cool_down <= _ZERO,
        }

    def own_gates(self, draft: TaskDraft) -> Sequence[str | Gate]:
        """Name the gate that has the rate."""
        return (Gate(name=named("adaptive", draft.route.provider_key), rate=Rate(self.start, self.per)),)

    async def own_settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Count what was settled, and raise or lower rates; the gates are changed at once, pauses first."""
        batches: dict[str, _Batch] = {}
        at = settled_at(changes)
        for change in changes:
            answer = answer_of(change)
            if answer is not None:
                batch = batches.setdefault(named("adaptive", change.after.route.provider_key), _Batch())
                batch.calls += 1
                if answer is Answer.SLOW_DOWN:
                    batch.slow_down = True
                    batch.wait = max(batch.wait, _put_off(change))
        if batches:
            now = as_millis(at or await self.fleet.now())
            # asked for together, they are counted together
            await asyncio.gather(*(self._adapt(gate, batch, now) for gate, batch in batches.items()))
        return ()

    async def _adapt(self, gate: str, batch: _Batch, now: int) -> None:
        if batch.wait > _ZERO:
            reason = "the provider asked to slow down (429)"
            await self.fleet.change(PauseGate(name=gate, reason=reason, who=_WHO, duration=batch.wait))
        standing = await self._count(gate, batch, now)
        if batch.slow_down:
            changed = await self._slow_down(gate, standing, now)
        else:
            changed = standing.up <= now and await self._speed_up(gate, standing, now)
        if not changed and await self._lags(gate, standing.rate):
            await self._follow(gate, standing.rate, "as the fleet has it")

    async def _count(self, gate: str, batch: _Batch, now: int) -> _Standing:
        width = max(millis(self.step_every), 1)
        present, past = (f"{gate}/calls/{now // width - back}" for back in range(2))
        lifetime = 3 * self.step_every
        told = await self.fleet.count(
            [
                *(peek(f"{gate}/{word}") for word in ("rate", "down", "up")),
                Count(name=present, amount=batch.calls, lifetime=lifetime),
                Count(name=past, amount=0, lifetime=lifetime),
            ]
        )
        rate, down, up, *calls = (each.total for each in told)
        return _Standing(rate, down, up, max(calls))

    def _allowed(self, rate: int) -> int:
        """Return how many submissions in `per` a rate in the store allows, within the present bounds."""
        return min(max(rate % _COUNTS or self.start, self.floor), self.ceiling)

    async def _slow_down(self, gate: str, standing: _Standing, now: int) -> bool:
        quiet = now + millis(max(self.step_every, self.cool_down))
        if standing.up < quiet:
            await swap(self.fleet, f"{gate}/up", standing.up, quiet)
        down = now + millis(self.cool_down)
        if standing.down > now or not await swap(self.fleet, f"{gate}/down", standing.down, down):
            return False
        allowed = self._allowed(standing.rate)
        wanted = max(int(allowed * self.factor), self.floor)
        return await self._set(
            gate, standing.rate, wanted, f"the provider said 429: {allowed} became {wanted}"
        )

    async def _speed_up(self, gate: str, standing: _Standing, now: int) -> bool:
        allowed = self._allowed(standing.rate)
        used = 2 * standing.calls * self.per >= allowed * self.step_every
        up = now + millis(self.step_every)
        if not used or not await swap(self.fleet, f"{gate}/up", standing.up, up):
            return False
        wanted = min(allowed + self.step, self.ceiling)
        return await self._set(gate, standing.rate, wanted, f"no 429 lately: {allowed} became {wanted}")

    async def _set(self, gate: str, rate: int, wanted: int, reason: str) -> bool:
        """Change the rate, unless another worker has done so, and let the gate follow; return whether it has.

        One that stays what it is, at a bound, is written too: it is not to be forgotten.
        """
        after = (rate // _COUNTS + 1) * _COUNTS + wanted
        if not await swap(self.fleet, f"{gate}/rate", rate, after):
            return False
        if wanted == self._allowed(rate):
            return False
        await self._follow(gate, after, reason)
        return True

    async def _follow(self, gate: str, rate: int, reason: str) -> None:
        """Limit the gate as the store has the rate, until it still has it so: the last to write looks again."""
        for _ in range(_ROUNDS):
            limit = Rate(self._allowed(rate), self.per)
            await self.fleet.change(SetGate(name=gate, rate=limit, who=_WHO, reason=reason))
            found = (await self.fleet.count([peek(f"{gate}/rate")]))[0].total
            if found == rate:
                return
            rate, reason = found, "changed by another worker"

    async def _lags(self, gate: str, rate: int) -> bool:
        """Whether the gate has another rate: a worker that changed it did not live to set the gate.

        A process with other bounds, in the middle of a rollout, is not quarrelled with.
        """
        usage = (await self.fleet.gates([gate])).get(gate)
        if usage is None or usage.gate.rate is None:
            return True
        limit = usage.gate.rate
        return limit.per == self.per and limit.count != (rate % _COUNTS or self.start)


def _put_off(change: TaskChange) -> timedelta:
    """Return for how long a submission was put off when it was settled."""
    at, after = settled_at([change]), change.after
    waits = at is not None and after.status is Status.PENDING_SUBMIT
    return max(after.schedule.due_at - at, _ZERO) if at is not None and waits else _ZERO


def adaptive_rate(**settings: object) -> AdaptiveRate:
    """Return a policy that finds out what rate a provider takes; `settings` are its fields."""
    return AdaptiveRate(**settings)  # type: ignore[arg-type] # attrs and the checks above say what is wrong
