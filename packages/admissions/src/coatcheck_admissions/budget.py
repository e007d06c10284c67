"""So many submissions a day, or so much money."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from attrs import define, field

from coatcheck import Admit, Postpone, Task, TaskChange
from coatcheck.gates import Admission, GateChange, named
from coatcheck.tallies import Count, Counted
from coatcheck.task import Route
from coatcheck_admissions.outcomes import settled_at, started_at
from coatcheck_admissions.rationing import Rationing
from coatcheck_admissions.wrapping import Wrapping
from coatcheck_admissions.zones import first_at, zone_of

__all__ = ["DailyBudget", "daily_budget"]

_SHOWN_FOR = timedelta(days=3)
"""How long a day's number can be seen after it was last counted on."""
_MAX_ADMITTED = 100_000
"""Claims that are remembered between being admitted and settled."""
_PER = ("provider", "account", "tenant", "everything")


@define(kw_only=True, eq=False)
class DailyBudget(Wrapping):
    """Admits tasks up to `limit` a day, and postpones the others until the next midnight of `zone`.

    By count it is exact across the fleet: each started submission counts one, also one that fails; a claim that is
    given back before its call is counted back. By cost it counts what the handler says of tasks that have ended
    (`Handler.cost`), so what is under way when the limit is reached may exceed it. A task without an account or a
    tenant has no budget `per` that. The tally is called ``budget/<by>/<per>/<of which>/<date>``.
    """

    limit: int
    """How many submissions a day; or how much, in the handler's unit. At least 1."""
    zone: str = "UTC"
    """Whose midnight it is."""
    per: Literal["provider", "account", "tenant", "everything"] = "provider"
    """What has a budget of its own."""
    by: Literal["count", "cost"] = "count"
    """Whether submissions are counted, or what they cost."""
    default_cost: int = 1
    """What a job costs of which the handler does not tell, and one that ends in doubt; not negative."""
    _zone: ZoneInfo = field(init=False, repr=False)
    _admitted: OrderedDict[tuple[str, int], str] = field(init=False, factory=OrderedDict, repr=False)
    _places: Rationing = field(init=False, repr=False)

    @_zone.default
    def _find_zone(self) -> ZoneInfo:
        return zone_of(self.zone)

    @_places.default
    def _make_places(self) -> Rationing:
        return Rationing(limit=self.limit, lifetime=_SHOWN_FOR, count=self._count)

    async def _count(self, counts: Sequence[Count]) -> list[Counted]:
        return await self.fleet.count(counts)

    def _wrong(self) -> dict[str, bool]:
        return {
            "limit must be at least 1": self.limit < 1,
            f"per must be one of {', '.join(_PER)}": self.per not in _PER,
            "by must be 'count' or 'cost'": self.by not in {"count", "cost"},
            "default_cost must not be negative": self.default_cost < 0,
        }

    def _tally(self, route: Route, day: date) -> str | None:
        of = {
            "provider": (route.provider_key,),
            "account": (route.provider_key, route.account_id),
            "tenant": (route.tenant_id,),
            "everything": (),
        }[self.per]
        parts = [each for each in of if each is not None]
        if len(parts) < len(of):
            return None
        return named("budget", self.by, self.per, *parts, day.isoformat())

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Count the task if the one inside admits it; postpone it until tomorrow if the day's budget is spent."""
        word = await self.inner.admit(task, now)
        day = now.astimezone(self._zone).date()
        name = self._tally(task.route, day)
        if name is None or not isinstance(word, Admit):
            return word
        if self.by == "cost":
            spent = await self._places.total(name)
            return word if spent < self.limit else self._tomorrow(day, f"costs of {spent}")
        place = await self._places.take(name)
        if not place.granted:
            return self._tomorrow(day, f"{place.total} submissions")
        if task.lease is not None:
            self._admitted[task.id, task.lease.token] = name
            while len(self._admitted) > _MAX_ADMITTED:
                self._admitted.popitem(last=False)
        return word

    def _tomorrow(self, day: date, spent: str) -> Postpone:
        midnight = first_at(day + timedelta(days=1), time(), self._zone)
        of = "" if self.per == "everything" else f" of the {self.per}"
        reason = f"{spent} of {self.limit} in the daily budget{of} are spent on {day} ({self.zone})"
        return Postpone(until=midnight, reason=reason)

    async def own_settled(self, changes: Sequence[TaskChange]) -> Sequence[GateChange]:
        """Count back what was admitted and not started, or count what the tasks that have ended cost."""
        if self.by == "cost":
            counts = self._costs(changes)
            if counts:
                await self.fleet.count(counts)
        else:
            await self._places.give_back(self._unused(changes))
        return ()

    def _unused(self, changes: Sequence[TaskChange]) -> list[str]:
        """Return the tallies on which claims were counted that came to an end before the call."""
        names = []
        for change in changes:
            before = change.before
            if before is None or before.lease is None:
                continue
            name = self._admitted.pop((before.id, before.lease.token), None)
            if name is not None and started_at(change) is None:
                names.append(name)
        return names

    def _costs(self, changes: Sequence[TaskChange]) -> list[Count]:
        ended = [change for change in changes if change.after.status.terminal]
        spent: dict[str, int] = {}
        for change in ended:
            at = settled_at([change]) or change.after.outcome.finished_at
            name = at and self._tally(change.after.route, at.astimezone(self._zone).date())
            if name:
                spent[name] = spent.get(name, 0) + self._cost(change)
        return [
            Count(name=name, amount=amount, lifetime=_SHOWN_FOR) for name, amount in spent.items() if amount
        ]

    def _cost(self, change: TaskChange) -> int:
        if change.cost is not None:
            return change.cost
        after = change.after
        submitted = started_at(change) is not None and change.event in {"Finished", "LeftUnknown"}
        return self.default_cost if submitted or after.progress.accepted_at is not None else 0


def daily_budget(limit: int, **settings: object) -> DailyBudget:
    """Return a policy that admits so much a day; `settings` are its other fields."""
    return DailyBudget(limit=limit, **settings)  # type: ignore[arg-type] # as in `circuit_breaker`
