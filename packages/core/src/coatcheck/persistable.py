"""What can be stored: params and metadata as JSON, proven to come back equal, or refused with a path.

`to_json` runs before anything is written, so a task that could not be carried out on another machine, or
would not read back equal, is the caller's error at once and not a worker's later.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import math
import os
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar, cast
from uuid import UUID

import attrs
import cattrs

from coatcheck.codec import dumps, loads
from coatcheck.converter import is_pydantic, make_converter, problems_of
from coatcheck.errors import InvalidParams, NotPersistable
from coatcheck.secret import Secret
from coatcheck.task import JSON

__all__ = ["MAX_DEPTH", "MAX_VALUES", "from_json", "to_json"]

MAX_DEPTH = 64
"""How deep values may be nested; MySQL's JSON ends at 100, and the task is around them."""
MAX_VALUES = 1_000_000
"""How many values a document may hold; a few shared lists can stand for more than any memory holds."""

_MAX_INTEGER_BITS = 14_000
"""Python refuses to read integers of more than 4300 digits from text."""

T = TypeVar("T")


def to_json(value: object, *, path: str = "params", prove: bool = True) -> JSON:
    """Return `value` as JSON that `from_json` reads back equal; it shares no container with `value`.

    With ``prove=False`` it need not read back equal, for what is only to be looked at, or must not be lost:
    a tuple may become a list, and a date its text.

    Accepted are plain JSON, and attrs classes, dataclasses and pydantic models made of it, of enums, dates
    and times, `timedelta`, `UUID`, `Decimal`, tuples and each other.

    Raises:
        NotPersistable: something in it cannot be stored, or does not come back equal; `.path` leads to it.
            The message quotes no value.
    """
    raw = _Walk().json_of(value, path)
    text = dumps(raw, path=path)
    if not prove:
        return raw
    try:
        back = _converter().structure(loads(text), type(value))
    except Exception as error:  # noqa: BLE001 - classes' own validators raise what they like
        where, why = problems_of(error, path)[0]
        raise NotPersistable(where, f"could not be read back from the store: {why}") from None
    _prove_equal(value, back, path)
    return raw


def from_json(raw: JSON, params_type: type[T], *, path: str = "params") -> T:
    """Return the object of `params_type` that `raw` describes.

    Raises:
        InvalidParams: it describes none; the message names each path and what is wrong there, and no value.
    """
    try:
        return _converter().structure(raw, params_type)
    except Exception as error:  # noqa: BLE001 - classes' own validators raise what they like
        # not chained: the causes quote values, which may be anything
        told = "; ".join(f"{where}: {why}" for where, why in problems_of(error, path))
        message = f"this is no {params_type.__qualname__}: {told}"
        raise InvalidParams(message) from None


@cache
def _converter() -> cattrs.Converter:
    return make_converter()


# ------------------------------------------------------------------ the walk


class _Walk:
    """One walk through a value; it knows what it is inside of, and how much it has seen."""

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._seen = 0
        self._within_pydantic = 0

    def json_of(self, value: object, path: str) -> JSON:
        """Return the JSON of `value`, or refuse it."""
        self._seen += 1
        if self._seen > MAX_VALUES:
            raise NotPersistable(path, f"comes after {MAX_VALUES} other values; keep the bulk elsewhere")
        if isinstance(value, enum.Enum):
            return self.json_of(value.value, path)
        for kind, leaf in _LEAVES.items():
            if isinstance(value, kind):
                return leaf(value, path)
        step = self._step_into(value)
        if step is not None:
            return self._enter(step, value, path)
        refused = _refused(value)
        if refused is None and self._within_pydantic:
            return None  # of a kind that pydantic has a form for, such as its URLs; the proof decides
        raise NotPersistable(path, refused or f"is {_a(value)}, which is no plain data; {_INSTEAD}")

    def _step_into(self, value: object) -> Callable[[Any, str], JSON] | None:
        if isinstance(value, Mapping):
            return self._mapping
        if isinstance(value, (list, tuple)):
            return self._sequence
        if is_pydantic(type(value)):
            return self._pydantic
        return self._fields if _field_names(value) is not None else None

    def _enter(self, step: Callable[[Any, str], JSON], value: object, path: str) -> JSON:
        if id(value) in self._inside:
            raise NotPersistable(path, "leads back to what it is part of; JSON has no cycles")
        if len(self._inside) >= MAX_DEPTH:
            raise NotPersistable(path, f"is nested more than {MAX_DEPTH} levels deep; flatten it")
        self._inside.add(id(value))
        try:
            return step(value, path)
        finally:
            self._inside.discard(id(value))

    def _mapping(self, value: Mapping[object, object], path: str) -> JSON:
        document: dict[str, JSON] = {}
        for key, each in value.items():
            if not isinstance(key, str):
                raise NotPersistable(path, f"has a key that is {_a(key)}; keys in JSON are strings")
            name = _text(key.value if isinstance(key, enum.Enum) else key, f"a key of {path}")
            document[name] = self.json_of(each, _member(path, name))
        return document

    def _sequence(self, value: list[object] | tuple[object, ...], path: str) -> JSON:
        return [self.json_of(each, f"{path}[{index}]") for index, each in enumerate(value)]

    def _fields(self, value: object, path: str) -> JSON:
        names = _field_names(value) or ()
        return {name: self.json_of(getattr(value, name), f"{path}.{name}") for name in names}

    def _pydantic(self, value: Any, path: str) -> JSON:  # noqa: ANN401 - a pydantic model; it is not imported
        """Look for what must not be stored, then let pydantic write its own JSON."""
        self._within_pydantic += 1
        for name, each in value:
            self.json_of(each, f"{path}.{name}")
        self._within_pydantic -= 1
        try:
            return cast("JSON", value.model_dump(mode="json", by_alias=True, round_trip=True))
        except Exception as error:  # noqa: BLE001 - as serializers do
            message = f"cannot be written as JSON by pydantic ({type(error).__name__})"
            raise NotPersistable(path, message) from None


def _field_names(value: object) -> tuple[str, ...] | None:
    """Return the names of the fields that the constructor of a data class takes; None if it is none."""
    kind = type(value)
    if attrs.has(kind):
        return tuple(each.name for each in attrs.fields(kind) if each.init)
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind) if each.init)
    return None


def _member(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key[:50]!r}]"


# ------------------------------------------------------------------ leaves


def _same(value: Any, _path: str) -> JSON:  # noqa: ANN401 - None or a bool
    return cast("JSON", value)


def _text(value: str, path: str) -> str:
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
    str: _text,
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

_INSTEAD = "submit what describes it, such as a URL, an id or text"


def _a(value: object) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def _refused(value: object) -> str | None:
    """Return why a value of a well-known kind cannot be stored; None for a kind that is not known."""
    for applies, reason in _REFUSALS:
        if applies(value):
            return f"is {_a(value)}: {reason}"
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
    (_has("close", "aclose"), f"a client or connection ends with this process; {_INSTEAD}"),
    (callable, "what is called is code, and no code is ever read from the store; submit its name"),
)

# ------------------------------------------------------------------ the proof


def _prove_equal(value: object, back: object, path: str) -> None:
    try:
        equal = bool(back == value)
    except Exception as error:
        kind = type(error).__name__
        raise NotPersistable(path, f"cannot be compared with what comes back ({kind})") from error
    if not equal:
        where, why = _difference(value, back, path)
        raise NotPersistable(where, f"does not come back equal from the store: {why}")


def _difference(value: object, back: object, path: str) -> tuple[str, str]:
    """Return where two unequal values differ, and how, without quoting them."""
    if type(value) is not type(back):
        return path, f"{_a(value)} becomes {_a(back)}; declare the field's type, or use that type"
    for name, one, other in _parts(value, back, path):
        if one != other:
            return _difference(one, other, name)
    if _field_names(value) is not None or is_pydantic(type(value)):
        return path, f"{_a(value)} does not equal its own copy; let equality compare just its fields"
    return path, f"{_a(value)} comes back with another value"


def _parts(value: Any, back: Any, path: str) -> Iterator[tuple[str, object, object]]:  # noqa: ANN401 - any pair
    if isinstance(value, Mapping):
        yield from ((_member(path, key), each, back.get(key)) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(zip(value, back, strict=False))
        yield from ((f"{path}[{index}]", one, other) for index, (one, other) in pairs)
    else:
        names = [name for name, _ in value] if is_pydantic(type(value)) else _field_names(value) or ()
        yield from ((f"{path}.{name}", getattr(value, name), getattr(back, name, None)) for name in names)
