"""What can be stored: params and metadata as JSON, proven to come back equal, or refused with a path.

`to_json` runs before anything is written, so a task that could not be carried out on another machine, or
would not read back equal, is the caller's error at once and not a worker's later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import cattrs

from coatcheck.codec import copy_json, dumps, loads
from coatcheck.converter import is_pydantic, make_converter, problems_of
from coatcheck.errors import InvalidParams, NotPersistable
from coatcheck.persistable.leaves import a_kind
from coatcheck.persistable.walk import MAX_DEPTH, MAX_VALUES, Walk, field_names, member
from coatcheck.task import JSON

__all__ = ["MAX_DEPTH", "MAX_VALUES", "from_json", "to_json"]

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
    walk = Walk()
    raw = walk.json_of(value, path)
    # pydantic writes what it likes; what the walk wrote comes back from its text as it is
    stored = loads(dumps(raw, path=path)) if walk.met_pydantic else raw
    if walk.all_plain or not prove:
        return raw
    try:
        back = _converter().structure(copy_json(stored), type(value))
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
        return path, f"{a_kind(value)} becomes {a_kind(back)}; declare the field's type, or use that type"
    for name, one, other in _parts(value, back, path):
        if one != other:
            return _difference(one, other, name)
    kind: type = type(value)
    if field_names(kind) is not None or is_pydantic(kind):
        return path, f"{a_kind(value)} does not equal its own copy; let equality compare just its fields"
    return path, f"{a_kind(value)} comes back with another value"


def _parts(value: Any, back: Any, path: str) -> Iterator[tuple[str, object, object]]:  # noqa: ANN401 - any pair
    if isinstance(value, Mapping):
        yield from ((member(path, key), each, back.get(key)) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(zip(value, back, strict=False))
        yield from ((f"{path}[{index}]", one, other) for index, (one, other) in pairs)
    else:
        kind: type = type(value)
        names = [name for name, _ in value] if is_pydantic(kind) else field_names(kind) or ()
        yield from ((f"{path}.{name}", getattr(value, name), getattr(back, name, None)) for name in names)
