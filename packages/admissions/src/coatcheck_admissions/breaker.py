"""A circuit breaker: a provider that fails gets no submissions for a while, and then a probe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from attrs import define, field, frozen

from coatcheck import Gate, Rate, TaskChange
from coatcheck.gates import GateChange, PauseGate, SetGate, named
from coatcheck.tallies import Count
from coatcheck.task import Route, TaskDraft, as_millis, millis
from coatcheck_admissions.outcomes import Answer, answer_of, settled_at, started_at
from coatcheck_admissions.registers import peek, swap
from coatcheck_admissions.wrapping import Wrapping

__all__ = ["CircuitBreaker", "circuit_breaker"]

_WHO = "circuit-breaker"
_ZERO = timedelta()
_BUCKETS = 3
"""Parts of the window that are counted apart; the oldest is forgotten as a whole."""
_LEVELS = 32
"""How often the time to wait can double."""
_MEND_AFTER_MS = 5_000
"""How long after a change of the circuit its gate may lag behind before it is set again."""
_MAX_KNOWN = 10_000
"""Circuits whose state a process remembers from one batch to the next."""


@frozen
class _State:
    """Where a circuit stands, in one number that rises with each change."""

    at: int = 0
    """When it changed, in milliseconds since 1970."""
    level: int = 0
    """How often in a row a probe has failed."""
    open: bool = False

    @property
    def number(self) -> int:
        return (self.at * _LEVELS + self.level) * 2 + self.open

    @classmethod
    def of(cls, number: int) -> _State:
        at, level = divmod(number // 2, _LEVELS)
        return cls(at, level, bool(number % 2))


@define
class _Batch:
    """What came of the submissions through one gate, in one batch: when each was started, and whether it failed."""

    ends: list[tuple[int, bool]] = field(factory=list)

    def since(self, at: int) -> tuple[int, int]:
        """Return how many of those started then or later there are, and how many of them failed."""
        failed = [bad for started, bad in self.ends if started >= at]
        return len(failed), sum(failed)


@define(kw_only=True, eq=False)
class CircuitBreaker(Wrapping):
    """Stops submitting to a provider that fails, and tries again with a probe.

    It opens when, within `window`, at least `min_calls` submissions were settled in the fleet and `failure_rate` of
    them failed: their outcome is unknown, the provider was out of reach or in error, or it said 429. What a provider
    refuses for its content, a key, a balance or a quota is not counted at all. Its gate is paused for `open_for`.
    Then it lets `probes` through in every `probe_every`: after `successes` good ones in a row it closes, and at a
    bad one it opens for twice as long, up to `max_open`. Only what was started after the pause is a probe.
    """

    window: timedelta = timedelta(seconds=30)
    """How far back it looks; between two thirds of that and all of it."""
    min_calls: int = 10
    """How many submissions have to be known; at least 1."""
    failure_rate: float = 0.5
    """Which share of them has to have failed; above 0, at most 1."""
    open_for: timedelta = timedelta(seconds=30)
    """How long it stays open at first."""
    max_open: timedelta = timedelta(minutes=15)
    """How long it stays open at most, however many probes have failed."""
    probes: int = 1
    """How many probes may be sent in each `probe_every`; at least 1."""
    probe_every: timedelta = timedelta(seconds=5)
    """The time that `probes` counts for."""
    successes: int = 1
    """How many good probes in a row close it; at least 1."""
    per: Literal["provider", "account"] = "provider"
    """What has a circuit of its own. Tasks without an account share that of the provider."""
    _known: dict[str, _State] = field(init=False, factory=dict, repr=False)

    def _wrong(self) -> dict[str, bool]:
        return {
            "window must be positive": self.window <= _ZERO,
            "min_calls must be at least 1": self.min_calls < 1,
            "failure_rate must be above 0, and at most 1": not 0 < self.failure_rate <= 1,
            "open_for must be positive": self.open_for <= _ZERO,
            "max_open must not be below open_for": self.max_open < self.open_for,
            "probes must be at least 1": self.probes < 1,
            "probe_every must be positive": self.probe_every <= _ZERO,
            "successes must be at least 1": self.successes < 1,
            "per must be 'provider' or 'account'": self.per not in {"provider", "account"},
        }

    def own_gates(self, draft: TaskDraft) -> Sequence[str | Gate]:
        """Name the gate that the circuit pauses."""
        return (self._gate(draft.route),)

    def _gate(self, route: Route) -> str:
        account = () if self.per == "provider" or route.account_id is None else (route.account_id,)
        return named("breaker", route.provider_key, *account)

    async def own_settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Count what was settled, and open or close circuits; the gates are changed at once."""
        batches: dict[str, _Batch] = {}
        for change in changes:
            answer, started = answer_of(change), started_at(change)
            if answer is not None and started is not None:
                batch = batches.setdefault(self._gate(change.after.route), _Batch())
                batch.ends.append((as_millis(started), answer is not Answer.GOOD))
        if batches:
            now = as_millis(settled_at(changes) or await self.fleet.now())
            # asked for together, they are counted together
            await asyncio.gather(*(self._judge(gate, batch, now) for gate, batch in batches.items()))
        return ()

    async def _judge(self, gate: str, batch: _Batch, now: int) -> None:
        state, numbers = self._known.get(gate, _State()), (0, 0)
        for _ in range(_BUCKETS):
            told, numbers = await self._count(gate, batch, state, now)
            if told == state:
                break
            state = told  # another worker has changed it: what was counted for the state before says nothing
        else:
            return
        self._remember(gate, state)
        _, bad = batch.since(self._until(state))
        if not state.open:
            await self._watch(gate, state, numbers, now)
        elif bad:
            await self._open(gate, state, now, f"{bad} of the probes failed" if bad > 1 else "a probe failed")
        elif numbers[0] >= self.successes:
            await self._close(gate, state, now)
        await self._mend(gate, state, now)

    def _remember(self, gate: str, state: _State) -> None:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[gate] = state

    def _until(self, state: _State) -> int:
        """Return when what is started counts: since the circuit closed, or since its pause ended."""
        return state.at + millis(self._pause(state.level)) if state.open else state.at

    def _pause(self, level: int) -> timedelta:
        times = 1 << level
        return self.open_for * times if self.max_open / self.open_for > times else self.max_open

    async def _count(
        self, gate: str, batch: _Batch, state: _State, now: int
    ) -> tuple[_State, tuple[int, int]]:
        """Count a batch for a state; return the state that there is, and what was counted: all, and failures.

        Of an open circuit the good probes are counted. Each state has tallies of its own, by the time at which it
        began, so that what was counted before a change says nothing after it.
        """
        calls, bad = batch.since(self._until(state))
        counts = [peek(f"{gate}/state")]
        if state.open:
            # a good probe lasts as long as the state, and a bad one ends it
            lifetime = max(2 * self.window, 10 * self.max_open)
            counts.append(Count(name=f"{gate}/{state.at}/good", amount=calls - bad, lifetime=lifetime))
        else:
            width = max(millis(self.window) // _BUCKETS, 1)
            for back in range(_BUCKETS):
                amounts = (calls, bad) if back == 0 else (0, 0)
                for word, amount in zip(("calls", "failures"), amounts, strict=True):
                    name = f"{gate}/{state.at}/{now // width - back}/{word}"
                    counts.append(Count(name=name, amount=amount, lifetime=2 * self.window))
        told = await self.fleet.count(counts)
        totals = [each.total for each in told[1:]]
        return _State.of(told[0].total), (sum(totals[::2]), sum(totals[1::2]))

    async def _watch(self, gate: str, state: _State, numbers: tuple[int, int], now: int) -> None:
        calls, failures = numbers
        if calls >= self.min_calls and failures >= self.failure_rate * calls:
            seconds = self.window.total_seconds()
            await self._open(
                gate, state, now, f"{failures} of {calls} submissions failed within {seconds:g} s"
            )

    async def _open(self, gate: str, state: _State, now: int, why: str) -> None:
        level = min(state.level + 1, _LEVELS - 1) if state.open else 0
        after = _State(max(now, state.at + 1), level, open=True)
        if await swap(self.fleet, f"{gate}/state", state.number, after.number):
            pause = self._pause(level)
            reason = f"{why}; opened for {pause.total_seconds():g} s"
            # paused before it is limited: in between nothing may pass
            await self.fleet.change(PauseGate(name=gate, reason=reason, who=_WHO, duration=pause))
            await self._follow(gate, after, reason)

    async def _close(self, gate: str, state: _State, now: int) -> None:
        """Close it, unless another worker has opened it again."""
        after = _State(max(now, state.at + 1))
        if await swap(self.fleet, f"{gate}/state", state.number, after.number):
            probes = "a probe" if self.successes == 1 else f"{self.successes} probes in a row"
            await self._follow(gate, after, f"{probes} went well; closed")

    async def _follow(self, gate: str, state: _State, reason: str) -> None:
        """Limit the gate as the circuit stands, until it still stands so afterwards: the last to write looks again."""
        for _ in range(_LEVELS):
            self._remember(gate, state)
            rate = Rate(self.probes, self.probe_every) if state.open else None
            await self.fleet.change(SetGate(name=gate, rate=rate, who=_WHO, reason=reason))
            found = _State.of((await self.fleet.count([peek(f"{gate}/state")]))[0].total)
            if found == state:
                return
            state, reason = found, "opened by another worker" if found.open else "closed by another worker"

    async def _mend(self, gate: str, state: _State, now: int) -> None:
        """Set the gate if a worker that changed the circuit did not live to do it."""
        if self._known.get(gate) != state or now - state.at < _MEND_AFTER_MS:
            return
        usage = (await self.fleet.gates([gate])).get(gate)
        limited = usage is not None and usage.gate.rate is not None
        if limited != state.open:
            await self._follow(gate, state, f"the circuit is {'open' if state.open else 'closed'}")


def circuit_breaker(**settings: object) -> CircuitBreaker:
    """Return a policy that stops submitting to a provider that fails; `settings` are its fields."""
    return CircuitBreaker(**settings)  # type: ignore[arg-type] # attrs and the checks above say what is wrong
