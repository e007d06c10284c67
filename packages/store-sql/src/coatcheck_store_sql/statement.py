"""One SQL statement: a SQLAlchemy Core construct, compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from sqlalchemy.sql.elements import ClauseElement

from coatcheck_store_sql.dialects import Dialect
from coatcheck_store_sql.schema import Schema

__all__ = ["PLACE", "Maker", "Statement"]

PLACE = ("lane", "turn", "asleep_until", "stale_for", "stale_at", "expires_at")
"""The columns that say where a task stands."""


class Statement:
    """One Core construct, and its text for the driver."""

    def __init__(self, construct: ClauseElement, dialect: Dialect) -> None:
        self.construct = construct
        self._dialect = dialect

    @cached_property
    def _compiled(self) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        return self._dialect.compile(self.construct)

    @property
    def sql(self) -> str:
        """The text, with the driver's placeholders."""
        return self._compiled[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in the order of the placeholders."""
        return self._compiled[1]

    def ordered(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values for the placeholders; what is not given is fixed."""
        _, names, fixed = self._compiled
        return tuple([given[name] if name in given else fixed[name] for name in names])


class Maker:
    """Makes the statements of one store."""

    def __init__(self, schema: Schema, dialect: Dialect) -> None:
        self.schema = schema
        self.dialect = dialect

    def _make(self, construct: ClauseElement) -> Statement:
        return Statement(construct, self.dialect)
