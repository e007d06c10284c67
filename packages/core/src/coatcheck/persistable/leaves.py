"""Values without parts: how each kind is written as JSON, and why others are refused."""

from __future__ import annotations

import io
import math
import os
import types
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from coatcheck.errors import NotPersistable
from coatcheck.secret import Secret
from coatcheck.task import JSON

__all__ = ["INSTEAD", "PLAIN", "a_kind", "at_sight", "leaf_of", "refusal_of", "text_of"]

_MAX_INTEGER_BITS = 14_000
"""Python refuses to read integers of more than 4300 digits from text."""

PLAIN = frozenset({str, bool, int, float, types.NoneType, dict, list})
_LARGE = 1 << 63


def at_sight(value: Any) -> bool:  # noqa: ANN401 - anything
    """Whether `value` is its own JSON, as most values are; if not, that says nothing."""
    kind = type(value)
    known: bool = value is None or kind is bool
    if kind is str:
        known = value.isascii()
    elif kind is int:
        known = -_LARGE < value < _LARGE
    elif kind is float:
        known = math.isfinite(value)
    return known


def _same(value: Any, _path: str) -> JSON:  # noqa: ANN401 - None or a bool
    return cast("JSON", value)


def text_of(value: str, path: str) -> str:
    """Return the text, which has a form in UTF-8."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise NotPersistable(path, "holds a lone surrogate, which is no text; remove or replace it") from None
    return str.__str__(value)


def _integer(value: int, path: str) -> int:
    if value.bit_length() > _MAX_INTEGER_BITS:
        raise NotPersistable(path, "is an integer of thousands of digits; store it as text")
    return int.__int__(value)


def _number(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotPersistable(path, "is NaN or infinite, which JSON has no form for; use None")
    return float.__float__(value)


def _decimal(value: Decimal, path: str) -> str:
    if not value.is_finite():
        raise NotPersistable(path, "is NaN or infinite, which does not come back equal; use None")
    return str(value)


def _instant(value: datetime | date | time, _path: str) -> str:
    return value.isoformat()


def _seconds(value: timedelta, _path: str) -> float:
    whole, rest = divmod(value, timedelta(seconds=1))
    return value.total_seconds() if rest else whole


def _uuid(value: UUID, _path: str) -> str:
    return str(value)


_LEAVES: dict[type, Callable[[Any, str], JSON]] = {
    str: text_of,
    bool: _same,
    int: _integer,
    types.NoneType: _same,
    float: _number,
    date: _instant,  # datetime is a date
    time: _instant,
    timedelta: _seconds,
    UUID: _uuid,
    Decimal: _decimal,
}
"""In this order, since a bool is an int. Each gives exactly a JSON type, also for subclasses."""


@lru_cache(maxsize=1024)
def leaf_of(kind: type) -> Callable[[Any, str], JSON] | None:
    """Return how values of a kind are written; None if they are no leaves."""
    return next((leaf for known, leaf in _LEAVES.items() if issubclass(kind, known)), None)


INSTEAD = "submit what describes it, such as a URL, an id or text"


def a_kind(value: object) -> str:
    """Return the kind of a value, with its article."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def refusal_of(value: object) -> str | None:
    """Return why a value of a well-known kind cannot be stored; None for a kind that is not known."""
    for applies, reason in _REFUSALS:
        if applies(value):
            return f"is {a_kind(value)}: {reason}"
    return None


def _has(*names: str) -> Callable[[object], bool]:
    return lambda value: any(hasattr(value, name) for name in names)


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


_REFUSALS: tuple[tuple[Callable[[object], bool], str], ...] = (
    (_is(type), "a class is code, and no code is ever read from the store; submit its name"),
    (_is(types.ModuleType), "a module is code, and no code is ever read from the store"),
    (
        lambda value: isinstance(value, Secret) or hasattr(value, "get_secret_value"),
        "credentials are never stored; give it to the handler as an account, and name the account",
    ),
    (_is(os.PathLike), "the worker may run on another machine; upload the file and submit its URL"),
    (
        _is(bytes, bytearray, memoryview),
        "raw bytes have no form in JSON; upload them and submit a URL, or submit text",
    ),
    (
        lambda value: isinstance(value, io.IOBase) or _has("read", "write", "fileno")(value),
        "an open file, stream or socket ends with this process; upload its content and submit a URL",
    ),
    (
        _is(set, frozenset),
        "a set has no order, so equal submissions would be stored differently; submit a sorted list",
    ),
    (
        _has("__next__", "__anext__", "__await__"),
        "what is read once cannot be tried twice; submit a list of what it gives",
    ),
    (_has("close", "aclose"), f"a client or connection ends with this process; {INSTEAD}"),
    (callable, "what is called is code, and no code is ever read from the store; submit its name"),
)
