"""One atomic step: a connection inside a transaction, the store's time, and what the process remembers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from attrs import define, field

from coatcheck.task import from_millis
from coatcheck_store_sql.dialects import Dialect, Guard
from coatcheck_store_sql.lanes import Lanes
from coatcheck_store_sql.rows import Record
from coatcheck_store_sql.statements import Statement, Statements

__all__ = ["Executor", "Memory", "Outdated", "Step", "Time", "chunks"]

_CHUNK = 5_000
"""How many rows one statement asks for by a set; larger sets are taken apart."""


class Executor(Protocol):
    """Runs statements inside a transaction that somebody else begins and ends."""

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows."""

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of `given`, which all have the same names."""


Time = tuple[int, int]
"""The store's time in whole milliseconds, rounded down and rounded up."""


class Outdated(Exception):
    """What a hopeful step took for granted is so no longer: it is to be repeated, and look."""


class Memory:
    """What a process remembers between steps.

    A step works on a `draft` of it, which is kept only when the step is committed. Records are only hints:
    whoever uses one compares its rev with the row's. Small and live tasks are kept, since the worker that claimed
    one starts and settles it next.
    """

    def __init__(self, capacity: int = 8_192, base: Memory | None = None) -> None:
        self.records: dict[str, Record | None] = {}
        self._capacity = capacity
        self._base = base
        self.lanes: Lanes = Lanes(base.lanes if base is not None else None)
        self.rank_mode: str | None = base.rank_mode if base is not None else None
        self.attended: dict[str, int] = dict(base.attended) if base is not None else {}
        self.behind: int = base.behind if base is not None else 0
        """How many tasks were taken from lanes since it was last written where they begin."""
        self._tallies: dict[str, None] = {}

    def draft(self) -> Memory:
        """Return what one transaction may change."""
        return Memory(self._capacity, self)

    def keep_draft(self, draft: Memory) -> None:
        """Take over what a transaction has changed that is committed now."""
        for task_id, record in draft.records.items():
            self._keep(task_id, record)
        self.lanes.merge(draft.lanes)
        self.rank_mode = draft.rank_mode
        self.attended.update(draft.attended)
        self.behind = draft.behind
        self.keep_tallies(draft._tallies)

    def recall(self, task_id: str, rev: int) -> Record | None:
        """Return the record of that rev, if it is remembered."""
        record = self.records.get(task_id)
        if record is None and self._base is not None and task_id not in self.records:
            record = self._base.records.get(task_id)
        return record if record is not None and record.rev == rev else None

    def keep(self, record: Record) -> None:
        """Remember the record, if it is worth it."""
        worth = not record.task.status.terminal and not record.spilled
        self._keep(record.task.id, record if worth else None)

    def _keep(self, task_id: str, record: Record | None) -> None:
        self.records.pop(task_id, None)
        if record is None and self._base is None:
            return
        if len(self.records) >= self._capacity:
            del self.records[next(iter(self.records))]
        self.records[task_id] = record

    def knows_tally(self, name: str) -> bool:
        """Whether the tally had a row."""
        return name in self._tallies or (self._base is not None and self._base.knows_tally(name))

    def keep_tallies(self, names: Iterable[str]) -> None:
        """Remember that these tallies have rows."""
        for name in names:
            if len(self._tallies) >= self._capacity:
                del self._tallies[next(iter(self._tallies))]
            self._tallies[name] = None

    def forget(self) -> None:
        """Forget everything."""
        self._tallies.clear()
        self.records.clear()
        self.lanes.clear()
        self.rank_mode = None
        self.attended.clear()
        self.behind = 0


@define
class Step:
    """What the functions of a step are given. They may run again if the transaction has to be repeated."""

    executor: Executor
    sql: Statements
    memory: Memory
    read_clock: Callable[[Executor], Time]
    joined: bool = False
    """Whether this is a part of a caller's transaction, which may last."""
    hopeful: bool = False
    """Whether it may fail at a key that exists, or be `Outdated`, since it is repeated then."""
    news: bool = False
    """Whether it has made work that others may be waiting for."""
    _time: Time | None = field(default=None, init=False)
    _now: datetime | None = field(default=None, init=False)

    # -------------------------------------------------------------- time

    @property
    def now_ms(self) -> int:
        """The store's time, fixed for the step from its first use on; whole milliseconds, rounded down.

        So rows that are locked before it is read have no stamps after it.
        """
        if self._time is None:
            self._time = self.read_clock(self.executor)
        return self._time[0]

    @property
    def stamp(self) -> int:
        """The same, rounded up: what a rate is stamped with, so that no window is too short."""
        if self._time is None:
            self._time = self.read_clock(self.executor)
        return self._time[1]

    @property
    def now(self) -> datetime:
        """The time as a datetime."""
        if self._now is None:
            self._now = from_millis(self.now_ms)
        return self._now

    @property
    def timed(self) -> bool:
        """Whether the time is fixed already."""
        return self._time is not None

    def tell_time(self, micros: int) -> None:
        """Fix the time, in microseconds: a statement has just returned it by the way."""
        self._time, self._now = (micros // 1000, -(-micros // 1000)), None

    def look_at_clock(self) -> None:
        """Read the time anew when it is asked for next: what was locked since then may have taken long."""
        if self.dialect.concurrent:
            self._time = self._now = None

    def not_before(self, stamp: int) -> None:
        """Let the time be `stamp` at least: something has been stamped with it, and the clock was set back."""
        now, stamped = self.now_ms, self.stamp
        if stamp > stamped:
            self._time, self._now = (max(now, stamp), stamp), None

    # -------------------------------------------------------------- locks

    @property
    def dialect(self) -> Dialect:
        """The kind of database."""
        return self.sql.dialect

    def enter_lanes(self, lanes: Collection[int]) -> None:
        """See `Dialect.enter_lanes`."""
        self.dialect.enter_lanes(self, lanes)

    def take_lanes(self, lanes: Collection[int]) -> dict[int, bool]:
        """See `Dialect.take_lanes`."""
        return self.dialect.take_lanes(self, lanes)

    def alone(self, guard: Guard) -> None:
        """See `Dialect.alone`."""
        self.dialect.alone(self, guard)

    # -------------------------------------------------------------- statements

    def rows(self, statement: Statement, **given: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - SQL values
        """Return the rows of a query."""
        return self.executor.rows(statement, given)

    def run(self, statement: Statement, **given: Any) -> None:  # noqa: ANN401 - SQL values
        """Run a statement that returns nothing."""
        self.executor.run(statement, (given,))

    def many(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of `given`."""
        if given:
            self.executor.run(statement, given)

    def rows_among(
        self,
        statement: Statement,
        name: str,
        values: Iterable[Any],
        **given: Any,  # noqa: ANN401 - SQL values
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query by a set of any size."""
        for part in chunks(list(values), _CHUNK):
            yield from self.rows(statement, **{name: self.sql.dialect.as_set(part)}, **given)


def chunks(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield `values` in slices of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
