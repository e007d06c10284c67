"""Values written out in PostgreSQL's SQL, for texts of several statements, which take no parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["spelled"]

_NUMBERED = re.compile(r"\$(\d+)")
_FORMAT = re.compile(r"%[s%]")


def spelled(sql: str, values: Sequence[Any], *, numbered: bool) -> str:
    """Return `sql` with its placeholders, ``$1`` if they are `numbered`, else ``%s``, replaced by `values`."""
    if numbered:
        return _NUMBERED.sub(lambda found: _literal(values[int(found[1]) - 1]), sql)
    rest = iter(values)
    return _FORMAT.sub(lambda found: "%" if found[0] == "%%" else _literal(next(rest)), sql)


def _literal(value: object) -> str:
    """Write one value; right whatever `standard_conforming_strings` is."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"({int(value)})"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return "E'" + text.replace("\\", "\\\\") + "'" if "\\" in text else f"'{text}'"
    if isinstance(value, list):
        return f"'{{{','.join(str(int(each)) for each in value)}}}'"  # the keys of locks
    message = f"a {type(value).__name__} is not written out"
    raise TypeError(message)
