"""One SQL statement: a SQLAlchemy Core construct, compiled once, for one set of parameters or for many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy.sql import visitors
from sqlalchemy.sql.dml import UpdateBase, ValuesBase
from sqlalchemy.sql.elements import BindParameter, ClauseElement
from sqlalchemy.types import TypeEngine

from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.schema import Schema

__all__ = ["PLACE", "Compiled", "Maker", "Statement", "parameters_of"]

PLACE = ("lane", "turn", "asleep_until", "stale_for", "stale_at", "expires_at")
"""The columns that say where a task stands."""


class Compiled(NamedTuple):
    """A statement's text for a driver."""

    sql: str
    """With the driver's placeholders."""
    names: tuple[str, ...]
    """The parameters' names, in the order of the placeholders."""
    fixed: Mapping[str, Any]
    """The values of those that nobody gives."""

    def ordered(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values for the placeholders."""
        fixed = self.fixed
        return tuple([given[name] if name in given else fixed[name] for name in self.names])


class Statement:
    """One Core construct, and its texts for the driver."""

    def __init__(self, construct: ClauseElement, dialect: Dialect) -> None:
        self.construct = construct
        self._dialect = dialect

    @cached_property
    def one(self) -> Compiled:
        """For one set of parameters."""
        return Compiled(*self._dialect.compile(self.construct))

    @cached_property
    def many(self) -> Compiled:
        """For many sets of parameters at once, where the dialect can: its parameters are columns of values."""
        return Compiled(*self._dialect.compile(self._dialect.batched(self.construct)))

    @property
    def sql(self) -> str:
        """The text, with the driver's placeholders."""
        return self.one.sql

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in the order of the placeholders."""
        return self.one.names

    def ordered(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values for the placeholders; what is not given is fixed."""
        return self.one.ordered(given)

    def batches(self, given: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield texts with their values that do the work of running it for each of `given`."""
        yield from self._dialect.batches(self, given)


def parameters_of(construct: ClauseElement) -> dict[str, TypeEngine[Any]]:
    """Return the names of the parameters that callers give, with the types of what they stand beside."""
    types: dict[str, TypeEngine[Any]] = {}
    if isinstance(construct, ValuesBase) and isinstance(construct, UpdateBase):
        for column, value in (construct._values or {}).items():  # noqa: SLF001 - there is no public way
            if isinstance(value, BindParameter) and value.required:
                held = construct.table.c[column] if isinstance(column, str) else column
                types[value.key] = held.type
    for element in visitors.iterate(construct):
        if isinstance(element, BindParameter) and element.required:
            types.setdefault(element.key, element.type)
    return types


class Maker:
    """Makes the statements of one store."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self.schema = schema
        self.dialect = dialect
        self.questions: dict[int, Statement] = {}
        """Those that `waiting_question` has made, by the number of handlers."""

    def _make(self, construct: ClauseElement) -> Statement:
        return Statement(construct, self.dialect)
