"""One atomic step: a connection inside a transaction, the store's time, and what the process remembers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from attrs import define, field

from coatcheck.task import from_millis
from coatcheck_store_sql.lanes import Lanes
from coatcheck_store_sql.rows import Record
from coatcheck_store_sql.statements import Statement, Statements

__all__ = ["Executor", "Memory", "Step", "chunks"]

_CHUNK = 5_000
"""How many rows one statement asks for by a set; larger sets are taken apart."""


class Executor(Protocol):
    """Runs statements inside a transaction that somebody else begins and ends."""

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Return all rows."""

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Run it once for each of `given`, which all have the same names."""


class Memory:
    """What a process remembers between steps. Forgotten as a whole when a step is rolled back.

    Records are only hints: whoever uses one compares its rev with the row's. Small and live tasks are kept,
    since the worker that claimed one starts and settles it next.
    """

    def __init__(self, capacity: int = 8_192) -> None:
        self._records: dict[str, Record] = {}
        self._capacity = capacity
        self.lanes = Lanes()
        self.rank_mode: str | None = None
        self.attended: dict[str, int] = {}

    def recall(self, task_id: str, rev: int) -> Record | None:
        """Return the record of that rev, if it is remembered."""
        record = self._records.get(task_id)
        return record if record is not None and record.rev == rev else None

    def keep(self, record: Record) -> None:
        """Remember the record, if it is worth it."""
        self._records.pop(record.task.id, None)
        if record.task.status.terminal or record.spilled:
            return
        if len(self._records) >= self._capacity:
            del self._records[next(iter(self._records))]
        self._records[record.task.id] = record

    def forget(self) -> None:
        """Forget everything: it may stem from a step that did not come to pass."""
        self._records.clear()
        self.lanes.clear()
        self.rank_mode = None
        self.attended.clear()


@define
class Step:
    """What the functions of a step are given. They may run again if the transaction has to be repeated."""

    executor: Executor
    sql: Statements
    memory: Memory
    now_ms: int
    """The store's time, fixed for the step; whole milliseconds, rounded down."""
    stamp: int
    """The same, rounded up: what a rate is stamped with, so that no window is too short."""
    now: datetime = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read the time as a datetime, too."""
        self.now = from_millis(self.now_ms)

    def stamp_clock(self) -> None:
        """Store the time as the last stamp: no later step, of any process, will be before it."""
        self.run(self.sql.stamp_clock, now=self.stamp)

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
