"""What fields of params may hold: a value of another kind is told, before a check of its own stumbles over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from coatcheck.errors import InvalidParams

__all__ = ["check_fields", "text_tuple"]

_KINDS = (str, int, float, bool, timedelta, Mapping, type(None))


def check_fields(params: attrs.AttrsInstance) -> None:
    """Refuse values that are not of their field's type, of those that are text, numbers, durations and mappings.

    Call it early in ``__attrs_post_init__``, but after the URLs of documents, whose check tells the way out. Fields
    with a converter have their own words.

    Raises:
        InvalidParams: one is; the message names the field, the value, and what is wanted.
    """
    for name, kinds in _kinds_of(type(params)).items():
        value = getattr(params, name)
        if not any(_is(value, kind) for kind in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            message = f"{name} must be {wanted}, not {type(value).__name__}: {value!r}"
            raise InvalidParams(message)


@cache
def _kinds_of(params_type: type[attrs.AttrsInstance]) -> dict[str, tuple[type, ...]]:
    hints = get_type_hints(params_type)
    found: dict[str, tuple[type, ...]] = {}
    for each in attrs.fields(params_type):
        hint = hints[each.name]
        members = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
        kinds = tuple(get_origin(member) or member for member in members)
        if each.converter is None and all(kind in _KINDS for kind in kinds):
            found[each.name] = kinds
    return found


def _is(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool  # which Python counts as a number
    return isinstance(value, (int, float) if kind is float else kind)


def text_tuple(values: Any, *, of: str = "strings") -> tuple[str, ...]:  # noqa: ANN401 - whatever somebody gave
    """Return a sequence of strings as a tuple, for fields with a converter.

    Raises:
        InvalidParams: it is a string, which would be taken for its letters, or no sequence of strings.
    """
    if isinstance(values, str):
        message = f"a sequence of {of} is wanted, not the string {values!r}; write ({values!r},)"
        raise InvalidParams(message)
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes):
        message = f"a sequence of {of} is wanted, not {type(values).__name__}: {values!r}"
        raise InvalidParams(message)
    found = tuple(values)
    for each in found:
        if not isinstance(each, str):
            message = f"a sequence of {of} is wanted; {each!r} in it is {type(each).__name__}"
            raise InvalidParams(message)
    return found
