"""Steps that need no answers: their statements go to the server as one text, in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coatcheck_store_sql.server_dialect import ServerDialect
    from coatcheck_store_sql.statement import Statement

__all__ = ["NeedsAnswer", "OneQuestion", "Script"]


class NeedsAnswer(Exception):
    """The step cannot go on without an answer, so it has to be made in another way; nothing has been done."""


class Script:
    """An executor that collects what is to be run, and asks nothing."""

    def __init__(self, dialect: ServerDialect) -> None:
        """Begin with nothing."""
        self._dialect = dialect
        self._texts: list[str] = []

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Refuse."""
        raise NeedsAnswer

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Collect it."""
        for sql, values in statement.batches(given):
            self._texts.append(self._dialect.spelled(sql, values))

    def text(self) -> str:
        """Return all of it as one transaction."""
        return "; ".join([self._dialect.begin(shared=False), *self._texts, "COMMIT"])


class OneQuestion:
    """An executor for a step that asks once: one statement sees one snapshot, without a transaction around it."""

    def __init__(self, line: Any) -> None:  # noqa: ANN401 - an executor
        """Ask on `line`."""
        self._line = line
        self._asked = False

    def rows(self, statement: Statement, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Ask, the first time."""
        if self._asked:
            raise NeedsAnswer
        self._asked = True
        answer: list[tuple[Any, ...]] = self._line.rows(statement, given)
        return answer

    def run(self, statement: Statement, given: Sequence[Mapping[str, Any]]) -> None:
        """Refuse: nothing is written while looking."""
        raise NeedsAnswer
