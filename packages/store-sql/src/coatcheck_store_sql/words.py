"""Texts of callers in columns: names, keys and ids, as every database can hold and compare them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast

from coatcheck.codec import dumps, loads
from coatcheck.errors import NotPersistable

__all__ = ["LONGEST_NAME", "name_of", "named", "sorted_name", "sorted_name_of", "written"]

LONGEST_NAME = 255
"""How many characters the name of a gate or the key of a handler may have, as it is written."""
_ESCAPED = frozenset('"\\')
_MARK, _FIRST = "!", ord("0")
_IN_ORDER = {code: f"{_MARK}{chr(_FIRST + code)}" for code in range(ord(_MARK) + 1)}
_MARKED = re.compile(f"{_MARK}(.)")


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
    _check_length(name, text)
    return text


def _check_length(name: str, text: str) -> None:
    if len(text) > LONGEST_NAME:
        message = (
            f"has {len(text)} characters as it is stored, and a name has at most {LONGEST_NAME}; shorten it"
        )
        raise NotPersistable(f"name {name[:40]!r}...", message)


@lru_cache(maxsize=8192)
def name_of(text: str) -> str:
    """Return the name that stands in a column as `text`."""
    return cast("str", loads(f'"{text}"')) if "\\" in text else text


@lru_cache(maxsize=8192)
def sorted_name(name: str) -> str:
    """Return the name of a tally as it stands in columns, where names sort, and begin, as they do themselves.

    Characters up to the exclamation mark, which no column holds or which separate others, become the mark and one that
    can be printed; they stay before all others, and in their order.

    Raises:
        NotPersistable: it is too long for an index, or no text.
    """
    written(name)  # refuses what is no text
    text = name.translate(_IN_ORDER)
    _check_length(name, text)
    return text


@lru_cache(maxsize=8192)
def sorted_name_of(text: str) -> str:
    """Return the name that stands in a column as `text`."""
    return _MARKED.sub(lambda found: chr(ord(found[1]) - _FIRST), text) if _MARK in text else text
