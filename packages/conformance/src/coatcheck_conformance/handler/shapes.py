"""Params of any class, taken apart and put together again with something else in a field."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import attrs
from attrs import frozen

__all__ = ["Slot", "document_slots", "nested_slots", "slots"]


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]")
"""Of a server, or of a bucket such as ``s3://bucket/key``."""


@frozen
class Slot:
    """A place in params where something else can be put."""

    name: str
    """Of the field."""
    put: Callable[[object], object]
    """Returns params with this value in the place. Raises what their class raises."""


def _fields(params: object) -> dict[str, str]:
    """Return the fields of a data class that its constructor takes: the argument of each, by name."""
    kind = type(params)
    if attrs.has(kind):
        return {each.name: each.alias or each.name for each in attrs.fields(kind) if each.init}
    if dataclasses.is_dataclass(kind):
        return {each.name: each.name for each in dataclasses.fields(kind) if each.init}
    models = getattr(kind, "model_fields", None)  # pydantic, which need not be installed
    if isinstance(models, Mapping):
        return {name: getattr(each, "alias", None) or name for name, each in models.items()}
    return {}


def _with(params: object, name: str, value: object) -> object:
    arguments = {argument: getattr(params, each) for each, argument in _fields(params).items()}
    make = cast("Callable[..., object]", type(params))
    return make(**{**arguments, _fields(params)[name]: value})


def _is_url(value: object) -> bool:
    return isinstance(value, str) and _URL.match(value) is not None


def _slot(params: object, name: str, wrap: Callable[[Any], object]) -> Slot:
    return Slot(name, lambda value: _with(params, name, wrap(value)))


def _listed(kind: Callable[[list[object]], object], value: object) -> object:
    return kind([value])


def document_slots(params: object) -> list[Slot]:
    """Return the fields that hold the URL of a document, or a list of such."""
    found = []
    for name in _fields(params):
        value = getattr(params, name)
        if _is_url(value):
            found.append(_slot(params, name, lambda each: each))
        elif isinstance(value, Sequence) and not isinstance(value, str) and value and _is_url(value[0]):
            found.append(_slot(params, name, partial(_listed, type(value))))
    return found


def nested_slots(params: object) -> list[Slot]:
    """Return the fields that hold a mapping, as places two levels deeper."""
    return [
        _slot(params, name, lambda each: {"kit": [each]})
        for name in _fields(params)
        if isinstance(getattr(params, name), Mapping)
    ]


def slots(params: object) -> list[Slot]:
    """Return the fields that hold a text, a document or a mapping."""
    texts = [
        _slot(params, name, lambda each: each)
        for name in _fields(params)
        if isinstance(getattr(params, name), str) and not _is_url(getattr(params, name))
    ]
    return [*document_slots(params), *texts, *nested_slots(params)]
