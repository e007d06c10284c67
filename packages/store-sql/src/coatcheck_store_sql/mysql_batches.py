"""How MySQL and MariaDB do the work of a statement for many sets of parameters: each kind has one text for all of them.

See docs/decisions/0031 for what was measured, and for what each of them locks.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Boolean, ColumnElement, Exists, Insert, String, Update, and_, text
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BindParameter, ClauseElement
from sqlalchemy.sql.selectable import ScalarSelect

from coatcheck_store_sql.statement import Compiled, Statement, parameters_of

if TYPE_CHECKING:
    from coatcheck_store_sql.dialects import Dialect

__all__ = ["Each", "Form", "form_of", "joined_with_rows"]

Text = tuple[str, tuple[Any, ...]]
Given = Sequence[Mapping[str, Any]]

_ROWS = "__ROWS__"
_VALUES = re.compile(r"VALUES (\((?:[^()']|\([^()]*\))*\))")
_JOINED = re.compile(r"([^\s,]+), \(__ROWS__\) AS given")
_MOST_ROWS = 500
"""How many rows one statement writes."""
_MOST_SELECTS = 50
"""How many times one statement opens a table: the server keeps each open for the next one."""
_MOST_CHARACTERS = 400_000
"""How many characters one statement of several rows holds, about; a byte may be four, and all may be escaped."""
_COLLATION = " /*!80017 COLLATE utf8mb4_0900_bin *//*M! COLLATE utf8mb4_nopad_bin */"
"""That of the columns, see the migrations; each server reads its own part of it, and skips the other's."""


class Form(ABC):
    """One statement for several sets of parameters."""

    most = _MOST_ROWS
    """How many sets it takes at once."""

    @abstractmethod
    def text(self, given: Given) -> Text:
        """Return its text for these sets, with the values."""

    def texts(self, given: Given) -> Iterator[Text]:
        """Yield as few as there may be, none of them too long."""
        for part in _parts(given, self.most):
            yield self.text(part)


def form_of(statement: Statement, dialect: Dialect) -> Form:
    """Return the form for a statement that writes."""
    construct = statement.construct
    if isinstance(construct, Insert):
        return _Values(statement)
    if isinstance(construct, Update) and any(map(_asks, _values_of(construct).values())):
        return _Chosen(statement, construct, dialect)
    return _Joined(statement, dialect)


class _Values(Form):
    """An insert of several rows."""

    def __init__(self, statement: Statement) -> None:
        found = _VALUES.search(statement.sql)
        assert found is not None, statement.sql  # noqa: S101 - the compiler writes it so
        self._statement = statement
        self._row = found.group(1)

    def text(self, given: Given) -> Text:
        """Write the rows."""
        sql = self._statement.sql.replace(self._row, ", ".join([self._row] * len(given)), 1)
        return sql, tuple(chain.from_iterable(map(self._statement.ordered, given)))


# ------------------------------------------------------------------ a table joined with rows of values


def joined_with_rows(construct: ClauseElement) -> ClauseElement:
    """Return `construct` with what is given for its parameters taken from rows that are yet to be written.

    So is the answer to what it asks other tables about: asked with the row's own values, that goes by an index, whereas
    a question about columns of the row would be answered by reading the whole table once.
    """
    questions = _questions_of(construct)
    answers = {id(question): name for name, question in questions.items()}
    columns = {**parameters_of(construct), **dict.fromkeys(questions, Boolean())}
    rows = text(_ROWS).columns(**columns).subquery("given")

    def replace(element: Any, **_: Any) -> Any:  # noqa: ANN401 - any part of a statement
        if id(element) in answers:
            return rows.c[answers[id(element)]]
        if isinstance(element, BindParameter) and element.required:
            return rows.c[element.key]
        return None

    return cast("ClauseElement", visitors.replacement_traverse(construct, {}, replace))


def _questions_of(construct: ClauseElement) -> dict[str, Exists]:
    """Return what its conditions ask other tables about, by the names of the answers."""
    conditions = getattr(construct, "_where_criteria", ())
    found = (element for condition in conditions for element in visitors.iterate(condition))
    return {f"is_{n}": each for n, each in enumerate(each for each in found if isinstance(each, Exists))}


class _Joined(Form):
    """An update or a delete of a table that is joined with rows of values, found by its primary key."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        construct = statement.construct
        self._names = tuple(parameters_of(construct))
        compared = set(_compared_texts(construct))
        # a text of a row would have a collation of its own, by which no index is sorted
        firsts = [f"%s{_COLLATION if name in compared else ''} AS `{name}`" for name in self._names]
        others = ["%s"] * len(firsts)
        self._asked = []
        for name, question in _questions_of(construct).items():
            asked = Compiled(*dialect.compile(question))
            self._asked.append(asked)
            firsts.append(f"{asked.sql} AS `{name}`")
            others.append(asked.sql)
            self.most = _MOST_SELECTS
        self._first = "SELECT " + ", ".join(firsts)
        self._other = " UNION ALL SELECT " + ", ".join(others)
        many = statement.many
        self._before, _, self._after = _rows_first(many.sql).partition(_ROWS)
        fixed, ahead = many.ordered({}), self._before.count("%s")
        self._fixed_before, self._fixed_after = fixed[:ahead], fixed[ahead:]

    def text(self, given: Given) -> Text:
        """Write the rows; the first names their columns."""
        values = [*self._fixed_before]
        for each in given:
            values += [each[name] for name in self._names]
            for asked in self._asked:
                values += asked.ordered(each)
        sql = f"{self._before}{self._first}{self._other * (len(given) - 1)}{self._after}"
        return sql, (*values, *self._fixed_after)


def _compared_texts(construct: ClauseElement) -> Iterator[str]:
    """Yield the names of texts that columns are compared with."""
    for condition in getattr(construct, "_where_criteria", ()):
        for element in visitors.iterate(condition):
            if isinstance(element, BindParameter) and element.required and isinstance(element.type, String):
                yield element.key


def _rows_first(sql: str) -> str:
    """Read the rows of values first, then the table by its key: a scan would lock rows that are none of our business.

    Without it a small table is scanned, and the scan waits for whoever has inserted a row and not committed yet.
    """
    force = " FORCE INDEX (PRIMARY)" if " = given._" in sql else ""
    return _JOINED.sub(rf"(__ROWS__) AS given STRAIGHT_JOIN \1{force}", sql, count=1)


# ------------------------------------------------------------------ one table, and a choice for each row


class _Chosen(Form):
    """An update that asks other tables for what it writes: each row chooses by its key.

    It is about one table on purpose: an update of joined tables locks the rows that its subqueries read, and so waits
    for whoever writes them.
    """

    most = _MOST_SELECTS

    def __init__(self, statement: Statement, construct: Update, dialect: Dialect) -> None:
        key, rest = _key_of(construct)
        table = construct.table

        def compiled(part: ClauseElement) -> Compiled:
            return Compiled(*dialect.compile(part))

        self._key = compiled(key.left).sql
        self._key_name = cast("BindParameter[Any]", key.right).key
        self._begin = statement.sql.partition(" SET ")[0] + " FORCE INDEX (PRIMARY) SET "
        self._written = [
            (compiled(table.c[column] if isinstance(column, str) else column).sql, compiled(value))
            for column, value in _values_of(construct).items()
        ]
        self._rest = compiled(and_(*rest)) if rest else None

    def text(self, given: Given) -> Text:
        """Write what each row gets, and what else must hold of it."""
        keys = [each[self._key_name] for each in given]
        values: list[Any] = []

        def choice(part: Compiled) -> str:
            for key, each in zip(keys, given, strict=True):
                values.extend((key, *part.ordered(each)))
            return f"CASE {self._key}" + f" WHEN %s THEN {part.sql}" * len(given) + " END"

        sql = self._begin + ", ".join([f"{column}={choice(part)}" for column, part in self._written])
        values += keys
        sql += f" WHERE {self._key} IN ({', '.join(['%s'] * len(keys))})"
        if self._rest is not None:
            sql += f" AND {choice(self._rest)}"
        return sql, tuple(values)


def _key_of(construct: Update) -> tuple[BinaryExpression[Any], list[ColumnElement[bool]]]:
    """Return the condition by which a row is found, and the others."""
    conditions = list(construct._where_criteria)  # noqa: SLF001 - there is no public way
    for condition in conditions:
        if (
            isinstance(condition, BinaryExpression)
            and condition.operator is operators.eq
            and isinstance(condition.right, BindParameter)
            and condition.left in set(construct.table.primary_key)
        ):
            return condition, [other for other in conditions if other is not condition]
    message = f"this is not found by its key: {construct}"
    raise AssertionError(message)


def _values_of(construct: Update) -> dict[Any, ClauseElement]:
    return construct._values or {}  # noqa: SLF001 - there is no public way


def _asks(value: ClauseElement) -> bool:
    """Whether a subquery is a part of it."""
    return any(isinstance(element, ScalarSelect) for element in visitors.iterate(value))


# ------------------------------------------------------------------ queries


class Each(Statement):
    """A query that is asked for each of several sets of parameters in one round trip; the rows come in any order."""

    def asked(self, given: Given) -> Text:
        """Return the text for all of them; parentheses let each have its own order, limit and locks."""
        return " UNION ALL ".join([f"({self.sql})"] * len(given)), tuple(
            chain.from_iterable(map(self.ordered, given))
        )

    @staticmethod
    def parts(given: Given) -> Iterable[Given]:
        """Yield as many sets as one round trip takes."""
        return _parts(given, _MOST_SELECTS)


def _parts(given: Given, most: int) -> Iterator[Given]:
    """Yield rows for one statement each: not too many, and not too long together."""
    first = characters = 0
    for number, each in enumerate(given):
        length = sum(len(value) for value in each.values() if type(value) is str)
        if number > first and (number - first >= most or characters + length > _MOST_CHARACTERS):
            yield given[first:number]
            first, characters = number, 0
        characters += length
    yield given[first:]
