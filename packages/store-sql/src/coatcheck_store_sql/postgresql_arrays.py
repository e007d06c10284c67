"""Arrays of values as PostgreSQL takes them fastest: as one text, which it takes apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Text, bindparam, func, literal_column
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

__all__ = ["array", "array_text", "joined"]

_BETWEEN, _NULL = "\x1f", "\x1e"
"""The unit separator stands between the values of an array, the record separator for null."""


def array(name: str, kind: TypeEngine[Any]) -> ColumnElement[Any]:
    """Return the array that is passed as the text `joined` makes.

    A text goes through the drivers ten times as quickly as a list, whose every element they look at from all sides.
    """
    text = bindparam(name, type_=Text)
    return func.string_to_array(text, literal_column(f"'{_BETWEEN}'"), literal_column(f"'{_NULL}'")).cast(
        ARRAY(kind)
    )


def array_text(name: str, kind: str) -> str:
    """Return the same for a statement that is written as a text."""
    return f"string_to_array(:{name}, '{_BETWEEN}', '{_NULL}')::{kind}[]"


def joined(values: Sequence[Any]) -> str | None:
    """Return values as a text that PostgreSQL takes apart again; None if one of them cannot be in it.

    No JSON text, no name and no id in a row has control characters.
    """
    text = _BETWEEN.join(
        [_NULL if value is None else value if type(value) is str else str(value) for value in values]
    )
    if text.count(_BETWEEN) != len(values) - 1 or text.count(_NULL) != values.count(None):
        return None
    return text
