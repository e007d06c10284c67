"""Texts of callers in columns: names, keys and ids, as every database can hold and compare them."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from coatcheck.codec import dumps, loads
from coatcheck.errors import NotPersistable

__all__ = ["LONGEST_NAME", "name_of", "named", "written"]

LONGEST_NAME = 255
"""How many characters the name of a gate or the key of a handler may have, as it is written."""
_ESCAPED = frozenset('"\\')


def written(text: str) -> str:
    """Return a text as it stands in a column: as in JSON, without the quotes, since PostgreSQL takes no NUL."""
    if text.isascii() and text.isprintable() and _ESCAPED.isdisjoint(text):
        return text
    return dumps(text)[1:-1]


@lru_cache(maxsize=8192)
def named(name: str) -> str:
    """Return the name of a gate or the key of a handler as it stands in columns.

    Raises:
        NotPersistable: it is too long for an index.
    """
    text = written(name)
    if len(text) > LONGEST_NAME:
        message = (
            f"has {len(text)} characters as it is stored, and a name has at most {LONGEST_NAME}; shorten it"
        )
        raise NotPersistable(f"name {name[:40]!r}...", message)
    return text


@lru_cache(maxsize=8192)
def name_of(text: str) -> str:
    """Return the name that stands in a column as `text`."""
    return cast("str", loads(f'"{text}"')) if "\\" in text else text
