"""The walk through a value that makes JSON of it, or finds what cannot be stored."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

import attrs

from coatcheck.converter import is_pydantic
from coatcheck.errors import NotPersistable
from coatcheck.persistable.leaves import (
    INSTEAD,
    PLAIN,
    a_kind,
    at_sight,
    leaf_of,
    refusal_of,
    text_of,
)
from coatcheck.task import JSON

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Walk", "field_names", "member"]

MAX_DEPTH = 64
"""How deep values may be nested; MySQL's JSON ends at 100, and the task is around them."""
MAX_VALUES = 1_000_000
"""How many values a document may hold; a few shared lists can stand for more than any memory holds."""


class Walk:
    """One walk through a value; it knows what it is inside of, and how much and what it has seen."""

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._seen = 1
        self._within_pydantic = 0
        self.met_pydantic = False
        """Whether a part of the JSON was written by pydantic, and not by the walk."""
        self.all_plain = True
        """Whether everything was JSON already, and comes back from its text as it is."""

    def json_of(self, value: object, path: str) -> JSON:
        """Return the JSON of `value`, or refuse it."""
        kind: type = type(value)
        if kind not in PLAIN:
            self.all_plain = False
        if isinstance(value, enum.Enum):
            return self.json_of(value.value, path)
        step = _step_into(kind)
        if step is not None:
            return self._enter(step, value, path)
        leaf = leaf_of(kind)
        if leaf is not None:
            return leaf(value, path)
        refused = refusal_of(value)
        if refused is None and self._within_pydantic:
            return None  # of a kind that pydantic has a form for, such as its URLs; the proof decides
        raise NotPersistable(path, refused or f"is {a_kind(value)}, which is no plain data; {INSTEAD}")

    def _count(self, parts: int, path: str) -> None:
        self._seen += parts
        if self._seen > MAX_VALUES:
            raise NotPersistable(path, f"ends after {MAX_VALUES} other values; keep the bulk elsewhere")

    def _enter(self, step: _Step, value: object, path: str) -> JSON:
        if id(value) in self._inside:
            raise NotPersistable(path, "leads back to what it is part of; JSON has no cycles")
        if len(self._inside) >= MAX_DEPTH:
            raise NotPersistable(path, f"is nested more than {MAX_DEPTH} levels deep; flatten it")
        self._inside.add(id(value))
        try:
            return step(self, value, path)
        finally:
            self._inside.discard(id(value))

    def mapping(self, value: Mapping[object, Any], path: str) -> JSON:
        """Return the object that it is; its keys are texts."""
        self._count(len(value), path)
        document: dict[str, JSON] = {}
        for key, each in value.items():
            name = key if type(key) is str and key.isascii() else self._name_of(key, path)
            document[name] = each if at_sight(each) else self.json_of(each, member(path, name))
        return document

    def _name_of(self, key: object, path: str) -> str:
        if not isinstance(key, str):
            raise NotPersistable(path, f"has a key that is {a_kind(key)}; keys in JSON are strings")
        if type(key) is not str:
            self.all_plain = False
        return text_of(key.value if isinstance(key, enum.Enum) else key, f"a key of {path}")

    def sequence(self, value: list[Any] | tuple[Any, ...], path: str) -> JSON:
        """Return the array that it is."""
        self._count(len(value), path)
        return [
            each if at_sight(each) else self.json_of(each, f"{path}[{index}]")
            for index, each in enumerate(value)
        ]

    def fields(self, value: object, path: str) -> JSON:
        """Return the fields of a data class."""
        kind: type = type(value)
        names = field_names(kind) or ()
        self._count(len(names), path)
        document: dict[str, JSON] = {}
        for name in names:
            each = getattr(value, name)
            document[name] = each if at_sight(each) else self.json_of(each, f"{path}.{name}")
        return document

    def pydantic(self, value: Any, path: str) -> JSON:  # noqa: ANN401 - a pydantic model; it is not imported
        """Look for what must not be stored, then let pydantic write its own JSON."""
        self.met_pydantic = True
        self._within_pydantic += 1
        for name, each in value:
            self._count(1, path)
            self.json_of(each, f"{path}.{name}")
        self._within_pydantic -= 1
        try:
            return cast("JSON", value.model_dump(mode="json", by_alias=True, round_trip=True))
        except Exception as error:  # noqa: BLE001 - as serializers do
            message = f"cannot be written as JSON by pydantic ({type(error).__name__})"
            raise NotPersistable(path, message) from None


_Step = Callable[[Walk, Any, str], JSON]


@lru_cache(maxsize=1024)
def _step_into(kind: type) -> _Step | None:
    """Return how a walk goes on into values of a kind; None if they have no parts."""
    has_fields = field_names(kind) is not None
    if leaf_of(kind) is not None:
        return None
    if issubclass(kind, Mapping):
        return Walk.mapping
    if issubclass(kind, (list, tuple)):
        return Walk.sequence
    if is_pydantic(kind):
        return Walk.pydantic
    return Walk.fields if has_fields else None


@lru_cache(maxsize=1024)
def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields that the constructor of a data class takes; None if it is none."""
    if attrs.has(kind):
        return tuple(each.name for each in attrs.fields(kind) if each.init)
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind) if each.init)
    return None


def member(path: str, key: str) -> str:
    """Return the path of a member of an object."""
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key[:50]!r}]"
