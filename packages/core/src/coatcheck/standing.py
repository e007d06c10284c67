"""How handlers stand in the store, for selectors: asked seldom, and remembered for a moment."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from attrs import define, evolve, field, frozen

from coatcheck.gates import Gate, GateUsage
from coatcheck.selector import Load, Outcomes, Standing
from coatcheck.store import Store
from coatcheck.task import Status

__all__ = ["FRESH", "StoreStanding"]

FRESH = timedelta(seconds=1)
"""How long an answer of the store is remembered, unless it took long to get."""
COST_SHARE = 20
"""An answer counts for this many times as long as it took to get, so that asking takes no store's time up."""
MAX_KEPT = 1_000
"""For how many different sets of gates answers are remembered; accounts and tenants have gates of their own."""
MAX_STEPS = 1_024
"""How many steps of counts are remembered, one for each reading: at one a second, a quarter of an hour."""

_K = TypeVar("_K")
_T = TypeVar("_T")
_ACTIVE = (Status.SUBMITTING, Status.SUBMITTED, Status.RUNNING)
_BAD = (Status.FAILED, Status.SUBMIT_UNKNOWN, Status.TRACKING_TIMED_OUT)
_NO_STATUSES: Mapping[Status, int] = {}


@define
class _Kept(Generic[_T]):
    """An answer, and until when it counts."""

    answer: _T
    until: float
    asking: bool = False
    """Whether somebody is getting a newer one, while the others take this."""


@define
class _Memory(Generic[_K, _T]):
    """Remembers answers. When one is old, the first who wants it asks anew, and the others take the old one."""

    ask: Callable[[_K], Awaitable[_T]]
    kept: OrderedDict[_K, _Kept[_T]] = field(factory=OrderedDict)

    async def get(self, key: _K) -> _T:
        """Return the answer for `key`, asking if there is none or if it is old."""
        found = self.kept.get(key)
        began = time.monotonic()
        if found is not None and (found.asking or began < found.until):
            return found.answer
        if found is not None:
            found.asking = True
        try:
            answer = await self.ask(key)
        finally:
            if found is not None:
                found.asking = False
        ended = time.monotonic()
        counts_for = max(FRESH.total_seconds(), COST_SHARE * (ended - began))
        self.kept[key] = _Kept(answer, ended + counts_for)
        self.kept.move_to_end(key)
        while len(self.kept) > MAX_KEPT:
            self.kept.popitem(last=False)
        return answer


@frozen
class _Step:
    """What has ended between two readings of the counts."""

    at: float
    good: Mapping[str, int]
    bad: Mapping[str, int]


_Counts = Mapping[str, Mapping[Status, int]]


class StoreStanding:
    """How all handlers stand in one store; made by the manager, lives as long, and does nothing until asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gates: _Memory[tuple[str, ...], list[GateUsage]] = _Memory(self._read_gates)
        self._counts: _Memory[None, _Counts] = _Memory(self._read_counts)
        self._last: _Counts | None = None
        self._steps: deque[_Step] = deque(maxlen=MAX_STEPS)
        self._sent: Counter[str] = Counter()

    def of(self, candidates: Sequence[str], gates_of: Callable[[str], Collection[str | Gate]]) -> Standing:
        """Return how these candidates stand for one task; `gates_of` tells its gates at one of them."""
        return _OfTask(self, tuple(candidates), gates_of)

    def sent(self, handler_key: str) -> None:
        """Count a task that goes to a handler, until the next reading counts it."""
        if self._last is not None:  # somebody wants to know
            self._sent[handler_key] += 1

    async def gates(self, names: Collection[str]) -> dict[str, GateUsage]:
        """Return those that are defined, by name."""
        usages = await self._gates.get(tuple(sorted({*names})))
        return {usage.gate.name: usage for usage in usages}

    async def load(self, handler_key: str) -> Load:
        """Return how much a handler has to do."""
        by_status = (await self._counts.get(None)).get(handler_key, _NO_STATUSES)
        return Load(
            waiting=by_status.get(Status.PENDING_SUBMIT, 0) + self._sent[handler_key],
            active=sum(by_status.get(status, 0) for status in _ACTIVE),
        )

    async def outcomes(self, handler_key: str, within: timedelta) -> Outcomes:
        """Return how a handler's tasks have ended lately."""
        await self._counts.get(None)
        since = time.monotonic() - within.total_seconds()
        steps = [step for step in self._steps if step.at >= since]
        return Outcomes(
            good=sum(step.good.get(handler_key, 0) for step in steps),
            bad=sum(step.bad.get(handler_key, 0) for step in steps),
        )

    async def _read_gates(self, names: tuple[str, ...]) -> list[GateUsage]:
        if not names:
            return []
        usages = await self._store.gates(names)
        if not any(usage.gate.pause for usage in usages):
            return usages
        now = await self._store.now()
        return [
            usage if usage.gate.paused_at(now) else evolve(usage, gate=evolve(usage.gate, pause=None))
            for usage in usages
        ]

    async def _read_counts(self, _: None) -> _Counts:
        sent_before = self._sent.copy()
        stats = await self._store.stats()
        counts = {each.handler_key: dict(each.by_status) for each in stats.handlers}
        self._sent -= sent_before  # what went there meanwhile may be counted twice, for a moment
        if self._last is not None:
            self._steps.append(_step(self._last, counts))
        self._last = counts
        return counts


def _step(before: _Counts, after: _Counts) -> _Step:
    """Return what has ended between two readings.

    Where a count has fallen, ended tasks were purged or resolved, and nothing can be told of that handler.
    """
    good, bad = dict[str, int](), dict[str, int]()
    for handler_key, by_status in after.items():
        was = before.get(handler_key, _NO_STATUSES)
        grown = {
            status: by_status.get(status, 0) - was.get(status, 0) for status in (Status.SUCCEEDED, *_BAD)
        }
        if min(grown.values()) >= 0:
            good[handler_key] = grown.pop(Status.SUCCEEDED)
            bad[handler_key] = sum(grown.values())
    return _Step(time.monotonic(), good, bad)


class _OfTask(Standing):
    """How the candidates of one selection stand."""

    def __init__(
        self,
        fleet: StoreStanding,
        candidates: tuple[str, ...],
        gates_of: Callable[[str], Collection[str | Gate]],
    ) -> None:
        self._fleet = fleet
        self._candidates = candidates
        self._gates_of = gates_of

    async def gates(self) -> dict[str, list[GateUsage]]:
        told = {key: list(self._gates_of(key)) for key in self._candidates}
        # a gate with limits is defined by the first task that names it
        unused = {
            gate.name: GateUsage(gate=gate, used=0, granted=0)
            for gates in told.values()
            for gate in gates
            if isinstance(gate, Gate)
        }
        named = {
            key: sorted({gate.name if isinstance(gate, Gate) else gate for gate in gates})
            for key, gates in told.items()
        }
        usages = unused | await self._fleet.gates({name for names in named.values() for name in names})
        return {key: [usages[name] for name in names if name in usages] for key, names in named.items()}

    async def load(self) -> dict[str, Load]:
        return {key: await self._fleet.load(key) for key in self._candidates}

    async def outcomes(self, within: timedelta) -> dict[str, Outcomes]:
        return {key: await self._fleet.outcomes(key, within) for key in self._candidates}
