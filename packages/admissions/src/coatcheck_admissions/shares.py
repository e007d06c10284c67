"""Turns for tenants: who has queued a hundred thousand tasks does not hold up who has queued three."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta

from attrs import define, field

from coatcheck.gates import named
from coatcheck.tallies import Count
from coatcheck.task import TaskDraft, millis
from coatcheck_admissions.wrapping import Wrapping

__all__ = ["FairShare", "fair_share"]

_ZERO = timedelta()
_MILLISECOND = timedelta(milliseconds=1)
_NOW = named("fair", "now")
_BY = ("tenant", "account", "handler")
_METADATA = "metadata:"
_LONGEST_KEY = 100


@define(kw_only=True, eq=False)
class FairShare(Wrapping):
    """Orders the queue so that tenants take turns, whoever has queued most: start-time fair queueing.

    Each tenant has a virtual clock, a tally of the fleet that is never behind the store's. A task is queued as if it
    had been submitted when its tenant's clock says, and puts that on by `spacing`, divided by the tenant's weight. So
    a tenant that submits less than one task in `spacing` is never behind, and of one that submits a hundred thousand
    at once each next task stands `spacing` later in the queue. Nothing waits while there is nobody to let pass.
    """

    spacing: timedelta = timedelta(seconds=1)
    """How long one task takes at the capacity that the tenants share; at least a millisecond. Rather too long."""
    weights: Mapping[str, float] = field(factory=dict)
    """Shares of tenants that have more or less than one; above 0."""
    memory: timedelta = timedelta(hours=1)
    """A tenant that has submitted nothing for so long has a clean slate; not below `spacing`."""
    by: str = "tenant"
    """Who takes turns: ``tenant``, ``account``, ``handler``, or ``metadata:`` and the name of an entry."""

    def _wrong(self) -> dict[str, bool]:
        weights = self.weights.values()
        entry = self.by.startswith(_METADATA) and self.by != _METADATA
        return {
            "spacing must be a millisecond or longer": self.spacing < _MILLISECOND,
            "memory must not be below spacing": self.memory < self.spacing,
            "weights must be above 0": not all(0 < each < math.inf for each in weights),
            f"by must be one of {', '.join(_BY)}, or 'metadata:' and a name": self.by not in _BY
            and not entry,
        }

    async def own_credits(self, drafts: Sequence[TaskDraft]) -> Sequence[timedelta]:
        """Put the clock of each tenant on, and return how far ahead of the store's each task stands, negated."""
        lanes: dict[str | None, list[int]] = {}
        for place, draft in enumerate(drafts):
            lanes.setdefault(self._key(draft), []).append(place)
        counts = [Count(name=_NOW, amount=0, clock=True, lifetime=self.memory)]
        for key, places in lanes.items():
            amount = self._step(key) * len(places)
            counts.append(Count(name=self._lane(key), amount=amount, clock=True, lifetime=self.memory))
        now, *told = await self.fleet.count(counts)
        credits_ = [_ZERO] * len(drafts)
        for (key, places), each in zip(lanes.items(), told, strict=True):
            ahead, step = max(each.before - now.before, 0), self._step(key)
            for number, place in enumerate(places):
                credits_[place] = -_MILLISECOND * (ahead + number * step)
        return credits_

    def _key(self, draft: TaskDraft) -> str | None:
        if self.by.startswith(_METADATA):
            value = draft.metadata.get(self.by.removeprefix(_METADATA))
            return None if value is None else str(value)
        route = draft.route
        return {"tenant": route.tenant_id, "account": route.account_id, "handler": route.handler_key}[self.by]

    def _step(self, key: str | None) -> int:
        return max(math.ceil(millis(self.spacing) / self.weights.get(key or "", 1.0)), 1)

    def _lane(self, key: str | None) -> str:
        """Return the tally of a tenant; those without one share one."""
        if not key:
            return named("fair", self.by)
        if len(key) > _LONGEST_KEY:
            key = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return named("fair", self.by, key)


def fair_share(**settings: object) -> FairShare:
    """Return a policy that lets tenants take turns; `settings` are its fields."""
    return FairShare(**settings)  # type: ignore[arg-type] # attrs and the checks above say what is wrong
