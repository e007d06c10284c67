"""JSON into typed objects: the cattrs converter that params and settings share, and what is wrong in words.

It is strict: nothing is converted silently but what has no form of its own in JSON. Those are enums (their
value), dates and times (ISO 8601), `timedelta` (seconds), `UUID` and `Decimal` (as text).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import cattrs
from cattrs.cols import is_sequence, list_structure_factory
from cattrs.strategies import configure_union_passthrough

from coatcheck.codec import dumps

__all__ = ["is_pydantic", "make_converter", "problems_of"]

Problem = tuple[str, BaseException, type | None]
"""Where, what, and which type was wanted."""


def is_pydantic(kind: object) -> bool:
    """Whether `kind` is a pydantic model (of pydantic 2), told without importing pydantic."""
    return (
        isinstance(kind, type)
        and hasattr(kind, "__pydantic_fields__")
        and callable(getattr(kind, "model_validate_json", None))
    )


def make_converter() -> cattrs.Converter:
    """Return a new strict converter; unknown keys of a class are errors."""
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (str, int, float, bool):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(NoneType, _nothing)
    converter.register_structure_hook_func(_is_open, _as_it_is)
    converter.register_structure_hook(datetime, _iso(datetime))
    converter.register_structure_hook(date, _iso(date))
    converter.register_structure_hook(time, _iso(time))
    converter.register_structure_hook(timedelta, _seconds)
    converter.register_structure_hook(UUID, _uuid)
    converter.register_structure_hook(Decimal, _decimal)
    converter.register_structure_hook_func(is_pydantic, _validated)
    converter.register_structure_hook_factory(is_sequence, partial(_array_hook, converter))
    converter.register_structure_hook_factory(_is_tuple, partial(_tuple_hook, converter))
    configure_union_passthrough(str | int | float | bool | None, converter)
    return converter


def _is_open(wanted: object) -> bool:
    """Whether any JSON fits; `coatcheck.task.JSON` is `object` at run time."""
    return wanted is object


def _as_it_is(value: object, _wanted: object) -> object:
    return value


def _nothing(value: object, _wanted: object) -> None:
    if value is not None:
        raise _wrong(value, "null")


def _is_tuple(wanted: object) -> bool:
    """Whether it is a tuple of any length."""
    return wanted is tuple or (get_origin(wanted) is tuple and get_args(wanted)[-1:] == (Ellipsis,))


def _array_hook(converter: cattrs.Converter, wanted: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401 - a type
    """Return cattrs' own hook for arrays, which alone would take a text apart into its characters."""
    structure = list_structure_factory(wanted, converter)
    return lambda value, kind: structure(_array(value), kind)


def _tuple_hook(converter: cattrs.Converter, wanted: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401 - a type
    items: Any = list[(*get_args(wanted), Any)[0]]  # type: ignore[misc] # known at run time only
    structure = converter.get_structure_hook(items)
    return lambda value, _: tuple(structure(value, items))


def _array(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return value
    raise _wrong(value, "a list")


def _wrong(value: object, wanted: str) -> TypeError:
    return TypeError(f"expected {wanted}, not {type(value).__name__}")


def _strict(kind: type) -> Callable[[Any, Any], Any]:
    def structure(value: object, wanted: Any) -> object:  # noqa: ANN401 - a class
        if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
            return wanted(value)  # an IntEnum is an int, and gets here first
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise _wrong(value, kind.__name__)
        return value if wanted is kind else wanted(value)

    return structure


def _iso(kind: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401 - one of date, datetime and time
    def structure(value: object, _wanted: object) -> object:
        if isinstance(value, str):
            return kind.fromisoformat(value)
        raise _wrong(value, f"{kind.__name__} in ISO 8601")

    return structure


def _seconds(value: object, _wanted: object) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    raise _wrong(value, "seconds")


def _uuid(value: object, _wanted: object) -> UUID:
    if isinstance(value, str):
        return UUID(value)
    raise _wrong(value, "UUID as text")


def _decimal(value: object, _wanted: object) -> Decimal:
    if isinstance(value, str):
        try:
            return Decimal(value)
        except InvalidOperation as error:
            raise ValueError("not a decimal number") from error
    raise _wrong(value, "Decimal as text")


def _validated(value: Any, wanted: Any) -> object:  # noqa: ANN401 - a pydantic class, which is not imported
    """Let pydantic read JSON, where dates, sets and the like have their JSON forms even in strict models."""
    return wanted.model_validate_json(dumps(value))


def problems_of(
    error: BaseException, path: str, *, trusted: Collection[type[BaseException]] = ()
) -> list[tuple[str, str]]:
    """Return what is wrong as pairs of path and reason. No value is quoted: it may be secret.

    Errors of exactly these classes say themselves what is wrong.
    """
    return [
        (where, str(what) if type(what) in trusted else _told(what, wanted))
        for where, what, wanted in _leaves(error, path, None)
    ]


def _leaves(error: BaseException, path: str, wanted: type | None) -> list[Problem]:
    """Walk cattrs' groups of errors down to the errors themselves, with their paths."""
    if isinstance(error, cattrs.IterableValidationError):
        named, other = error.group_exceptions()
        found = [leaf for each, note in named for leaf in _leaves(each, f"{path}[{note.index!r}]", note.type)]
    elif isinstance(error, cattrs.ClassValidationError):
        fields, other = error.group_exceptions()
        found = [leaf for each, note in fields for leaf in _leaves(each, f"{path}.{note.name}", note.type)]
    else:
        return [(path, error, wanted)]
    return found + [(path, each, None) for each in other]


def _told(error: BaseException, wanted: type | None) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"there is no field {', '.join(sorted(map(repr, error.extra_fields)))}"
    if isinstance(error, KeyError):
        return "is required and missing"
    if isinstance(error, TypeError) and str(error).startswith("expected "):
        return str(error)
    if hasattr(error, "errors") and hasattr(error, "error_count"):
        return _told_by_pydantic(error)
    if wanted is None:
        return f"has another shape than expected ({type(error).__name__})"
    name = wanted.__qualname__ if isinstance(wanted, type) else str(wanted).replace("typing.", "")
    return f"expected {name}"


def _told_by_pydantic(error: Any) -> str:  # noqa: ANN401 - pydantic's ValidationError, which is not imported
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in problems)
