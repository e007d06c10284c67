"""Opening hours: certain tasks are submitted at certain hours only."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from attrs import define, field, frozen

from coatcheck import InvalidParams, Postpone, Task
from coatcheck.gates import Admission
from coatcheck_admissions.wrapping import Wrapping
from coatcheck_admissions.zones import first_at, zone_of

__all__ = ["TimeWindow", "time_window"]

_ZERO = timedelta()
_DAY = timedelta(days=1)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"(?:(\S+) +)?(\d\d):(\d\d) *- *(\d\d):(\d\d)", re.ASCII)


@frozen
class _Window:
    days: frozenset[int]
    """Weekdays on which it opens; Monday is 0."""
    start: time
    end: time
    overnight: bool
    """Whether it closes on the next day."""

    def on(self, day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """Return when it opens on a day, and when it closes."""
        closes = day + _DAY if self.overnight else day
        return first_at(day, self.start, zone), first_at(closes, self.end, zone)


def _parse(text: str) -> _Window:
    found = _WINDOW.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        message = f"{text!r} is no window; write one such as '22:00-06:00' or 'mon-fri 22:00-06:00'"
        raise InvalidParams(message)
    days, *numbers = found.groups()
    hour, minute, to_hour, to_minute = map(int, numbers)
    midnight = (to_hour, to_minute) == (24, 0)
    try:
        start, end = time(hour, minute), time() if midnight else time(to_hour, to_minute)
    except ValueError as error:
        message = f"{text!r} is no window: {error}; a day goes from 00:00 to 24:00"
        raise InvalidParams(message) from error
    if start == end and not midnight:
        message = f"{text!r} opens and closes at once; write '00:00-24:00' for a whole day"
        raise InvalidParams(message)
    return _Window(frozenset(_parse_days(days or "mon-sun", text)), start, end, end <= start)


def _parse_days(days: str, text: str) -> Iterator[int]:
    for part in days.split(","):
        first, _, last = part.partition("-")
        for name in (first, last or first):
            if name not in _DAYS:
                message = f"{text!r} names the day {name!r}; there are: {', '.join(_DAYS)}"
                raise InvalidParams(message)
        begin, count = _DAYS.index(first), (_DAYS.index(last or first) - _DAYS.index(first)) % 7
        yield from ((begin + number) % 7 for number in range(count + 1))


def _texts(given: Collection[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        message = f"expected a list of texts, not {given!r}"
        raise InvalidParams(message)
    return tuple(given)


@define(kw_only=True, eq=False)
class TimeWindow(Wrapping):
    """Postpones tasks until the next of `windows` opens. Those that it does not concern pass at any time.

    A window is text: ``"22:00-06:00"``, or ``"mon-fri 22:00-06:00"``, or ``"sat,sun 00:00-24:00"``, in local times of
    `zone`. The days are those on which it opens; one that ends before it starts closes on the next day. A time that
    clocks skip in spring is when they go forward, and one that they show twice in autumn is the first of the two.
    A task is concerned if all of `below_priority`, `handlers` and `tenants` that are given fit it.
    """

    windows: Sequence[str] = field(converter=_texts)
    """When it is open; at least one."""
    zone: str = "UTC"
    """Whose clocks these are."""
    below_priority: int | None = None
    """Only tasks of a lower priority are concerned; None is all."""
    handlers: Collection[str] = field(default=(), converter=_texts)
    """Only tasks of these handlers are concerned, by key; none is all."""
    tenants: Collection[str] = field(default=(), converter=_texts)
    """Only tasks of these tenants are concerned; none is all."""
    spread: timedelta = timedelta(seconds=5)
    """Tasks come back over so long after the opening, and not all at once; not negative."""
    seed: int | None = None
    """Makes the spread repeatable, for tests."""
    _zone: ZoneInfo = field(init=False, repr=False)
    _windows: tuple[_Window, ...] = field(init=False, repr=False)
    _chance: random.Random = field(init=False, repr=False)

    @_zone.default
    def _find_zone(self) -> ZoneInfo:
        return zone_of(self.zone)

    @_windows.default
    def _parse_windows(self) -> tuple[_Window, ...]:
        return tuple(map(_parse, self.windows))

    @_chance.default
    def _make_chance(self) -> random.Random:
        return random.Random(self.seed)  # noqa: S311 - spreading tasks out is no secret

    def _wrong(self) -> dict[str, bool]:
        return {
            "windows must not be empty": not self.windows,
            "spread must not be negative": self.spread < _ZERO,
        }

    def concerns(self, task: Task) -> bool:
        """Whether a task has to wait for the opening."""
        priority, route = task.schedule.priority, task.route
        return (
            (self.below_priority is None or priority < self.below_priority)
            and (not self.handlers or route.handler_key in self.handlers)
            and (not self.tenants or route.tenant_id in self.tenants)
        )

    async def admit(self, task: Task, now: datetime) -> Admission:
        """Postpone the task until the next opening; at open hours, and for others, ask the one inside."""
        opening = self.next_opening(now) if self.concerns(task) else None
        if opening is None:
            return await self.inner.admit(task, now)
        opens, closes = opening
        local = opens.astimezone(self._zone)
        reason = (
            f"outside the hours {', '.join(self.windows)} ({self.zone}); they begin at {local:%Y-%m-%d %H:%M}"
        )
        spread = min(self.spread, (closes - opens) / 2)
        return Postpone(until=opens + spread * self._chance.random(), reason=reason)

    def next_opening(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Return the next time from an opening to its end, in UTC; None while a window is open."""
        today = now.astimezone(self._zone).date()
        day, coming = today - _DAY, list[tuple[datetime, datetime]]()
        while not coming:  # a window may be left out on a day, where clocks skip it, but not every week
            for window in self._windows:
                opens, closes = window.on(day, self._zone)
                if day.weekday() in window.days and closes > max(now, opens):
                    if opens <= now:
                        return None
                    coming.append((opens, closes))
            day += _DAY
        return min(coming)


def time_window(*windows: str, **settings: object) -> TimeWindow:
    """Return a policy that lets tasks through in these windows only; `settings` are its other fields."""
    return TimeWindow(windows=windows, **settings)  # type: ignore[arg-type] # as in `circuit_breaker`
